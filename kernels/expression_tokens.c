/* An expression's text, token by token, and the names that may stand in it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/expression.h"
#include "kernels/internal.h"
#include "proto/value.h"

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const struct symbol symbols[] = {
        {"or", TOKEN_OTHER, LEVEL_OR, OP_OR},
        {"and", TOKEN_OTHER, LEVEL_AND, OP_AND},
        {"not", TOKEN_NOT, LEVEL_COMPARISON, OP_NOT}, /* not in */
        {"in", TOKEN_IN, LEVEL_COMPARISON, OP_MEMBER},
        /* What begins as another stands before it. */
        {"==", TOKEN_OTHER, LEVEL_COMPARISON, OP_EQUAL},
        {"!=", TOKEN_OTHER, LEVEL_COMPARISON, OP_UNEQUAL},
        {"<=", TOKEN_OTHER, LEVEL_COMPARISON, OP_LESS_EQUAL},
        {">=", TOKEN_OTHER, LEVEL_COMPARISON, OP_GREATER_EQUAL},
        {"<", TOKEN_OTHER, LEVEL_COMPARISON, OP_LESS},
        {">", TOKEN_OTHER, LEVEL_COMPARISON, OP_GREATER},
        {"+", TOKEN_OTHER, LEVEL_SUM, OP_ADD},
        {"-", TOKEN_MINUS, LEVEL_SUM, OP_SUBTRACT},
        {"*", TOKEN_OTHER, LEVEL_PRODUCT, OP_MULTIPLY},
        {"/", TOKEN_OTHER, LEVEL_PRODUCT, OP_DIVIDE},
        {"%", TOKEN_OTHER, LEVEL_PRODUCT, OP_REMAINDER},
        {"(", TOKEN_OPEN, LEVEL_NONE, OP_END},
        {")", TOKEN_CLOSE, LEVEL_NONE, OP_END},
        {",", TOKEN_COMMA, LEVEL_NONE, OP_END},
        {"?", TOKEN_CHOICE, LEVEL_NONE, OP_END},
        {":", TOKEN_ELSE, LEVEL_NONE, OP_END},
};
enum { SYMBOLS = sizeof(symbols) / sizeof(symbols[0]) };

static const struct {
	const char *text, *meant;
} mistakes[] = {{"&&", "\"and\""}, {"||", "\"or\""}, {"!", "\"not\""}, {"=", "\"==\""}};

/* The word that these letters are, else NULL. */
static const struct symbol *find_word(const char *text, size_t length)
{
	for (size_t i = 0; i < SYMBOLS && is_letter(symbols[i].text[0]); i++) {
		if (strlen(symbols[i].text) == length && memcmp(symbols[i].text, text, length) == 0)
			return &symbols[i];
	}
	return NULL;
}

int ft_scope_add(struct ft_scope *scope, const char *name, bool is_text, struct ft_error *error)
{
	if (!ft_name_valid(name) || find_word(name, strlen(name)) != NULL)
		return ft_fail_field(error, FT_E_BAD_VALUE, "name", name,
		        "1 to 31 letters, digits and _, a letter or _ first, and not and, or, not or in");
	for (uint32_t i = 0; i < scope->count; i++) {
		if (strcmp(scope->name[i], name) == 0)
			return ft_fail(error, FT_E_BAD_VALUE, "the name %s is taken", name);
	}
	if (scope->count == FT_SCOPE_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "%s is one name too many; there may be %d", name,
		        (int)FT_SCOPE_MAX);
	scope->texts |= (uint64_t)is_text << scope->count;
	scope->name[scope->count++] = name;
	return 0;
}

/* ---- messages ---- */

struct note ft_parser_note(const struct parser *parser, size_t at)
{
	struct note note = {.length = 0};
	size_t from = at > SHOWN / 2 ? at - SHOWN / 2 : 0;

	ft_note_add(&note, "column %zu of ", at + 1);
	ft_note_add_part(&note, parser->text + from, parser->length - from);
	ft_note_add(&note, ": ");
	return note;
}

bool ft_parser_refuse(const struct parser *parser, size_t at, const char *format, ...)
{
	struct note note = ft_parser_note(parser, at);
	char text[128];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	ft_note_add(&note, "%s", text);
	ft_note_refuse(&note, parser->error);
	return false;
}

bool ft_parser_expected(const struct parser *parser, const char *what)
{
	struct note note = ft_parser_note(parser, parser->from);

	ft_note_add(&note, "found ");
	if (parser->kind == TOKEN_END)
		ft_note_add(&note, "the end");
	else
		ft_note_add_part(&note, parser->text + parser->from, parser->to - parser->from);
	ft_note_add(&note, ", expected %s", what);
	ft_note_refuse(&note, parser->error);
	return false;
}

/* ---- tokens ---- */

static bool read_number(struct parser *parser)
{
	const char *digits = parser->text + parser->from;
	bool fits = true;

	while (is_digit(parser->text[parser->to])) {
		fits = fits && !__builtin_mul_overflow(parser->number, 10, &parser->number) &&
		        !__builtin_add_overflow(
		                parser->number, (uint64_t)(parser->text[parser->to] - '0'), &parser->number);
		parser->to++;
	}
	if (!fits)
		parser->number = UINT64_MAX;
	if ((digits[0] == '0' && parser->to - parser->from > 1) || parser->text[parser->to] == '.' ||
	        is_letter(parser->text[parser->to])) {
		while (is_letter(parser->text[parser->to]) || is_digit(parser->text[parser->to]) ||
		        parser->text[parser->to] == '.')
			parser->to++;
		return ft_parser_expected(
		        parser, "a whole number in decimal digits, the first of which is not 0");
	}
	parser->kind = TOKEN_NUMBER;
	return true;
}

static bool read_word(struct parser *parser)
{
	const char *close = strchr(parser->text + parser->to, parser->text[parser->from]);

	parser->kind = TOKEN_WORD;
	parser->to = close != NULL ? (size_t)(close - parser->text) + 1 : parser->length;
	if (close == NULL)
		return ft_parser_expected(parser, "a text with a quote behind it as before it");
	if (parser->to - parser->from - 2 >= FT_TEXT_SIZE)
		return ft_parser_expected(parser, "a text of at most 128 bytes");
	return true;
}

static bool read_symbol(struct parser *parser)
{
	const char *at = parser->text + parser->from;

	for (size_t i = 0; i < SYMBOLS && parser->symbol == NULL; i++) {
		size_t length = strlen(symbols[i].text);

		if (!is_letter(symbols[i].text[0]) && strncmp(at, symbols[i].text, length) == 0) {
			parser->symbol = &symbols[i];
			parser->kind = symbols[i].kind;
			parser->to = parser->from + length;
		}
	}
	if (parser->symbol != NULL)
		return true;
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		size_t length = strlen(mistakes[i].text);

		if (strncmp(at, mistakes[i].text, length) == 0) {
			parser->to = parser->from + length;
			return ft_parser_expected(parser, mistakes[i].meant);
		}
	}
	/* The whole of a character, as people see it. */
	while ((parser->text[parser->to] & 0xc0) == 0x80)
		parser->to++;
	return ft_parser_expected(parser, "a number, a text, a name or an operator");
}

bool ft_parser_next(struct parser *parser)
{
	size_t at = parser->end = parser->to;

	while (is_space(parser->text[at]))
		at++;
	parser->from = at;
	parser->to = at + 1;
	parser->number = 0;
	parser->symbol = NULL;
	parser->kind = TOKEN_OTHER;
	if (parser->text[at] == '\0') {
		parser->to = at;
		parser->kind = TOKEN_END;
		return true;
	}
	if (is_digit(parser->text[at])) {
		parser->to = at;
		return read_number(parser);
	}
	if (parser->text[at] == '\'' || parser->text[at] == '"')
		return read_word(parser);
	if (!is_letter(parser->text[at]))
		return read_symbol(parser);
	while (is_letter(parser->text[parser->to]) || is_digit(parser->text[parser->to]))
		parser->to++;
	parser->symbol = find_word(parser->text + at, parser->to - at);
	parser->kind = parser->symbol != NULL ? parser->symbol->kind : TOKEN_NAME;
	return true;
}
