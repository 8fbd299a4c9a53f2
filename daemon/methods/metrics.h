/* Figures for a monitoring system: counted where things happen, written as a page in the Prometheus text
 * format, on request and, if the operator wants it, into a file. */
#ifndef FLYTUNE_DAEMON_METRICS_H
#define FLYTUNE_DAEMON_METRICS_H

#include "daemon/methods/status.h"

struct metrics_file {
	struct reports *reports;
	uv_timer_t timer; /* runs only while a file is set */
	uv_work_t work;
	bool writing;
	bool failed; /* said so; not again until it worked */
	int fault;   /* errno of the last write, 0: it worked */
	char path[256];
	char *text;
	size_t length;
};

method_call method_metrics; /* of the reports */

/* The page as text, to be freed; NULL when out of memory. */
char *metrics_page(struct reports *reports, size_t *length);

int metrics_file_init(struct metrics_file *file, struct reports *reports, struct ft_error *error);
/* The settings may have changed. */
void metrics_file_configure(struct metrics_file *file);
/* Closes the timer; the handle lives until the loop has seen to that. */
void metrics_file_stop(struct metrics_file *file);

#endif
