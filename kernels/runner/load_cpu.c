#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/runner/load.h"

static const long window_ns = 100000000;

struct ticks {
	uint64_t all, idle;
};

/* The processors of the mask, from the lines "cpu7 user nice system idle iowait irq softirq steal …". What a
 * guest's host took away is time that was not to be had, and so counts as used. */
static bool read_ticks(const cpu_set_t *mask, struct ticks *ticks)
{
	char line[512];
	FILE *file = fopen("/proc/stat", "re");

	*ticks = (struct ticks){0};
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		unsigned long processor;
		char *at;

		if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9')
			continue;
		processor = strtoul(line + 3, &at, 10);
		if (processor >= CPU_SETSIZE || !CPU_ISSET(processor, mask))
			continue;
		/* Guest time, past these, is in user time already. */
		for (int i = 0; i < 8; i++) {
			uint64_t field = strtoull(at, &at, 10);

			ticks->all += field;
			ticks->idle += i == 3 || i == 4 ? field : 0;
		}
	}
	fclose(file);
	return ticks->all > 0;
}

bool ft_load_cpu(unsigned *percent)
{
	struct timespec window = {.tv_nsec = window_ns};
	struct ticks before, after;
	cpu_set_t mask;

	if (sched_getaffinity(0, sizeof(mask), &mask) != 0 || !read_ticks(&mask, &before))
		return false;
	(void)nanosleep(&window, NULL);
	if (!read_ticks(&mask, &after) || after.all <= before.all)
		return false;
	*percent = (unsigned)(100 - 100 * (after.idle - before.idle) / (after.all - before.all));
	return *percent <= 100;
}
