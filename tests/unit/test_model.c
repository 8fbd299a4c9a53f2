/* Tests client/ctl/model/: which norms published configurations ask for by the table that flytune brings, and what a table may
 * say. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/ctl/model/model.h"
#include "kernels/kernel.h"

static void write_file(char path[], const char *text)
{
	int file = mkstemp(path);

	assert_true(file >= 0);
	assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
	close(file);
}

/* The table that flytune brings. */
static struct families shipped(void)
{
	struct families families = {0};
	char path[512], problem[FILE_PROBLEM_SIZE] = "";

	snprintf(path, sizeof path, "%s/client/models.json", getenv("FLYTUNE_BUILD"));
	if (!families_add(&families, path, problem))
		fail_msg("%s", problem);
	return families;
}

static bool add_text(struct families *families, const char *text, char problem[FILE_PROBLEM_SIZE])
{
	char path[] = "/tmp/test_model.XXXXXX";
	bool added;

	write_file(path, text);
	added = families_add(families, path, problem);
	unlink(path);
	return added;
}

static bool read_with(const struct families *families, const char *text, const char *tokens,
        const char *dtype, struct model *model, char problem[FILE_PROBLEM_SIZE])
{
	const struct model_wanted wanted = {.tokens = tokens, .dtype = dtype};
	char path[] = "/tmp/test_model.XXXXXX";
	bool read;

	write_file(path, text);
	read = model_read(families, path, &wanted, model, problem);
	unlink(path);
	return read;
}

static const char *values_of(const struct model_norm *norm, const char *option)
{
	for (size_t i = 0; i < norm->field_count; i++) {
		if (strcmp(norm->field[i].option, option) == 0)
			return norm->field[i].values;
	}
	return NULL;
}

/* 0 for what is left out. */
static int64_t number_of(const struct model_norm *norm, const char *option)
{
	const char *values = values_of(norm, option);

	return values == NULL ? 0 : strtoll(values, NULL, 10);
}

struct published {
	const char *name, *text, *dtype;
	size_t count;
	int64_t norm[3][3]; /* n, rows a token, row stride; 0: left out, as n */
};

/* The members that matter of the files that their makers publish. */
static const struct published published[] = {
        {"Llama 3.1 8B",
                "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{4096, 1, 0}}},
        {"SmolLM2 135M",
                "{\"model_type\": \"llama\", \"hidden_size\": 576, \"num_attention_heads\": 9, "
                "\"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{576, 1, 0}}},
        {"Qwen2.5 7B",
                "{\"model_type\": \"qwen2\", \"hidden_size\": 3584, \"num_attention_heads\": 28, "
                "\"rms_norm_eps\": 1e-06, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{3584, 1, 0}}},
        {"Qwen3 8B",
                "{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"head_dim\": 128, "
                "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
                "\"torch_dtype\": \"bfloat16\"}",
                "bf16", 3, {{4096, 1, 0}, {128, 32, 0}, {128, 8, 0}}},
        {"Gemma 3 27B",
                "{\"model_type\": \"gemma3\", \"torch_dtype\": \"bfloat16\", \"vision_config\": "
                "{\"hidden_size\": 1152}, \"text_config\": {\"model_type\": \"gemma3_text\", "
                "\"hidden_size\": 5376, \"head_dim\": 128, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 16, \"rms_norm_eps\": 1e-06}}",
                "bf16", 3, {{5376, 1, 0}, {128, 32, 0}, {128, 16, 0}}},
        {"Gemma 3 4B, whose file leaves out what the family has by default",
                "{\"model_type\": \"gemma3\", \"torch_dtype\": \"bfloat16\", \"text_config\": "
                "{\"model_type\": \"gemma3_text\", \"hidden_size\": 2560}}",
                "bf16", 3, {{2560, 1, 0}, {256, 8, 0}, {256, 4, 0}}},
        {"Gemma 3 12B, whose heads are wider than its hidden size says",
                "{\"model_type\": \"gemma3\", \"torch_dtype\": \"bfloat16\", \"text_config\": "
                "{\"model_type\": \"gemma3_text\", \"hidden_size\": 3840, \"num_attention_heads\": 16, "
                "\"num_key_value_heads\": 8}}",
                "bf16", 3, {{3840, 1, 0}, {256, 16, 0}, {256, 8, 0}}},
        {"OLMo 2 7B: queries and keys over the whole width",
                "{\"model_type\": \"olmo2\", \"hidden_size\": 4096, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 32, \"rms_norm_eps\": 1e-06, \"torch_dtype\": \"float32\"}",
                "f32", 3, {{4096, 1, 0}, {4096, 1, 0}, {4096, 1, 0}}},
        {"MiniMax-M2: over all heads",
                "{\"model_type\": \"minimax_m2\", \"hidden_size\": 3072, \"head_dim\": 128, "
                "\"num_attention_heads\": 48, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
                "\"use_qk_norm\": true, \"dtype\": \"bfloat16\"}",
                "bf16", 3, {{3072, 1, 0}, {6144, 1, 0}, {1024, 1, 0}}},
        {"MiniMax-Text-01: norms no queries and keys",
                "{\"model_type\": \"minimax_text_01\", \"hidden_size\": 6144, \"head_dim\": 128, "
                "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, "
                "\"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{6144, 1, 0}}},
        {"DeepSeek V3: slices of one row",
                "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_attention_heads\": 128, "
                "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, "
                "\"rms_norm_eps\": 1e-06, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 3, {{7168, 1, 0}, {1536, 1, 2112}, {512, 1, 2112}}},
        {"DeepSeek V2 Lite: its queries are not compressed",
                "{\"model_type\": \"deepseek_v2\", \"hidden_size\": 2048, \"num_attention_heads\": 16, "
                "\"q_lora_rank\": null, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, "
                "\"rms_norm_eps\": 1e-06, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 2, {{2048, 1, 0}, {512, 1, 576}}},
        {"GLM-4.5 with norms of queries and keys",
                "{\"model_type\": \"glm4_moe\", \"hidden_size\": 5120, \"head_dim\": 128, "
                "\"num_attention_heads\": 96, \"num_key_value_heads\": 8, \"use_qk_norm\": true, "
                "\"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 3, {{5120, 1, 0}, {128, 96, 0}, {128, 8, 0}}},
        {"GLM-4.5-Air, which has no such norms and leaves the key out",
                "{\"model_type\": \"glm4_moe\", \"hidden_size\": 4096, \"head_dim\": 128, "
                "\"num_attention_heads\": 96, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, "
                "\"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{4096, 1, 0}}},
        {"Llama 4: normed without a weight",
                "{\"model_type\": \"llama4\", \"torch_dtype\": \"bfloat16\", \"text_config\": "
                "{\"model_type\": \"llama4_text\", \"hidden_size\": 5120, \"head_dim\": 128, "
                "\"num_attention_heads\": 40, \"use_qk_norm\": true, \"rms_norm_eps\": 1e-05}}",
                "bf16", 1, {{5120, 1, 0}}},
        {"Qwen3-Omni: a part within a part",
                "{\"model_type\": \"qwen3_omni_moe\", \"thinker_config\": {\"text_config\": {\"model_type\": "
                "\"qwen3_omni_moe_text\", \"hidden_size\": 2048, \"head_dim\": 128, "
                "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06}, "
                "\"torch_dtype\": \"bfloat16\"}, \"dtype\": \"torch.bfloat16\"}",
                "bf16", 3, {{2048, 1, 0}, {128, 32, 0}, {128, 4, 0}}},
        {"gpt-oss, whose dtype its file leaves out",
                "{\"model_type\": \"gpt_oss\", \"hidden_size\": 2880, \"head_dim\": 64, "
                "\"num_attention_heads\": 64, \"rms_norm_eps\": 1e-05}",
                "", 1, {{2880, 1, 0}}},
};

static const struct published with_layernorms[] = {
        {"GPT-2", "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"layer_norm_epsilon\": 1e-05}", "", 1,
                {{768, 1, 0}}},
        {"Falcon 7B",
                "{\"model_type\": \"falcon\", \"hidden_size\": 4544, \"layer_norm_epsilon\": 1e-05, "
                "\"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{4544, 1, 0}}},
        {"OPT 1.3B", "{\"model_type\": \"opt\", \"hidden_size\": 2048, \"torch_dtype\": \"float16\"}", "f16",
                1, {{2048, 1, 0}}},
};

static void check_published(const struct published *list, size_t count, const char *kernel)
{
	struct families families = shipped();

	for (size_t i = 0; i < count; i++) {
		const struct published *expected = &list[i];
		struct model model;
		char problem[FILE_PROBLEM_SIZE] = "";

		if (!read_with(&families, expected->text, "1", expected->dtype[0] == '\0' ? "f32" : NULL,
		            &model, problem))
			fail_msg("%s: %s", expected->name, problem);
		if (model.count != expected->count)
			fail_msg("%s: %zu norms", expected->name, model.count);
		for (size_t k = 0; k < model.count; k++) {
			const struct model_norm *norm = &model.norm[k];

			assert_string_equal(norm->kernel, kernel);
			assert_string_equal(values_of(norm, "--dtype"),
			        expected->dtype[0] == '\0' ? "f32" : expected->dtype);
			if (number_of(norm, "--n") != expected->norm[k][0] ||
			        number_of(norm, "--m") != expected->norm[k][1] ||
			        number_of(norm, "--row-stride") != expected->norm[k][2])
				fail_msg("%s: %s is %s, %s, %" PRId64, expected->name, norm->name,
				        values_of(norm, "--n"), values_of(norm, "--m"),
				        number_of(norm, "--row-stride"));
		}
		model_free(&model);
	}
	families_free(&families);
}

static void published_models_get_the_norms_that_they_use(void **state)
{
	(void)state;
	check_published(published, sizeof published / sizeof *published, "rmsnorm");
	check_published(with_layernorms, sizeof with_layernorms / sizeof *with_layernorms, "layernorm");
}

static void rows_follow_the_tokens(void **state)
{
	static const char qwen[] = "{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"head_dim\": 128, "
	                           "\"num_attention_heads\": 32, \"num_key_value_heads\": 8}";
	struct families families = shipped();
	struct model model;
	char problem[FILE_PROBLEM_SIZE] = "";

	(void)state;
	assert_true(read_with(&families, qwen, "1,16,300", "f16,bf16", &model, problem));
	assert_string_equal(values_of(&model.norm[0], "--m"), "1,16,300");
	assert_string_equal(values_of(&model.norm[1], "--m"), "32,512,9600");
	assert_string_equal(values_of(&model.norm[2], "--m"), "8,128,2400");
	assert_string_equal(values_of(&model.norm[2], "--dtype"), "f16,bf16");
	model_free(&model);
	families_free(&families);
}

static void what_is_no_such_file_is_refused_by_name(void **state)
{
	static const struct {
		const char *text, *said;
	} bad[] = {
	        {"", "no JSON"},
	        {"{", "no JSON"},
	        {"[1]", "no JSON object"},
	        {"{\"a\": 1, \"a\": 2}", "no JSON"},
	        {"{}", "no family of the model table"},
	        {"{\"model_type\": \"resnet\", \"n_embd\": 768}", "model_type, 'resnet'"},
	        {"{\"model_type\": \"cohere2\", \"hidden_size\": 768, \"layer_norm_eps\": 1e-5}",
	                "its norms are LayerNorms without a bias"},
	        {"{\"model_type\": \"mpt\", \"d_model\": 4096, \"no_bias\": true}", "without a bias"},
	        {"{\"rms_norm_eps\": 1e-5}", "it has no hidden_size, of which"},
	        {"{\"hidden_size\": 0, \"rms_norm_eps\": 1e-5}",
	                "n of its hidden norm, hidden_size, is 0; it must be 1 or more"},
	        {"{\"hidden_size\": 3000000000, \"rms_norm_eps\": 1e-5}", "hidden_size must be"},
	        {"{\"hidden_size\": \"4096\", \"rms_norm_eps\": 1e-5}", "hidden_size must be"},
	        {"{\"hidden_size\": null, \"rms_norm_eps\": 1e-5}", "it has no hidden_size"},
	        {"{\"hidden_size\": 64, \"rms_norm_eps\": 1e-5}", "it does not say its dtype: say --dtype"},
	        {"{\"hidden_size\": 64, \"rms_norm_eps\": 1e-5, \"dtype\": \"int8\"}",
	                "dtype is int8; it must be one of bfloat16, "},
	        {"{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"dtype\": \"half\"}",
	                "it has no num_attention_heads, of which a model of family queries and keys by head "
	                "has m "
	                "of its query heads norm"},
	        {"{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_attention_heads\": 7, "
	         "\"dtype\": \"half\"}",
	                "64 / 7 is no whole number"},
	};
	struct families families = shipped();

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct model model;
		char problem[FILE_PROBLEM_SIZE] = "";

		assert_false(read_with(&families, bad[i].text, "1", NULL, &model, problem));
		if (strstr(problem, bad[i].said) == NULL)
			fail_msg("%s: said: %s", bad[i].text, problem);
		model_free(&model);
	}
	families_free(&families);
}

static void tokens_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = {"", "0", "1,", "1,,2", "x", "1,-1", "1;2", "99999999999"};
	struct families families = shipped();

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct model model;
		char problem[FILE_PROBLEM_SIZE] = "";

		assert_false(
		        read_with(&families, "{\"hidden_size\": 64, \"norm_eps\": 1, \"dtype\": \"half\"}",
		                bad[i], NULL, &model, problem));
		if (strstr(problem, "--m is") == NULL)
			fail_msg("%s: said: %s", bad[i], problem);
		model_free(&model);
	}
	families_free(&families);
}

static void a_file_that_is_missing_is_named(void **state)
{
	static const struct model_wanted wanted = {.tokens = "1"};
	struct families families = shipped();
	struct model model;
	char problem[FILE_PROBLEM_SIZE] = "";

	(void)state;
	assert_false(model_read(&families, "/nonexistent/config.json", &wanted, &model, problem));
	assert_non_null(strstr(problem, "/nonexistent/config.json"));
	assert_false(families_add(&families, "/nonexistent/models.json", problem));
	assert_non_null(strstr(problem, "/nonexistent/models.json: No such file"));
	families_free(&families);
}

/* ---- the table ---- */

static void check_norm(const char *family, const json_t *norm)
{
	const struct ft_kernel *kernel = ft_kernel_find(json_string_value(json_object_get(norm, "kernel")));
	const struct ft_schema *schema;
	const char *name;
	json_t *value;

	if (kernel == NULL) {
		fail_msg("%s: there is no such kernel", family);
		return;
	}
	schema = kernel->schema(kernel, "cpu");
	json_object_foreach(json_object_get(norm, "fields"), name, value)
	{
		uint32_t i = 0;

		while (i < schema->field_count && strcmp(schema->field[i].name, name) != 0)
			i++;
		if (i == schema->field_count)
			fail_msg("%s: %s has no field %s", family, schema->kernel, name);
	}
}

static void the_shipped_table_names_kernels_and_fields_that_there_are(void **state)
{
	struct families families = shipped();

	(void)state;
	assert_true(json_array_size(families.families) > 0);
	for (size_t i = 0; i < json_array_size(families.families); i++) {
		const json_t *family = json_array_get(families.families, i);
		const json_t *norms = json_object_get(family, "norms");

		for (size_t k = 0; k < json_array_size(norms); k++)
			check_norm(
			        json_string_value(json_object_get(family, "name")), json_array_get(norms, k));
	}
	families_free(&families);
}

#define NORM(fields) "{\"name\": \"a\", \"kernel\": \"k\", \"fields\": " fields "}"
#define FAMILY(members) "{\"name\": \"f\", " members "}"
#define TABLE(families) "{\"flytune\": \"models\", \"version\": 1, \"families\": [" families "]}"

static void what_a_table_may_not_say_is_named_by_file_place_value_and_bound(void **state)
{
	static const struct {
		const char *text, *said;
	} bad[] = {
	        {"{", ": it is no JSON: line 1"},
	        {"[]", ": the file is []; it must be an object"},
	        {"{}", ": flytune is missing; it must be given"},
	        {"{\"flytune\": \"answers\"}", ": flytune is \"answers\"; it must be \"models\""},
	        {"{\"flytune\": \"models\", \"version\": 2}", ": version is 2; it must be 1, which is all"},
	        {"{\"flytune\": \"models\", \"version\": 1, \"family\": []}",
	                ": family is unknown; it must be one of flytune, version, parts, dtypes, families"},
	        {"{\"flytune\": \"models\", \"version\": 1}", ": families is missing; it must be given"},
	        {"{\"parts\": [1]}", ": parts[0] is 1; it must be a text of 1 to 127 bytes"},
	        {"{\"parts\": []}", ": parts is []; it must be an array of 1 to"},
	        {"{\"dtypes\": []}", ": dtypes is []; it must be an object of texts"},
	        {"{\"dtypes\": {\"half\": 16}}", ": dtypes.half is 16; it must be a text"},
	        {TABLE(""), ": families is []; it must be an array of 1 to"},
	        {TABLE("1"), ": families[0] is 1; it must be an object"},
	        {TABLE("{\"refuse\": \"no\"}"), ": families[0].name is missing; it must be given"},
	        {TABLE(FAMILY("\"nroms\": 1")),
	                ": families[0].nroms is unknown; it must be one of name, types, when, norms, refuse"},
	        {TABLE(FAMILY("\"types\": [\"\"]")),
	                ": families[0].types[0] is \"\"; it must be a text of 1"},
	        {TABLE("{\"name\": \"f\"}"),
	                ": families[0].norms is missing; it must be given, or else refuse"},
	        {TABLE(FAMILY("\"refuse\": \"no\", \"norms\": [" NORM("{\"n\": 1}") "]")),
	                ": families[0].norms is given; it must be given, or else refuse"},
	        {TABLE(FAMILY("\"refuse\": \"no\"") ", " FAMILY("\"refuse\": \"no\"")),
	                ": families[1].name is \"f\"; it must be another than those before it"},
	        {TABLE(FAMILY("\"when\": \"a +\"")),
	                ": families[0].when is \"a +\"; it must be a formula: a name or a number is missing"},
	        {TABLE(FAMILY("\"norms\": {}")), ": families[0].norms is {}; it must be an array of 1 to 16"},
	        {TABLE(FAMILY("\"norms\": [" NORM("{}") "]")),
	                ": families[0].norms[0].fields is {}; it must be an object of 1 to 16 fields"},
	        {TABLE(FAMILY("\"norms\": [" NORM("{\"n\": 1.5}") "]")),
	                ": families[0].norms[0].fields.n is 1.5; it must be a text"},
	        {TABLE(FAMILY("\"norms\": [" NORM("{\"row stride\": 1}") "]")),
	                ": families[0].norms[0].fields.row stride is no name; it must be a name of"},
	        {TABLE(FAMILY("\"norms\": [" NORM("{\"n\": \"=a b\"}") "]")),
	                ": families[0].norms[0].fields.n is \"=a b\"; it must be a formula: an operator is"},
	        {TABLE(FAMILY("\"norms\": [" NORM("{\"m\": \"=tokens\", \"n\": \"=2 * tokens\"}") "]")),
	                ": families[0].norms[0].fields.n is \"=2 * tokens\"; it must be the only field that"},
	        {TABLE(FAMILY("\"norms\": [{\"name\": \"a\", \"kernel\": \"-k\"}]")),
	                ": families[0].norms[0].kernel is \"-k\"; it must be the name of a kernel"},
	        {TABLE(FAMILY("\"norms\": [{\"name\": \"a\", \"kernel\": \"k\"}]")),
	                ": families[0].norms[0].fields is missing; it must be given"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct families families = {0};
		char problem[FILE_PROBLEM_SIZE] = "";

		assert_false(add_text(&families, bad[i].text, problem));
		if (strncmp(problem, "/tmp/test_model.", 16) != 0 || strstr(problem, bad[i].said) == NULL)
			fail_msg("%s: said: %s", bad[i].text, problem);
		families_free(&families);
	}
}

static void a_users_families_come_first_and_replace_those_of_the_same_name(void **state)
{
	static const char own[] =
	        "{\"flytune\": \"models\", \"version\": 1, \"parts\": [\"brain\"], \"dtypes\": {\"half\": "
	        "\"f32\"}, "
	        "\"families\": [{\"name\": \"mine\", \"types\": [\"mine\"], \"norms\": [{\"name\": \"out\", "
	        "\"kernel\": \"layernorm\", \"fields\": {\"rows\": \"=2 * tokens\", \"width\": 64, \"kind\": "
	        "\"wide\", "
	        "\"type\": \"=dtype\"}}]}, {\"name\": \"RMS norms\", \"refuse\": \"not here\"}]}";
	struct families families = shipped();
	size_t before = json_array_size(families.families);
	struct model model;
	char problem[FILE_PROBLEM_SIZE] = "";

	(void)state;
	assert_true(add_text(&families, own, problem));
	assert_int_equal(json_array_size(families.families), before + 1);
	assert_true(read_with(&families,
	        "{\"model_type\": \"x\", \"brain\": {\"model_type\": \"mine\"}, \"dtype\": \"half\"}", "3,4",
	        NULL, &model, problem));
	assert_int_equal(model.count, 1);
	assert_string_equal(model.norm[0].name, "out");
	assert_string_equal(model.norm[0].kernel, "layernorm");
	assert_string_equal(values_of(&model.norm[0], "--rows"), "6,8");
	assert_string_equal(values_of(&model.norm[0], "--width"), "64");
	assert_string_equal(values_of(&model.norm[0], "--kind"), "wide");
	assert_string_equal(values_of(&model.norm[0], "--type"), "f32");
	model_free(&model);
	/* It stands where the one stood that it replaces: those before it are tried before. */
	assert_true(read_with(&families, "{\"model_type\": \"gemma3_text\", \"hidden_size\": 64}", "1", "f32",
	        &model, problem));
	model_free(&model);
	assert_false(read_with(
	        &families, "{\"hidden_size\": 64, \"rms_norm_eps\": 1e-5}", "1", "f32", &model, problem));
	assert_non_null(strstr(problem, "it is of family RMS norms: not here"));
	model_free(&model);
	families_free(&families);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(published_models_get_the_norms_that_they_use),
	        cmocka_unit_test(rows_follow_the_tokens),
	        cmocka_unit_test(what_is_no_such_file_is_refused_by_name),
	        cmocka_unit_test(tokens_that_are_none_are_refused),
	        cmocka_unit_test(a_file_that_is_missing_is_named),
	        cmocka_unit_test(the_shipped_table_names_kernels_and_fields_that_there_are),
	        cmocka_unit_test(what_a_table_may_not_say_is_named_by_file_place_value_and_bound),
	        cmocka_unit_test(a_users_families_come_first_and_replace_those_of_the_same_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
