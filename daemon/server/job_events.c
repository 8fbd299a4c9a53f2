#include "daemon/server/job_events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kept_event {
	uint64_t job;
	size_t length;
	uint8_t notice[];
};

void job_events_leave(struct job_events *events, struct session *session)
{
	if (session->watching.list == NULL)
		return;
	list_leave(&session->watching);
	if (events->watchers.first == NULL)
		job_events_forget(events);
}

void job_events_join(struct job_events *events, struct session *session, uint64_t job)
{
	session->watched_job = job;
	session->watched_to = events->count;
	session->missed = 0;
	session->watching.data = session;
	if (session->watching.list == NULL)
		list_add(&events->watchers, &session->watching);
}

static bool concerns(const struct session *session, uint64_t job)
{
	return session->watched_job == 0 || session->watched_job == job;
}

/* The oldest gives its place to a new one: who has not read it, and watches what it is about, has missed it. Of one that had
 * no memory nobody knows that any more. */
static void lose_oldest(struct job_events *events)
{
	struct kept_event **place = &events->kept[events->count % EVENTS_KEPT];

	for (struct node *node = events->watchers.first; node != NULL; node = node->next) {
		struct session *session = node->data;

		if (session->watched_to + EVENTS_KEPT != events->count)
			continue;
		session->watched_to++;
		session->missed += *place == NULL || concerns(session, (*place)->job);
	}
	free(*place);
	*place = NULL; /* where there is no memory for the new one, it is missed */
}

void job_events_add(struct job_events *events, const struct ft_event *event)
{
	struct kept_event **place = &events->kept[events->count % EVENTS_KEPT];
	struct ft_writer writer;

	if (events->watchers.first == NULL)
		return;
	lose_oldest(events);
	ft_writer_init_growing(&writer, ft_bounds_request.bytes);
	ft_begin_notice(&writer, "event");
	ft_encode(&writer, &ft_event_message, event);
	if (ft_writer_ok(&writer))
		*place = malloc(sizeof(**place) + writer.length);
	if (*place != NULL) {
		(*place)->job = event->job;
		(*place)->length = writer.length;
		memcpy((*place)->notice, writer.data, writer.length);
	}
	ft_writer_free(&writer);
	events->count++;
	for (struct node *node = events->watchers.first; node != NULL; node = node->next) {
		struct session *session = node->data;

		if (!concerns(session, event->job)) {
			session->watched_to += session->watched_to + 1 == events->count;
			continue;
		}
		session->due = true;
		session_wake(session);
	}
}

static void tell_missed(struct session *session)
{
	struct ft_event event = {.job = session->watched_job, .event = "missed"};

	(void)snprintf(event.reason, sizeof(event.reason),
	        "%" PRIu64 " events were not read in time: jobs tells how things stand", session->missed);
	session->missed = 0;
	ft_begin_notice(&session->out, "event");
	ft_encode(&session->out, &ft_event_message, &event);
}

bool job_events_tell(const struct job_events *events, struct session *session)
{
	if (session->watching.list == NULL)
		return false;
	while (session->watched_to < events->count && session->out.length < SESSION_TOLD) {
		const struct kept_event *event = events->kept[session->watched_to % EVENTS_KEPT];

		session->watched_to++;
		session->missed += event == NULL;
		if (session->missed > 0)
			tell_missed(session);
		if (event != NULL && concerns(session, event->job))
			ft_write_raw(&session->out, event->notice, event->length);
		if (session_spent(session, 1))
			break;
	}
	return session->watched_to < events->count;
}

void job_events_forget(struct job_events *events)
{
	for (size_t i = 0; i < EVENTS_KEPT; i++) {
		free(events->kept[i]);
		events->kept[i] = NULL;
	}
}
