/* Code objects that are kept behind a sweep's back are there, whole, once the code writer is closed. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/runner/gpu/gpu_code_writer.h"
#include "tests/unit/folder_help.h"

enum { OBJECTS = 40, BYTES = 5000 };

static char folder[64];

static int begin(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/flytune-code writer-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	return folder_remove(folder);
}

/* An object with a name, a key and bytes of its own; `data` has room for BYTES. */
static void make(unsigned number, uint8_t *data, struct gpu_code *code, char key[FT_HASH_SIZE])
{
	memset(code, 0, sizeof *code);
	memset(data, (int)number, BYTES);
	code->data = data;
	code->size = BYTES - number;
	code->registers = number;
	snprintf(code->hash, sizeof code->hash, "%032x", number);
	snprintf(code->symbol, sizeof code->symbol, "kernel_%u", number);
	snprintf(key, FT_HASH_SIZE, "%032x", number + 1000);
}

static void put_all(struct gpu_code_writer *code_writer)
{
	static const struct gpu_about launch = {
	        .step = {.block = 256, .rows = 1, .blocks_max = 7, .arguments = "y"}};
	uint8_t data[BYTES];

	for (unsigned i = 0; i < OBJECTS; i++) {
		struct gpu_code code;
		char key[FT_HASH_SIZE];

		make(i, data, &code, key);
		gpu_code_writer_put(code_writer, key, &code, i % 2 ? &launch : NULL);
		/* It has its own copy. */
		memset(data, 0xff, sizeof data);
	}
}

static void what_was_put_is_found_whole(void **state)
{
	struct gpu_code_writer *code_writer;
	struct ft_error error;

	(void)state;
	assert_int_equal(gpu_code_writer_open(&code_writer, folder, &error), 0);
	put_all(code_writer);
	gpu_code_writer_close(code_writer);
	for (unsigned i = 0; i < OBJECTS; i++) {
		uint8_t data[BYTES];
		struct gpu_code code, kept;
		char key[FT_HASH_SIZE];

		make(i, data, &code, key);
		assert_int_equal(gpu_code_load(folder, key, &kept), 1);
		assert_string_equal(kept.hash, code.hash);
		assert_string_equal(kept.symbol, code.symbol);
		assert_int_equal(kept.registers, i);
		assert_int_equal(kept.size, code.size);
		assert_memory_equal(kept.data, data, kept.size);
		gpu_code_free(&kept);
	}
}

static void a_folder_that_cannot_be_written_to_costs_what_was_put_only(void **state)
{
	struct gpu_code_writer *code_writer;
	struct ft_error error;
	char absent[96];

	(void)state;
	snprintf(absent, sizeof absent, "%s/absent", folder);
	assert_int_equal(gpu_code_writer_open(&code_writer, absent, &error), 0);
	put_all(code_writer);
	gpu_code_writer_close(code_writer);
	assert_int_not_equal(access(absent, F_OK), 0);
}

static void a_code_writer_may_have_nothing_to_write(void **state)
{
	struct gpu_code_writer *code_writer;
	struct ft_error error;

	(void)state;
	assert_int_equal(gpu_code_writer_open(&code_writer, folder, &error), 0);
	gpu_code_writer_close(code_writer);
	gpu_code_writer_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(what_was_put_is_found_whole, begin, end),
	        cmocka_unit_test_setup_teardown(
	                a_folder_that_cannot_be_written_to_costs_what_was_put_only, begin, end),
	        cmocka_unit_test_setup_teardown(a_code_writer_may_have_nothing_to_write, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
