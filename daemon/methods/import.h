/* Import: answers that come from another store. Rows are staged in their session, each checked as it comes, and nothing
 * changes before the commit. */
#ifndef FLYTUNE_DAEMON_IMPORT_H
#define FLYTUNE_DAEMON_IMPORT_H

#include "daemon/methods/parked.h"

struct transfer;

struct imports {
	struct context *context;
	struct parked *parked;
};

method_call method_import_begin, method_import_rows, method_import_commit;

/* Drops what was not committed. NULL is fine. */
void transfer_free(struct transfer *transfer);

#endif
