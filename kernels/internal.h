/* What the files of expressions share: the steps of one, how a message about it is put together, and its parser. */
#ifndef FLYTUNE_KERNELS_INTERNAL_H
#define FLYTUNE_KERNELS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/expression.h"

/* What a stack machine does, one step after the other. Operands are taken from the stack, the result is put there; a
 * condition is 0 or 1. */
enum op {
	OP_END,
	OP_NUMBER, /* number */
	OP_WORD,   /* a text of the expression's own, without its quotes */
	OP_SLOT,   /* values[index]; `number` is 1 if it is a text */
	OP_ADD,
	OP_SUBTRACT,
	OP_MULTIPLY,
	OP_DIVIDE,
	OP_REMAINDER,
	OP_NEGATE,
	OP_LESS,
	OP_LESS_EQUAL,
	OP_GREATER,
	OP_GREATER_EQUAL,
	OP_EQUAL, /* numbers or conditions */
	OP_UNEQUAL,
	OP_EQUAL_TEXTS,
	OP_UNEQUAL_TEXTS,
	OP_NOT,
	OP_AND,    /* goes on at `index` if it is false; else takes it */
	OP_OR,     /* goes on at `index` if it is true; else takes it */
	OP_UNLESS, /* takes it, and goes on at `index` if it is false */
	OP_JUMP,   /* goes on at `index` */
	OP_MEMBER, /* takes a member; if the value below equals it, makes that true and goes on at `index` */
	OP_MEMBER_TEXT, /* as that, for texts */
	OP_NO_MEMBER,   /* makes the value false */
	OP_MIN,
	OP_MAX,
	OP_CEILDIV,
	OP_LOG2,
	OP_POW2CEIL,
	OP_SIZEOF,
};

struct step {
	uint16_t op;
	uint16_t from, to; /* the bytes of the text that it stands for, operands included */
	uint16_t index;    /* a slot, or a step to go on at */
	int64_t number;
};

struct ft_expression {
	enum ft_expression_type type;
	uint64_t slots;
	const char *text;
	const char *words; /* the same, but that each word ends with a NUL where its closing quote was */
	struct step step[];
};

enum { SHOWN = 64 }; /* bytes of a part that a message shows */

/* A message that is put together; what does not fit is cut. */
struct note {
	size_t length;
	char text[sizeof(((struct ft_error *)NULL)->message)];
};

void ft_note_add(struct note *note, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A part of an expression in quotes: the first bytes of it if it is long, and on one line. */
void ft_note_add_part(struct note *note, const char *text, size_t length);
void ft_note_add_types(struct note *note); /* those that sizeof knows */
/* Makes it an error. */
void ft_note_refuse(const struct note *note, struct ft_error *error);

/* ---- parsing ---- */

enum level { /* how tight an operator binds */
	LEVEL_OR,
	LEVEL_AND,
	LEVEL_COMPARISON, /* and `not`, which stands before one */
	LEVEL_SUM,
	LEVEL_PRODUCT,
	LEVEL_SIGN,
	LEVEL_NONE, /* joins nothing */
};

enum token_kind {
	TOKEN_END,
	TOKEN_NUMBER,
	TOKEN_NAME,
	TOKEN_WORD,
	TOKEN_IN,
	TOKEN_NOT,
	TOKEN_MINUS,
	TOKEN_OPEN,
	TOKEN_CLOSE,
	TOKEN_COMMA,
	TOKEN_CHOICE,
	TOKEN_ELSE,
	TOKEN_OTHER, /* an operator that its level and its op tell */
};

struct symbol {
	char text[4];
	enum token_kind kind;
	enum level level;
	enum op op;
};

struct parser {
	const char *text;
	size_t length;
	const struct ft_scope *scope;
	struct ft_error *error;

	/* The next token: expression_tokens.c. */
	enum token_kind kind;
	const struct symbol *symbol; /* NULL: it is none */
	size_t from, to;
	uint64_t number;
	size_t end; /* behind the token before it */

	/* What the tokens before it gave: expression_parse.c. */
	uint32_t nesting;
	uint64_t slots;
	size_t count;
	struct step step[FT_EXPRESSION_STEPS + 1];
};

/* Goes on to the next token. False: it is none, and the error says so. */
bool ft_parser_next(struct parser *parser);
/* Begins a message about the byte at `at`. */
struct note ft_parser_note(const struct parser *parser, size_t at);
/* A message of up to 127 bytes about it; returns false. */
bool ft_parser_refuse(const struct parser *parser, size_t at, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* The next token is not what could stand there; returns false. */
bool ft_parser_expected(const struct parser *parser, const char *what);

#endif
