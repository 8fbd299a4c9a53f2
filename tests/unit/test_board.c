/* The board: what clients may see of it, what they may not do to it, and how a daemon's death shows in it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/answers/board.h"
#include "tests/unit/check.h"

enum { KILLS = 50 };

static const struct ft_board *look(int descriptor)
{
	const struct ft_board *seen = mmap(NULL, sizeof(*seen), PROT_READ, MAP_SHARED, descriptor, 0);

	assert_true(seen != MAP_FAILED);
	return seen;
}

static bool alive(const struct ft_board *seen)
{
	return ft_board_alive(seen, seen->owner_offset + (uint32_t)offsetof(struct ft_board, lock));
}

static bool stands(const struct ft_board *seen, uint32_t stripe, uint64_t version)
{
	return atomic_load(&seen->word[stripe]) == version;
}

static void a_changed_answer_shows_and_another_does_not(void **state)
{
	struct store_key key = {.kernel = 1, .device = 2, .problem = {.hash = {1, 2, 3}, .scale = 64}};
	struct store_key other_m = key;
	struct store_key other = key;
	struct board board;
	struct ft_error error;
	const struct ft_board *seen;

	(void)state;
	other_m.problem.scale = 128;
	other.problem.hash[0] = 9;
	assert_int_equal(board_stripe(&key), board_stripe(&other_m)); /* nearest answers fall together */
	assert_int_not_equal(board_stripe(&key), board_stripe(&other));
	assert_int_equal(board_init(&board, &error), 0);
	seen = look(board.descriptor);
	assert_true(alive(seen));
	uint64_t version = board_version(&board, board_stripe(&key));
	uint64_t untouched = board_version(&board, board_stripe(&other));
	assert_true(stands(seen, board_stripe(&key), version));
	board_change(&board, board_stripe(&key));
	assert_false(stands(seen, board_stripe(&key), version));
	assert_true(stands(seen, board_stripe(&other), untouched));
	board_change_all(&board);
	assert_false(stands(seen, board_stripe(&other), untouched));
	board_free(&board);
	assert_false(alive(seen));
	munmap((void *)(uintptr_t)seen, sizeof(*seen));
}

static void nobody_else_can_write_or_resize_it(void **state)
{
	struct board board;
	struct ft_error error;
	char path[64];
	const struct ft_board *seen;
	int again;

	(void)state;
	assert_int_equal(board_init(&board, &error), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", board.descriptor);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		assert_true(mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) ==
		        MAP_FAILED);
		assert_int_equal(errno, EPERM);
		assert_int_equal(pwrite(again, "x", 1, 0), -1);
		close(again);
	}
	assert_int_equal(ftruncate(board.descriptor, 0), -1);
	assert_int_equal(ftruncate(board.descriptor, 2 * (off_t)sizeof(*seen)), -1);
	assert_int_equal(fcntl(board.descriptor, F_ADD_SEALS, 0), -1);
	seen = look(board.descriptor);
	assert_int_equal(mprotect((void *)(uintptr_t)seen, sizeof(*seen), PROT_READ | PROT_WRITE), -1);
	munmap((void *)(uintptr_t)seen, sizeof(*seen));
	board_free(&board);
}

static void kill_9_is_seen_by_plain_loads(void **state)
{
	(void)state;
	for (int round = 0; round < KILLS; round++) {
		int ready[2];
		int descriptor = -1;
		char path[64];
		int mine;

		assert_int_equal(pipe(ready), 0);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			struct board board;

			if (board_init(&board, NULL) != 0 ||
			        write(ready[1], &board.descriptor, sizeof(int)) != sizeof(int))
				_exit(1);
			for (;;)
				pause();
		}
		assert_int_equal(read(ready[0], &descriptor, sizeof(int)), sizeof(int));
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)child, descriptor);
		mine = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(mine >= 0);
		const struct ft_board *seen = look(mine);

		assert_true(alive(seen));
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_false(alive(seen));
		munmap((void *)(uintptr_t)seen, sizeof(*seen));
		close(mine);
		close(ready[0]);
		close(ready[1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_changed_answer_shows_and_another_does_not),
	        cmocka_unit_test(nobody_else_can_write_or_resize_it),
	        cmocka_unit_test(kill_9_is_seen_by_plain_loads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
