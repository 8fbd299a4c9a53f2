#include "client/lib/board.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { REGION = BOARDS_KEPT * BOARD_PLACE };

void boards_init(struct boards *boards)
{
	*boards = (struct boards){.region = NULL};
}

void boards_free(struct boards *boards)
{
	/* With a place lost the region may have somebody else's memory in it. */
	if (boards->region != NULL && !boards->broken)
		(void)munmap(boards->region, REGION);
	boards->region = NULL;
}

/* That nobody can take the memory away or change it but who made it, before it is touched: a file that is cut off
 * kills whoever reads it. */
static int check_memory(int descriptor, struct stat *status, struct ft_error *error)
{
	static const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int seals = fcntl(descriptor, F_GET_SEALS);

	if (seals < 0 || (seals & needed) != needed || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0)
		return ft_fail(error, FT_E_BAD_FRAME, "the board that flytuned handed over is not sealed");
	if (fstat(descriptor, status) != 0 || !S_ISREG(status->st_mode) ||
	        status->st_size != (off_t)sizeof(struct ft_board))
		return ft_fail(
		        error, FT_E_BAD_FRAME, "the board that flytuned handed over is of a wrong size");
	/* A page that is not there yet may never be had. */
	if (status->st_blocks * 512 < status->st_size)
		return ft_fail(error, FT_E_BAD_FRAME, "the board that flytuned handed over has holes");
	return 0;
}

static int check_board(const struct ft_board *board, uint32_t *owner, struct ft_error *error)
{
	/* Read once: what it says later is not asked. */
	*owner = *(const volatile uint32_t *)&board->owner_offset;
	if (board->magic != ft_board_magic || board->layout != FT_BOARD_LAYOUT ||
	        board->stripes != FT_BOARD_STRIPES || *owner % sizeof(uint32_t) != 0 ||
	        *owner > FT_BOARD_LOCK_BYTES - sizeof(uint32_t))
		return ft_fail(error, FT_E_BAD_FRAME, "the board that flytuned handed over cannot be read");
	*owner += (uint32_t)offsetof(struct ft_board, lock);
	return 0;
}

/* Puts empty pages over a place, so that it never is a hole. */
static void *empty(void *at, size_t length, int fixed)
{
	return mmap(at, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

int boards_adopt(struct boards *boards, int descriptor, uint64_t *serial, struct ft_error *error)
{
	uint64_t last = atomic_load_explicit(&boards->serial, memory_order_relaxed);
	struct board_sight sight;
	struct stat status;
	unsigned char *memory;
	uint32_t owner;

	*serial = 0;
	if (boards->broken)
		return ft_fail(error, FT_E_SYSTEM, "no memory for the board of flytuned");
	if (check_memory(descriptor, &status, error) != 0)
		return -1;
	if (last != 0 && status.st_dev == boards->device && status.st_ino == boards->inode) {
		if (!boards_look(boards, last, 0, &sight) || !sight.alive)
			return ft_fail(error, FT_E_AWAY, "flytuned died");
		*serial = last;
		return 0;
	}
	if (boards->region == NULL) {
		memory = empty(NULL, REGION, 0);
		if (memory == MAP_FAILED)
			return ft_fail_errno(error, errno, "no memory for the board of flytuned");
		boards->region = memory;
	}
	memory = boards->region + (last + 1) % BOARDS_KEPT * BOARD_PLACE;
	if (mmap(memory, sizeof(struct ft_board), PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
	            descriptor, 0) == MAP_FAILED) {
		(void)ft_fail_errno(error, errno, "no memory for the board of flytuned");
		goto fail;
	}
	if (check_board((const struct ft_board *)(const void *)memory, &owner, error) != 0)
		goto fail;
	atomic_store_explicit(&boards->owner[(last + 1) % BOARDS_KEPT], owner, memory_order_relaxed);
	boards->device = status.st_dev;
	boards->inode = status.st_ino;
	atomic_store_explicit(&boards->serial, last + 1, memory_order_release);
	*serial = last + 1;
	return 0;
fail:
	if (empty(memory, BOARD_PLACE, MAP_FIXED) == MAP_FAILED)
		boards->broken = true;
	return -1;
}
