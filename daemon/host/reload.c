#include "daemon/host/reload.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/host/check.h"

enum { FAULTS_MAX = 8 };

/* What was read, until the host was asked for what it names. */
struct question {
	uv_work_t work;
	struct reload *reload;
	struct settings *settings;
	struct access access;
	unsigned faults;
	struct ft_error fault[FAULTS_MAX];
};

static void keep_fault(void *data, const struct ft_error *fault)
{
	struct question *question = data;

	if (question->faults < FAULTS_MAX)
		question->fault[question->faults++] = *fault;
}

static void drop_fault(void *data, const struct ft_error *fault)
{
	struct question *question = data;
	unsigned kept = 0;

	for (unsigned i = 0; i < question->faults; i++) {
		if (strcmp(question->fault[i].message, fault->message) != 0)
			question->fault[kept++] = question->fault[i];
	}
	question->faults = kept;
}

/* In the thread. */
static void ask_host(uv_work_t *work)
{
	struct question *question = work->data;

	access_init(&question->access, question->settings);
	(void)check_host(question->settings, keep_fault, question);
	/* What the daemon runs with in spite of a fault is no reason to refuse the rest. */
	(void)check_host(question->reload->settings, drop_fault, question);
}

static void question_free(struct question *question)
{
	if (question != NULL)
		free(question->settings);
	free(question);
}

static void host_asked(uv_work_t *work, int status)
{
	struct question *question = work->data;
	struct reload *reload = question->reload;
	bool again = reload->again;

	(void)status;
	reload->asking = reload->again = false;
	if (!reload->stopped) {
		for (unsigned i = 0; i < question->faults; i++)
			log_line(reload->log, LOG_LEVEL_ERROR, "configuration not reloaded: %s",
			        question->fault[i].message);
		if (question->faults == 0)
			reload->ended(reload->data, question->settings, &question->access);
		else
			reload->ended(reload->data, NULL, NULL);
	}
	question_free(question);
	if (again && !reload->stopped)
		reload_begin(reload);
}

void reload_begin(struct reload *reload)
{
	struct question *question;
	struct ft_error error;

	if (reload->asking) {
		reload->again = true;
		return;
	}
	question = calloc(1, sizeof(*question));
	if (question != NULL) {
		question->reload = reload;
		question->work.data = question;
		question->settings = malloc(sizeof(*question->settings));
	}
	reload->begins(reload->data);
	if (question == NULL || question->settings == NULL)
		log_line(reload->log, LOG_LEVEL_ERROR, "configuration not reloaded: no memory");
	else if (settings_parse(question->settings, reload->argc, reload->argv, &error) == SETTINGS_BAD)
		log_line(reload->log, LOG_LEVEL_ERROR, "configuration not reloaded: %s", error.message);
	else if (uv_queue_work(reload->loop, &question->work, ask_host, host_asked) == 0)
		reload->asking = true;
	if (reload->asking)
		return;
	question_free(question);
	reload->ended(reload->data, NULL, NULL);
}
