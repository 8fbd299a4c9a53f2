/* The model table and a model's configuration, on their way in: any bytes are read as either, or refused by a sentence that
 * steers no terminal. */
#include "tests/fuzz/target.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/model/model.h"

static const char sound_table[] = "{\"flytune\": \"models\", \"version\": 1, \"parts\": [\"text_config\"], "
                                  "\"dtypes\": {\"half\": \"f16\"}, "
                                  "\"families\": [{\"name\": \"x\", \"types\": [\"[a-m]*\", \"q?en\"], "
                                  "\"when\": \"a | b | 1\", \"norms\": [{\"name\": \"h\", "
                                  "\"kernel\": \"k\", \"when\": \"c | 1\", \"fields\": {\"m\": \"=tokens * "
                                  "(a | 2)\", \"n\": \"=b | a + c / 3\", \"dtype\": "
                                  "\"=dtype\", \"kind\": \"text\", \"number\": 7}}]}, {\"name\": \"y\", "
                                  "\"types\": [\"z*\"], \"refuse\": \"no\"}]}";
static const char sound_model[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 32, \"head_dim\": 128, "
        "\"rms_norm_eps\": 1e-5, \"q_lora_rank\": null, \"use_qk_norm\": true, \"dtype\": \"half\"}";

static void must_be_plain(const char *problem)
{
	MUST(problem[0] != '\0');
	for (const unsigned char *at = (const unsigned char *)problem; *at != '\0'; at++)
		MUST(*at >= 0x20 && *at != 0x7f && !(*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f));
}

/* A file that has these bytes, by its path; the descriptor is the caller's to close. */
static int make_file(const void *data, size_t size, char path[64])
{
	int file = memfd_create("input", MFD_CLOEXEC);

	MUST(file >= 0 && write(file, data, size) == (ssize_t)size);
	snprintf(path, 64, "/proc/self/fd/%d", file);
	return file;
}

static void read_model(const struct families *families, const char *path)
{
	const struct model_wanted wanted = {.tokens = "1,300"};
	char problem[FILE_PROBLEM_SIZE] = "";
	struct model model;

	if (model_read(families, path, &wanted, &model, problem)) {
		MUST(model.count > 0 && model.count <= FAMILIES_NORMS_MAX);
		for (size_t i = 0; i < model.count; i++)
			MUST(model.norm[i].kernel[0] != '\0' && model.norm[i].field_count > 0);
	} else {
		must_be_plain(problem);
	}
	for (const unsigned char *at = (const unsigned char *)model.type; *at != '\0'; at++)
		MUST(*at >= 0x20);
	model_free(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct families families = {0}, sound = {0};
	char input[64], table[64], model[64], problem[FILE_PROBLEM_SIZE] = "";
	int files[] = {make_file(data, size, input), make_file(sound_table, sizeof(sound_table) - 1, table),
	        make_file(sound_model, sizeof(sound_model) - 1, model)};

	MUST(families_add(&sound, table, problem));
	read_model(&sound, input);
	if (families_add(&families, input, problem)) {
		read_model(&families, model);
		/* On top of another. */
		MUST(families_add(&sound, input, problem));
		read_model(&sound, model);
	} else {
		must_be_plain(problem);
	}
	families_free(&families);
	families_free(&sound);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		close(files[i]);
	return 0;
}
