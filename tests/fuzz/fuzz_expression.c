/* Expressions: any text, up to a NUL, is parsed or refused at a column; what follows the NUL are values. */
#include "tests/fuzz/target.h"

#include <string.h>

#include "kernels/expression.h"

enum { NUMBERS = 5, NAMES = 8 };

static const struct ft_scope scope = {
        .count = NAMES,
        .name = {"m", "n", "BLOCK", "units", "min", "dtype", "kind", "layout"},
        .texts = 7 << NUMBERS,
};

static void must_be_plain(const char *text)
{
	for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
		MUST(*at >= 0x20 && *at != 0x7f);
}

static void must_be_an_error(const struct ft_error *error)
{
	MUST(memchr(error->message, '\0', sizeof(error->message)) != NULL && error->message[0] != '\0');
	MUST(strcmp(error->code, FT_E_BAD_VALUE) == 0);
	must_be_plain(error->message);
}

/* Values for the names in it; all others must not be looked at. */
static void take_values(
        uint64_t slots, const uint8_t *data, size_t size, union ft_expression_value values[NAMES])
{
	static const char *const words[] = {
	        "f16", "bf16", "f32", "", "cuda", "a longer text than any type has", "\x1b[2J", "x"};

	memset(values, 0, NAMES * sizeof(values[0]));
	for (size_t i = 0; i < NAMES; i++) {
		size_t taken = size < sizeof(int64_t) ? size : sizeof(int64_t);

		if ((slots >> i & 1) == 0)
			continue;
		if (i < NUMBERS) {
			memcpy(&values[i].number, data, taken);
		} else {
			taken = size > 0;
			values[i].text = words[size > 0 ? data[0] % 8 : 0];
		}
		data += taken;
		size -= taken;
	}
}

/* Gives what it came to, and nothing of an error. */
static int evaluate(const struct ft_expression *expression, enum ft_expression_type type,
        const union ft_expression_value values[NAMES], union ft_expression_value *result,
        struct ft_error *error)
{
	bool condition = false;
	int status;

	memset(result, 0, sizeof(*result));
	if (type == FT_EXPRESSION_NUMBER)
		return ft_expression_number(expression, values, &result->number, error);
	if (type == FT_EXPRESSION_TEXT)
		return ft_expression_text(expression, values, &result->text, error);
	status = ft_expression_condition(expression, values, &condition, error);
	result->number = condition;
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t length = strnlen((const char *)data, size);
	union ft_expression_value values[NAMES], first, again;
	struct ft_expression *expression;
	struct ft_error error, same;
	int parsed = 0;
	char *text = malloc(length + 1);

	MUST(text != NULL);
	memcpy(text, data, length);
	text[length] = '\0';
	data += length < size ? length + 1 : size;
	size -= length < size ? length + 1 : size;
	for (int i = 0; i < 3; i++) {
		enum ft_expression_type type = (enum ft_expression_type)i;
		int status;

		if (ft_expression_parse(text, &scope, type, &expression, &error) != 0) {
			must_be_an_error(&error);
			continue;
		}
		parsed++;
		MUST(length <= FT_EXPRESSION_MAX && ft_expression_slots(expression) >> NAMES == 0);
		take_values(ft_expression_slots(expression), data, size, values);
		status = evaluate(expression, type, values, &first, &error);
		MUST(evaluate(expression, type, values, &again, &same) == status);
		if (status != 0) {
			must_be_an_error(&error);
			MUST(strcmp(error.message, same.message) == 0);
		} else {
			MUST(memcmp(&first, &again, sizeof(first)) == 0);
			MUST(type != FT_EXPRESSION_TEXT || strlen(first.text) <= 128);
		}
		ft_expression_free(expression);
	}
	/* It has one type. */
	MUST(parsed <= 1);
	free(text);
	return 0;
}
