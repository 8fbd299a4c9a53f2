/* The real CPU runner, but that its arrays are FLYTUNE_CACHES times as large as the last-level cache, outputs counted, whatever it
 * would find enough: what tests/bench/cold holds its choices against. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/runner/runner.h"
#include "kernels/runner/cpu/internal.h"

static int prepare_fixed(
        struct ft_backend *backend, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	const char *text = getenv("FLYTUNE_CACHES");
	uint64_t caches = text ? strtoull(text, NULL, 10) : 0;
	if (cpu_prepare(backend, sweep, error) != 0)
		return -1;
	uint64_t sets = caches * cpu->device.traits.cache / cpu_touched(cpu) + 1;
	if (caches == 0 || sets > cpu->most)
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "FLYTUNE_CACHES is %" PRIu64 ": from 1 on, as memory bears it (%zu pairs)", caches,
		        cpu->most);
	cpu_use_sets(cpu, sets);
	cpu->looked = true;
	return 0;
}

int main(int argc, char **argv)
{
	struct ft_backend *backend = ft_backend_cpu_new();
	if (!backend)
		return EXIT_FAILURE;
	backend->prepare = prepare_fixed;
	int status = ft_runner_main(backend, argc, argv);
	ft_backend_cpu_free(backend);
	return status;
}
