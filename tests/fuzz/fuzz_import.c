/* The file of an export, on its way in: any bytes are read, or refused by row and field; what was read is written again, and
 * says the same. */
#include "tests/fuzz/target.h"

#include <string.h>

#include "client/ctl/output/answers.h"

enum { ROWS_MAX = 256 };

struct taken {
	struct answers answers;
	size_t count, stop_at;
};

static void must_be_plain(const char *text)
{
	for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
		MUST(*at >= 0x20 && *at != 0x7f && !(*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f));
}

static bool take(void *data, size_t number, const struct flytune_row *row, struct flytune_error *error)
{
	struct taken *taken = data;

	MUST(number == taken->count + 1);
	if (number == taken->stop_at) {
		memset(error, 0, sizeof(*error));
		return false;
	}
	MUST(row->knob_count <= FLYTUNE_KNOBS_MAX && row->pin_count <= FLYTUNE_KNOBS_MAX);
	MUST(row->field_count <= FLYTUNE_FIELDS_MAX);
	MUST(row->knob_count > 0 || row->pin_count > 0 || row->document != NULL || row->pin_document != NULL);
	MUST(row->document == NULL ||
	        (row->knob_count == 0 && strlen(row->document) < FLYTUNE_DOCUMENT_SIZE));
	MUST(memchr(row->kernel, '\0', sizeof(row->kernel)) != NULL);
	MUST(memchr(row->device, '\0', sizeof(row->device)) != NULL);
	MUST(answers_add(&taken->answers, row) == 0);
	taken->count++;
	return true;
}

/* Rows come back in the order of the file, so each is looked for, by all that is written of it. */
static void must_be_there(const struct taken *taken, const char *row)
{
	for (size_t i = 0; i < taken->count; i++) {
		if (strcmp(taken->answers.line[i].json, row) == 0)
			return;
	}
	MUST(!"a row is lost");
}

static void write_and_read_again(struct taken *first)
{
	struct flytune_export_info info = {.size = sizeof(info), .generation = 7};
	struct taken *again = calloc(1, sizeof(*again));
	struct flytune_error error;
	char *text = NULL;
	size_t length = 0;
	FILE *file = open_memstream(&text, &length);

	MUST(file != NULL && again != NULL);
	MUST(answers_write(&first->answers, &info, file) == 0 && fclose(file) == 0);
	MUST(answers_read(text, length, take, again, &error));
	MUST(again->count == first->count);
	for (size_t i = 0; i < first->count; i++)
		must_be_there(again, first->answers.line[i].json);
	answers_free(&again->answers);
	free(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct taken *taken = calloc(1, sizeof(*taken));
	struct flytune_error error = {0};

	MUST(taken != NULL);
	if (answers_read((const char *)data, size, take, taken, &error)) {
		if (taken->count < ROWS_MAX)
			write_and_read_again(taken);
	} else {
		MUST(error.code != FLYTUNE_OK && error.message[0] != '\0');
		must_be_plain(error.message);
		must_be_plain(error.field);
		must_be_plain(error.value);
	}
	/* Whoever takes the rows may stop at any. */
	if (taken->count > 0) {
		answers_free(&taken->answers);
		*taken = (struct taken){.stop_at = taken->count};
		MUST(!answers_read((const char *)data, size, take, taken, &error));
	}
	answers_free(&taken->answers);
	free(taken);
	return 0;
}
