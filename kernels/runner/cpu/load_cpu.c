#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/runner/load.h"

static const long window_ns = 100000000;

/* Ticks are hundredths of a second: a share of fewer says nothing. */
enum { STEAL_TICKS = 40 };

struct ticks {
	uint64_t all, idle, taken;
};

static bool is_among(const int *processor, size_t count, unsigned long number)
{
	for (size_t i = 0; i < count; i++) {
		if ((unsigned long)processor[i] == number)
			return true;
	}
	return false;
}

/* Those processors, from the lines "cpu7 user nice system idle iowait irq softirq steal …". What a
 * guest's host took away is time that was not to be had, and so counts as used. */
static bool read_ticks(const int *processor, size_t count, struct ticks *ticks)
{
	char line[512];
	FILE *file = fopen("/proc/stat", "re");

	*ticks = (struct ticks){0};
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		unsigned long number;
		char *at;

		if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9')
			continue;
		number = strtoul(line + 3, &at, 10);
		if (!is_among(processor, count, number))
			continue;
		/* Guest time, past these, is in user time already. */
		for (int i = 0; i < 8; i++) {
			uint64_t field = strtoull(at, &at, 10);

			ticks->all += field;
			ticks->idle += i == 3 || i == 4 ? field : 0;
			ticks->taken += i == 7 ? field : 0;
		}
	}
	fclose(file);
	return ticks->all > 0;
}

bool ft_load_cpu(const int *processor, size_t count, unsigned *percent)
{
	struct timespec window = {.tv_nsec = window_ns};
	struct ticks before, after;

	if (!read_ticks(processor, count, &before))
		return false;
	(void)nanosleep(&window, NULL);
	if (!read_ticks(processor, count, &after) || after.all <= before.all)
		return false;
	*percent = (unsigned)(100 - 100 * (after.idle - before.idle) / (after.all - before.all));
	return *percent <= 100;
}

bool ft_steal_cpu(const int *processor, size_t count, struct ft_steal *steal, unsigned *percent)
{
	struct ticks now;
	uint64_t all, taken;

	if (!read_ticks(processor, count, &now))
		return false;
	all = now.all - steal->all;
	taken = now.taken - steal->taken;
	if (steal->all > 0 && all < STEAL_TICKS)
		return false;
	*percent = steal->all > 0 ? (unsigned)(100 * taken / all) : 0;
	bool known = steal->all > 0 && taken <= all;
	*steal = (struct ft_steal){.all = now.all, .taken = now.taken};
	return known;
}
