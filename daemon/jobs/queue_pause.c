/* Pauses of the queue, which outlive the daemon. */
#include <stdlib.h>

#include "daemon/jobs/internal.h"

/* Someone who asked for a pause, or for its end. */
struct pause {
	struct pause *next;
	struct queue *queue;
	bool pause;
	void (*done)(void *data, bool paused, const struct ft_error *error);
	void *data;
};

static const char pause_note[] = "paused";

void queue_call_pauses(struct queue *queue, const struct ft_error *error)
{
	struct pause *all = queue->pauses;

	queue->pauses = NULL;
	while (all != NULL) {
		struct pause *pause = all;

		all = pause->next;
		pause->done(pause->data, queue->paused, error);
		free(pause);
	}
}

static void pause_stored(void *data, uint64_t generation, const struct ft_error *error)
{
	struct pause *pause = data;
	struct queue *queue = pause->queue;

	(void)generation;
	if (error != NULL) {
		pause->done(pause->data, queue->paused, error);
		free(pause);
		return;
	}
	queue->paused = pause->pause;
	log_line(queue->log, LOG_LEVEL_INFO, "queue %s active=%u", queue->paused ? "paused" : "resumed",
	        queue->jobs.active);
	pause->next = queue->pauses;
	queue->pauses = pause;
	if (!queue->paused || queue->running == 0 || queue->stopping) {
		queue_call_pauses(queue, NULL);
		queue_pump(queue);
		return;
	}
	/* One whose end is on the way to the store needs its device no more. */
	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		struct active *active = queue->active[i];

		if (active != NULL && active->running != NULL && active->running->state == JOB_RUNS &&
		        queue_go(active->running, JOB_STOPS))
			sweep_cancel(active->sweep);
	}
}

void queue_pause(struct queue *queue, bool pause_it,
        void (*done)(void *data, bool paused, const struct ft_error *error), void *data)
{
	struct store_batch *batch = store_batch_new(queue->store);
	struct pause *pause = calloc(1, sizeof(*pause));
	struct ft_error error;
	uint8_t value[8];
	struct ft_writer writer;

	ft_writer_init_fixed(&writer, value, sizeof(value));
	ft_write_bool(&writer, pause_it);
	if (batch == NULL || pause == NULL ||
	        store_batch_note(batch, pause_note, value, writer.length) != 0) {
		store_batch_drop(batch);
		free(pause);
		(void)ft_fail(&error, FT_E_MEMORY, "no memory to pause or resume");
		done(data, queue->paused, &error);
		return;
	}
	*pause = (struct pause){.queue = queue, .pause = pause_it, .done = done, .data = data};
	store_submit(batch, pause_stored, pause);
}

/* A pause outlives the daemon: whoever asked for it has not asked for its end. */
int queue_read_pause(struct queue *queue, struct ft_error *error)
{
	struct ft_writer value;
	struct ft_cursor cursor;
	uint8_t buffer[8];
	int found;

	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	found = store_get_note(queue->store, pause_note, &value, error);
	cursor = ft_cursor_of(value.data, value.length);
	if (found == 1 && !ft_read_bool(&cursor, &queue->paused))
		queue->paused = false;
	return found < 0 ? -1 : 0;
}
