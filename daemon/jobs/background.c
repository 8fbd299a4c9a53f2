#include "daemon/jobs/background.h"
#include "daemon/answers/lookup.h"
#include "daemon/host/timer.h"
#include "proto/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN_STEP = 64 };

/* Longest pause before a runner that could not be had is tried again, and before a problem is whose sweep failed; the first of
 * these is so many times as long as a busy device is left alone. */
static const uint64_t away_max_ns = 300000000000;
static const uint64_t failed_max_ns = 3600000000000;
enum { FAILED_FIRST = 2 };

/* A device that was idle is believed to stay so for a while: sweeps notice by themselves if it does not. */
static const uint64_t calm_ns = 10000000000;

/* Of changed candidates, at the most as much is lost when the daemon is killed. */
static const uint64_t save_after_ms = 5000;

static const char candidates_note[] = "candidates";

static void go(struct background *background);
static void scan_on(struct background *background);
static void note_scan(struct background *background);

static bool is_off(const struct background *background)
{
	return background->stopping || background->options->background == OPTIONS_BACKGROUND_OFF ||
	        background->options->background_queue == 0;
}

/* ---- candidates ---- */

static bool same_family(const struct store_key *a, const struct store_key *b)
{
	return a->kernel == b->kernel && a->device == b->device &&
	        memcmp(a->problem.hash, b->problem.hash, sizeof(a->problem.hash)) == 0;
}

static uint32_t tag_of(const struct store_key *key)
{
	uint32_t tag;

	memcpy(&tag, key->problem.hash, sizeof(tag));
	return tag ^ (uint32_t)key->problem.scale ^ (uint32_t)(key->problem.scale >> 32);
}

static struct candidate *find(struct background *background, const struct store_key *key)
{
	uint32_t tag = tag_of(key);

	for (uint32_t i = 0; i < background->count; i++) {
		struct candidate *candidate = &background->candidate[i];

		if (background->tag[i] != tag)
			continue;
		if (candidate->key.problem.scale == key->problem.scale && same_family(&candidate->key, key))
			return candidate;
	}
	return NULL;
}

static void save(struct background *background)
{
	struct store_batch *batch = store_batch_new(background->store);
	struct ft_writer list;

	background->unsaved = false;
	ft_writer_init_growing(&list, ft_bounds_large.bytes);
	if (batch != NULL &&
	        candidates_write(&list, background->candidate, background->count, background->kept,
	                background->kept_count) == 0 &&
	        store_batch_note(batch, candidates_note, list.data, list.length) == 0)
		store_submit(batch, NULL, NULL);
	else
		store_batch_drop(batch);
	ft_writer_free(&list);
}

static void save_due(uv_timer_t *timer)
{
	save(timer->data);
}

/* A timer runs only while there is something to save. */
static void save_later(struct background *background)
{
	if (background->unsaved)
		return;
	background->unsaved = true;
	timer_start(&background->saver, save_due, save_after_ms);
}

static void drop(struct background *background, struct candidate *candidate)
{
	save_later(background);
	background->least = NULL;
	*candidate = background->candidate[--background->count];
	background->tag[candidate - background->candidate] = background->tag[background->count];
}

/* Nothing is to be done for it just now. */
static bool is_idle(const struct candidate *candidate)
{
	return candidate->pause.length_ns > 0 || candidate->away;
}

/* The one that has to go first: given up or without its device, else asked least, else the latest. In a storm of misses,
 * which all have no room, it is looked for once. */
static struct candidate *least(struct background *background)
{
	struct candidate *least = &background->candidate[0];

	if (background->least != NULL)
		return background->least;

	for (uint32_t i = 1; i < background->count; i++) {
		struct candidate *candidate = &background->candidate[i];

		if (is_idle(candidate) != is_idle(least)           ? is_idle(candidate)
		                : candidate->asked != least->asked ? candidate->asked < least->asked
		                                                   : candidate->number > least->number)
			least = candidate;
	}
	background->least = least;
	return least;
}

/* ---- kinds whose runner cannot be had ---- */

static struct backoff *pause_of(struct background *background, const struct runner_slot *slot)
{
	return &background->pause[slot - background->devices->slot];
}

/* Each time for longer. */
static void lengthen(struct backoff *pause, uint64_t first_ns, uint64_t most_ns)
{
	pause->length_ns = pause->length_ns == 0  ? first_ns
	        : 2 * pause->length_ns <= most_ns ? 2 * pause->length_ns
	                                          : most_ns;
	pause->until_ns = ft_monotonic_ns() + pause->length_ns;
}

/* Its candidates are left alone for a while; those of other kinds go on. */
static void pause_slot(struct background *background, const struct runner_slot *slot)
{
	lengthen(pause_of(background, slot), background->options->background_wait_ns, away_max_ns);
}

/* Whether its device is here and its runner may be had; one whose device is not stays until it is heard again. */
static bool can_be_granted(struct background *background, struct candidate *candidate, uint64_t now_ns)
{
	const struct device *device = devices_find(background->devices, candidate->device, NULL);

	candidate->away = device == NULL || device->state != DEVICE_READY;
	return candidate->pause.until_ns <= now_ns && !candidate->away &&
	        pause_of(background, device->slot)->until_ns <= now_ns;
}

/* The most asked; but the rest of the last one's family goes on while it is asked at least half as often, since
 * near shapes share what was built and allocated. */
static struct candidate *next_candidate(struct background *background)
{
	struct candidate *most = NULL;
	struct candidate *near = NULL;
	uint64_t now_ns = ft_monotonic_ns();

	background->least = NULL;
	for (uint32_t i = 0; i < background->count; i++) {
		struct candidate *candidate = &background->candidate[i];
		bool kin = same_family(&candidate->key, &background->family);

		if (!can_be_granted(background, candidate, now_ns))
			continue;
		if (most == NULL || candidate->asked > most->asked ||
		        (candidate->asked == most->asked && candidate->cause > most->cause) ||
		        (candidate->asked == most->asked && candidate->cause == most->cause &&
		                candidate->number < most->number))
			most = candidate;
		if (kin && (near == NULL || candidate->asked > near->asked))
			near = candidate;
	}
	return near != NULL && near->cause >= most->cause && near->asked >= most->asked / 2 ? near : most;
}

static struct candidate *add(struct background *background, const struct store_key *key, uint64_t asked)
{
	struct candidate *candidate;

	if (background->count == background->options->background_queue) {
		candidate = least(background);
		background->dropped++;
		if (!is_idle(candidate) && candidate->asked >= asked)
			return NULL;
		drop(background, candidate);
	}
	background->least = NULL;
	background->tag[background->count] = tag_of(key);
	candidate = &background->candidate[background->count++];
	*candidate = (struct candidate){.key = *key, .asked = asked, .number = background->next++};
	return candidate;
}

void background_want(struct background *background, const struct target *target, enum candidate_cause cause,
        uint64_t asked)
{
	struct candidate *candidate;

	if (is_off(background) || target->key.device == 0 || target->key.kernel == 0)
		return;
	candidate = find(background, &target->key);
	save_later(background);
	if (candidate != NULL) {
		candidate->asked = asked > candidate->asked ? asked : candidate->asked + 1;
		background->least = NULL;
		return;
	}
	candidate = add(background, &target->key, asked);
	if (candidate == NULL)
		return;
	candidate->cause = cause;
	candidate->problem = target->problem;
	memcpy(candidate->kernel, target->kernel->schema.kernel, sizeof(candidate->kernel));
	memcpy(candidate->device, target->device->shown.id, sizeof(candidate->device));
	go(background);
}

/* ---- is the device idle? ---- */

static void rested(uv_timer_t *timer)
{
	struct background *background = timer->data;

	background->resting = false;
	go(background);
}

static void rest(struct background *background)
{
	background->resting = true;
	background->calm = NULL;
	timer_start(&background->timer, rested, timer_ms(background->options->background_wait_ns));
}

static uint64_t earlier(uint64_t first_ns, uint64_t until_ns, uint64_t now_ns)
{
	return until_ns > now_ns && until_ns < first_ns ? until_ns : first_ns;
}

/* Comes back when the first of the pauses is over. */
static void await_pause(struct background *background)
{
	uint64_t now_ns = ft_monotonic_ns();
	uint64_t first_ns = UINT64_MAX;

	for (int kind = 0; kind < OPTIONS_KINDS && background->count > 0; kind++)
		first_ns = earlier(first_ns, background->pause[kind].until_ns, now_ns);
	for (uint32_t i = 0; i < background->count; i++)
		first_ns = earlier(first_ns, background->candidate[i].pause.until_ns, now_ns);
	if (first_ns != UINT64_MAX)
		timer_start(&background->timer, rested, timer_ms(first_ns - now_ns));
}

static void stop_asking(struct background *background)
{
	background->slot = NULL;
	background->asking = false;
	queue_hold(background->queue, false);
}

static void load_told(void *data, struct ft_view body, const struct ft_error *failure)
{
	struct background *background = data;
	struct runner_slot *slot = background->slot;
	struct ft_load_reply load = {0};

	/* A runner that cannot tell is one whose sweeps have to notice by themselves. */
	if (failure == NULL && ft_decode(&ft_load_reply_message, body, &load, NULL) != 0)
		load = (struct ft_load_reply){0};
	runner_rest(&slot->runner);
	*pause_of(background, slot) = (struct backoff){0};
	if (load.known && load.percent > background->options->background_load) {
		log_line(background->log, LOG_LEVEL_DEBUG, "background waits kind=%s load=%" PRIu64 "%%",
		        slot->runner.kind, load.percent);
		rest(background);
	} else {
		background->calm = slot;
		background->calm_ns = ft_monotonic_ns() + calm_ns;
	}
	stop_asking(background);
	go(background);
}

/* True if its runner runs and the device is known to be idle; else finds out, and comes back to `go`. A runner that cannot
 * be started is met here, before there is a job that would fail for it. */
static bool is_calm(struct background *background, const struct device *device)
{
	struct ft_load_request request = {0};
	struct runner *runner = &device->slot->runner;
	bool ready = runner->state == RUNNER_READY;

	if (ready &&
	        (background->options->background == OPTIONS_BACKGROUND_ALWAYS ||
	                (background->calm == device->slot && ft_monotonic_ns() < background->calm_ns)))
		return true;
	background->slot = device->slot;
	if (ready && runner->reply == NULL) {
		background->asking = true;
		queue_hold(background->queue, true);
		memcpy(request.device, device->shown.id, sizeof(request.device));
		runner_ask(runner, "load", &ft_load_request_message, &request, STAGE_SPACE, load_told,
		        background);
	} else {
		runner_start(runner); /* or it is on its way already */
	}
	return false;
}

/* ---- jobs ---- */

static void added(void *data, const struct ft_job *job, bool joined, const struct ft_error *error)
{
	struct background *background = data;

	(void)job;
	(void)joined;
	background->adding = false;
	if (error != NULL && !background->stopping) {
		log_line(background->log, LOG_LEVEL_WARNING, "background job not queued: %s", error->message);
		rest(background);
		return;
	}
	go(background);
}

/* Today's answer may have made a candidate pointless: pins and imports come, and others tune. */
static bool is_granted(
        struct background *background, const struct candidate *candidate, const struct target *target)
{
	struct store_answer known;
	bool granted = false;

	if (store_begin(background->store, NULL) != 0)
		return false;
	granted = candidate->cause != CANDIDATE_BUSY &&
	        lookup_known(background->store, target, 0, &known, NULL) == 1 &&
	        lookup_settled(target, &known.winner);
	store_end(background->store);
	return granted;
}

static void start_candidate(
        struct background *background, struct candidate *candidate, const struct target *target)
{
	struct queue_ask ask = {
	        .priority = QUEUE_BACKGROUND,
	        .cause = candidate_cause_words[candidate->cause],
	        .force = candidate->cause == CANDIDATE_BUSY,
	        .subset = candidate->cause == CANDIDATE_UPGRADE,
	};

	background->family = candidate->key;
	background->adding = true;
	queue_add(background->queue, target, &ask, added, background);
}

static void go(struct background *background)
{
	while (!is_off(background) && !background->resting && !background->adding &&
	        background->slot == NULL && !queue_is_busy(background->queue)) {
		const struct ft_job *job = queue_background(background->queue);
		struct candidate *candidate = job == NULL ? next_candidate(background) : NULL;
		struct target target;

		if (job == NULL && candidate == NULL) {
			await_pause(background);
			return;
		}
		if (target_admit(&target, background->devices, job != NULL ? job->kernel : candidate->kernel,
		            job != NULL ? job->device : candidate->device,
		            job != NULL ? &job->problem : &candidate->problem, NULL) != 0 ||
		        target.device->state != DEVICE_READY) {
			if (devices_probing(background->devices))
				return; /* it is heard of again when they are settled */
			if (job != NULL) {
				queue_let(background->queue); /* to fail, and say why */
				return;
			}
			drop(background, candidate);
			continue;
		}
		if (candidate != NULL && is_granted(background, candidate, &target)) {
			drop(background, candidate);
			continue;
		}
		if (job != NULL && pause_of(background, target.device->slot)->until_ns > ft_monotonic_ns()) {
			queue_let(background->queue); /* to fail, and say why: others are behind it */
			return;
		}
		if (!is_calm(background, target.device))
			return;
		if (job != NULL)
			queue_let(background->queue);
		else
			start_candidate(background, candidate, &target);
		return;
	}
}

void background_idle(struct background *background, bool disturbed)
{
	if (disturbed && !background->resting)
		rest(background);
	go(background);
}

void background_swept(struct background *background, const struct target *target, const struct ft_job *job,
        bool busy, bool away)
{
	struct candidate *candidate = find(background, &target->key);
	uint64_t asked = candidate != NULL ? candidate->asked : 1;

	if (away) {
		pause_slot(background, target->device->slot);
		return;
	}
	*pause_of(background, target->device->slot) = (struct backoff){0};
	if (strcmp(job->state, "done") != 0) {
		if (candidate != NULL)
			lengthen(&candidate->pause, FAILED_FIRST * background->options->background_wait_ns,
			        failed_max_ns);
		background->least = NULL;
		return;
	}
	if (candidate != NULL)
		drop(background, candidate);
	scan_on(background);
	if (job->subset)
		background_want(background, target, CANDIDATE_GROWN, asked);
	else if (busy && strcmp(job->cause, candidate_cause_words[CANDIDATE_BUSY]) != 0)
		background_want(background, target, CANDIDATE_BUSY, asked);
}

/* ---- stale answers ---- */

static bool look_at(void *data, const struct store_key *key, const struct store_answer *answer)
{
	struct background *background = data;
	const struct device *device;
	const struct device_kernel *kernel = devices_kernel(background->devices, key, &device);
	struct target target;
	struct store_winner winner = answer->winner;
	enum candidate_cause cause;

	if (kernel == NULL || device->state != DEVICE_READY || !answer->winner.set || answer->pin.set)
		return true;
	if (target_admit(&target, background->devices, kernel->schema.kernel, device->shown.id,
	            &answer->problem, NULL) != 0)
		return true;
	if (lookup_settled(&target, &winner))
		return true;
	cause = answer->winner.identity != kernel->identity ? CANDIDATE_UPGRADE : CANDIDATE_GROWN;
	background_want(background, &target, cause, 0);
	return true;
}

static void scan_step(uv_idle_t *idle)
{
	struct background *background = idle->data;
	uint64_t room = background->options->background_queue - background->count;
	uint64_t hidden = 0;
	int walked = -1;

	if (room > 0 && store_begin(background->store, NULL) == 0) {
		walked =
		        store_each_answer(background->store, 0, room < SCAN_STEP ? (unsigned)room : SCAN_STEP,
		                &background->scan, look_at, background, &hidden, NULL);
		store_end(background->store);
	}
	if (walked == 0 && background->scan.length > 0 &&
	        background->count < background->options->background_queue)
		return;
	/* Full: it goes on when there is room. At the end, or where the store fails: it is over. */
	(void)uv_idle_stop(&background->scanner);
	background->scanning = room == 0 || (walked == 0 && background->scan.length > 0);
	if (walked == 0 && !background->scanning)
		note_scan(background);
}

/* Goes on with a walk that had to stop for want of room. */
static void scan_on(struct background *background)
{
	if (background->scanning && background->count < background->options->background_queue &&
	        !uv_is_active((uv_handle_t *)&background->scanner))
		(void)uv_idle_start(&background->scanner, scan_step);
}

/* ---- candidates from before a restart ---- */

static void read_kept(struct background *background)
{
	struct ft_writer value;

	ft_writer_init_growing(&value, ft_bounds_large.bytes);
	if (store_begin(background->store, NULL) == 0) {
		if (store_get_note(background->store, candidates_note, &value, NULL) == 1)
			background->kept_count = candidates_read(
			        (struct ft_view){value.data, value.length}, &background->kept);
		store_end(background->store);
	}
	ft_writer_free(&value);
}

/* Once every device was heard. What no device has a kernel for is forgotten. */
static void take_kept(struct background *background)
{
	struct candidate *kept = background->kept;
	uint32_t count = background->kept_count;
	struct target target;

	background->kept = NULL;
	background->kept_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (target_admit(&target, background->devices, kept[i].kernel, kept[i].device,
		            &kept[i].problem, NULL) == 0 &&
		        target.device->state == DEVICE_READY)
			background_want(background, &target, kept[i].cause, kept[i].asked);
	}
	free(kept);
}

/* ---- life ---- */

static const char scan_note[] = "background-scan";

/* What the last whole walk was made under: while that stands, no answer can have become stale. */
static uint64_t scan_mark(const struct background *background)
{
	uint64_t mark = 1469598103934665603ULL;

	for (uint32_t i = 0; i < background->devices->count; i++) {
		const struct device *device = background->devices->device[i];

		for (uint32_t k = 0; device->state == DEVICE_READY && k < device->kernel_count; k++) {
			const struct device_kernel *kernel = &device->kernel[k];
			const uint64_t part[] = {device->key, kernel->id, kernel->identity,
			        kernel->schema.revision, FT_RULE_REVISION};

			for (size_t p = 0; p < sizeof(part) / sizeof(part[0]); p++)
				mark = (mark ^ part[p]) * 1099511628211ULL;
		}
	}
	return mark;
}

static bool scan_is_due(struct background *background)
{
	struct ft_writer value;
	struct ft_cursor cursor;
	uint8_t buffer[16];
	uint64_t mark = 0;
	int found;

	if (store_begin(background->store, NULL) != 0)
		return false;
	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	found = store_get_note(background->store, scan_note, &value, NULL);
	store_end(background->store);
	cursor = ft_cursor_of(value.data, value.length);
	return found != 1 || !ft_read_uint(&cursor, &mark) || mark != scan_mark(background);
}

static void note_scan(struct background *background)
{
	struct store_batch *batch = store_batch_new(background->store);
	struct ft_writer value;
	uint8_t buffer[16];

	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	ft_write_uint(&value, scan_mark(background));
	if (batch != NULL && store_batch_note(batch, scan_note, value.data, value.length) == 0)
		store_submit(batch, NULL, NULL);
	else
		store_batch_drop(batch);
}

void background_settled(struct background *background, struct runner_slot *slot)
{
	if (is_off(background))
		return;
	if (background->slot == slot && !background->asking)
		background->slot = NULL; /* it was being started to be asked */
	if (!devices_probing(background->devices) && background->kept != NULL)
		take_kept(background);
	if (!devices_probing(background->devices) && !background->scanning && scan_is_due(background)) {
		background->scanning = true;
		memset(&background->scan, 0, sizeof(background->scan));
		(void)uv_idle_start(&background->scanner, scan_step);
	}
	go(background);
}

void background_runner_gone(struct background *background, struct runner_slot *slot, enum runner_cause cause)
{
	if (background->calm == slot)
		background->calm = NULL;
	if (background->slot != slot || background->stopping)
		return;
	if (cause != RUNNER_ASKED)
		pause_slot(background, slot);
	stop_asking(background);
	go(background);
}

const char *background_state(const struct background *background)
{
	if (is_off(background))
		return "off";
	if (background->resting)
		return "waits for its device to be idle";
	return background->count > 0 || background->scanning ? "works" : "";
}

int background_init(struct background *background, uv_loop_t *loop, struct devices *devices,
        struct queue *queue, struct store *store, const struct log *log, const struct options *options,
        struct ft_error *error)
{
	*background = (struct background){
	        .devices = devices,
	        .queue = queue,
	        .store = store,
	        .log = log,
	        .options = options,
	        .candidate = calloc(options->background_queue + 1, sizeof(*background->candidate)),
	        .tag = calloc(options->background_queue + 1, sizeof(*background->tag)),
	};
	if (background->candidate == NULL || background->tag == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for background work");
	(void)uv_timer_init(loop, &background->timer);
	(void)uv_timer_init(loop, &background->saver);
	background->saver.data = background;
	(void)uv_idle_init(loop, &background->scanner);
	background->timer.data = background;
	background->scanner.data = background;
	read_kept(background);
	return 0;
}

void background_stop(struct background *background)
{
	background->stopping = true;
	if (background->unsaved)
		save(background);
	uv_close((uv_handle_t *)&background->timer, NULL);
	uv_close((uv_handle_t *)&background->saver, NULL);
	uv_close((uv_handle_t *)&background->scanner, NULL);
}

void background_free(struct background *background)
{
	free(background->candidate);
	background->candidate = NULL;
	free(background->tag);
	background->tag = NULL;
	free(background->kept);
	background->kept = NULL;
}
