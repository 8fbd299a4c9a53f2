#include "client/ctl/commands/model.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t size_max = 1 << 20; /* the longest row that the kernel takes */
static const int64_t heads_max = 4096;

struct reading {
	const char *path;
	const json_t *top, *text; /* the file, and the part of it that describes the language model */
	char *problem;
};

static int refuse(struct reading *reading, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct reading *reading, const char *format, ...)
{
	char what[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	snprintf(reading->problem, FILE_PROBLEM_SIZE, "%.200s: %s", reading->path, what);
	return -1;
}

/* A whole number within its bounds; 0 where the file has none or null. */
static int read_number(struct reading *reading, const char *key, int64_t most, int64_t *number)
{
	const json_t *value = json_object_get(reading->text, key);

	*number = 0;
	if (value == NULL || json_is_null(value))
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > most)
		return refuse(reading, "%s must be a whole number from 1 to %" PRId64, key, most);
	*number = json_integer_value(value);
	return 0;
}

static bool is_set(const struct reading *reading, const char *key)
{
	return json_is_true(json_object_get(reading->text, key));
}

static const char *text_of(const struct reading *reading, const char *key)
{
	const char *text = json_string_value(json_object_get(reading->text, key));

	return text != NULL ? text : json_string_value(json_object_get(reading->top, key));
}

static int read_dtype(struct reading *reading, struct model *model)
{
	static const struct {
		const char *theirs, *ours;
	} names[] = {{"bfloat16", "bf16"}, {"float16", "f16"}, {"half", "f16"}, {"float32", "f32"},
	        {"float", "f32"}};
	const char *name = text_of(reading, "dtype");

	if (name == NULL)
		name = text_of(reading, "torch_dtype");
	if (name == NULL || strcmp(name, "auto") == 0)
		return 0;
	if (strncmp(name, "torch.", 6) == 0)
		name += 6;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(name, names[i].theirs) == 0) {
			snprintf(model->dtype, sizeof model->dtype, "%s", names[i].ours);
			return 0;
		}
	}
	return refuse(reading, "its dtype is %.40s; it must be bfloat16, float16 or float32", name);
}

/* Norms of the same rows are one; their number a token may differ. */
static void add_norm(struct model *model, const char *what, int64_t n, int64_t rows, int64_t row_stride)
{
	for (size_t i = 0; i < model->count; i++) {
		const struct norm *norm = &model->norm[i];

		if (norm->n == n && norm->rows == rows && norm->row_stride == row_stride)
			return;
	}
	if (model->count < MODEL_NORMS_MAX)
		model->norm[model->count++] =
		        (struct norm){.what = what, .n = n, .rows = rows, .row_stride = row_stride};
}

enum heads_norm { HEADS_NONE, HEADS_EACH, HEADS_WHOLE };

/* Whether a model norms its queries and keys, each head by itself or all in one row. Most say so by their type
 * alone. */
static enum heads_norm heads_norm_of(const struct reading *reading, const char *type)
{
	static const char *const each[] = {
	        "qwen3", "gemma3", "gemma4", "glm4_moe", "hunyuan", "exaone4", "bailing_moe", "dots1"};
	static const char *const whole[] = {"olmo2", "olmo3", "olmoe", "flex_olmo", "minimax"};
	const json_t *asked = json_object_get(reading->text, "use_qk_norm");

	if (json_is_false(asked))
		return HEADS_NONE;
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
		if (strncmp(type, whole[i], strlen(whole[i])) == 0)
			return HEADS_WHOLE;
	}
	/* GLM-4.5-Air has no such norms, and says so by leaving the key out. */
	if (strncmp(type, "glm4_moe", 8) == 0)
		return json_is_true(asked) ? HEADS_EACH : HEADS_NONE;
	for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
		if (strncmp(type, each[i], strlen(each[i])) == 0)
			return HEADS_EACH;
	}
	/* Llama 4 norms without a weight. */
	if (strncmp(type, "llama4", 6) == 0)
		return HEADS_NONE;
	return json_is_true(asked) || is_set(reading, "qk_norm") ? HEADS_EACH : HEADS_NONE;
}

static int add_heads(struct reading *reading, struct model *model, int64_t hidden)
{
	int64_t heads, kv_heads, head;

	if (read_number(reading, "num_attention_heads", heads_max, &heads) != 0 ||
	        read_number(reading, "num_key_value_heads", heads_max, &kv_heads) != 0 ||
	        read_number(reading, "head_dim", size_max, &head) != 0)
		return -1;
	if (heads == 0)
		return refuse(reading, "it norms queries and keys, but has no num_attention_heads");
	if (kv_heads == 0)
		kv_heads = heads;
	if (head == 0 && hidden % heads != 0)
		return refuse(
		        reading, "it has no head_dim, and hidden_size is no multiple of num_attention_heads");
	if (head == 0)
		head = hidden / heads;
	if (heads_norm_of(reading, model->type) == HEADS_EACH) {
		add_norm(model, "query heads", head, heads, head);
		add_norm(model, "key heads", head, kv_heads, head);
		return 0;
	}
	if (heads * head > size_max)
		return refuse(reading, "its queries have %" PRId64 " elements; a row has at most %" PRId64,
		        heads * head, size_max);
	add_norm(model, "queries", heads * head, 1, heads * head);
	add_norm(model, "keys", kv_heads * head, 1, kv_heads * head);
	return 0;
}

/* Latent attention: queries and keys are normed while they are compressed, as slices of the one row that the
 * projection before them writes. */
static int add_latent(struct reading *reading, struct model *model, int64_t kv_rank)
{
	int64_t q_rank, rope, row;

	if (read_number(reading, "q_lora_rank", size_max, &q_rank) != 0 ||
	        read_number(reading, "qk_rope_head_dim", size_max, &rope) != 0)
		return -1;
	row = q_rank + kv_rank + rope;
	if (q_rank > 0)
		add_norm(model, "latent queries", q_rank, 1, row);
	add_norm(model, "latent keys and values", kv_rank, 1, row);
	return 0;
}

static int read_norms(struct reading *reading, struct model *model)
{
	static const char *const epsilon[] = {"rms_norm_eps", "rms_norm_epsilon", "norm_eps", "rmsnorm"};
	static const char *const layer[] = {
	        "layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "layernorm_eps"};
	int64_t hidden, kv_rank;
	bool normed = false;

	for (size_t i = 0; i < sizeof epsilon / sizeof *epsilon; i++) {
		const json_t *value = json_object_get(reading->text, epsilon[i]);

		normed = normed || json_is_number(value) || json_is_true(value);
	}
	for (size_t i = 0; !normed && i < sizeof layer / sizeof *layer; i++) {
		if (json_object_get(reading->text, layer[i]) != NULL)
			return refuse(reading,
			        "it has %s and no rms_norm_eps: the model's norms are LayerNorms, which are "
			        "no "
			        "RMS norms",
			        layer[i]);
	}
	if (json_object_get(reading->text, "hidden_size") == NULL)
		return refuse(reading, "it has no hidden_size: it is no configuration of a language model");
	if (!normed)
		return refuse(reading, "it has no rms_norm_eps: the model's norms are not RMS norms");
	if (read_number(reading, "hidden_size", size_max, &hidden) != 0 ||
	        read_number(reading, "kv_lora_rank", size_max, &kv_rank) != 0)
		return -1;
	if (hidden == 0)
		return refuse(reading, "its hidden_size is null");
	add_norm(model, "hidden", hidden, 1, hidden);
	if (kv_rank > 0)
		return add_latent(reading, model, kv_rank);
	return heads_norm_of(reading, model->type) != HEADS_NONE ? add_heads(reading, model, hidden) : 0;
}

int model_read(const char *path, struct model *model, char problem[FILE_PROBLEM_SIZE])
{
	static const char *const parts[] = {"text_config", "llm_config", "language_config", "thinker_config"};
	struct reading reading = {.path = path, .problem = problem};
	json_error_t fault;
	json_t *top;
	const char *type;
	char *text;
	size_t length;
	int status;

	*model = (struct model){0};
	text = file_read(path, &length, reading.problem);
	if (text == NULL)
		return -1;
	top = file_parse(text, length, &fault);
	free(text);
	if (top == NULL && fault.line == 0)
		return refuse(&reading, "%s", fault.text);
	if (top == NULL)
		return refuse(&reading, "it is no JSON: line %d: %s", fault.line, fault.text);
	reading.top = reading.text = top;
	/* What also sees or hears describes its language model in a part of its own. */
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		const json_t *part = json_object_get(reading.text, parts[i]);

		if (json_is_object(part) && json_object_get(reading.text, "hidden_size") == NULL)
			reading.text = part;
	}
	if (!json_is_object(top)) {
		status = refuse(&reading, "it is no JSON object");
	} else {
		type = json_string_value(json_object_get(reading.text, "model_type"));
		if (type == NULL)
			type = text_of(&reading, "model_type");
		snprintf(model->type, sizeof model->type, "%s", type != NULL ? type : "");
		status = read_dtype(&reading, model);
		if (status == 0)
			status = read_norms(&reading, model);
	}
	json_decref(top);
	return status;
}
