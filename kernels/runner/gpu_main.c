/* flytune-runner-hip and flytune-runner-cuda. */

#include <stdio.h>
#include <string.h>

#include "kernels/runner/backend_gpu.h"
#include "kernels/runner/gpu_cli.h"
#include "kernels/runner/gpu_worker.h"

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";

	if (strcmp(word, GPU_WORKER_WORD) == 0)
		return gpu_worker_main();
	gpu_clear_environment();
	if (strcmp(word, "build") == 0)
		return gpu_build_main(argc, argv);
	if (strcmp(word, "explore") == 0)
		return gpu_explore_main(argc, argv);
	fprintf(stderr, "usage: %s build|explore ...\n", argv[0]);
	return 2;
}
