#include "daemon/jobs/background.h"
#include "daemon/jobs/internal.h"
#include "daemon/answers/lookup.h"
#include "daemon/host/timer.h"
#include "proto/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static bool is_off(const struct background *background)
{
	return background->stopping || background->settings->background == SETTINGS_BACKGROUND_OFF ||
	        background->settings->background_queue == 0;
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
		if (background->tag[i] == tag && store_key_equal(&background->candidate[i].key, key))
			return &background->candidate[i];
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

/* ---- devices whose runner cannot be had ---- */

static struct pace *pace_of(struct background *background, struct worker *worker)
{
	struct pace *pace = &background->pace[worker->number];

	pace->background = background;
	pace->worker = worker;
	return pace;
}

/* It is left alone for a while; others go on. */
static void pause_worker(struct pace *pace)
{
	backoff_lengthen(&pace->pause, pace->background->settings->background_wait_ns, away_max_ns);
}

/* Whether its device is here and like this one, and none works on it; one whose device is not stays until it is probed
 * again. */
static bool can_be_granted(struct background *background, struct candidate *candidate,
        const struct device *device, uint64_t now_ns)
{
	const struct device *home = devices_find(background->devices, candidate->device, NULL);

	if (home == NULL && device->key == candidate->key.device)
		home = device;
	candidate->away = home == NULL || home->state != DEVICE_READY;
	return candidate->pause.until_ns <= now_ns && !candidate->away && devices_equal(home, device) &&
	        !queue_works_on(background->queue, &candidate->key);
}

/* The most asked; but the rest of the last one's family goes on while it is asked at least half as often, since
 * near shapes share what was built and allocated. */
static struct candidate *next_candidate(struct pace *pace, const struct device *device)
{
	struct background *background = pace->background;
	struct candidate *most = NULL;
	struct candidate *near = NULL;
	uint64_t now_ns = ft_monotonic_ns();

	if (pace->pause.until_ns > now_ns)
		return NULL;
	background->least = NULL;
	for (uint32_t i = 0; i < background->count; i++) {
		struct candidate *candidate = &background->candidate[i];
		bool kin = same_family(&candidate->key, &pace->family);

		if (!can_be_granted(background, candidate, device, now_ns))
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

	if (background->count == background->settings->background_queue) {
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

static void time_to_look(uv_timer_t *timer)
{
	go(timer->data);
}

static void rest(struct pace *pace)
{
	pace->rest_ns = ft_monotonic_ns() + pace->background->settings->background_wait_ns;
	pace->calm_ns = 0;
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

	for (uint32_t i = 0; i < background->devices->worker_count; i++) {
		first_ns = earlier(first_ns, background->pace[i].rest_ns, now_ns);
		if (background->count > 0)
			first_ns = earlier(first_ns, background->pace[i].pause.until_ns, now_ns);
	}
	for (uint32_t i = 0; i < background->count; i++)
		first_ns = earlier(first_ns, background->candidate[i].pause.until_ns, now_ns);
	if (first_ns != UINT64_MAX)
		timer_start(&background->timer, time_to_look, timer_ms(first_ns - now_ns));
}

static void stop_asking(struct pace *pace)
{
	bool asking = pace->asking;

	pace->wanted = pace->asking = false;
	if (asking)
		queue_hold(pace->background->queue, pace->worker, false);
}

static void load_told(void *data, struct ft_view body, const struct ft_error *failure)
{
	struct pace *pace = data;
	struct background *background = pace->background;
	struct ft_load_reply load = {0};

	/* A runner that cannot say is one whose sweeps have to notice by themselves. */
	if (failure == NULL && ft_decode(&ft_load_reply_message, body, &load, NULL) != 0)
		load = (struct ft_load_reply){0};
	runner_rest(&pace->worker->runner);
	pace->pause = (struct backoff){0};
	if (load.known && load.percent > background->settings->background_load) {
		log_line(background->log, LOG_LEVEL_DEBUG, "background waits device=%s load=%" PRIu64 "%%",
		        pace->worker->device, load.percent);
		rest(pace);
	} else {
		pace->calm_ns = ft_monotonic_ns() + calm_ns;
	}
	stop_asking(pace);
	go(background);
}

/* True if its runner runs and the device is known to be idle; else finds out, and comes back to `go`. A runner that cannot
 * be started is met here, before there is a job that would fail for it. */
static bool is_calm(struct pace *pace, const struct device *device)
{
	struct ft_load_request request = {0};
	struct runner *runner = &pace->worker->runner;
	bool ready = runner->state == RUNNER_READY;

	if (ready &&
	        (pace->background->settings->background == SETTINGS_BACKGROUND_ALWAYS ||
	                ft_monotonic_ns() < pace->calm_ns))
		return true;
	pace->wanted = true;
	if (ready && runner->reply == NULL) {
		pace->asking = true;
		queue_hold(pace->background->queue, pace->worker, true);
		memcpy(request.device, device->shown.id, sizeof(request.device));
		runner_ask(runner, "load", &ft_load_request_message, &request, STAGE_SPACE, load_told, pace);
	} else {
		runner_start(runner); /* or it is on its way already */
	}
	return false;
}

/* ---- jobs ---- */

static void added(void *data, const struct ft_job *job, bool joined, const struct ft_error *error)
{
	struct background *background = data;
	struct pace *pace = background->adding;
	struct candidate *candidate = joined ? find(background, &pace->family) : NULL;

	(void)job;
	background->adding = NULL;
	if (error != NULL && !background->stopping) {
		log_line(background->log, LOG_LEVEL_WARNING, "background job not queued: %s", error->message);
		rest(pace);
	}
	if (candidate != NULL) /* somebody asked for it by hand */
		drop(background, candidate);
	go(background);
}

/* Today's answer may have made a candidate pointless: pins and imports come, and others tune. */
static bool is_granted(
        struct background *background, const struct candidate *candidate, const struct target *target)
{
	bool granted = false;

	if (store_begin(background->store, NULL) != 0)
		return false;
	granted = candidate->cause != CANDIDATE_BUSY && lookup_is_settled(background->store, target);
	store_end(background->store);
	return granted;
}

static void start_candidate(struct pace *pace, struct candidate *candidate, const struct target *target)
{
	struct queue_ask ask = {
	        .priority = QUEUE_BACKGROUND,
	        .cause = candidate_cause_words[candidate->cause],
	        .force = candidate->cause == CANDIDATE_BUSY,
	        .subset = candidate->cause == CANDIDATE_UPGRADE,
	};

	pace->family = candidate->key;
	pace->background->adding = pace;
	queue_add(pace->background->queue, target, &ask, added, pace->background);
}

static void go_on(struct background *background, struct device *device)
{
	struct pace *pace = pace_of(background, device->worker);

	while (!is_off(background) && background->adding == NULL && !pace->wanted &&
	        pace->rest_ns <= ft_monotonic_ns() && !queue_is_busy(background->queue, device)) {
		const struct ft_job *job = queue_background(background->queue, device);
		struct candidate *candidate = job == NULL ? next_candidate(pace, device) : NULL;
		struct target target;

		if (job == NULL && candidate == NULL)
			return;
		if (target_admit(&target, background->devices, job != NULL ? job->kernel : candidate->kernel,
		            job != NULL ? job->device : device->shown.id,
		            job != NULL ? &job->problems : &candidate->problem, NULL) != 0 ||
		        target.device->state != DEVICE_READY) {
			if (devices_probing(background->devices))
				return; /* background_settled comes when they are */
			if (job != NULL) {
				queue_let(background->queue, device); /* to fail, and say why */
				return;
			}
			drop(background, candidate);
			continue;
		}
		if (candidate != NULL && is_granted(background, candidate, &target)) {
			drop(background, candidate);
			continue;
		}
		if (job != NULL && pace->pause.until_ns > ft_monotonic_ns()) {
			queue_let(background->queue, device); /* to fail, and say why: others are behind it */
			return;
		}
		if (!is_calm(pace, device))
			return;
		if (job != NULL)
			queue_let(background->queue, device);
		else
			start_candidate(pace, candidate, &target);
		return;
	}
}

/* On each device that nothing else needs. */
static void go(struct background *background)
{
	for (uint32_t i = 0; i < background->devices->count && !is_off(background); i++)
		go_on(background, background->devices->device[i]);
	if (!is_off(background))
		await_pause(background);
}

void background_idle(struct background *background, struct device *device, bool disturbed)
{
	struct pace *pace = pace_of(background, device->worker);

	if (disturbed && pace->rest_ns <= ft_monotonic_ns())
		rest(pace);
	go_on(background, device);
	if (!is_off(background))
		await_pause(background);
}

void background_swept(struct background *background, const struct target *target, const struct ft_job *job,
        bool busy, bool away)
{
	struct candidate *candidate = find(background, &target->key);
	struct pace *pace = pace_of(background, target->device->worker);
	uint64_t asked = candidate != NULL ? candidate->asked : 1;

	if (away) {
		pause_worker(pace);
		return;
	}
	pace->pause = (struct backoff){0};
	if (strcmp(job->state, "done") != 0) {
		if (candidate != NULL)
			backoff_lengthen(&candidate->pause,
			        FAILED_FIRST * background->settings->background_wait_ns, failed_max_ns);
		background->least = NULL;
		return;
	}
	if (candidate != NULL)
		drop(background, candidate);
	background_scan_on(background);
	if (job->subset)
		background_want(background, target, CANDIDATE_GROWN, asked);
	else if (busy && strcmp(job->cause, candidate_cause_words[CANDIDATE_BUSY]) != 0)
		background_want(background, target, CANDIDATE_BUSY, asked);
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

/* Once every device was probed. What no device has a kernel for is forgotten. */
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

void background_settled(struct background *background, const struct runner_slot *slot)
{
	if (is_off(background))
		return;
	for (uint32_t i = 0; i < background->devices->worker_count; i++) {
		struct pace *pace = pace_of(background, background->devices->worker[i]);

		if (pace->worker->slot == slot && !pace->asking)
			pace->wanted = false; /* it was being started to be asked */
	}
	if (!devices_probing(background->devices) && background->kept != NULL)
		take_kept(background);
	if (!devices_probing(background->devices))
		background_scan_begin(background);
	go(background);
}

void background_runner_gone(struct background *background, struct worker *worker, enum runner_cause cause)
{
	struct pace *pace = pace_of(background, worker);

	pace->calm_ns = 0;
	if (!pace->wanted || background->stopping)
		return;
	if (cause != RUNNER_ASKED)
		pause_worker(pace);
	stop_asking(pace);
	go(background);
}

const char *background_state(const struct background *background)
{
	bool rests = false;

	if (is_off(background))
		return "off";
	for (uint32_t i = 0; i < background->devices->worker_count && !rests; i++)
		rests = background->pace[i].rest_ns > ft_monotonic_ns();
	if (rests)
		return "waits for its device to be idle";
	return background->count > 0 || background->scanning ? "works" : "";
}

int background_init(struct background *background, uv_loop_t *loop, struct devices *devices,
        struct queue *queue, struct store *store, const struct log *log, const struct settings *settings,
        struct ft_error *error)
{
	*background = (struct background){
	        .devices = devices,
	        .queue = queue,
	        .store = store,
	        .log = log,
	        .settings = settings,
	        .candidate = calloc(settings->background_queue + 1, sizeof(*background->candidate)),
	        .tag = calloc(settings->background_queue + 1, sizeof(*background->tag)),
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
