#include "kernels/runner/cpu/backend_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/code_file.h"
#include "kernels/isa.h"
#include "kernels/runner/cpu/cc.h"
#include "kernels/runner/cpu/cpu_folder.h"
#include "kernels/runner/cpu/internal.h"

enum {
	TIMING_REVISION = 3, /* raised when the same machine would get other times */
	STEAL_ROUGH = 10,    /* percent of the processors that the host took away */
};

static const uint64_t spread_ns = 1000000000; /* of the first rounds */

/* ---- the device ---- */

static int find_cores(struct cpu *cpu, const struct ft_allowance *allowance, struct ft_error *error)
{
	uint64_t units = cpu->device.traits.units;
	cpu->cpu = calloc(units, sizeof(*cpu->cpu));
	if (!cpu->cpu)
		return ft_fail(error, FT_E_MEMORY, "no memory for a list of cores");
	if (ft_cpus_list(&allowance->cpus, cpu->cpu, units) == units)
		return 0;
	free(cpu->cpu);
	cpu->cpu = NULL;
	return ft_fail(error, FT_E_SYSTEM, "the system does not tell which cores may be used");
}

static int cpu_open(struct ft_backend *backend, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	enum ft_isa isa[FT_ISAS];
	struct ft_allowance allowance;
	ft_isa_usable(isa);
	ft_allowance_read("", &allowance);
	ft_host_traits(&allowance, &cpu->device.traits);
	if (find_cores(cpu, &allowance, error) < 0)
		return -1;
	ft_host_describe("", &allowance, &cpu->device.traits, &cpu->device.shown);
	ft_traits_of(&cpu->device.shown, &cpu->device.traits);
	backend->device = &cpu->device;
	backend->device_count = 1;
	snprintf(backend->identity, sizeof(backend->identity), "compiler=%s flags=%s isa=%s timing=%d",
	        FT_CPU_COMPILER, FT_CPU_FLAGS, ft_isa_name(isa[0]), TIMING_REVISION);
	for (char *c = backend->identity; *c; c++) {
		if (*c == ',')
			*c = ';';
	}

	size_t files = 0;
	ssize_t length = readlink("/proc/self/exe", cpu->self, sizeof(cpu->self) - 1);
	if (length > 0) {
		cpu->self[length] = '\0';
		cpu->files[files++] = cpu->self;
	}
	cpu->files[files] = NULL;
	backend->files = cpu->files;
	return 0;
}

static void cpu_close(struct ft_backend *backend)
{
	struct cpu *cpu = cpu_of(backend);
	cpu_finish(backend);
	cpu_free_arena(&cpu->arena);
	free(cpu->cpu);
	cpu->cpu = NULL;
	for (size_t i = 0; i < cpu->adopted_count; i++)
		free(cpu->adopted[i]);
	free(cpu->adopted);
	cpu->adopted = NULL;
	cpu->adopted_count = 0;
	backend->device_count = 0;
}

const struct ft_kernel_cpu *cpu_find_code(const struct cpu *cpu, const char *kernel)
{
	for (const struct ft_kernel_cpu *const *code = ft_kernels_cpu; *code; code++) {
		if (strcmp((*code)->name, kernel) == 0)
			return *code;
	}
	for (size_t i = 0; i < cpu->adopted_count; i++) {
		if (strcmp(cpu->adopted[i]->name, kernel) == 0)
			return cpu->adopted[i];
	}
	return NULL;
}

/* What compiles kernels of folders, and decides with them how fast they are. Asked for once. */
static const char *compiler_of(struct cpu *cpu)
{
	size_t files = 0;
	if (cpu->adopted_count > 0)
		return cpu->compiler;
	cc_find(cpu->compiler_path, sizeof(cpu->compiler_path));
	if (cpu->compiler_path[0] == '\0' || cc_version(cpu->compiler, sizeof(cpu->compiler), NULL) < 0)
		return "";
	while (cpu->files[files] && cpu->files[files] != cpu->compiler_path)
		files++;
	cpu->files[files] = cpu->compiler_path;
	cpu->files[files + 1] = NULL;
	return cpu->compiler;
}

static int cpu_adopt(struct ft_backend *backend, const struct ft_folder *folder, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	struct ft_kernel_cpu **more = realloc(cpu->adopted, (cpu->adopted_count + 1) * sizeof(void *));
	struct ft_kernel_cpu *code = more ? cpu_folder_code(folder, compiler_of(cpu), error) : NULL;
	if (!more)
		return ft_fail(error, FT_E_MEMORY, "no memory for a kernel");
	cpu->adopted = more;
	if (!code)
		return -1;
	more[cpu->adopted_count++] = code;
	return 0;
}

static void cpu_source(struct ft_backend *backend, const char *kernel, char hash[FT_HASH_SIZE])
{
	const struct ft_kernel_cpu *code = cpu_find_code(cpu_of(backend), kernel);
	snprintf(hash, FT_HASH_SIZE, "%s", code ? code->source : "");
}

/* ---- build ---- */

/* The compiler was here before: what is left is to choose a function and how to launch it, and two configs
 * that come down to the same choice are the same code. */
static void hash_plan(const struct cpu *cpu, size_t index, char code[FT_HASH_SIZE])
{
	char words[256], text[sizeof(words) + FT_HASH_SIZE + 32];
	enum ft_isa isa[FT_ISAS];
	ft_isa_usable(isa);
	cpu->code->describe(cpu->plan + index * cpu->code->plan_size, words, sizeof(words));
	snprintf(text, sizeof(text), "%s %s %s", cpu->code->source, ft_isa_name(isa[0]), words);
	ft_hash_text(text, strlen(text), code);
}

static int cpu_build_start(struct ft_backend *backend, size_t index, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	if (index >= cpu->known)
		cpu_resolve(cpu, index);
	if (cpu->folder)
		return cpu_folder_build_start(cpu, index, error);
	cpu->pending[index] = ++cpu->started;
	return 0;
}

static int cpu_build_wait(struct ft_backend *backend, struct ft_built *built, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	size_t first = cpu->count;
	if (cpu->folder)
		return cpu_folder_build_wait(cpu, built, error);
	for (size_t i = 0; i < cpu->count; i++) {
		if (cpu->pending[i] && (first == cpu->count || cpu->pending[i] < cpu->pending[first]))
			first = i;
	}
	if (first == cpu->count)
		return 0;
	cpu->pending[first] = 0;
	*built = (struct ft_built){.index = first, .cached = true};
	hash_plan(cpu, first, built->code);
	cpu->built = first;
	return 1;
}

/* A preemption by others shows in each window; what a host takes does not. */
static void cpu_interference(struct ft_backend *backend, struct ft_interference *interference)
{
	struct cpu *cpu = cpu_of(backend);
	unsigned percent = 0;
	if (!ft_steal_cpu(cpu->cpu, cpu->device.traits.units, &cpu->steal, &percent) || percent < STEAL_ROUGH)
		return;
	interference->disturbed = true;
	snprintf(interference->reason, sizeof(interference->reason),
	        "the host took %u %% of the processors away", percent);
}

/* ---- life ---- */

static bool cpu_load(struct ft_backend *backend, size_t device, unsigned *percent)
{
	struct cpu *cpu = cpu_of(backend);
	(void)device;
	return ft_load_cpu(cpu->cpu, cpu->device.traits.units, percent);
}

struct ft_backend *ft_backend_cpu_new(void)
{
	struct cpu *cpu = calloc(1, sizeof(*cpu));
	if (!cpu)
		return NULL;
	cpu->backend = (struct ft_backend){
	        .kind = "cpu",
	        .open = cpu_open,
	        .close = cpu_close,
	        .source = cpu_source,
	        .adopt = cpu_adopt,
	        .prepare = cpu_prepare,
	        .build_start = cpu_build_start,
	        .build_wait = cpu_build_wait,
	        .verify = cpu_verify,
	        .audit = cpu_audit,
	        .warm = cpu_warm,
	        .measure = cpu_measure,
	        .load = cpu_load,
	        .interference = cpu_interference,
	        .spread_ns = spread_ns,
	        .host = FT_HOST_TIMED,
	        .takes_late = true,
	        .finish = cpu_finish,
	};
	return &cpu->backend;
}

void ft_backend_cpu_free(struct ft_backend *backend)
{
	free(cpu_of(backend));
}
