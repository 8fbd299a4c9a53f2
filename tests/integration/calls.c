/* A program that makes each kind of call to the library once, driven by a test that has one call to the system or one allocation
 * fail meanwhile. It prints a line for what each gave, "NAME WHAT…"; "failed NAME WORD: MESSAGE" for each failure, after which it
 * calls again, and "away NAME" for a lookup that the library had to answer by itself. At its end: "descriptors N", those
 * that were left open. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

enum { PROBLEMS = 4, TRIES = 3000, BETWEEN_MS = 10, ROWS_MAX = 16, PATIENT_MS = 10000 };

struct calls {
	flytune_client *client;
	flytune_problem *problem[PROBLEMS];
	struct flytune_answer answer[PROBLEMS]; /* of the last lookups; the first is a pin */
	struct flytune_error error;
	bool away;
	struct flytune_row *row;
	size_t rows;
	size_t told; /* places of a subscription */
	char said[4096];
	size_t length;
};

static void say(struct calls *calls, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct calls *calls, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length =
	        vsnprintf(calls->said + calls->length, sizeof calls->said - calls->length, format, arguments);
	va_end(arguments);
	calls->length += (size_t)length;
	if (calls->length >= sizeof calls->said)
		abort();
}

static void say_answer(struct calls *calls, const struct flytune_answer *answer)
{
	say(calls, " %s", flytune_source_word(answer->source));
	for (uint32_t i = 0; i < answer->knob_count; i++)
		say(calls, " %s=%" PRId64, answer->knob[i].name, answer->knob[i].value);
	calls->away |= (answer->flags & FLYTUNE_ANSWER_AWAY) != 0;
}

/* ---- one call each ---- */

static enum flytune_result ask_open(struct calls *calls)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.lookup_timeout_ms = PATIENT_MS;
	calls->client = flytune_open(&options, &calls->error);
	return calls->client != NULL ? FLYTUNE_OK : calls->error.code;
}

static enum flytune_result ask_ping(struct calls *calls)
{
	return flytune_ping(calls->client, &calls->error);
}

static enum flytune_result ask_problems(struct calls *calls)
{
	static const int64_t rows[PROBLEMS] = {16, 64, 64, 4000};
	struct flytune_rmsnorm shape;

	flytune_rmsnorm_init(&shape);
	shape.n = 4096;
	for (size_t i = 0; i < PROBLEMS; i++) {
		shape.m = rows[i];
		shape.dtype = i == 2 ? "f32" : "bf16";
		if (calls->problem[i] == NULL)
			calls->problem[i] = flytune_problem_rmsnorm(&shape, &calls->error);
		if (calls->problem[i] == NULL)
			return calls->error.code;
	}
	return FLYTUNE_OK;
}

static enum flytune_result ask_each(struct calls *calls)
{
	for (size_t i = 0; i < PROBLEMS; i++) {
		enum flytune_result code;

		flytune_answer_init(&calls->answer[i]);
		code = flytune_lookup(
		        calls->client, calls->problem[i], NULL, &calls->answer[i], &calls->error);
		if (code != FLYTUNE_OK)
			return code;
		say_answer(calls, &calls->answer[i]);
	}
	return FLYTUNE_OK;
}

static enum flytune_result ask_many(struct calls *calls)
{
	struct flytune_answer answer[PROBLEMS];
	enum flytune_result code;

	for (size_t i = 0; i < PROBLEMS; i++)
		flytune_answer_init(&answer[i]);
	code = flytune_lookup_many(
	        calls->client, calls->problem, PROBLEMS, NULL, answer, NULL, &calls->error);
	for (size_t i = 0; i < PROBLEMS && code == FLYTUNE_OK; i++)
		say_answer(calls, &answer[i]);
	return code;
}

static enum flytune_result ask_pin(struct calls *calls)
{
	const struct flytune_answer *answer = &calls->answer[0];
	struct flytune_change change;

	flytune_change_init(&change);
	return flytune_pin(calls->client, calls->problem[3], NULL, answer->knob, answer->knob_count, &change,
	        &calls->error);
}

static enum flytune_result ask_unpin(struct calls *calls)
{
	return flytune_unpin(calls->client, calls->problem[3], NULL, NULL, &calls->error);
}

static enum flytune_result ask_forget(struct calls *calls)
{
	return flytune_forget(calls->client, calls->problem[3], NULL, NULL, &calls->error);
}

static enum flytune_result ask_pause(struct calls *calls)
{
	return flytune_pause(calls->client, &calls->error);
}

static enum flytune_result ask_resume(struct calls *calls)
{
	return flytune_resume(calls->client, &calls->error);
}

static enum flytune_result ask_known(struct calls *calls)
{
	struct flytune_answer answer;
	struct flytune_job job;
	enum flytune_result code;

	flytune_job_init(&job);
	flytune_answer_init(&answer);
	code = flytune_tune(calls->client, calls->problem[1], NULL, &job, &answer, &calls->error);
	if (code == FLYTUNE_OK)
		say_answer(calls, &answer);
	return code;
}

static int heed(void *data, const struct flytune_event *event)
{
	(void)data;
	return event->event[0] == '\0';
}

static enum flytune_result ask_sweep(struct calls *calls)
{
	struct flytune_tune_options options;
	struct flytune_answer answer;
	struct flytune_job job;
	enum flytune_result code;

	flytune_tune_options_init(&options);
	options.force = 1;
	flytune_job_init(&job);
	flytune_answer_init(&answer);
	code = flytune_tune(calls->client, calls->problem[2], &options, &job, NULL, &calls->error);
	if (code == FLYTUNE_OK)
		code = flytune_wait(calls->client, &job, FLYTUNE_FOREVER, heed, NULL, &answer, &calls->error);
	if (code != FLYTUNE_OK)
		return code;
	say(calls, " %s", flytune_state_word(job.state));
	say_answer(calls, &answer);
	return code;
}

static int heed_first(void *data, const struct flytune_event *event)
{
	(void)data;
	return strcmp(event->event, "watching") == 0;
}

static enum flytune_result ask_watch(struct calls *calls)
{
	return flytune_watch(calls->client, NULL, FLYTUNE_FOREVER, heed_first, NULL, &calls->error);
}

static enum flytune_result ask_jobs(struct calls *calls)
{
	flytune_job_list *list;
	enum flytune_result code = flytune_jobs(calls->client, NULL, &list, &calls->error);
	struct flytune_job job;

	if (code != FLYTUNE_OK)
		return code;
	flytune_job_init(&job);
	say(calls, " %d %s", flytune_job_list_get(list, 0, &job), flytune_state_word(job.state));
	flytune_job_list_free(list);
	return code;
}

static enum flytune_result ask_trials(struct calls *calls)
{
	flytune_trial_list *list;
	enum flytune_result code =
	        flytune_trials(calls->client, calls->problem[1], NULL, &list, &calls->error);
	struct flytune_trial trial;
	struct flytune_effect effect;

	if (code != FLYTUNE_OK)
		return code;
	flytune_trial_init(&trial);
	for (size_t i = 0; flytune_trial_list_get(list, i, &trial); i++)
		say(calls, " %s", trial.status);
	flytune_effect_init(&effect);
	for (size_t i = 0; flytune_trial_list_effect(list, i, &effect); i++)
		say(calls, " %s", effect.name);
	flytune_trial_list_free(list);
	return code;
}

static enum flytune_result ask_misses(struct calls *calls)
{
	flytune_miss_list *list;
	enum flytune_result code = flytune_misses(calls->client, 0, &list, &calls->error);

	if (code == FLYTUNE_OK)
		flytune_miss_list_free(list);
	return code;
}

static enum flytune_result ask_kernels(struct calls *calls)
{
	struct flytune_kernel kernel;
	struct flytune_kernel_knob knob;
	flytune_kernel_list *list;
	enum flytune_result code = flytune_kernels(calls->client, NULL, &list, &calls->error);

	if (code != FLYTUNE_OK)
		return code;
	flytune_kernel_init(&kernel);
	flytune_kernel_knob_init(&knob);
	for (size_t i = 0; flytune_kernel_list_get(list, i, &kernel); i++)
		say(calls, " %s %d %s", kernel.name, flytune_kernel_list_get_knob(list, i, 0, &knob),
		        knob.name);
	flytune_kernel_list_free(list);
	return code;
}

static enum flytune_result ask_status(struct calls *calls)
{
	struct flytune_status_info status;
	struct flytune_device device;
	flytune_device_list *list;
	enum flytune_result code;

	flytune_status_info_init(&status);
	code = flytune_status(calls->client, &status, &list, &calls->error);
	if (code != FLYTUNE_OK)
		return code;
	flytune_device_init(&device);
	say(calls, " %d %s %s", flytune_device_list_get(list, 0, &device), device.id, device.state);
	flytune_device_list_free(list);
	return code;
}

static enum flytune_result ask_metrics(struct calls *calls)
{
	size_t length;
	char *page;
	enum flytune_result code = flytune_metrics(calls->client, &page, &length, &calls->error);

	if (code != FLYTUNE_OK)
		return code;
	say(calls, " %d", strstr(page, "flytune_") != NULL && page[length] == '\0');
	flytune_text_free(page);
	return code;
}

static int keep_row(void *data, const struct flytune_row *row)
{
	struct calls *calls = data;

	if (calls->rows < ROWS_MAX)
		calls->row[calls->rows++] = *row;
	return 0;
}

static int compare_rows(const void *one, const void *other)
{
	const struct flytune_row *first = one, *second = other;

	return first->field[0].number < second->field[0].number ? -1
	        : first->field[0].number > second->field[0].number
	        ? 1
	        : strcmp(first->field[2].text, second->field[2].text);
}

static enum flytune_result ask_export(struct calls *calls)
{
	enum flytune_result code;

	calls->rows = 0;
	code = flytune_export(calls->client, keep_row, calls, NULL, &calls->error);
	if (code != FLYTUNE_OK)
		return code;
	qsort(calls->row, calls->rows, sizeof calls->row[0], compare_rows);
	for (size_t i = 0; i < calls->rows; i++)
		say(calls, " %" PRId64 "/%" PRIu32 "/%" PRIu32, calls->row[i].field[0].number,
		        calls->row[i].knob_count, calls->row[i].pin_count);
	return code;
}

static enum flytune_result ask_import(struct calls *calls)
{
	struct flytune_import_report report;
	flytune_import *import;
	enum flytune_result code = flytune_import_begin(calls->client, &import, &calls->error);

	if (code != FLYTUNE_OK)
		return code;
	flytune_import_report_init(&report);
	for (size_t i = 0; i < calls->rows && code == FLYTUNE_OK; i++)
		code = flytune_import_add(import, &calls->row[i], &calls->error);
	if (code == FLYTUNE_OK)
		code = flytune_import_check(import, &report, &calls->error);
	if (code == FLYTUNE_OK)
		code = flytune_import_commit(import, &report, &calls->error);
	if (code == FLYTUNE_OK)
		say(calls, " %" PRIu64 " %" PRIu64, report.rows, report.usable);
	flytune_import_free(import);
	return code;
}

static void on_answer(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error)
{
	struct calls *calls = data;

	say(calls, " %zu", index);
	if (answer != NULL)
		say_answer(calls, answer);
	else
		say(calls, " %s", error->word);
	calls->told++;
}

static enum flytune_result ask_subscribe(struct calls *calls)
{
	flytune_subscription *subscription;
	enum flytune_result code = flytune_subscribe(
	        calls->client, calls->problem, 2, NULL, on_answer, calls, &subscription, &calls->error);

	calls->told = 0;
	if (code != FLYTUNE_OK)
		return code;
	/* It tries again by itself, whatever failed. */
	for (int i = 0; i < TRIES && calls->told < 2; i++) {
		struct pollfd watched = {flytune_subscription_fd(subscription), POLLIN, 0};

		(void)poll(&watched, 1, BETWEEN_MS);
		code = flytune_dispatch(subscription, &calls->error);
		if (code != FLYTUNE_OK)
			printf("failed dispatch %s: %s\n", calls->error.word, calls->error.message);
	}
	flytune_unsubscribe(subscription);
	return code;
}

/* ---- all of them ---- */

static const struct step {
	const char *name;
	enum flytune_result (*ask)(struct calls *calls);
} steps[] = {
        {"open", ask_open},
        {"ping", ask_ping},
        {"problems", ask_problems},
        {"clean", ask_forget},
        {"lookup", ask_each},
        {"again", ask_each},
        {"many", ask_many},
        {"pin", ask_pin},
        {"pinned", ask_each},
        {"unpin", ask_unpin},
        {"forget", ask_forget},
        {"pause", ask_pause},
        {"resume", ask_resume},
        {"known", ask_known},
        {"sweep", ask_sweep},
        {"watch", ask_watch},
        {"jobs", ask_jobs},
        {"trials", ask_trials},
        {"misses", ask_misses},
        {"kernels", ask_kernels},
        {"status", ask_status},
        {"metrics", ask_metrics},
        {"export", ask_export},
        {"import", ask_import},
        {"subscribe", ask_subscribe},
        {"last", ask_each},
};

static bool make(struct calls *calls, const struct step *step)
{
	for (int i = 0; i < TRIES; i++) {
		calls->length = 0;
		calls->said[0] = '\0';
		calls->away = false;
		if (step->ask(calls) != FLYTUNE_OK) {
			printf("failed %s %s: %s\n", step->name, calls->error.word, calls->error.message);
		} else if (calls->away) {
			printf("away %s%s\n", step->name, calls->said);
		} else {
			printf("%s%s\n", step->name, calls->said);
			return true;
		}
		(void)poll(NULL, 0, BETWEEN_MS);
	}
	return false;
}

static int descriptors(void)
{
	int count = 0;

	for (int file = 0; file < 1024; file++)
		count += fcntl(file, F_GETFD) >= 0;
	return count;
}

int main(void)
{
	static struct flytune_row row[ROWS_MAX];
	static struct calls calls = {.row = row};
	static char output[65536];
	int before = descriptors();

	(void)setvbuf(stdout, output, _IOLBF, sizeof output);
	for (size_t i = 0; i < ROWS_MAX; i++)
		flytune_row_init(&row[i]);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		if (!make(&calls, &steps[i]))
			return 1;
	}
	for (size_t i = 0; i < PROBLEMS; i++)
		flytune_problem_free(calls.problem[i]);
	flytune_close(calls.client);
	printf("descriptors %d\n", descriptors() - before);
	return 0;
}
