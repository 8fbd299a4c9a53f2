#include "daemon/host/stack.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

const size_t stack_bytes = 1 << 20;

static struct {
	int (*run)(int argc, char **argv);
	int argc;
	char **argv;
	int status;
} call; /* makecontext hands over no pointers */

static void run_call(void)
{
	call.status = call.run(call.argc, call.argv);
}

/* The kernel looks at the limit whenever the first thread's stack grows, so that it counts at once. */
static bool raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) != 0)
		return false;
	if (limit.rlim_cur >= stack_bytes)
		return true;
	limit.rlim_cur = stack_bytes;
	if (limit.rlim_max < stack_bytes)
		limit.rlim_max = stack_bytes; /* which takes a privilege */
	return setrlimit(RLIMIT_STACK, &limit) == 0;
}

int stack_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
	ucontext_t before, own;
	void *memory;

	if (raise_limit())
		return run(argc, argv);
	memory = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	/* Whatever fails here, it may do with what there is. Its lowest page is a guard. */
	if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0 || getcontext(&own) != 0)
		return run(argc, argv);
	call.run = run;
	call.argc = argc;
	call.argv = argv;
	own.uc_stack.ss_sp = memory;
	own.uc_stack.ss_size = stack_bytes;
	own.uc_link = &before;
	makecontext(&own, run_call, 0);
	return swapcontext(&before, &own) == 0 ? call.status : run(argc, argv);
}
