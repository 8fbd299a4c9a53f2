/* flytune-runner-hip and flytune-runner-cuda: the runner with a GPU's backend, and a word of their own. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/runner/gpu/backend_gpu.h"
#include "kernels/runner/gpu/gpu_offline.h"
#include "kernels/runner/gpu/gpu_compiler.h"
#include "kernels/runner/gpu/hip.h"
#include "kernels/runner/runner.h"

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	struct ft_backend *backend;
	int status;

	if (strcmp(word, GPU_WORKER_WORD) == 0)
		return gpu_worker_main();
	gpu_clear_environment();
	if (strcmp(word, "build") == 0)
		return gpu_build_main(argc, argv);
	backend = gpu_backend_new();
	if (!backend) {
		fprintf(stderr, "flytune-runner-%s: no memory\n", hip_kind);
		return EXIT_FAILURE;
	}
	status = ft_runner_main(backend, argc, argv);
	gpu_backend_free(backend);
	return status;
}
