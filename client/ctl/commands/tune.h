/* Tuning, as `tune` and `kernel try` do it. */
#ifndef FLYTUNE_CTL_COMMANDS_TUNE_H
#define FLYTUNE_CTL_COMMANDS_TUNE_H

#include "client/ctl/arguments.h"

/* Tunes the problems, waits unless it is told not to, and prints what came of it; with `explains`, of each problem what `explain`
 * says of it as well. */
enum ctl_exit tune_problems(struct ctl *ctl, const struct problems *problems,
        const struct flytune_tune_options *options, bool waits, bool explains);

#endif
