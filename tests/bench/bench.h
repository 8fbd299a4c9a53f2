/* What the benchmarks share: time, cores, samples, and arguments of the form NAME=VALUE. */
#ifndef FLYTUNE_TESTS_BENCH_H
#define FLYTUNE_TESTS_BENCH_H

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline _Noreturn void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static inline void *need(void *memory)
{
	if (memory == NULL)
		die("memory");
	return memory;
}

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Negative: anywhere. */
static inline void stay_on(long cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		die("sched_setaffinity");
}

static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline const char *argument(int argc, char **argv, const char *name, const char *otherwise)
{
	size_t length = strlen(name);

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
			return argv[i] + length + 1;
	}
	return otherwise;
}

static inline long number(int argc, char **argv, const char *name, long otherwise)
{
	const char *text = argument(argc, argv, name, NULL);

	return text == NULL ? otherwise : strtol(text, NULL, 10);
}

/* Nanoseconds, as many as there is room for; the rest is counted only. */
struct samples {
	uint32_t *ns;
	size_t count, room;
};

static inline void samples_init(struct samples *samples, size_t room)
{
	*samples = (struct samples){.ns = need(malloc(room * sizeof(uint32_t))), .room = room};
	memset(samples->ns, 0, room * sizeof(uint32_t)); /* no page faults later */
}

static inline void samples_add(struct samples *samples, uint64_t ns)
{
	if (samples->count < samples->room)
		samples->ns[samples->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static inline int compare_ns(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return left < right ? -1 : left > right;
}

static inline void samples_sort(uint32_t *ns, size_t count)
{
	qsort(ns, count, sizeof(*ns), compare_ns);
}

/* Prints "count":…,"p50":…,"p90":…,"p99":…,"p999":…,"max":… of sorted ones. */
static inline void samples_print(const uint32_t *ns, size_t count)
{
	static const struct {
		const char *name;
		double share;
	} at[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};

	printf("\"count\":%zu", count);
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		printf(",\"%s\":%u", at[i].name,
		        count == 0 ? 0 : ns[(size_t)((double)(count - 1) * at[i].share)]);
}

#endif
