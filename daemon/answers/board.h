/* The daemon's side of the board (proto/board.h): makes it, holds its mutex, changes its words.
 *
 * Threads. board_version, board_generation, board_change and board_change_all may be called by any; the others are the
 * loop thread's. */
#ifndef FLYTUNE_DAEMON_BOARD_H
#define FLYTUNE_DAEMON_BOARD_H

#include "daemon/store/store.h"
#include "proto/board.h"

struct board {
	int descriptor; /* what clients are handed; -1: none, since the kernel would not show them our death */
	struct ft_board *shared;
};

/* Call on the thread that lives as long as the process: it comes to own the mutex. */
int board_init(struct board *board, struct ft_error *error);
/* Shows clients that the daemon ends, and lets go of the memory. */
void board_free(struct board *board);
/* Of a kernel's problem, whatever the scale field says. */
uint32_t board_stripe(const struct store_key *key);
uint64_t board_version(const struct board *board, uint32_t stripe);
void board_change(struct board *board, uint32_t stripe);
/* All words are as they have to be for a generation of the store. One thread at a time. */
void board_tell_generation(struct board *board, uint64_t generation);
uint64_t board_generation(const struct board *board);
/* Any answer may have changed: a device was found, or its software is another. */
void board_change_all(struct board *board);

#endif
