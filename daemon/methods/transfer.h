/* An import under way in a session: rows that were checked, not yet applied. */
#ifndef FLYTUNE_DAEMON_TRANSFER_H
#define FLYTUNE_DAEMON_TRANSFER_H

struct transfer;

/* Drops what was not committed. NULL is fine. */
void transfer_free(struct transfer *transfer);

#endif
