#include "daemon/answers/board.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(pthread_mutex_t) <= FT_BOARD_LOCK_BYTES, "the board has room for a mutex");

/* Where the mutex keeps its futex word is the C library's business: it is the word that shows our thread's id once the
 * mutex is locked. */
static int find_owner(struct ft_board *shared, struct ft_error *error)
{
	uint32_t self = (uint32_t)gettid();

	for (uint32_t offset = 0; offset + sizeof(uint32_t) <= FT_BOARD_LOCK_BYTES;
	        offset += sizeof(uint32_t)) {
		uint32_t word;

		memcpy(&word, shared->lock + offset, sizeof(word));
		if ((word & FT_BOARD_OWNER_MASK) == self) {
			shared->owner_offset = offset;
			return 0;
		}
	}
	return ft_fail(error, FT_E_SYSTEM, "this C library's robust mutex has no owner word");
}

static int lock_for_life(struct ft_board *shared, struct ft_error *error)
{
	pthread_mutex_t *mutex = (pthread_mutex_t *)(void *)shared->lock;
	pthread_mutexattr_t attributes;
	int failure = pthread_mutexattr_init(&attributes);

	if (failure != 0)
		return ft_fail_errno(error, failure, "cannot make a mutex");
	failure = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (failure == 0)
		failure = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (failure == 0)
		failure = pthread_mutex_init(mutex, &attributes);
	if (failure == 0)
		failure = pthread_mutex_lock(mutex);
	(void)pthread_mutexattr_destroy(&attributes);
	if (failure != 0)
		return ft_fail_errno(error, failure, "cannot lock the board's mutex");
	return find_owner(shared, error);
}

/* Whether the kernel will mark the mutex when this thread dies. A C library whose set_robust_list a sandbox refuses says
 * nothing of it: then the kernel has no list of this thread's, or will not say. */
static bool death_will_show(void)
{
	void *list = NULL;
	size_t size = 0;

	return syscall(SYS_get_robust_list, 0, &list, &size) == 0 && list != NULL;
}

int board_init(struct board *board, struct ft_error *error)
{
	/* FUTURE_WRITE leaves the map that is there writable, and refuses every later one. */
	static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	struct ft_board *shared = MAP_FAILED;
	int failure;

	board->shared = NULL;
	board->descriptor = memfd_create("flytune-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (board->descriptor < 0)
		return ft_fail_errno(error, errno, "cannot make the board");
	/* Its pages are there from the start: a full machine cannot take them away later. */
	failure = ftruncate(board->descriptor, sizeof(*shared)) != 0
	        ? errno
	        : posix_fallocate(board->descriptor, 0, sizeof(*shared));
	if (failure == 0) {
		shared =
		        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, board->descriptor, 0);
		failure = shared == MAP_FAILED ? errno : 0;
	}
	if (failure != 0) {
		(void)ft_fail_errno(error, failure, "cannot make the board");
		goto fail;
	}
	if (lock_for_life(shared, error) != 0)
		goto fail;
	shared->magic = ft_board_magic;
	shared->layout = FT_BOARD_LAYOUT;
	shared->stripes = FT_BOARD_STRIPES;
	for (uint32_t i = 0; i < FT_BOARD_STRIPES; i++)
		atomic_store_explicit(&shared->word[i], 1, memory_order_relaxed);
	if (fcntl(board->descriptor, F_ADD_SEALS, seals) != 0) {
		(void)ft_fail_errno(error, errno, "cannot seal the board");
		goto fail;
	}
	board->shared = shared;
	/* Who was handed it would believe for ever that we live. */
	if (!death_will_show()) {
		(void)close(board->descriptor);
		board->descriptor = -1;
	}
	return 0;
fail:
	if (shared != MAP_FAILED)
		(void)munmap(shared, sizeof(*shared));
	(void)close(board->descriptor);
	board->descriptor = -1;
	return -1;
}

void board_free(struct board *board)
{
	if (board->shared == NULL)
		return;
	atomic_store_explicit(&board->shared->closed, 1, memory_order_release);
	(void)pthread_mutex_unlock((pthread_mutex_t *)(void *)board->shared->lock);
	(void)munmap(board->shared, sizeof(*board->shared));
	if (board->descriptor >= 0)
		(void)close(board->descriptor);
	board->shared = NULL;
	board->descriptor = -1;
}

uint32_t board_stripe(const struct store_key *key)
{
	return (uint32_t)(XXH3_64bits_withSeed(key->problem.hash, sizeof(key->problem.hash), key->kernel) %
	        FT_BOARD_STRIPES);
}

uint64_t board_version(const struct board *board, uint32_t stripe)
{
	return board->shared != NULL
	        ? atomic_load_explicit(&board->shared->word[stripe], memory_order_acquire)
	        : 0;
}

void board_change(struct board *board, uint32_t stripe)
{
	/* The store's writer and the loop thread both come here. Release: who sees the new word asks the daemon, and is
	 * answered after the commit. */
	if (board->shared != NULL)
		atomic_fetch_add_explicit(&board->shared->word[stripe], 1, memory_order_release);
}

void board_tell_generation(struct board *board, uint64_t generation)
{
	if (board->shared != NULL)
		atomic_store_explicit(&board->shared->generation, generation, memory_order_release);
}

uint64_t board_generation(const struct board *board)
{
	return board->shared != NULL ? atomic_load_explicit(&board->shared->generation, memory_order_acquire)
	                             : 0;
}

void board_change_all(struct board *board)
{
	for (uint32_t stripe = 0; stripe < FT_BOARD_STRIPES; stripe++)
		board_change(board, stripe);
}
