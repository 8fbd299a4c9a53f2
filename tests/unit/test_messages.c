#include "tests/unit/check.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/messages.h"

static const struct ft_message *const all[] = {
        &ft_answer_message,
        &ft_answer_notice_message,
        &ft_cancel_notice_message,
        &ft_device_state_message,
        &ft_devices_reply_message,
        &ft_empty_message,
        &ft_error_message,
        &ft_event_message,
        &ft_hello_reply_message,
        &ft_hello_request_message,
        &ft_job_message,
        &ft_job_request_message,
        &ft_jobs_reply_message,
        &ft_lookup_many_reply_message,
        &ft_lookup_many_request_message,
        &ft_lookup_request_message,
        &ft_runner_device_message,
        &ft_runner_event_message,
        &ft_runner_hello_reply_message,
        &ft_runner_hello_request_message,
        &ft_runner_kernel_message,
        &ft_schema_field_message,
        &ft_schema_knob_message,
        &ft_space_member_message,
        &ft_space_reply_message,
        &ft_space_request_message,
        &ft_status_reply_message,
        &ft_subscribe_reply_message,
        &ft_subscribe_request_message,
        &ft_sweep_member_message,
        &ft_sweep_reply_message,
        &ft_sweep_request_message,
        &ft_trial_message,
        &ft_load_reply_message,
        &ft_load_request_message,
        &ft_trials_reply_message,
        &ft_code_request_message,
        &ft_code_reply_message,
        &ft_code_about_message,
        &ft_trials_request_message,
        &ft_tune_reply_message,
        &ft_tune_request_message,
};
enum { ALL = sizeof(all) / sizeof(all[0]) };

static const struct ft_message *find(const char *name)
{
	for (size_t i = 0; i < ALL; i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	fail_msg("no message is called %s", name);
	return NULL;
}

static void fill_text(char *text, size_t size, uint64_t *random)
{
	size_t length = check_random(random) % size;
	for (size_t i = 0; i < length; i++)
		text[i] = (char)(' ' + check_random(random) % 95);
	text[length] = '\0';
}

/* Puts random values into a struct that a table describes; some members stay empty. */
static void fill(const struct ft_message *message, void *body, uint64_t *random)
{
	memset(body, 0, message->size);
	for (size_t i = 0; i < message->count; i++) {
		const struct ft_member *member = &message->member[i];
		void *at = (uint8_t *)body + member->offset;
		uint64_t number = check_random(random) >> (check_random(random) % 64);
		struct ft_problem *problem = at;
		struct ft_config *config = at;
		if (!member->required && check_random(random) % 3 == 0)
			continue;
		switch (member->type) {
		case FT_TYPE_BOOL:
			*(bool *)at = number % 2 == 0;
			break;
		case FT_TYPE_INT:
			*(int64_t *)at = (int64_t)number;
			break;
		case FT_TYPE_UINT:
			*(uint64_t *)at = number;
			break;
		case FT_TYPE_REAL:
			*(double *)at = (double)number / 3;
			break;
		case FT_TYPE_TEXT:
			fill_text(at, member->size, random);
			break;
		case FT_TYPE_BYTES:
			*(struct ft_view *)at =
			        (struct ft_view){.data = (const uint8_t *)"bytes", .length = 5};
			break;
		case FT_TYPE_RAW:
			*(struct ft_view *)at =
			        (struct ft_view){.data = (const uint8_t *)"\x92\x01\xa1x", .length = 4};
			break;
		case FT_TYPE_PROBLEM:
		case FT_TYPE_PROBLEMS:
			ft_problem_set_number(problem, "m", (int64_t)number, NULL);
			ft_problem_set_text(problem, "dtype", "bf16", NULL);
			break;
		case FT_TYPE_CONFIG:
			ft_config_set(config, "BLOCK_THREADS", (int64_t)number, NULL);
			break;
		}
	}
}

/* What is wrong with the struct that was read, as the encoder sees it: nothing, if it encodes to the same
 * bytes. */
static void every_message_comes_back_as_it_was(void **state)
{
	(void)state;
	static uint8_t first[1 << 16];
	static uint8_t second[1 << 16];
	uint64_t random = 6;
	for (size_t i = 0; i < ALL; i++) {
		void *body = malloc(all[i]->size);
		void *read = malloc(all[i]->size);
		assert_non_null(body);
		assert_non_null(read);
		for (int round = 0; round < 50; round++) {
			struct ft_writer writer;
			struct ft_writer again;
			struct ft_error error = {0};
			fill(all[i], body, &random);
			ft_writer_init_fixed(&writer, first, sizeof(first));
			ft_encode(&writer, all[i], body);
			assert_true(ft_writer_ok(&writer));
			struct ft_view view = {.data = first, .length = writer.length};
			if (ft_decode(all[i], view, read, &error) != 0)
				fail_msg("%s: %s", all[i]->name, error.message);
			ft_writer_init_fixed(&again, second, sizeof(second));
			ft_encode(&again, all[i], read);
			assert_int_equal(again.length, writer.length);
			assert_memory_equal(first, second, writer.length);
			for (size_t cut = 1; round == 0 && cut < writer.length; cut++) {
				view.length = cut;
				assert_int_equal(ft_decode(all[i], view, read, &error), -1);
			}
		}
		free(body);
		free(read);
	}
}

/* A newer daemon's job may have several: of those the first is read. */
static void a_list_of_problems_is_read_by_its_first(void **state)
{
	(void)state;
	static struct ft_job job, read;
	uint8_t first[4096], longer[8192];
	uint64_t random = 6;
	struct ft_writer writer;
	struct ft_error error = {0};

	fill(&ft_job_message, &job, &random);
	ft_writer_init_fixed(&writer, first, sizeof(first));
	ft_encode(&writer, &ft_job_message, &job);
	assert_true(ft_writer_ok(&writer));
	uint8_t *list = memmem(first, writer.length, "\xa8problems", 9);
	assert_non_null(list);
	list += 9;
	assert_int_equal(*list, 0x91);
	size_t before = (size_t)(list - first), after = writer.length - before - 1;
	struct ft_cursor cursor = ft_cursor_of(list + 1, after);
	struct ft_view one;
	assert_true(ft_read_view(&cursor, &one));

	memcpy(longer, first, before);
	longer[before] = 0x92;
	memcpy(longer + before + 1, one.data, one.length);
	memcpy(longer + before + 1 + one.length, list + 1, after);
	struct ft_view view = {.data = longer, .length = writer.length + one.length};
	assert_int_equal(ft_decode(&ft_job_message, view, &read, &error), 0);
	assert_memory_equal(&read.problems, &job.problems, sizeof(job.problems));

	longer[before] = 0x90;
	memcpy(longer + before + 1, list + 1 + one.length, after - one.length);
	view.length = writer.length - one.length;
	assert_int_equal(ft_decode(&ft_job_message, view, &read, &error), -1);
	assert_string_equal(error.message, "problems is an empty list; it must be a list of one or more");
}

static void no_message_is_accepted_without_what_it_requires(void **state)
{
	(void)state;
	for (size_t i = 0; i < ALL; i++) {
		void *body = malloc(all[i]->size);
		assert_non_null(body);
		bool requires = false;
		for (size_t k = 0; k < all[i]->count; k++)
		requires = requires || all[i]->member[k].required;
		assert_int_equal(ft_decode(all[i], (struct ft_view){0}, body, NULL), requires ? -1 : 0);
		free(body);
	}
}

/* A lookup is on other people's hot path: these are what it costs on the wire. */
static void a_lookup_stays_small_on_the_wire(void **state)
{
	(void)state;
	uint8_t data[512];
	struct ft_writer writer;
	struct ft_lookup_request request = {.kernel = "rmsnorm"};
	ft_problem_set_number(&request.problem, "m", 4096, NULL);
	ft_problem_set_number(&request.problem, "n", 8192, NULL);
	ft_problem_set_text(&request.problem, "dtype", "bf16", NULL);
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_begin_request(&writer, 1, "lookup");
	ft_encode(&writer, &ft_lookup_request_message, &request);
	assert_true(ft_writer_ok(&writer));
	assert_true(writer.length <= 64);
}

/* ---- the examples of PROTOCOL.md ---- */

static size_t parse_hex(const char *text, const char *end, uint8_t *data, size_t size)
{
	size_t length = 0;
	while (text < end) {
		if (isspace((unsigned char)*text)) {
			text++;
			continue;
		}
		char pair[3] = {text[0], text[1], '\0'};
		char *after = NULL;
		assert_true(length < size);
		data[length++] = (uint8_t)strtoul(pair, &after, 16);
		assert_ptr_equal(after, pair + 2);
		text += 2;
	}
	return length;
}

static void check_example(const char *name, const uint8_t *data, size_t length)
{
	struct ft_error error = {0};
	struct ft_scan scan;
	struct ft_envelope envelope;
	ft_scan_init(&scan, &ft_bounds_request);
	if (ft_scan_walk(&scan, data, length, &error) != 1 || scan.offset != length)
		fail_msg("%s: no whole message: %s", name, error.message);
	assert_int_equal(ft_open_envelope((struct ft_view){data, length}, &envelope, &error), 0);
	const struct ft_message *message = find(name);
	void *body = malloc(message->size);
	assert_non_null(body);
	struct ft_view view = envelope.error.data != NULL ? envelope.error : envelope.body;
	if (ft_decode(message, view, body, &error) != 0)
		fail_msg("%s: %s", name, error.message);

	/* Written again it must be the same bytes: the example is what flytune itself would send. */
	uint8_t again[4096];
	struct ft_writer writer;
	ft_writer_init_fixed(&writer, again, sizeof(again));
	if (envelope.type == FT_REQUEST)
		ft_begin_request(&writer, envelope.id, envelope.method);
	else if (envelope.type == FT_NOTICE)
		ft_begin_notice(&writer, envelope.method);
	else if (envelope.error.data == NULL)
		ft_begin_response(&writer, envelope.id);
	if (envelope.error.data != NULL)
		ft_write_failure(&writer, envelope.id, body);
	else
		ft_encode(&writer, message, body);
	assert_true(ft_writer_ok(&writer));
	if (writer.length != length || memcmp(again, data, length) != 0)
		fail_msg("%s: flytune would write other bytes", name);
	free(body);
}

static void the_documented_bytes_are_the_bytes_sent(void **state)
{
	(void)state;
	static const char fence[] = "```hex ";
	static char text[1 << 18];
	char path[4096];
	const char *source = getenv("FLYTUNE_SOURCE");
	assert_non_null(source);
	snprintf(path, sizeof(path), "%s/proto/PROTOCOL.md", source);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	size_t size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	assert_true(size < sizeof(text) - 1);
	text[size] = '\0';
	int examples = 0;
	for (const char *at = strstr(text, fence); at != NULL; at = strstr(at, fence)) {
		char name[48];
		uint8_t data[4096];
		at += sizeof(fence) - 1;
		const char *line_end = strchr(at, '\n');
		assert_non_null(line_end);
		snprintf(name, sizeof(name), "%.*s", (int)(line_end - at), at);
		const char *end = strstr(line_end, "```");
		assert_non_null(end);
		size_t length = parse_hex(line_end, end, data, sizeof(data));
		check_example(name, data, length);
		examples++;
		at = end;
	}
	assert_true(examples >= 19);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_message_comes_back_as_it_was),
	        cmocka_unit_test(a_list_of_problems_is_read_by_its_first),
	        cmocka_unit_test(no_message_is_accepted_without_what_it_requires),
	        cmocka_unit_test(a_lookup_stays_small_on_the_wire),
	        cmocka_unit_test(the_documented_bytes_are_the_bytes_sent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
