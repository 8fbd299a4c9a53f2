/* Kernels of folders on the CPU: each config is compiled by cc into a library of its own and loaded; blocks of the grid are
 * called on the runner's threads. The reference is compiled and computed once a sweep. */
#ifndef FLYTUNE_KERNELS_RUNNER_CPU_FOLDER_H
#define FLYTUNE_KERNELS_RUNNER_CPU_FOLDER_H

#include "kernels/folder/folder.h"
#include "kernels/runner/backend.h"

struct cpu;

/* A sweep's compilers and what they make. */
struct cpu_folder;

/* The code of a kernel that is a folder's, as that compiler makes it, which is named in words; NULL and an error if it has no
 * source for a CPU. Lives as long as the folder, and is the caller's to free. */
struct ft_kernel_cpu *cpu_folder_code(
        const struct ft_folder *folder, const char *compiler, struct ft_error *error);

/* Makes a place for the compilers to work in, with the folder's files. */
int cpu_folder_open(struct cpu *cpu, struct ft_error *error);
void cpu_folder_close(struct cpu *cpu);
/* What outputs have to be, from the inputs that are there. 0, -1 or FT_BACKEND_ENDED. */
int cpu_folder_expect(struct cpu *cpu, const struct ft_problem *problem, struct ft_error *error);
/* As those of struct ft_backend. */
int cpu_folder_build_start(struct cpu *cpu, size_t index, struct ft_error *error);
int cpu_folder_build_wait(struct cpu *cpu, struct ft_built *built, struct ft_error *error);

#endif
