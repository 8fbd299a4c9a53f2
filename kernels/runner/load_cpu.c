#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
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
		uint64_t field[8] = {0};
		unsigned processor;

		if (sscanf(line,
		            "cpu%u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		            " %" SCNu64 " %" SCNu64,
		            &processor, &field[0], &field[1], &field[2], &field[3], &field[4], &field[5],
		            &field[6], &field[7]) < 5 ||
		        processor >= CPU_SETSIZE || !CPU_ISSET(processor, mask))
			continue;
		for (int i = 0; i < 8; i++)
			ticks->all += field[i];
		ticks->idle += field[3] + field[4];
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
