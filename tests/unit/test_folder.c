/* Tests kernels/folder/: what is refused of a kernel.json, by place and bound. */
#include "tests/unit/kernel_json.h"

static void refuses(const char *text, const char *message)
{
	struct ft_error error;
	struct ft_folder *folder = ft_folder_parse(text, strlen(text), &error);

	assert_null(folder);
	if (strstr(error.message, message) == NULL)
		fail_msg("not \"%s\", but \"%s\"", message, error.message);
}

/* ---- what is refused ---- */

static const struct {
	const char *from, *to, *message;
} bad[] = {
        /* the document */
        {"{\"name\"", "[\"name\"", "kernel.json:1:"},
        {"\"help\": \"y = a x\",", "\"name\": \"again\",", "kernel.json:1:"},
        {"\"help\"", "\"hepl\"", "kernel.json: hepl: there is no such member; is help meant?"},
        {"\"help\"", "\"zzz\"", "kernel.json: zzz: there is no such member; there are name, help, fields"},
        {"\"help\": \"y = a x\"", "\"help\": 7",
                "kernel.json: help is 7; it must be a text of 1 to 127 bytes in one line"},
        {"\"y = a x\"", "\"a\\u001bb\"", "help is \"a?b\"; it must be a text of 1 to 127 bytes in one line"},
        {"\"name\": \"scale\", ", "", "kernel.json: name is missing; it must be given"},
        {"\"name\": \"scale\"", "\"name\": \"a.b\"", "kernel.json: name is \"a.b\"; it must be letters"},
        {"\"name\": \"scale\"", "\"name\": \"a/b\"", "kernel.json: name is \"a/b\"; it must be letters"},
        {"\"name\": \"scale\"", "\"name\": \"rmsnorm\"", "kernel.json: name: rmsnorm is a built-in kernel"},
        /* fields */
        {"\"name\": \"m\"", "\"name\": \"2m\"", "kernel.json: fields[0].name: "},
        {"\"name\": \"m\"", "\"name\": \"and\"", "kernel.json: fields[0].name: "},
        {"\"name\": \"n\"", "\"name\": \"m\"", "kernel.json: fields[1].name: "},
        {"{\"name\": \"m\", \"min\"",
                "{\"name\": \"wave\", \"min\": 1, \"max\": 2}, {\"name\": \"m\", \"min\"",
                "kernel.json: fields[0].name: wave is the name of a device trait"},
        {"{\"name\": \"m\", \"min\"",
                "{\"name\": \"w\", \"choices\": [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", "
                "\"i\"]}, {\"name\": \"m\", \"min\"",
                "kernel.json: fields[0].choices is an array of 9; it must be an array of 1 to 8"},
        {"\"min\": 1, \"max\": 4096", "\"min\": 1",
                "kernel.json: fields[0].max is missing; it must be given, or choices"},
        {"\"max\": 4096", "\"max\": 0",
                "kernel.json: fields[0].max is 0; it must be at least as great as min"},
        {"\"max\": 4096", "\"max\": \"4096\"",
                "kernel.json: fields[0].max is \"4096\"; it must be a whole number"},
        {"\"max\": 4096", "\"max\": 1e3", "kernel.json: fields[0].max is 1000; it must be a whole number"},
        {"\"max\": 4096", "\"max\": 99999999999999999999", "kernel.json:1:"},
        {"\"min\": 1, \"max\": 4096", "\"min\": -1, \"max\": 4096",
                "kernel.json: fields[0].scale: the scale field must be one of numbers from 0 up"},
        {"\"default\": 64", "\"scale\": true", "kernel.json: fields[1].scale: m is the scale field already"},
        {"\"default\": 64", "\"default\": 0",
                "kernel.json: fields[1].default is 0; it must be within min and max"},
        {"\"default\": 64", "\"choices\": [\"a\"]",
                "kernel.json: fields[1].min is 1; it must be left out beside choices"},
        {"[\"f32\", \"bf16\"], \"default\": \"bf16\"", "[\"f32\", \"bf16\"], \"default\": \"f16\"",
                "kernel.json: fields[2].default is \"f16\"; it must be f32 or bf16"},
        {"[\"f32\", \"bf16\"]", "[]",
                "kernel.json: fields[2].choices is an array of 0; it must be an array of 1 to 8"},
        {"[\"f32\", \"bf16\"]", "[\"f32\", \"f32\"]",
                "kernel.json: fields[2].choices[1] is \"f32\"; it must be another"},
        {"[\"f32\", \"bf16\"]", "[\"f32\", \"a b\"]",
                "kernel.json: fields[2].choices[1] is \"a b\"; it must be a word"},
        {"\"same_as\": \"n\"", "\"same_as\": \"stride\"",
                "kernel.json: fields[3].same_as is \"stride\"; it must be the name of a field before this "
                "one"},
        {"\"default\": 64", "\"same_as\": \"stride\"",
                "kernel.json: fields[1].same_as is \"stride\"; it must be the name of a field before this "
                "one"},
        {"\"same_as\": \"n\"", "\"same_as\": \"dtype\"",
                "kernel.json: fields[3].same_as is \"dtype\"; it must be a field of numbers"},
        {"\"same_as\": \"n\"", "\"same_as\": \"n\", \"default\": 3",
                "kernel.json: fields[3].default is 3; it must be left out"},
        /* checks and knobs */
        {", \"why\": \"rows may not overlap\"", "",
                "kernel.json: checks[0].why is missing; it must be given"},
        {"\"stride >= n\"", "\"stride\"", "kernel.json: checks[0].rule: "},
        {"\"stride >= n\"", "\"stride >= k\"", "kernel.json: checks[0].rule: "},
        {"\"stride >= n\"", "\"stride >= BLOCK\"", "kernel.json: checks[0].rule: "},
        {"\"stride >= n\"", "\"stride >= 9223372036854775808\"", "kernel.json: checks[0].rule: "},
        {"\"stride >= n\"", "1", "kernel.json: checks[0].rule is 1; it must be an expression"},
        {"\"name\": \"BLOCK\"", "\"name\": \"m\"", "kernel.json: knobs[0].name: "},
        {"\"name\": \"BLOCK\"", "\"name\": \"units\"", "kernel.json: knobs[0].name: "},
        {"[64, 128, 256, 2048]", "[]",
                "kernel.json: knobs[0].values is an array of 0; it must be an array of 1 to 32"},
        {"[64, 128, 256, 2048]", "[64, 64]",
                "kernel.json: knobs[0].values[1] is 64; it must be another than those before it"},
        {"[64, 128, 256, 2048]", "[64, \"a\"]",
                "kernel.json: knobs[0].values[1] is \"a\"; it must be a whole number"},
        {"[64, 128, 256, 2048]", "[64, 0.5]",
                "kernel.json: knobs[0].values[1] is 0.5; it must be a whole number"},
        {"[\"rows\", \"columns\"]", "[\"rows\", \"1\"]",
                "kernel.json: knobs[1].values[1] is \"1\"; it must be a word"},
        {"[\"cpu\"]", "[\"tpu\"]", "kernel.json: knobs[2].kinds[0] is \"tpu\"; it must be cpu, hip or cuda"},
        {"\"changes_bits\": true", "\"changes_bits\": 1",
                "kernel.json: knobs[1].changes_bits is 1; it must be true or false"},
        /* space, default, order */
        {"\"why\": \"a block is too long\"", "\"why\": \"a\", \"prune\": \"b\"",
                "kernel.json: space[0]: a rule has either why or prune"},
        {"\"prune\": \"there is one row\"",
                "\"prune\": \"0123456789012345678901234567890123456789012345678901234567890123\"",
                "kernel.json: space[2].prune is \"0123456789012345678901234567890123456789\"...; it must be "
                "a text of 1 to 63"},
        {", \"threads\": 1}", "}", "kernel.json: default.threads is missing; it must be given"},
        {", \"threads\": 1}", ", \"threads\": 1, \"BLCOK\": 2}",
                "kernel.json: default.BLCOK: there is no such member; is BLOCK meant?"},
        {"\"'rows'\"", "\"rows\"", "kernel.json: default.WALK: "},
        {"\"'rows'\"", "7", "kernel.json: default.WALK is 7; it must be an expression, a word as \"'word'\""},
        {"n >= 128 ? 128 : 64", "BLOCK", "kernel.json: default.BLOCK: "},
        {"\"-BLOCK\"", "\"WALK\"", "kernel.json: order[1]: "},
        /* buffers */
        {"\"role\": \"in\"", "\"role\": \"input\"",
                "kernel.json: buffers[0].role is \"input\"; it must be in, out, inout or scratch"},
        {"\"type\": \"dtype\"", "\"type\": \"q4\"",
                "kernel.json: buffers[0].type is \"q4\"; it must be f32, "},
        {"\"type\": \"dtype\"", "\"type\": \"n\"",
                "kernel.json: buffers[0].type is \"n\"; it must be a field of words, or a type"},
        {"[\"f32\", \"bf16\"]", "[\"f32\", \"bf16\", \"q4\"]",
                "kernel.json: buffers[0].type: dtype may be q4, which is no type of elements"},
        {"\"length\": \"n\",", "", "kernel.json: buffers[0].length is missing; it must be given"},
        {"\"rows\": \"m\"", "\"rows\": \"BLOCK\"", "kernel.json: buffers[0].rows: "},
        {"\"uniform\"", "\"gauss\"",
                "kernel.json: buffers[0].fill is \"gauss\"; it must be normal, uniform, zeros, "
                "index or bits"},
        {"\"alias\": \"x\"", "\"alias\": \"y\"",
                "kernel.json: buffers[1].alias is \"y\"; it must be the name of an input before it"},
        {"\"name\": \"y\"", "\"name\": \"x\"", "kernel.json: buffers[1].name is \"x\"; it must be another"},
        {"\"alias\": \"x\"", "\"fill\": \"zeros\"",
                "kernel.json: buffers[1].fill is \"zeros\"; it must be left out of an output"},
        {"\"role\": \"out\"", "\"role\": \"in\"",
                "kernel.json: buffers[1].alias is \"x\"; it must be left out, but of an output"},
        {"\"relative\": 1e-5", "\"relative\": -1",
                "kernel.json: tolerance.f32.relative is -1; it must be a number from 0 to below 1"},
        {"{\"f32\": {\"relative\"", "{\"f23\": {\"relative\"",
                "kernel.json: tolerance.f23: there is no such member; is f32 meant?"},
        {"\"flops\": \"m * n\"", "\"flops\": \"m * \"", "kernel.json: flops: "},
        {"\"flops\": \"m * n\"", "\"flops\": \"m * WALK\"", "kernel.json: flops: "},
        /* sources */
        {"\"file\": \"scale.c\"", "\"file\": \"../scale.c\"",
                "kernel.json: sources.cpu.file is \"../scale.c\"; it must be a file of the folder itself"},
        {"\"file\": \"scale.c\"", "\"file\": \"/etc/shadow\"",
                "kernel.json: sources.cpu.file is \"/etc/shadow\"; it must be a file of the folder itself"},
        {"\"file\": \"scale.c\"", "\"file\": \"..\"",
                "kernel.json: sources.cpu.file is \"..\"; it must be letters"},
        {"\"fast-math\"", "\"-O3\"",
                "kernel.json: sources.cpu.options[0] is \"-O3\"; it must be fast-math, "},
        {"\"fast-math\"", "\"c++20\"",
                "kernel.json: sources.cpu.options[0]: there is no c++20 on cpu devices"},
        {"\"BLOCK\": \"BLOCK\"", "\"BLOCK\": \"threads\"",
                "kernel.json: sources.cuda.defines.BLOCK: threads is no knob of hip devices"},
        {"\"BLOCK\": \"BLOCK\"", "\"A-B\": \"BLOCK\"",
                "kernel.json: sources.cuda.defines.A-B: a macro's name is"},
        {"\"BLOCK\": \"BLOCK\"", "\"BLOCK\": \"BLOCK *\"", "kernel.json: sources.cuda.defines.BLOCK: "},
        {"\"hip\": \"cuda\"}, \"launch\"", "\"hip\": \"tpu\"}, \"launch\"",
                "kernel.json: sources.hip is \"tpu\"; it must be cpu, hip or cuda"},
        {"\"hip\": \"cuda\"}, \"launch\"", "\"hip\": \"hip\"}, \"launch\"",
                "kernel.json: sources.hip is \"hip\"; it must be a kind that has its own"},
        {"\"hip\": \"cuda\"}, \"reference\"", "\"hip\": \"cpu\"}, \"reference\"",
                "kernel.json: launch.cpu[0].block is missing"},
        {", \"hip\": \"cuda\"}, \"reference\"", "}, \"reference\"",
                "kernel.json: launch.hip is missing; it must be given, as the kernel has"},
        /* launch */
        {"\"grid\": [\"m\", \"threads\"]", "\"grid\": [1, 2, 3, 4]",
                "kernel.json: launch.cpu[0].grid is an array of 4; it must be an array of 1 to 3"},
        {"\"grid\": [\"m\", \"threads\"]", "\"grid\": [1], \"block\": [1]",
                "kernel.json: launch.cpu[0].block: there is no such member"},
        {"\"block\": [32]", "\"block\": [\"threads\"]",
                "kernel.json: launch.cuda[0].block[0]: threads is no knob of hip devices"},
        {"\"symbol\": \"fill\"", "\"symbol\": \"fi ll\"",
                "kernel.json: launch.cuda[0].symbol is \"fi ll\"; it must be the name of a function"},
        {"\"x\", \"y\", \"room\"", "\"x\", \"m\", \"room\"",
                "kernel.json: launch.cuda[1].arguments[1] is \"m\"; it must be the name of a buffer; a "
                "number is written {\"i64\": ...}"},
        {"{\"i32\": \"m * n\"}", "{\"i33\": \"m * n\"}",
                "kernel.json: launch.cuda[1].arguments[3].i33: there is no such member; is i32 meant?"},
        {"{\"i32\": \"m * n\"}", "{\"i32\": 1.5}",
                "kernel.json: launch.cuda[1].arguments[3].i32 is 1.5; it must be a whole number, or an "
                "expression"},
        {"{\"i32\": \"m * n\"}", "{}",
                "kernel.json: launch.cuda[1].arguments[3] is an object of 0; it must be the name of a "
                "buffer, or"},
        {"{\"f32\": 1.5}", "7",
                "kernel.json: launch.cuda[1].arguments[4] is 7; it must be the name of a buffer, or"},
        /* the reference */
        {"{\"i64\": \"n\"}", "{\"i64\": \"BLOCK\"}", "kernel.json: reference.arguments[2].i64: "},
        {"\"symbol\": \"scale_reference\"", "\"symbol\": \"scale_reference\", \"config\": {}",
                "kernel.json: reference.file: there is no such member; there are config"},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = replaced(bad[i].from, bad[i].to);

		refuses(text, bad[i].message);
		free(text);
	}
}

/* `count` times `one`, parted by commas; %zu in it is its number. */
static char *many(size_t count, const char *one)
{
	size_t size = count * (strlen(one) + 24) + 1, length = 0;
	char *text = malloc(size);

	assert_non_null(text);
	for (size_t i = 0; i < count; i++) {
		const char *at = strstr(one, "%");

		if (i > 0)
			text[length++] = ',';
		length += (size_t)snprintf(
		        text + length, size - length, "%.*s%zu%s", (int)(at - one), one, i, at + 1);
	}
	return text;
}

/* As many as there may be, and one more. */
static void test_too_many(void **state)
{
	static const struct {
		const char *from, *one;
		size_t most;
		const char *message;
	} row[] = {
	        {"{\"name\": \"m\", \"min\"", "{\"name\": \"f%\", \"min\": 1, \"max\": 2}", FT_FIELDS_MAX - 4,
	                "kernel.json: fields is an array of 33; it must be an array of 1 to 32"},
	        {"{\"rule\": \"stride >= n\"", "{\"rule\": \"m > %\", \"why\": \"w\"}", 31,
	                "kernel.json: checks is an array of 33; it must be an array of 0 to 32"},
	        {"64, 128, 256, 2048", "1%", FT_KNOB_VALUES_MAX - 4,
	                "kernel.json: knobs[0].values is an array of 33; it must be an array of 1 to 32"},
	        {"{\"rule\": \"BLOCK", "{\"rule\": \"m > %\", \"why\": \"w\"}", FT_FOLDER_RULES_MAX - 3,
	                "kernel.json: space is an array of 65; it must be an array of 0 to 64"},
	        {"\"threads\", \"-BLOCK\"", "\"m + %\"", 6,
	                "kernel.json: order is an array of 9; it must be an array of 0 to 8"},
	        {"{\"name\": \"room\"",
	                "{\"name\": \"b%\", \"role\": \"in\", \"type\": \"f32\", \"length\": 1}",
	                FT_TENSORS_MAX - 3,
	                "kernel.json: buffers is an array of 9; it must be an array of 1 to 8"},
	        {"\"BLOCK\": \"BLOCK\"", "\"D%\": 1", FT_DEFINES_MAX - 2,
	                "kernel.json: sources.cuda.defines is an object of 25; it must be an object of 0 to "
	                "24"},
	        {"{\"symbol\": \"fill\"",
	                "{\"symbol\": \"s%\", \"grid\": [1], \"block\": [1], \"arguments\": []}", 2,
	                "kernel.json: launch.cuda is an array of 5; it must be an array of 1 to 4 steps"},
	        {"{\"i32\": \"m * n\"}", "{\"i64\": %}", FT_FOLDER_ARGUMENTS_MAX - 6,
	                "kernel.json: launch.cuda[1].arguments is an array of 33; it must be an array of 0 "
	                "to 32"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		for (size_t more = 0; more < 2; more++) {
			char *list = many(row[i].most + more, row[i].one), *to, *text;
			size_t size = strlen(list) + strlen(row[i].from) + 2;

			to = malloc(size);
			assert_non_null(to);
			snprintf(to, size, "%s,%s", list, row[i].from);
			text = replaced(row[i].from, to);
			if (more > 0)
				refuses(text, row[i].message);
			else
				ft_folder_free(parse(text));
			free(text);
			free(to);
			free(list);
		}
	}
}

/* Knobs need a default each. */
static void test_too_many_knobs(void **state)
{
	char *knobs = many(FT_KNOBS_MAX - 2, "{\"name\": \"K%\", \"values\": [1]}");
	size_t size = strlen(knobs) + 64;
	char *to = malloc(size), *text;

	(void)state;
	assert_non_null(to);
	snprintf(to, size, "%s,{\"name\": \"BLOCK\"", knobs);
	text = replaced("{\"name\": \"BLOCK\"", to);
	refuses(text, "kernel.json: knobs is an array of 17; it must be an array of 0 to 16");
	free(text);
	free(to);
	free(knobs);
}

static void test_large(void **state)
{
	const size_t length = FT_FOLDER_JSON_MAX - sizeof(good);
	char *expression = malloc(length + 1), *text;
	struct ft_error error;

	(void)state;
	assert_non_null(expression);
	memset(expression, '(', length);
	expression[length] = '\0';
	text = replaced("stride >= n", expression);
	refuses(text, "kernel.json: checks[0].rule: ");
	free(text);
	/* One byte too many. */
	text = malloc(FT_FOLDER_JSON_MAX + 1);
	assert_non_null(text);
	memset(text, ' ', FT_FOLDER_JSON_MAX + 1);
	memcpy(text, good, sizeof(good) - 1);
	ft_folder_free(ft_folder_parse(text, FT_FOLDER_JSON_MAX, &error));
	assert_null(ft_folder_parse(text, FT_FOLDER_JSON_MAX + 1, &error));
	assert_string_equal(error.message, "kernel.json has 1048577 bytes; it may have 1048576 at the most");
	free(text);
	free(expression);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bad),
	        cmocka_unit_test(test_too_many),
	        cmocka_unit_test(test_too_many_knobs),
	        cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
