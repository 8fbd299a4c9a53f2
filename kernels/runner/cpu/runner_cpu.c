#include <stdio.h>
#include <stdlib.h>

#include "kernels/runner/cpu/backend_cpu.h"
#include "kernels/runner/runner.h"

int main(int argc, char **argv)
{
	struct ft_backend *backend = ft_backend_cpu_new();
	if (!backend) {
		fprintf(stderr, "flytune-runner-cpu: no memory\n");
		return EXIT_FAILURE;
	}
	int status = ft_runner_main(backend, argc, argv);
	ft_backend_cpu_free(backend);
	return status;
}
