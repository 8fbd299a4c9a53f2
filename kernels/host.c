#include "kernels/host.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
	CACHES_MAX = 8,
	USUAL_CACHE = 32 << 20, /* where sysfs says nothing */
	GROUPS_TEXT = 8192,
	CPU_TEXT = 8192, /* holds what /proc/cpuinfo says of one core */
	WORD_BITS = 8 * sizeof(unsigned long),
};

/* Version 1 says "no bound" by a number that no machine has. */
static const uint64_t memory_unbound = UINT64_C(1) << 60;

/* Reads a small file of the kernel's. Not stdio: the client library calls this inside other programs. */
static bool read_file(char *text, size_t size, const char *root, const char *path)
{
	char whole[1200];
	size_t length = 0;
	ssize_t got = -1;
	int file;

	if ((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) >= sizeof whole)
		return false;
	file = open(whole, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	while (length < size - 1 && (got = read(file, text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	close(file);
	text[length] = '\0';
	return got >= 0;
}

/* ---- what a process may use ---- */

size_t ft_cpus_list(const struct ft_cpus *cpus, int *number, size_t most)
{
	size_t count = 0;

	for (int i = 0; i < FT_CPUS_MAX && count < most; i++) {
		if (cpus->bit[(size_t)i / WORD_BITS] >> ((size_t)i % WORD_BITS) & 1)
			number[count++] = i;
	}
	return count;
}

void ft_cpus_one(struct ft_cpus *cpus, int number)
{
	memset(cpus, 0, sizeof *cpus);
	cpus->bit[(size_t)number / WORD_BITS] = 1UL << ((size_t)number % WORD_BITS);
}

/* A number of a control group's file. UINT64_MAX for "max", -1, and where there is no such file. */
static uint64_t group_number(const char *root, const char *folder, const char *name, uint64_t *second)
{
	char path[1100], text[64], *end;
	uint64_t value;

	if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path ||
	        !read_file(text, sizeof text, root, path) || text[0] == '-')
		return UINT64_MAX;
	value = strtoull(text, &end, 10);
	if (end == text)
		return UINT64_MAX;
	if (second)
		*second = strtoull(end, NULL, 10);
	return value;
}

static void bound_cores(struct ft_allowance *allowance, uint64_t quota, uint64_t period)
{
	if (quota == UINT64_MAX || period == 0 || quota > UINT64_MAX / 1000)
		return;
	quota = quota * 1000 / period;
	if (quota < allowance->quota)
		allowance->quota = quota > 0 ? quota : 1;
}

/* The number of a line "name number", 0 if there is none. */
static uint64_t stat_number(const char *lines, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = lines; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
	}
	return 0;
}

/* Where version 1 and 2 of control groups keep the same. */
struct memory_names {
	const char *most, *used, *inactive, *active;
};

static const struct memory_names unified_names = {
        "memory.max", "memory.current", "inactive_file", "active_file"};
static const struct memory_names memory_names = {
        "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};

/* With `left`: bytes that nobody uses, or that cached files would give. */
static void bound_memory(struct ft_allowance *allowance, uint64_t *left, const char *root, const char *folder,
        const struct memory_names *names)
{
	uint64_t most = group_number(root, folder, names->most, NULL), used;
	char path[1100], lines[GROUPS_TEXT];

	if (most >= memory_unbound)
		return;
	if (most < allowance->memory)
		allowance->memory = most;
	if (!left)
		return;
	used = group_number(root, folder, names->used, NULL);
	if (used != UINT64_MAX &&
	        (size_t)snprintf(path, sizeof path, "%s/memory.stat", folder) < sizeof path &&
	        read_file(lines, sizeof lines, root, path)) {
		uint64_t cached = stat_number(lines, names->inactive) + stat_number(lines, names->active);

		used -= cached < used ? cached : used;
	}
	used = used < most ? most - used : 0;
	if (used < *left)
		*left = used;
}

enum { UNIFIED = 1, CPU = 2, MEMORY = 4 };

/* A group and all above it: each binds those below. Where a container sees only its own part of the tree, the upper
 * ones, which are not there, are its own by another name. */
static void walk_up(struct ft_allowance *allowance, uint64_t *left, const char *root, const char *mount,
        const char *group, int what)
{
	char folder[1024];
	size_t base = strlen(mount);

	if ((size_t)snprintf(folder, sizeof folder, "%s%s", mount, group) >= sizeof folder)
		return;
	for (;;) {
		char *slash;
		uint64_t quota, period = 0;

		if (what & UNIFIED) {
			quota = group_number(root, folder, "cpu.max", &period);
			bound_cores(allowance, quota, period);
			bound_memory(allowance, left, root, folder, &unified_names);
		}
		if (what & CPU)
			bound_cores(allowance, group_number(root, folder, "cpu.cfs_quota_us", NULL),
			        group_number(root, folder, "cpu.cfs_period_us", NULL));
		if (what & MEMORY)
			bound_memory(allowance, left, root, folder, &memory_names);
		slash = strrchr(folder + base, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Whether a list, parted by commas, has a word. */
static bool lists(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (;; list++) {
		size_t part = strcspn(list, ",");

		if (part == length && memcmp(list, word, length) == 0)
			return true;
		list += part;
		if (*list == '\0')
			return false;
	}
}

static void read_allowance(const char *root, struct ft_allowance *allowance, uint64_t *left)
{
	char text[GROUPS_TEXT];
	char *next = text;

	*allowance = (struct ft_allowance){.quota = UINT64_MAX, .memory = UINT64_MAX};
	if (sched_getaffinity(getpid(), sizeof allowance->cpus, (cpu_set_t *)&allowance->cpus) == 0)
		allowance->cores =
		        (uint64_t)CPU_COUNT_S(sizeof allowance->cpus, (cpu_set_t *)&allowance->cpus);
	if (allowance->cores == 0)
		allowance->cores = 1;
	if (!read_file(text, sizeof text, root, "/proc/self/cgroup"))
		return;
	/* "4:memory:/group", of version 2 "0::/group". */
	while (*next) {
		char *line = next, *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
		int what;

		next += strcspn(next, "\n");
		if (*next)
			*next++ = '\0';
		if (!group || group > next)
			continue;
		*group++ = '\0';
		list++;
		if (!*list) {
			walk_up(allowance, left, root, "/sys/fs/cgroup", group, UNIFIED);
			walk_up(allowance, left, root, "/sys/fs/cgroup/unified", group, UNIFIED);
			continue;
		}
		what = (lists(list, "cpu") ? CPU : 0) | (lists(list, "memory") ? MEMORY : 0);
		if (what & CPU)
			walk_up(allowance, left, root, "/sys/fs/cgroup/cpu", group, CPU);
		if (what & MEMORY)
			walk_up(allowance, left, root, "/sys/fs/cgroup/memory", group, MEMORY);
	}
}

void ft_allowance_read(const char *root, struct ft_allowance *allowance)
{
	read_allowance(root, allowance, NULL);
}

uint64_t ft_allowance_units(const struct ft_allowance *allowance)
{
	uint64_t left = allowance->quota / 1000 + (allowance->quota % 1000 > 0);

	return left < allowance->cores ? left : allowance->cores;
}

void ft_allowance_print(const struct ft_allowance *allowance, char *text, size_t size)
{
	snprintf(text, size, "cpus=%016" PRIx64 " quota=%" PRIu64 " memory=%" PRIu64,
	        XXH3_64bits(&allowance->cpus, sizeof allowance->cpus), allowance->quota, allowance->memory);
}

/* ---- what it is ---- */

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

static uint64_t cpu_cache(void)
{
	uint64_t bytes = 0;
	unsigned long deepest = 0;

	for (int i = 0; i < CACHES_MAX; i++) {
		char path[96];
		char text[32];

		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
		if (!read_file(text, sizeof text, "", path))
			break;
		if (strncmp(text, "Instruction", strlen("Instruction")) == 0)
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
		if (!read_file(text, sizeof text, "", path))
			continue;
		unsigned long level = strtoul(text, NULL, 10);

		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
		if (level < deepest || !read_file(text, sizeof text, "", path))
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

void ft_host_traits(const struct ft_allowance *allowance, struct ft_traits *traits)
{
	snprintf(traits->arch, sizeof traits->arch, "%s", cpu_arch());
	traits->units = ft_allowance_units(allowance);
	traits->cache = cpu_cache();
}

/* The value of the first line "key : value", "" if there is none. */
static void find_value(const char *lines, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);

	value[0] = '\0';
	for (const char *line = lines; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, length) != 0)
			continue;
		const char *at = line + length + strspn(line + length, " \t");

		if (*at != ':')
			continue;
		at += 1 + strspn(at + 1, " \t");
		snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
		return;
	}
}

static uint64_t memory_of(const char *root, const char *key)
{
	char text[4096], value[64];

	if (!read_file(text, sizeof text, root, "/proc/meminfo"))
		return 0;
	find_value(text, key, value, sizeof value);
	return strtoull(value, NULL, 10) * 1024;
}

/* Of the machine, or of the control group that this is in. */
static uint64_t usable_memory(const char *root, const struct ft_allowance *allowance)
{
	const uint64_t memory = memory_of(root, "MemTotal");

	return allowance->memory < memory ? allowance->memory : memory;
}

void ft_traits_of(const struct ft_runner_device *shown, struct ft_traits *traits)
{
	*traits = (struct ft_traits){.units = shown->units,
	        .wave = shown->wave,
	        .cache = shown->cache,
	        .shared_block = shown->shared_block,
	        .threads_block = shown->threads_block,
	        .registers = shown->registers,
	        .memory = shown->memory};
	snprintf(traits->kind, sizeof traits->kind, "%s", shown->kind);
	snprintf(traits->arch, sizeof traits->arch, "%s", shown->arch);
}

void ft_traits_guess(const char *kind, struct ft_traits *traits)
{
	struct ft_allowance allowance;
	const char *arch;

	memset(traits, 0, sizeof *traits);
	snprintf(traits->kind, sizeof traits->kind, "%s", kind);
	if (strcmp(kind, "cpu") == 0) {
		ft_allowance_read("", &allowance);
		ft_host_traits(&allowance, traits);
		traits->memory = usable_memory("", &allowance);
		return;
	}
	traits->threads_block = 1024;
	if (strcmp(kind, "cuda") == 0) {
		arch = "sm_90"; /* as an H100 or H200 */
		traits->units = 132;
		traits->wave = 32;
		traits->cache = 50 << 20;
		traits->shared_block = 227 << 10;
		traits->registers = 65536;
		traits->memory = UINT64_C(80) << 30;
	} else {
		arch = "gfx942"; /* as an MI300X */
		traits->units = 304;
		traits->wave = 64;
		traits->cache = 256 << 20;
		traits->shared_block = 64 << 10;
		traits->registers = 131072;
		traits->memory = UINT64_C(192) << 30;
	}
	snprintf(traits->arch, sizeof traits->arch, "%s", arch);
}

static void add_word(char *text, size_t size, const char *name, const char *value)
{
	size_t length = strlen(text);

	snprintf(text + length, size - length, " %s=%s", name, value[0] ? value : "-");
	/* For a "name=value" list: no spaces in a value. */
	for (char *c = text + length + 1 + strlen(name) + 1; *c; c++) {
		if (*c == ' ' || *c == '\t' || *c == '=')
			*c = '_';
	}
}

void ft_host_describe(const char *root, const struct ft_allowance *allowance, const struct ft_traits *traits,
        struct ft_runner_device *shown)
{
	static const struct {
		const char *name, *key;
	} words[] = {{"vendor", "vendor_id"}, {"family", "cpu family"}, {"model", "model"},
	        {"stepping", "stepping"}, {"implementer", "CPU implementer"}, {"part", "CPU part"},
	        {"name", "model name"}};
	char lines[CPU_TEXT], value[128];
	char *identity = shown->identity;
	size_t size = sizeof shown->identity, length;

	if (!read_file(lines, sizeof lines, root, "/proc/cpuinfo"))
		lines[0] = '\0';
	find_value(lines, "model name", value, sizeof value);
	snprintf(shown->id, sizeof shown->id, "cpu:0");
	snprintf(shown->kind, sizeof shown->kind, "cpu");
	snprintf(shown->name, sizeof shown->name, "%s", value[0] ? value : "CPU");
	snprintf(shown->arch, sizeof shown->arch, "%s", traits->arch);
	shown->units = traits->units;
	shown->memory = usable_memory(root, allowance);
	shown->cache = traits->cache;
	snprintf(identity, size, "arch=%s", traits->arch);
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		find_value(lines, words[i].key, value, sizeof value);
		add_word(identity, size, words[i].name, value);
	}
	length = strlen(identity);
	length += (size_t)snprintf(identity + length, size - length, " cores=%" PRIu64 " cache=%" PRIu64,
	        traits->units, traits->cache);
	/* One and a half cores are not two. */
	if (allowance->quota < allowance->cores * 1000 && length < size)
		snprintf(identity + length, size - length, " quota=%" PRIu64 ".%03" PRIu64,
		        allowance->quota / 1000, allowance->quota % 1000);
}

uint64_t ft_host_free_memory(const char *root)
{
	struct ft_allowance allowance;
	uint64_t left = UINT64_MAX, room = memory_of(root, "MemAvailable");

	read_allowance(root, &allowance, &left);
	return left < room ? left : room;
}
