/* What is to be said of a problem's winner, for `explain` and what ends with it. */
#ifndef FLYTUNE_CTL_COMMANDS_EXPLAIN_H
#define FLYTUNE_CTL_COMMANDS_EXPLAIN_H

#include "client/ctl/ctl.h"
#include "client/ctl/output/document.h"

/* Prints it; with --json, adds an object of that name to a document. */
enum ctl_exit explain_problem(struct ctl *ctl, const flytune_problem *problem, const char *device,
        struct document *json, const char *name);

#endif
