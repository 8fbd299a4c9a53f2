/* Tests client/ctl/commands/model.c: which norms published configurations ask for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/ctl/commands/model.h"

static int read_text(const char *text, struct model *model, char problem[FILE_PROBLEM_SIZE])
{
	char path[] = "/tmp/test_model.XXXXXX";
	int file = mkstemp(path);
	int status;

	assert_true(file >= 0);
	assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
	close(file);
	status = model_read(path, model, problem);
	unlink(path);
	return status;
}

struct published {
	const char *name, *text, *dtype;
	size_t count;
	int64_t norm[3][3]; /* n, rows a token, row stride */
};

/* The members that matter of the files that their makers publish. */
static const struct published published[] = {
        {"Llama 3.1 8B",
                "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{4096, 1, 4096}}},
        {"SmolLM2 135M",
                "{\"model_type\": \"llama\", \"hidden_size\": 576, \"num_attention_heads\": 9, "
                "\"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{576, 1, 576}}},
        {"Qwen2.5 7B",
                "{\"model_type\": \"qwen2\", \"hidden_size\": 3584, \"num_attention_heads\": 28, "
                "\"rms_norm_eps\": 1e-06, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 1, {{3584, 1, 3584}}},
        {"Qwen3 8B",
                "{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"head_dim\": 128, "
                "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
                "\"torch_dtype\": \"bfloat16\"}",
                "bf16", 3, {{4096, 1, 4096}, {128, 32, 128}, {128, 8, 128}}},
        {"Gemma 3 27B",
                "{\"model_type\": \"gemma3\", \"torch_dtype\": \"bfloat16\", \"vision_config\": "
                "{\"hidden_size\": 1152}, \"text_config\": {\"model_type\": \"gemma3_text\", "
                "\"hidden_size\": 5376, \"head_dim\": 128, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 16, \"rms_norm_eps\": 1e-06}}",
                "bf16", 3, {{5376, 1, 5376}, {128, 32, 128}, {128, 16, 128}}},
        {"OLMo 2 7B: queries and keys over the whole width",
                "{\"model_type\": \"olmo2\", \"hidden_size\": 4096, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 32, \"rms_norm_eps\": 1e-06, \"torch_dtype\": \"float32\"}",
                "f32", 1, {{4096, 1, 4096}}},
        {"MiniMax-M2: over all heads",
                "{\"model_type\": \"minimax_m2\", \"hidden_size\": 3072, \"head_dim\": 128, "
                "\"num_attention_heads\": 48, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
                "\"use_qk_norm\": true, \"dtype\": \"bfloat16\"}",
                "bf16", 3, {{3072, 1, 3072}, {6144, 1, 6144}, {1024, 1, 1024}}},
        {"DeepSeek V3: slices of one row",
                "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_attention_heads\": 128, "
                "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, "
                "\"rms_norm_eps\": 1e-06, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 3, {{7168, 1, 7168}, {1536, 1, 2112}, {512, 1, 2112}}},
        {"DeepSeek V2 Lite: its queries are not compressed",
                "{\"model_type\": \"deepseek_v2\", \"hidden_size\": 2048, \"num_attention_heads\": 16, "
                "\"q_lora_rank\": null, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, "
                "\"rms_norm_eps\": 1e-06, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 2, {{2048, 1, 2048}, {512, 1, 576}}},
        {"GLM-4.5 with norms of queries and keys",
                "{\"model_type\": \"glm4_moe\", \"hidden_size\": 5120, \"head_dim\": 128, "
                "\"num_attention_heads\": 96, \"num_key_value_heads\": 8, \"use_qk_norm\": true, "
                "\"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\"}",
                "bf16", 3, {{5120, 1, 5120}, {128, 96, 128}, {128, 8, 128}}},
        {"gpt-oss, whose dtype its file leaves out",
                "{\"model_type\": \"gpt_oss\", \"hidden_size\": 2880, \"head_dim\": 64, "
                "\"num_attention_heads\": 64, \"rms_norm_eps\": 1e-05}",
                "", 1, {{2880, 1, 2880}}},
};

static void published_models_get_the_norms_that_they_use(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
		const struct published *expected = &published[i];
		struct model model;
		char problem[FILE_PROBLEM_SIZE] = "";

		if (read_text(expected->text, &model, problem) != 0)
			fail_msg("%s: %s", expected->name, problem);
		if (model.count != expected->count)
			fail_msg("%s: %zu norms", expected->name, model.count);
		assert_string_equal(model.dtype, expected->dtype);
		for (size_t k = 0; k < model.count; k++) {
			if (model.norm[k].n != expected->norm[k][0] ||
			        model.norm[k].rows != expected->norm[k][1] ||
			        model.norm[k].row_stride != expected->norm[k][2])
				fail_msg("%s: norm %zu is %lld, %lld, %lld", expected->name, k,
				        (long long)model.norm[k].n, (long long)model.norm[k].rows,
				        (long long)model.norm[k].row_stride);
		}
	}
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
	        {"{}", "no hidden_size"},
	        {"{\"model_type\": \"gpt2\", \"n_embd\": 768}", "no hidden_size"},
	        {"{\"hidden_size\": 768, \"layer_norm_eps\": 1e-5}", "no rms_norm_eps"},
	        {"{\"hidden_size\": 0, \"rms_norm_eps\": 1e-5}", "hidden_size must be"},
	        {"{\"hidden_size\": 2000000, \"rms_norm_eps\": 1e-5}", "hidden_size must be"},
	        {"{\"hidden_size\": \"4096\", \"rms_norm_eps\": 1e-5}", "hidden_size must be"},
	        {"{\"hidden_size\": null, \"rms_norm_eps\": 1e-5}", "hidden_size is null"},
	        {"{\"hidden_size\": 64, \"rms_norm_eps\": 1e-5, \"dtype\": \"int8\"}", "dtype is int8"},
	        {"{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"rms_norm_eps\": 1e-5}",
	                "num_attention_heads"},
	        {"{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"rms_norm_eps\": 1e-5, "
	         "\"num_attention_heads\": 7}",
	                "no multiple"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct model model;
		char problem[FILE_PROBLEM_SIZE] = "";

		assert_int_equal(read_text(bad[i].text, &model, problem), -1);
		if (strstr(problem, bad[i].said) == NULL)
			fail_msg("%s: said: %s", bad[i].text, problem);
	}
}

static void a_file_that_is_missing_is_named(void **state)
{
	struct model model;
	char problem[FILE_PROBLEM_SIZE] = "";

	(void)state;
	assert_int_equal(model_read("/nonexistent/config.json", &model, problem), -1);
	assert_non_null(strstr(problem, "/nonexistent/config.json"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(published_models_get_the_norms_that_they_use),
	        cmocka_unit_test(what_is_no_such_file_is_refused_by_name),
	        cmocka_unit_test(a_file_that_is_missing_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
