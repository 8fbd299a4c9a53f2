/* The client's side of the board (proto/board.h): takes it from the daemon, believes none of it, and says whether an
 * answer that was given earlier still stands.
 *
 * Each daemon's board gets a serial, and is mapped at the place serial % BOARDS_KEPT of one region that is never
 * unmapped while the client lives. A later board is mapped over the oldest one's place in one step, so a thread that
 * was held up for the lives of BOARDS_KEPT daemons in the middle of a look reads another board's memory, never none;
 * the serial has moved by then, so it discards what it read.
 *
 * Threads. boards_check is for any thread, without a lock or a system call. Boards are adopted by one thread at a
 * time: the one that connects. */
#ifndef FLYTUNE_CLIENT_BOARD_H
#define FLYTUNE_CLIENT_BOARD_H

#include <sys/types.h>

#include "proto/board.h"
#include "proto/error.h"

enum {
	BOARDS_KEPT = 8,
	BOARD_PLACE = 1 << 16, /* a multiple of every page size in use */
};

_Static_assert(sizeof(struct ft_board) <= BOARD_PLACE, "a board fits its place");

struct boards {
	_Atomic uint64_t serial;             /* of the latest board, 0 before the first */
	unsigned char *region;               /* written once, before the first serial */
	_Atomic uint32_t owner[BOARDS_KEPT]; /* where in a place the futex word is: checked, and kept here */
	dev_t device;                        /* with inode: which memfd the latest board is */
	ino_t inode;
	bool broken; /* a place was lost: no further board is taken */
};

enum board_verdict {
	BOARD_STANDS, /* the answer is what the daemon would say now */
	BOARD_AWAY,   /* it is what the daemon would have said when it died: nothing can have changed since */
	BOARD_CHANGED, /* ask again */
};

void boards_init(struct boards *boards);
void boards_free(struct boards *boards);
/* Takes the board behind a descriptor, which stays the caller's, as that of the daemon which is being greeted, and
 * gives its serial. Fails on memory that could be cut off or written by others, that is no board, or whose daemon
 * died: then nothing has changed. */
int boards_adopt(struct boards *boards, int descriptor, uint64_t *serial, struct ft_error *error);

/* What a board says. */
struct board_sight {
	uint64_t word;       /* of the stripe */
	uint64_t generation; /* of the store, 0: not given */
	bool alive;          /* the daemon is */
};

/* Looks at the latest board, if that is the one. `stripe` is below FT_BOARD_STRIPES. */
static inline bool boards_look(
        const struct boards *boards, uint64_t serial, uint32_t stripe, struct board_sight *sight)
{
	unsigned place = (unsigned)(serial % BOARDS_KEPT);
	const struct ft_board *board;

	if (serial == 0 || atomic_load_explicit(&boards->serial, memory_order_acquire) != serial)
		return false;
	board = (const struct ft_board *)(const void *)(boards->region + (size_t)place * BOARD_PLACE);
	sight->generation = atomic_load_explicit(&board->generation, memory_order_acquire);
	sight->word = atomic_load_explicit(&board->word[stripe], memory_order_acquire);
	sight->alive =
	        ft_board_alive(board, atomic_load_explicit(&boards->owner[place], memory_order_relaxed));
	/* Else the place may have been another board's already. */
	return atomic_load_explicit(&boards->serial, memory_order_relaxed) == serial;
}

/* Whether an answer that was given with `version` in `stripe` of the board `serial` still stands. */
static inline enum board_verdict boards_check(const struct boards *boards, uint64_t serial, uint32_t stripe,
        uint64_t version, struct board_sight *sight)
{
	if (!boards_look(boards, serial, stripe, sight) || sight->word != version)
		return BOARD_CHANGED;
	return sight->alive ? BOARD_STANDS : BOARD_AWAY;
}

#endif
