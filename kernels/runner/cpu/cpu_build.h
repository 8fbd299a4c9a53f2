/* Where the functions of a kernel folder are compiled: a folder of its own with the folder's files, and C that calls the functions with
 * their arguments from an array of pointers: to a buffer, or to a number of the argument's type.
 *
 *   void flytune_step_N(void *const *argument, const int64_t *block)                          in the library of a config
 *   void flytune_reference(int64_t first, int64_t last, void *const *argument)                in that of the reference
 *
 * Functions return 0, or -1 with the error filled in. */
#ifndef FLYTUNE_KERNELS_RUNNER_CPU_BUILD_H
#define FLYTUNE_KERNELS_RUNNER_CPU_BUILD_H

#include "kernels/folder/folder.h"
#include "kernels/runner/cpu/cc.h"

struct cpu_build {
	const struct ft_folder *folder;
	struct cc *cc;   /* what is submitted here is waited for there */
	char where[256]; /* the libraries are made in it; "": there is none */
};

/* So many compilers at a time. To be closed, also if it fails. */
int cpu_build_open(
        struct cpu_build *build, const struct ft_folder *folder, unsigned processes, struct ft_error *error);
/* Removes all that is there. */
void cpu_build_close(struct cpu_build *build);

/* Once, before the first of the next: all configs have the same steps and arguments, of which only numbers differ. */
int cpu_build_write_steps(
        const struct cpu_build *build, const struct ft_folder_launch *launch, struct ft_error *error);
int cpu_build_steps(struct cpu_build *build, size_t tag, const struct ft_defines *defines,
        const char *library, struct ft_error *error);
/* Of a reference that is a function. */
int cpu_build_reference(struct cpu_build *build, size_t tag, const struct ft_folder_reference *reference,
        const char *library, struct ft_error *error);

#endif
