#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/host.h"
#include "kernels/rmsnorm/rmsnorm.h"

/* A kernel that shares nothing with rmsnorm: what holds for any schema is tested on it. */
static const struct ft_schema other = {
        .kernel = "other",
        .revision = 7,
        .scale = "size",
        .field_count = 5,
        .field =
                {
                        {.name = "size", .min = 0, .max = 1000},
                        {.name = "mode",
                                .is_text = true,
                                .choice = {"fast", "slow"},
                                .has_default = true,
                                .default_text = "fast"},
                        {.name = "depth", .min = -4, .max = 4, .has_default = true, .default_number = -1},
                        {.name = "twin", .min = -4, .max = 3, .same_as = "depth"},
                        {.name = "label", .is_text = true},
                },
        .knob_count = 2,
        .knob =
                {
                        {.name = "TILE",
                                .count = 3,
                                .value = {16, 32, -64},
                                .changes_bits = true,
                                .help = "a tile"},
                        {.name = "pad", .count = 2, .value = {0, 1}},
                },
};

static struct ft_problem problem_of(const char *text)
{
	struct ft_problem problem = {.count = 0};
	char copy[512], *rest = copy, *word;

	snprintf(copy, sizeof copy, "%s", text);
	while ((word = strsep(&rest, " "))) {
		char *value = strchr(word, '='), *end;

		if (!value)
			continue;
		*value++ = '\0';
		long long number = strtoll(value, &end, 10);

		if (*end == '\0' && end != value)
			assert_int_equal(ft_problem_set_number(&problem, word, number, NULL), 0);
		else
			assert_int_equal(ft_problem_set_text(&problem, word, value, NULL), 0);
	}
	return problem;
}

static struct ft_config config_of(const char *text)
{
	struct ft_config config = {.count = 0};

	assert_int_equal(ft_config_parse(text, &config, NULL), 0);
	return config;
}

static void completes_to(const struct ft_schema *schema, const char *given, const char *expected)
{
	struct ft_problem problem = problem_of(given), whole;
	struct ft_error error = {.code = ""};
	char text[FT_PROBLEM_TEXT_SIZE];

	if (ft_schema_complete(schema, &problem, &whole, &error) < 0)
		fail_msg("%s: %s", given, error.message);
	ft_problem_format(&whole, ' ', text, sizeof text);
	assert_string_equal(text, expected);
}

static void refuses(const struct ft_schema *schema, const char *given, const char *code, const char *field,
        const char *message)
{
	struct ft_problem problem = problem_of(given), whole = {.count = 99};
	struct ft_error error = {.code = ""};

	assert_int_equal(ft_schema_complete(schema, &problem, &whole, &error), -1);
	assert_string_equal(error.code, code);
	assert_string_equal(error.field, field);
	if (!strstr(error.message, message))
		fail_msg("\"%s\" does not say \"%s\"", error.message, message);
	assert_int_equal(ft_schema_complete(schema, &problem, &whole, NULL), -1);
	assert_int_equal(whole.count, 99);
}

static void canonical_is(const struct ft_schema *schema, const char *given, const char *expected)
{
	struct ft_problem problem = problem_of(given), whole;
	char text[FT_PROBLEM_TEXT_SIZE];

	assert_int_equal(ft_schema_complete(schema, &problem, &whole, NULL), 0);
	assert_int_equal(ft_schema_canonical(schema, &whole, text, sizeof text), strlen(expected));
	assert_string_equal(text, expected);
}

static void key_of(const struct ft_schema *schema, const char *given, char hex[33], uint64_t *scale)
{
	struct ft_problem problem = problem_of(given), whole;
	struct ft_problem_key key;
	struct ft_error error = {.code = ""};

	if (ft_schema_complete(schema, &problem, &whole, &error) < 0)
		fail_msg("%s: %s", given, error.message);
	ft_schema_key(schema, &whole, &key);
	for (size_t i = 0; i < sizeof key.hash; i++)
		snprintf(hex + 2 * i, 3, "%02x", key.hash[i]);
	if (scale)
		*scale = key.scale;
}

static void defaults_are_filled_in_and_fields_ordered(void **state)
{
	(void)state;
	completes_to(&other, "label=x size=5", "size=5 mode=fast depth=-1 twin=-1 label=x");
	completes_to(&other, "depth=2 label=x mode=slow size=0", "size=0 mode=slow depth=2 twin=2 label=x");
	completes_to(&other, "twin=0 size=1000 label=a.b", "size=1000 mode=fast depth=-1 twin=0 label=a.b");
}

static void bad_problems_are_refused_by_field_value_and_bound(void **state)
{
	(void)state;
	refuses(&other, "label=x size=1001", FT_E_BAD_VALUE, "size",
	        "size is 1001; it must be between 0 and 1000");
	refuses(&other, "label=x size=-1", FT_E_BAD_VALUE, "size", "size is -1");
	refuses(&other, "label=x size=1 mode=best", FT_E_BAD_VALUE, "mode",
	        "mode is best; it must be fast or slow");
	refuses(&other, "label=x size=1 foo=2", FT_E_UNKNOWN_FIELD, "foo",
	        "other has no field foo; it has size, mode, depth, twin and label");
	refuses(&other, "label=x", FT_E_BAD_REQUEST, "size", "size is missing");
	refuses(&other, "size=1", FT_E_BAD_REQUEST, "label", "label is missing");
	refuses(&other, "label=x size=big", FT_E_BAD_REQUEST, "size",
	        "size is the text big; it must be a number");
	refuses(&other, "label=7 size=1", FT_E_BAD_REQUEST, "label",
	        "label is the number 7; it must be a text");
	/* A default taken from another field has bounds of its own to meet. */
	refuses(&other, "label=x size=1 depth=4", FT_E_BAD_VALUE, "twin",
	        "twin is 4; it must be between -4 and 3");
}

static void a_field_given_twice_is_refused(void **state)
{
	struct ft_problem problem = problem_of("size=1 label=x"), whole;
	struct ft_error error = {.code = ""};

	(void)state;
	problem.field[problem.count++] = problem.field[0];
	assert_int_equal(ft_schema_complete(&other, &problem, &whole, &error), -1);
	assert_string_equal(error.code, FT_E_BAD_REQUEST);
	problem.count = FT_FIELDS_MAX + 1;
	assert_int_equal(ft_schema_complete(&other, &problem, &whole, &error), -1);
}

/* Without this two different problems could have one canonical form. */
static void a_free_text_cannot_pass_for_another_field(void **state)
{
	static const char *const bad[] = {"a b", "a=b", "a,b", "a\tb", "\x7f", "\xc3\xa4", ""};
	struct ft_problem whole;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ft_problem problem = problem_of("size=1 label=x");
		struct ft_error error = {.code = ""};

		snprintf(problem.field[1].text, FT_TEXT_SIZE, "%s", bad[i]);
		assert_int_equal(ft_schema_complete(&other, &problem, &whole, &error), -1);
		assert_string_equal(error.code, FT_E_BAD_VALUE);
		assert_string_equal(error.bound, "one word");
	}
}

static void canonical_form_leaves_out_defaults_and_the_scale_field(void **state)
{
	(void)state;
	canonical_is(&other, "size=5 label=x", "label=x");
	canonical_is(&other, "size=5 label=x mode=fast depth=-1 twin=-1", "label=x");
	canonical_is(&other, "size=9 twin=2 mode=slow label=x depth=3", "depth=3 label=x mode=slow twin=2");
	canonical_is(&other, "size=9 depth=3 twin=3 label=x", "depth=3 label=x");
	canonical_is(&other, "size=9 depth=3 twin=-1 label=x", "depth=3 label=x twin=-1");
	canonical_is(&other, "size=9 depth=-4 label=x", "depth=-4 label=x");
}

static void a_canonical_form_that_does_not_fit_is_cut_and_counted(void **state)
{
	struct ft_problem problem = problem_of("size=5 label=abc"), whole;
	char text[6];

	(void)state;
	assert_int_equal(ft_schema_complete(&other, &problem, &whole, NULL), 0);
	assert_int_equal(ft_schema_canonical(&other, &whole, text, sizeof text), strlen("label=abc"));
	assert_string_equal(text, "label");
	assert_int_equal(ft_schema_canonical(&other, &whole, NULL, 0), strlen("label=abc"));
}

static void a_new_field_with_a_default_keeps_old_keys(void **state)
{
	static struct ft_schema grown;
	char before[33], after[33];

	(void)state;
	grown = other;
	grown.field[grown.field_count++] = (struct ft_schema_field_def){
	        .name = "aligned", .min = 0, .max = 1, .has_default = true, .default_number = 1};
	key_of(&other, "size=5 label=x mode=slow", before, NULL);
	key_of(&grown, "size=5 label=x mode=slow", after, NULL);
	assert_string_equal(before, after);
	key_of(&grown, "size=5 label=x mode=slow aligned=0", after, NULL);
	assert_string_not_equal(before, after);
}

static void keys_of_released_problems_never_change(void **state)
{
	static const struct {
		const char *problem, *hash;
		uint64_t scale;
	} golden[] = {
	        {"m=64 n=4096 dtype=bf16", "448e033609d8737349b91cd54edd0966", UINT64_C(64)},
	        {"m=1 n=1 dtype=f32", "54a19bb66565e0bf3a7fe0d687463a9a", UINT64_C(1)},
	        {"m=512 n=8192 dtype=f16", "93fe1c453a5d2e91f3c1ec0ef0dceedc", UINT64_C(512)},
	        {"m=7 n=2880 dtype=bf16 weight_dtype=f32", "730dd0c631c03610f4b9e34fb929d9a8", UINT64_C(7)},
	        {"m=1099511627776 n=1 dtype=f16 row_stride=2", "88fc27bc40104e1100e04c114b5d6291",
	                UINT64_C(1099511627776)},
	        {"m=128 n=1536 dtype=bf16 row_stride=2112 weight_dtype=f32",
	                "b5fe948ac6f3e0dabda121275f9fb6f5", UINT64_C(128)},
	        {"m=1 n=1048576 dtype=f32", "1565a266160aec4258c379d5c7f3757c", UINT64_C(1)},
	};
	const struct ft_kernel *kernel = ft_kernel_find("rmsnorm");

	(void)state;
	for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
		static const char *const kinds[] = {"cpu", "hip", "cuda"};

		for (size_t kind = 0; kind < 3; kind++) {
			char hex[33];
			uint64_t scale;

			key_of(kernel->schema(kernel, kinds[kind]), golden[i].problem, hex, &scale);
			assert_string_equal(hex, golden[i].hash);
			assert_int_equal(scale, golden[i].scale);
		}
	}
}

static void an_explicit_default_has_the_key_of_an_absent_one(void **state)
{
	static const char *const same[][2] = {
	        {"m=64 n=4096 dtype=bf16", "row_stride=4096 weight_dtype=bf16 dtype=bf16 n=4096 m=64"},
	        {"m=64 n=4096 dtype=f32", "m=64 n=4096 dtype=f32 weight_dtype=f32"},
	        {"m=1 n=7 dtype=f16 row_stride=9", "dtype=f16 m=1 n=7 row_stride=9 weight_dtype=f16"},
	};
	static const char *const different[] = {"m=64 n=4096 dtype=bf16", "m=64 n=4097 dtype=bf16",
	        "m=64 n=4096 dtype=f16", "m=64 n=4096 dtype=f32", "m=64 n=4096 dtype=bf16 weight_dtype=f32",
	        "m=64 n=4096 dtype=bf16 row_stride=4097", "m=64 n=4096 dtype=f16 weight_dtype=f32"};
	const struct ft_schema *schema = ft_kernel_find("rmsnorm")->schema(ft_kernel_find("rmsnorm"), "cpu");
	char a[33], b[33];

	(void)state;
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
		key_of(schema, same[i][0], a, NULL);
		key_of(schema, same[i][1], b, NULL);
		assert_string_equal(a, b);
	}
	for (size_t i = 0; i < sizeof different / sizeof different[0]; i++) {
		for (size_t j = 0; j < i; j++) {
			key_of(schema, different[i], a, NULL);
			key_of(schema, different[j], b, NULL);
			assert_string_not_equal(a, b);
		}
	}
}

static void configs_are_ordered_and_checked_by_knob(void **state)
{
	static const struct {
		const char *config, *code, *knob, *message;
	} bad[] = {
	        {"TILE=16,pad=0,foo=1", FT_E_UNKNOWN_KNOB, "foo",
	                "other has no knob foo on this device; it has TILE and pad"},
	        {"TILE=17,pad=0", FT_E_BAD_VALUE, "TILE", "TILE is 17; it must be 16, 32 or -64"},
	        {"TILE=16", FT_E_BAD_REQUEST, "pad", "pad is missing"},
	};
	struct ft_config given = config_of("pad=1,TILE=-64"), ordered;
	struct ft_error error = {.code = ""};
	char text[FT_CONFIG_TEXT_SIZE];

	(void)state;
	assert_int_equal(ft_schema_check_config(&other, &given, &ordered, &error), 0);
	ft_config_format(&ordered, ' ', text, sizeof text);
	assert_string_equal(text, "TILE=-64 pad=1");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		given = config_of(bad[i].config);
		assert_int_equal(ft_schema_check_config(&other, &given, &ordered, &error), -1);
		assert_string_equal(error.code, bad[i].code);
		assert_string_equal(error.field, bad[i].knob);
		if (!strstr(error.message, bad[i].message))
			fail_msg("\"%s\" does not say \"%s\"", error.message, bad[i].message);
		assert_int_equal(ft_schema_check_config(&other, &given, &ordered, NULL), -1);
	}
	given = config_of("pad=1,TILE=16");
	given.knob[given.count++] = given.knob[0];
	assert_int_equal(ft_schema_check_config(&other, &given, &ordered, &error), -1);
	assert_string_equal(error.code, FT_E_BAD_REQUEST);
	given.count = FT_KNOBS_MAX + 1;
	assert_int_equal(ft_schema_check_config(&other, &given, &ordered, &error), -1);
}

/* `other` with a knob of words besides. */
static struct ft_schema worded(void)
{
	struct ft_schema schema = other;

	schema.knob[schema.knob_count++] = (struct ft_knob_def){
	        .name = "layout", .count = 2, .is_word = true, .word = {"rows", "columns"}};
	return schema;
}

static void words_are_checked_as_integers_are(void **state)
{
	static struct ft_schema schema;
	struct ft_config given = config_of("layout=columns,TILE=16,pad=0"), ordered;
	struct ft_error error = {.code = ""};
	char text[FT_CONFIG_TEXT_SIZE];

	(void)state;
	schema = worded();
	assert_int_equal(ft_schema_check_config(&schema, &given, &ordered, &error), 0);
	ft_config_format(&ordered, ' ', text, sizeof text);
	assert_string_equal(text, "TILE=16 pad=0 layout=columns");
	given = config_of("layout=tiles,TILE=16,pad=0");
	assert_int_equal(ft_schema_check_config(&schema, &given, &ordered, &error), -1);
	assert_string_equal(error.message, "layout is tiles; it must be rows or columns");
	given = config_of("layout=0,TILE=16,pad=0");
	assert_int_equal(ft_schema_check_config(&schema, &given, &ordered, &error), -1);
	assert_string_equal(error.field, "layout");
	given = config_of("layout=rows,TILE=x,pad=0");
	assert_int_equal(ft_schema_check_config(&schema, &given, &ordered, &error), -1);
	assert_string_equal(error.message, "TILE is x; it must be 16, 32 or -64");
	given = (struct ft_config){.document = "{}", .document_length = 2};
	assert_int_equal(ft_schema_check_config(&schema, &given, &ordered, &error), -1);
	assert_string_equal(error.field, "config");
}

/* ---- over the wire ---- */

static uint8_t room[65536];

static int travel(const struct ft_schema *schema, struct ft_schema *back, struct ft_error *error)
{
	struct ft_runner_kernel message;
	struct ft_writer writer;
	struct ft_config fallback = config_of("TILE=16,pad=0");

	ft_writer_init_fixed(&writer, room, sizeof room);
	ft_schema_write(&writer, schema, "00112233445566778899aabbccddeeff", &fallback);
	assert_true(ft_writer_ok(&writer));
	if (ft_decode(&ft_runner_kernel_message, (struct ft_view){writer.data, writer.length}, &message,
	            error) < 0)
		fail_msg("%s", error->message);
	assert_string_equal(message.source, "00112233445566778899aabbccddeeff");
	assert_true(ft_config_equal(&message.fallback, &fallback));
	return ft_schema_read(&message, back, error);
}

static void a_schema_comes_back_from_the_wire_as_it_was(void **state)
{
	static struct ft_schema words;
	const struct ft_schema *all[] = {&words, &other,
	        ft_kernel_find("rmsnorm")->schema(ft_kernel_find("rmsnorm"), "cpu"),
	        ft_kernel_find("rmsnorm")->schema(ft_kernel_find("rmsnorm"), "hip")};

	(void)state;
	words = worded();
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		static struct ft_schema back;
		struct ft_error error = {.code = ""};

		if (travel(all[i], &back, &error) < 0)
			fail_msg("%s", error.message);
		assert_string_equal(back.kernel, all[i]->kernel);
		assert_string_equal(back.scale, all[i]->scale);
		assert_int_equal(back.revision, all[i]->revision);
		assert_int_equal(back.field_count, all[i]->field_count);
		assert_int_equal(back.knob_count, all[i]->knob_count);
		for (uint32_t j = 0; j < back.field_count; j++) {
			const struct ft_schema_field_def *a = &back.field[j], *b = &all[i]->field[j];

			assert_string_equal(a->name, b->name);
			assert_int_equal(a->is_text, b->is_text);
			assert_int_equal(a->min, b->min);
			assert_int_equal(a->max, b->max);
			assert_memory_equal(a->choice, b->choice, sizeof a->choice);
			assert_string_equal(a->same_as, b->same_as);
			assert_int_equal(a->has_default, b->has_default);
			assert_int_equal(a->default_number, b->default_number);
			assert_string_equal(a->default_text, b->default_text);
			assert_string_equal(a->help, b->help);
		}
		for (uint32_t j = 0; j < back.knob_count; j++) {
			const struct ft_knob_def *a = &back.knob[j], *b = &all[i]->knob[j];

			assert_string_equal(a->name, b->name);
			assert_int_equal(a->count, b->count);
			assert_int_equal(a->is_word, b->is_word);
			assert_memory_equal(a->value, b->value, sizeof a->value);
			assert_memory_equal(a->word, b->word, sizeof a->word);
			assert_int_equal(a->changes_bits, b->changes_bits);
			assert_string_equal(a->help, b->help);
		}
	}
}

static void a_schema_that_contradicts_itself_is_refused(void **state)
{
	static struct ft_schema bad, back;
	struct ft_error error;

	(void)state;
#define REFUSED(change)                                            \
	do {                                                       \
		bad = other;                                       \
		error = (struct ft_error){.code = ""};             \
		change;                                            \
		assert_int_equal(travel(&bad, &back, &error), -1); \
		assert_string_not_equal(error.code, "");           \
		assert_string_not_equal(error.message, "");        \
	} while (0)
	REFUSED(bad.field[0].name[0] = '1');
	REFUSED(bad.field[1].name[0] = '\0');
	REFUSED(memcpy(bad.field[1].name, "size", 5));
	REFUSED(bad.field[0].min = 1001);
	REFUSED(bad.field[2].default_number = 5);
	REFUSED(memcpy(bad.field[1].default_text, "best", 5));
	REFUSED(memcpy(bad.field[1].choice[1], "a b", 4));
	REFUSED(memcpy(bad.field[2].same_as, "twin", 5));
	REFUSED(memcpy(bad.field[3].same_as, "mode", 5));
	REFUSED(memcpy(bad.scale, "mode", 5));
	REFUSED(memcpy(bad.scale, "depth", 6));
	REFUSED(memcpy(bad.scale, "none", 5));
	REFUSED(memcpy(bad.kernel, "a b", 4));
	REFUSED(bad.knob[0].count = 0);
	REFUSED(bad.knob[0].value[1] = 16);
	REFUSED((bad = worded(), memcpy(bad.knob[2].word[1], "rows", 5)));
	REFUSED((bad = worded(), memcpy(bad.knob[2].word[1], "a b", 4)));
	REFUSED(memcpy(bad.knob[1].name, "TILE", 5));
	REFUSED(memcpy(bad.knob[1].name, "a-b", 4));
#undef REFUSED
}

/* Whatever a runner's bytes are, reading them ends in a schema or an error. */
static void damaged_schemas_are_read_without_a_crash(void **state)
{
	static struct ft_schema back;
	static uint8_t copy[sizeof room];
	struct ft_writer writer;
	uint32_t seed = 1;

	(void)state;
	ft_writer_init_fixed(&writer, room, sizeof room);
	ft_schema_write(&writer, &other, "", NULL);
	assert_true(ft_writer_ok(&writer));
	for (size_t round = 0; round < 20000; round++) {
		struct ft_runner_kernel message;
		size_t length = writer.length;

		memcpy(copy, room, length);
		for (int i = 0; i < 2; i++) {
			seed = seed * 1664525 + 1013904223;
			copy[(seed >> 8) % length] = (uint8_t)(seed >> 3);
		}
		if (round % 4 == 0)
			length = (seed >> 7) % length;
		if (ft_decode(&ft_runner_kernel_message, (struct ft_view){copy, length}, &message, NULL) == 0)
			(void)ft_schema_read(&message, &back, NULL);
	}
}

static void a_schema_too_large_for_its_buffer_fails_the_writer(void **state)
{
	uint8_t small[64];
	struct ft_writer writer;

	(void)state;
	ft_writer_init_fixed(&writer, small, sizeof small);
	ft_schema_write(&writer, &other, "", NULL);
	assert_false(ft_writer_ok(&writer));
}

/* ---- kernels and devices ---- */

static void only_built_in_kernels_are_found(void **state)
{
	(void)state;
	assert_ptr_equal(ft_kernel_find("rmsnorm"), &ft_kernel_rmsnorm);
	assert_null(ft_kernel_find("rmsnorm2"));
	assert_null(ft_kernel_find(""));
}

static void guessed_traits_are_usable_and_do_not_waver(void **state)
{
	static const char *const kinds[] = {"cpu", "hip", "cuda"};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct ft_traits a, b;

		ft_traits_guess(kinds[i], &a);
		ft_traits_guess(kinds[i], &b);
		assert_memory_equal(&a, &b, sizeof a);
		assert_string_equal(a.kind, kinds[i]);
		assert_string_not_equal(a.arch, "");
		assert_true(a.units > 0);
		assert_true(a.cache > 0);
		assert_int_equal(a.wave > 0, i > 0);
	}
}

static void admission_checks_schema_and_relations(void **state)
{
	const struct ft_schema *schema = ft_kernel_rmsnorm.schema(&ft_kernel_rmsnorm, "cpu");
	struct ft_problem problem = problem_of("m=2 n=8 dtype=f16 row_stride=7"), whole;
	struct ft_error error;

	(void)state;
	assert_int_equal(ft_problem_admit(&ft_kernel_rmsnorm, schema, &problem, &whole, &error), -1);
	assert_string_equal(error.field, "row_stride");
	problem = problem_of("m=2 n=8 dtype=f16");
	assert_int_equal(ft_problem_admit(&ft_kernel_rmsnorm, schema, &problem, &whole, &error), 0);
	assert_int_equal(whole.count, 5);
	/* A kernel that only its schema describes. */
	problem = problem_of("size=2 label=x");
	assert_int_equal(ft_problem_admit(NULL, &other, &problem, &whole, &error), 0);
	problem = problem_of("size=2000 label=x");
	assert_int_equal(ft_problem_admit(NULL, &other, &problem, &whole, &error), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(defaults_are_filled_in_and_fields_ordered),
	        cmocka_unit_test(bad_problems_are_refused_by_field_value_and_bound),
	        cmocka_unit_test(a_field_given_twice_is_refused),
	        cmocka_unit_test(a_free_text_cannot_pass_for_another_field),
	        cmocka_unit_test(canonical_form_leaves_out_defaults_and_the_scale_field),
	        cmocka_unit_test(a_canonical_form_that_does_not_fit_is_cut_and_counted),
	        cmocka_unit_test(a_new_field_with_a_default_keeps_old_keys),
	        cmocka_unit_test(keys_of_released_problems_never_change),
	        cmocka_unit_test(an_explicit_default_has_the_key_of_an_absent_one),
	        cmocka_unit_test(configs_are_ordered_and_checked_by_knob),
	        cmocka_unit_test(words_are_checked_as_integers_are),
	        cmocka_unit_test(a_schema_comes_back_from_the_wire_as_it_was),
	        cmocka_unit_test(a_schema_that_contradicts_itself_is_refused),
	        cmocka_unit_test(damaged_schemas_are_read_without_a_crash),
	        cmocka_unit_test(a_schema_too_large_for_its_buffer_fails_the_writer),
	        cmocka_unit_test(only_built_in_kernels_are_found),
	        cmocka_unit_test(guessed_traits_are_usable_and_do_not_waver),
	        cmocka_unit_test(admission_checks_schema_and_relations),
	};

	return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
