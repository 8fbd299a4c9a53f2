#include "kernels/kernel.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	CPUS_MAX = 16384, /* a kernel built for more would answer EINVAL; then one core is assumed */
	CACHES_MAX = 8,
	USUAL_CACHE = 32 << 20, /* where sysfs says nothing */
};

const struct ft_kernel *ft_kernel_find(const char *name)
{
	static const struct {
		const char *name;
		const struct ft_kernel *kernel;
	} known[] = {{"rmsnorm", &ft_kernel_rmsnorm}};

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (strcmp(known[i].name, name) == 0)
			return known[i].kernel;
	}
	return NULL;
}

int ft_problem_admit(const struct ft_kernel *kernel, const struct ft_schema *schema,
        const struct ft_problem *given, struct ft_problem *whole, struct ft_error *error)
{
	if (ft_schema_complete(schema, given, whole, error) < 0)
		return -1;
	return kernel && kernel->check ? kernel->check(whole, error) : 0;
}

/* ---- this machine's CPU ---- */

/* Reads a small file of the kernel's. Not stdio: the client library calls this inside other programs. */
static bool read_file(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return false;
	ssize_t length = read(file, text, size - 1);

	close(file);
	if (length < 0)
		return false;
	text[length] = '\0';
	return true;
}

static const char *cpu_arch(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
	        __builtin_cpu_supports("avx512vl"))
		return "x86-64-v4";
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
		return "x86-64-v3";
	if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))
		return "x86-64-v2";
	return "x86-64";
#elif defined(__aarch64__)
	return "aarch64";
#else
	return "generic";
#endif
}

/* Cores that a control group's quota leaves, rounded up; `most` if it leaves them all. The tightest group on
 * the way up counts. */
static uint64_t quota_cores(uint64_t most)
{
	char text[1024];
	char path[1200];

	if (!read_file("/proc/self/cgroup", text, sizeof text))
		return most;
	char *group = strstr(text, "0::/");

	if (!group)
		return most;
	group += 3;
	group[strcspn(group, "\n")] = '\0';
	for (;;) {
		char limit[64];
		unsigned long long quota, period;

		snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
		if (read_file(path, limit, sizeof limit)) {
			char *end;

			quota = strtoull(limit, &end, 10); /* "max" reads as no number */
			period = end == limit ? 0 : strtoull(end, NULL, 10);
			if (period > 0 && quota / period + (quota % period > 0) < most)
				most = quota / period + (quota % period > 0);
		}
		char *slash = strrchr(group, '/');

		if (!slash)
			break;
		*slash = '\0';
	}
	return most > 0 ? most : 1;
}

static uint64_t cpu_cores(void)
{
	unsigned long mask[CPUS_MAX / (8 * sizeof(unsigned long))] = {0};
	uint64_t count = 0;

	/* Of the process, not of the calling thread, which its program may have bound to one core. */
	if (sched_getaffinity(getpid(), sizeof mask, (cpu_set_t *)mask) == 0)
		count = (uint64_t)CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
	return quota_cores(count > 0 ? count : 1);
}

static uint64_t cpu_cache(void)
{
	uint64_t bytes = 0;
	unsigned long deepest = 0;

	for (int i = 0; i < CACHES_MAX; i++) {
		char path[96];
		char text[32];

		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
		if (!read_file(path, text, sizeof text))
			break;
		if (strncmp(text, "Instruction", strlen("Instruction")) == 0)
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
		if (!read_file(path, text, sizeof text))
			continue;
		unsigned long level = strtoul(text, NULL, 10);

		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
		if (level < deepest || !read_file(path, text, sizeof text))
			continue;
		char *unit;
		uint64_t size = strtoull(text, &unit, 10);

		if (*unit == 'K')
			size <<= 10;
		else if (*unit == 'M')
			size <<= 20;
		if (size == 0)
			continue;
		deepest = level;
		bytes = size;
	}
	return bytes > 0 ? bytes : USUAL_CACHE;
}

void ft_traits_guess(const char *kind, struct ft_traits *traits)
{
	const char *arch = "";

	memset(traits, 0, sizeof *traits);
	snprintf(traits->kind, sizeof traits->kind, "%s", kind);
	if (strcmp(kind, "cpu") == 0) {
		arch = cpu_arch();
		traits->units = cpu_cores();
		traits->cache = cpu_cache();
	} else if (strcmp(kind, "cuda") == 0) {
		arch = "sm_90"; /* as an H100 or H200 */
		traits->units = 132;
		traits->wave = 32;
		traits->cache = 50 << 20;
	} else {
		arch = "gfx942"; /* as an MI300X */
		traits->units = 304;
		traits->wave = 64;
		traits->cache = 256 << 20;
	}
	snprintf(traits->arch, sizeof traits->arch, "%s", arch);
}
