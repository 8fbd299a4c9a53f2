/* Shows how jobs go: a line a trial, and on a terminal a bar under the lines that is redrawn in place. */
#ifndef FLYTUNE_CTL_PROGRESS_H
#define FLYTUNE_CTL_PROGRESS_H

#include <stdbool.h>

#include <flytune/admin.h>

struct progress {
	bool silent;   /* show nothing */
	bool terminal; /* standard output is one */
	bool drawn;    /* the bar is on the last line */
	char **shown;  /* the configs that have had their line */
	size_t count, capacity;
	uint64_t trials, settled, round;
	char stage[16];
};

/* Standard output is a terminal on which a line can be taken back. */
bool progress_terminal(void);
/* From now on an interrupt leaves the terminal at the start of a line, and then ends the program as ever. */
void progress_leave_by_signal(void);
/* Draws one line without its end; progress_take_back makes room for others in its place. */
void progress_bar(const char *before, uint64_t settled, uint64_t trials, const char *stage, uint64_t round);
void progress_take_back(void);

void progress_begin(struct progress *progress, bool silent);
/* What an event of the job says. */
void progress_event(struct progress *progress, const struct flytune_event *event);
/* Lines for trials whose event came before we listened. */
void progress_complete(struct progress *progress, const flytune_trial_list *list);
/* Takes the bar away and frees all. */
void progress_end(struct progress *progress);

#endif
