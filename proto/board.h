/* The board: version words that the daemon publishes in memory which clients map read-only.
 *
 * It holds no answers, only a small, fixed, striped array of counters. An answer names its stripe and the word that
 * stood there when it was given; while the word still stands and the daemon lives, the answer still holds, and a
 * client that kept it may give it again without asking. Every commit that changes an answer changes the word of its
 * problem's stripe once it is durable, before any lookup sees it and before it is acknowledged. A stripe is chosen by the problem
 * without its scale field, so that `nearest` answers fall with the neighbour that they came from.
 *
 * The memory is a memfd, sealed against shrinking, growing and writing by anyone but the daemon, and passed over the
 * socket with the reply to hello: nothing that happens to it can kill a client, and no client can change it. The
 * daemon's main thread holds a robust mutex in it for life: when the daemon dies, by kill -9 too, the kernel sets
 * FUTEX_OWNER_DIED in the mutex's word, which a client sees by a plain load. A daemon that ends in peace sets
 * `closed` first. A daemon whose robust mutexes the kernel does not keep (a sandbox refuses set_robust_list) hands over no
 * board. */
#ifndef FLYTUNE_PROTO_BOARD_H
#define FLYTUNE_PROTO_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FT_BOARD_LAYOUT = 1, FT_BOARD_STRIPES = 4096, FT_BOARD_LOCK_BYTES = 64 };

/* Bits of a futex word, as the kernel's robust lists define them (linux/futex.h). */
#define FT_BOARD_OWNER_DIED 0x40000000u
#define FT_BOARD_OWNER_MASK 0x3fffffffu

static const uint64_t ft_board_magic = 0x64726f6279746c66; /* "flytbord" */

struct ft_board {
	uint64_t magic;
	uint32_t layout;
	uint32_t stripes;
	_Atomic uint32_t closed; /* not 0: the daemon ended, and answers nothing new */
	uint32_t reserved;
	/* Of the store, changed after all words of a commit were; 0: not told. Read before a word that stands, it is a
	 * generation of which the answer is. */
	_Atomic uint64_t generation;
	uint32_t reserved_more[8];
	/* A pthread mutex of the daemon's C library, which only it touches; glibc's and musl's first aligned words
	 * differ, so the offset of the futex word in it is said. */
	uint32_t owner_offset;
	uint32_t reserved_last[15];
	_Alignas(64) unsigned char lock[FT_BOARD_LOCK_BYTES];
	_Alignas(64) _Atomic uint64_t word[FT_BOARD_STRIPES];
};

_Static_assert(offsetof(struct ft_board, owner_offset) == 64 && offsetof(struct ft_board, word) == 192,
        "the layout is part of the protocol");

/* Whether the daemon that published it is there, by two plain loads. `owner` is where in the board its futex word is:
 * owner_offset into `lock`, which a client checks once and then keeps. */
static inline bool ft_board_alive(const struct ft_board *board, uint32_t owner)
{
	const _Atomic uint32_t *at =
	        (const _Atomic uint32_t *)(const void *)((const unsigned char *)board + owner);
	uint32_t word = atomic_load_explicit(at, memory_order_acquire);

	return (word & FT_BOARD_OWNER_DIED) == 0 && (word & FT_BOARD_OWNER_MASK) != 0 &&
	        atomic_load_explicit(&board->closed, memory_order_acquire) == 0;
}

#endif
