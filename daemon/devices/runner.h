/* A runner: the child process that works a device, started on demand, watched, and killed when it
 * errs.
 *
 * Life: off → starting (hello sent) → ready → off again. `runner_start` may be called whenever it is off;
 * `hello` fires once a start, `gone` once after each start, when the process is reaped and every handle is
 * closed, so that a new start may follow from there. One question is open at a time, and every wait has a
 * deadline: past it, at a broken message, or at a closed socket the process and its group are killed, and
 * `gone` says why. */
#ifndef FLYTUNE_DAEMON_RUNNER_H
#define FLYTUNE_DAEMON_RUNNER_H

#include <uv.h>

#include "daemon/devices/runner_state.h"
#include "daemon/host/deadline.h"
#include "daemon/host/log.h"
#include "daemon/host/settings.h"
#include "proto/inbox.h"

struct runner;

/* Why a runner is gone. */
enum runner_cause {
	RUNNER_ASKED,          /* it was let go */
	RUNNER_DIED,           /* by itself: a signal or an exit status */
	RUNNER_LATE,           /* a deadline passed */
	RUNNER_PROTOCOL_ERROR, /* broken framing, or a message that makes no sense */
	RUNNER_UNSTARTED       /* the program could not be started, or speaks another protocol */
};

struct runner_events {
	/* The process is about to be made: what it is given now is what it will say hello of. */
	void (*starts)(void *data);
	void (*hello)(void *data, struct ft_view reply);
	void (*event)(void *data, const struct ft_runner_event *event);
	void (*gone)(void *data, enum runner_cause cause, const struct ft_error *why);
};

typedef void (*runner_reply)(void *data, struct ft_view reply, const struct ft_error *failure);

struct runner {
	uv_loop_t *loop;
	const struct log *log;
	const struct settings *settings;
	const struct kernels *kernels; /* that it is started with */
	const struct runner_events *events;
	void *data;
	const char *kind;
	const char *path;
	char code_dir[280];

	enum runner_state state;
	uv_process_t process;
	uv_pipe_t pipe;
	struct deadline deadline; /* of the stage */
	uv_timer_t idle;          /* until it is let go */
	unsigned open;            /* handles of this start that are not closed yet */
	bool reaped;
	void (*closed)(void *data);
	enum settings_stage stage; /* whose deadline runs */
	bool cancelling;           /* it is the one for a sweep that was cancelled */
	enum runner_cause cause;
	bool blamed; /* cause and why are set */
	struct ft_error why;
	struct ft_inbox inbox;
	uint64_t last_id;
	runner_reply reply; /* of the open question, NULL if there is none */
	void *reply_data;
	uint64_t starts; /* for the figures */
};

int runner_init(struct runner *runner, uv_loop_t *loop, const struct log *log,
        const struct settings *settings, const char *kind, const char *path,
        const struct runner_events *events, void *data, struct ft_error *error);
/* Starts the process and says hello, if it is off. Failure to start is reported through `gone`, later. */
void runner_start(struct runner *runner);
/* Asks; the answer comes to `reply`, unless the runner is gone first. Only when ready and nothing is open. */
void runner_ask(struct runner *runner, const char *method, const struct ft_message *message, const void *body,
        enum settings_stage stage, runner_reply reply, void *data);
void runner_tell(
        struct runner *runner, const char *method, const struct ft_message *message, const void *body);
/* Tells it to end its sweep, for which it has the deadline for stopping. */
void runner_cancel(struct runner *runner, uint64_t job);
/* The deadline of a stage starts anew. */
void runner_expect(struct runner *runner, enum settings_stage stage);
/* No work: it is let go after the idle time. */
void runner_rest(struct runner *runner);
/* Kills it at once. */
void runner_kill(struct runner *runner, enum runner_cause cause, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Lets it go at once: closes its socket, and kills it past the deadline for stopping. */
void runner_release(struct runner *runner);
/* After the last `gone`: closes what outlives a start, and says when it has. */
void runner_close(struct runner *runner, void (*closed)(void *data));
/* A hash of what runners inherit of the daemon's environment. */
uint64_t runner_environment(void);
uint64_t runner_pid(const struct runner *runner); /* 0 if none runs */
const char *runner_cause_word(enum runner_cause cause);

#endif
