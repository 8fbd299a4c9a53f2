/* Compiles what a folder has for a CPU, to say what the compiler says: nothing of it is loaded. */
#include "client/ctl/commands/kernel.h"

#include <stdio.h>
#include <string.h>

#include "kernels/host.h"
#include "kernels/runner/cpu/cpu_build.h"
#include "proto/clock.h"

enum { STEPS, REFERENCE, LIBRARIES };

static const struct {
	const char *library;
	const char *calls;  /* the file that the arguments are at fault for */
	const char *member; /* of kernel.json that has them */
} libraries[LIBRARIES] = {[STEPS] = {"steps.so", "flytune_steps.c", "launch.cpu"},
        [REFERENCE] = {"reference.so", "flytune_reference.c", "reference"}};

static const uint64_t patience_ns = UINT64_C(120) * 1000000000;

static int submit(struct cpu_build *build, const struct ft_problem *problem, struct ft_error *error)
{
	struct ft_folder_reference reference;
	struct ft_folder_launch launch;
	struct ft_defines defines;
	struct ft_traits traits;
	struct ft_config config;

	ft_traits_guess("cpu", &traits);
	if (ft_folder_default(build->folder, problem, &traits, &config, error) < 0 ||
	        ft_folder_launch(build->folder, problem, &traits, &config, &launch, error) < 0 ||
	        ft_folder_defines(build->folder, problem, &traits, &config, &defines, error) < 0 ||
	        ft_folder_reference(build->folder, problem, &reference, error) < 0 ||
	        cpu_build_write_steps(build, &launch, error) < 0 ||
	        cpu_build_steps(build, STEPS, &defines, libraries[STEPS].library, error) < 0)
		return -1;
	return reference.file == NULL
	        ? 0
	        : cpu_build_reference(build, REFERENCE, &reference, libraries[REFERENCE].library, error);
}

int kernel_compile(const struct ft_folder *folder, const struct ft_problem *problem,
        void (*say)(void *data, const char *before, const struct ft_error *error), void *data,
        struct ft_error *error)
{
	const uint64_t until_ns = ft_monotonic_ns() + patience_ns;
	char version[128], before[64];
	struct cpu_build build = {0};
	struct cc_done done;
	int got = -1;

	if (cc_version(version, sizeof(version), error) < 0)
		return -1;
	if (cpu_build_open(&build, folder, 1, error) == 0 && submit(&build, problem, error) == 0) {
		while ((got = cc_wait(build.cc, until_ns, &done, error)) == 1) {
			const bool is_call = strstr(done.error.message, libraries[done.tag].calls) != NULL;

			snprintf(before, sizeof(before), "kernel.json: %s: ", libraries[done.tag].member);
			if (done.failed)
				say(data, is_call ? before : "", &done.error);
		}
	}
	cpu_build_close(&build);
	/* Beside what is an error, its time may be over. */
	return got < -1 ? ft_fail(error, FT_E_TIMEOUT, "the C compiler takes too long") : got;
}
