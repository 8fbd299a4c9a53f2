/* What a sweep reports while it is under way: trials to the store, and events after their commit. */
#include "daemon/jobs/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/winner.h"

struct sweep_note {
	struct sweep_note *next;
	struct ft_event event;
};

void sweep_free_notes(struct sweep_note **notes)
{
	while (*notes != NULL) {
		struct sweep_note *note = *notes;

		*notes = note->next;
		free(note);
	}
}

struct ft_event *sweep_note_event(struct sweep *sweep, const char *word)
{
	struct sweep_note *note = calloc(1, sizeof(*note));

	if (note == NULL)
		return NULL;
	_Static_assert(sizeof(note->event.stage) == sizeof(sweep->job->stage), "a stage is copied whole");
	note->event.job = sweep->job->job;
	(void)snprintf(note->event.event, sizeof(note->event.event), "%s", word);
	memcpy(note->event.stage, sweep->job->stage, sizeof(note->event.stage));
	note->event.trials = sweep->job->trials;
	note->event.space = sweep->job->space;
	note->event.settled = sweep->job->settled;
	note->event.round = sweep->job->rounds;
	note->next = sweep->waiting;
	sweep->waiting = note;
	return &note->event;
}

void sweep_note_trial(struct sweep *sweep, uint32_t index)
{
	const struct trial *trial = &sweep->trials->trial[index];
	struct ft_event *event;

	trials_progress(sweep->trials, sweep->members, &sweep->job->trials, &sweep->job->settled);
	event = sweep_note_event(sweep, "trial");
	if (event == NULL)
		return;
	event->config = trial->config;
	(void)snprintf(event->status, sizeof(event->status), "%s",
	        trial->status == TRIAL_WAITING ? "ok" : trial_status_word(trial->status));
	memcpy(event->reason, trial->reason, sizeof(event->reason));
	if (trial->sample_ps != NULL) {
		event->time_ps = sweep->standing[index].median_ps;
		event->ci_ps = sweep->standing[index].ci_ps;
	} else {
		event->time_ps = trial->look_ps;
	}
}

void sweep_send_notes(struct sweep *sweep, struct sweep_note **notes)
{
	struct sweep_note *ordered = NULL;

	while (*notes != NULL) {
		struct sweep_note *note = *notes;

		*notes = note->next;
		note->next = ordered;
		ordered = note;
	}
	for (struct sweep_note *note = ordered; note != NULL; note = note->next)
		sweep->events->event(sweep->data, &note->event);
	sweep_free_notes(&ordered);
}

bool sweep_ends_by_itself(const struct sweep *sweep)
{
	return sweep->phase == SWEEP_ENDS && sweep->trials != NULL && sweep->outcome != SWEEP_DECIDED;
}

/* Those that were on their way are older than those that wait. */
static void hold_notes(struct sweep *sweep)
{
	struct sweep_note **last = &sweep->waiting;

	while (*last != NULL)
		last = &(*last)->next;
	*last = sweep->storing_notes;
	sweep->storing_notes = NULL;
}

static void trials_stored(void *data, uint64_t generation, const struct ft_error *error)
{
	struct sweep *sweep = data;

	(void)generation;
	sweep->storing = false;
	if (sweep->phase == SWEEP_OFF) { /* abandoned meanwhile */
		sweep_free_notes(&sweep->storing_notes);
		return;
	}
	if (error != NULL) {
		/* Of the trials nothing is lost: they are in memory, and go with the next batch. Their events are, but at the
		 * end, which waits until the store has taken what they report. */
		log_limited(sweep->log, &sweep->unstored, LOG_LEVEL_WARNING,
		        "trials not stored job=%" PRIu64 ": %s", sweep->job->job, error->message);
		sweep->dirty = true;
		if (sweep->phase == SWEEP_ENDS)
			hold_notes(sweep);
		sweep_free_notes(&sweep->storing_notes);
	} else {
		if (sweep->old == OLD_GONE)
			sweep->old = OLD_KEPT;
		sweep_send_notes(sweep, &sweep->storing_notes);
		if (sweep->dirty && (sweep_is_on(sweep->phase) || sweep_ends_by_itself(sweep)))
			sweep_store_trials(sweep);
	}
	sweep_maybe_end(sweep);
}

void sweep_store_trials(struct sweep *sweep)
{
	struct store_batch *batch;

	sweep->dirty = true;
	if (sweep_is_check(sweep->scope)) { /* what it measures is not kept: there is nothing to wait for */
		sweep->dirty = false;
		sweep_send_notes(sweep, &sweep->waiting);
		return;
	}
	if (sweep->storing)
		return;
	batch = store_batch_new(sweep->store);
	if (batch == NULL)
		return;
	if (store_batch_trials(batch, &sweep->target.key, sweep->target.kernel->identity, sweep->trials) !=
	        0) {
		store_batch_drop(batch);
		return;
	}
	/* Times are let go once: a crash must not have those from after it go as well. */
	if (sweep->old == OLD_GONE && store_batch_job(batch, sweep->job) != 0) {
		store_batch_drop(batch);
		return;
	}
	sweep->dirty = false;
	sweep->storing = true;
	sweep->storing_notes = sweep->waiting;
	sweep->waiting = NULL;
	store_submit(batch, trials_stored, sweep);
}
