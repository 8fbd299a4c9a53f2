/* How long a launch takes. */
#include "kernels/runner/cpu/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "proto/clock.h"

enum {
	WARM_MS = 50,
	WARM_PART = 2, /* of the last-level cache, which stays in it */
	COLD_RISE =
	        3, /* percent that a launch takes longer in twice the arrays where they are still too few */
	WARM_RISE = 10,   /* than in a cache, where memory is what it waits for */
	COLD_TURNS = 3,   /* in which that is looked at, as long as that is cheap */
	WINDOWS = 15,     /* of a sample, where launches are short */
	SETTLE_LEAST = 8, /* launches in a window of which one more, before it, is not too many */
};

static const uint64_t sample_ns = 1000000;   /* of one sample, at least */
static const uint64_t patience_ns = 8000000; /* spent on one that is disturbed, at most */
static const uint64_t look_ns = 100000000;   /* spent on each size of the arrays, at most */
static const uint64_t walk_ns = 100000000;   /* of that, on launches that only go through them once */

static void empty_work(void *context, uint32_t worker)
{
	(void)context;
	(void)worker;
}

static void next_set(struct cpu *cpu)
{
	cpu->at += cpu->step;
	while (cpu->at >= cpu->sets)
		cpu->at -= cpu->sets;
}

static void next_launch(struct cpu *cpu, size_t index)
{
	cpu->launched = true;
	cpu->audited = cpu->count;
	cpu_use_set(cpu, cpu->at);
	cpu_launch(cpu, index, cpu->rows);
	next_set(cpu);
}

/* After so many launches: what they were given is as it was before them. */
static void restore(struct cpu *cpu, uint64_t launches)
{
	size_t at = cpu->at;
	if (!cpu->is_restored)
		return;
	for (uint64_t i = 0; i < launches; i++) {
		at = at >= cpu->step ? at - cpu->step : at + cpu->sets - cpu->step;
		cpu_restore_set(cpu, at);
	}
}

/* That fit into a window with none of them given what another one left. */
static uint64_t most_launches(const struct cpu *cpu)
{
	if (!cpu->is_restored)
		return UINT64_MAX;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		if (cpu->tensors.tensor[i].is_filled)
			return 1;
	}
	return cpu->sets;
}

static uint64_t time_batch(struct cpu *cpu, size_t index, uint64_t batch)
{
	uint64_t begin = ft_clock_ns();
	for (uint64_t i = 0; i < batch; i++)
		next_launch(cpu, index);
	uint64_t took = ft_clock_ns() - begin;
	restore(cpu, batch);
	cpu_note_work(cpu, begin);
	return took > cpu->clock.overhead_ns ? took - cpu->clock.overhead_ns : 1;
}

static uint64_t window_least_ns(const struct cpu *cpu)
{
	uint64_t least = ft_clock_window_ns(&cpu->clock);
	return least > sample_ns / WINDOWS ? least : sample_ns / WINDOWS;
}

/* The first sample of a config, which nobody keeps, tells how many launches fill a window. */
static void size_batch(struct cpu *cpu, size_t index)
{
	enum { TRIES = 3, GROWTH = 64 };
	const uint64_t least = window_least_ns(cpu);
	const uint64_t most = most_launches(cpu);
	struct batch *batch = &cpu->batch[index];
	uint64_t took = UINT64_MAX;
	batch->launches = 1;
	for (;;) {
		for (int i = 0; i < TRIES; i++) {
			uint64_t once = time_batch(cpu, index, batch->launches); /* never 0 */
			took = once < took ? once : took;
			if (once >= patience_ns)
				break; /* large, or not to be had undisturbed */
		}
		if (took >= least || took == 0 || batch->launches >= most)
			break;
		uint64_t next = batch->launches * least / took + 1;
		batch->launches = next > batch->launches * GROWTH ? batch->launches * GROWTH
		        : next > batch->launches                  ? next
		                                                  : batch->launches + 1;
		batch->launches = batch->launches < most ? batch->launches : most;
		took = UINT64_MAX;
	}
	uint64_t windows = took > 0 ? sample_ns / took : WINDOWS;
	batch->windows = windows < 1 ? 1 : windows > WINDOWS ? WINDOWS : (uint32_t)windows;
}

/* Longer in twice the arrays: part of them was found in the caches. */
static bool rises(const struct cpu *cpu)
{
	return cpu->whole_ps * 100 > cpu->half_ps * (100 + COLD_RISE);
}

static bool are_cold(const struct cpu *cpu)
{
	return cpu->half_ps > 0 && !rises(cpu) &&
	        cpu_touched(cpu) * cpu->sets >= COLD_LEAST * cpu->device.traits.cache;
}

static size_t cold_arrays(const struct cpu *cpu)
{
	size_t count = 0;
	for (uint32_t i = 0; i < cpu->tensors.count; i++)
		count += cpu->array[i].cold;
	return count;
}

static void say_method(struct cpu *cpu)
{
	char looked[80] = "";
	if (cpu->half_ps > 0)
		snprintf(looked, sizeof(looked), " (%.2f µs; in half %.2f, cached %.2f)",
		        (double)cpu->whole_ps / 1e6, (double)cpu->half_ps / 1e6, (double)cpu->warm_ps / 1e6);
	snprintf(cpu->backend.method, sizeof(cpu->backend.method),
	        "windows of at least %.0f µs, launches back to back on %" PRIu64
	        " pinned cores; %s: %.0f MiB in %zu arrays%s, cache %.0f MiB; empty launch %.2f µs; %" PRIu64
	        " of %" PRIu64 " samples disturbed",
	        (double)window_least_ns(cpu) / 1e3, cpu->device.traits.units,
	        are_cold(cpu) ? "cold" : "not all cold",
	        (double)cpu_touched(cpu) * (double)cpu->sets / MEBIBYTE, cold_arrays(cpu) * cpu->sets, looked,
	        (double)cpu->device.traits.cache / MEBIBYTE, (double)cpu->floor_ps / 1e6, cpu->disturbed,
	        cpu->samples);
}

static uint64_t median(uint64_t *value, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		uint64_t moving = value[i];
		size_t j = i;
		for (; j > 0 && value[j - 1] > moving; j--)
			value[j] = value[j - 1];
		value[j] = moving;
	}
	if (count == 0)
		return 0;
	return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

static bool backend_is_late(const struct cpu *cpu, uint64_t more_ns)
{
	return cpu->backend.deadline_ns != 0 && ft_monotonic_ns() + more_ns >= cpu->backend.deadline_ns;
}

/* What a launch would leave of the next set in the caches. */
static void touch_next(struct cpu *cpu)
{
	const char *set = cpu->arena.memory + cpu->at * cpu->slot;
	for (size_t i = 0; i < cpu->slot; i += LINE)
		(void)*(const volatile char *)(set + i);
	next_set(cpu);
}

/* Once through so many sets, for caches to hold what that leaves in them. Nanoseconds a launch. Beside others, whose turn
 * each launch may have to wait for, no longer than walk_ns: the rest is read. 0 if the deadline comes before. */
static uint64_t walk(struct cpu *cpu, size_t index, size_t sets)
{
	enum { PART = 64 };
	uint64_t spent = 0;
	size_t done = 0;
	while (done < sets && spent < walk_ns && !backend_is_late(cpu, 0)) {
		size_t part = sets - done < PART ? sets - done : PART;
		spent += time_batch(cpu, index, part);
		done += part;
	}
	for (size_t i = done; i < sets; i++) {
		if (i % PART == 0 && backend_is_late(cpu, 0))
			return 0;
		touch_next(cpu);
	}
	return done > 0 ? (spent + done - 1) / done : 0;
}

/* Picoseconds a launch in so many arrays, once caches hold what such a walk leaves in them; that of the quarter of windows
 * that others disturbed least. 0 if the deadline comes before they are made, or timed. */
static uint64_t time_in(struct cpu *cpu, size_t index, size_t sets)
{
	enum { LEAST = 3 };
	uint64_t took[WINDOWS] = {0};
	uint64_t spent = 0;
	size_t count = 0;
	cpu_use_sets(cpu, sets);
	if (cpu->ended)
		return 0;
	const uint64_t once = walk(cpu, index, sets);
	if (once == 0)
		return 0;
	uint64_t launches = window_least_ns(cpu) / once + 1;
	launches = launches < most_launches(cpu) ? launches : most_launches(cpu);
	for (; count < WINDOWS && (count < LEAST || spent < look_ns / 4); count++) {
		if (backend_is_late(cpu, launches * once))
			return 0;
		took[count] = time_batch(cpu, index, launches);
		spent += took[count];
	}
	(void)median(took, count); /* sorts */
	return took[count / 4] * 1000 / launches;
}

/* False where there is none. */
static bool keep_least(uint64_t *least, uint64_t value)
{
	*least = *least == 0 || (value > 0 && value < *least) ? value : *least;
	return value > 0;
}

/* Takes turns at the sets of a cache, at half of `sets` and at all of them. False if the deadline ended it. */
static bool look_at(struct cpu *cpu, size_t index, size_t sets)
{
	const uint64_t few = cpu->device.traits.cache / WARM_PART / cpu_touched(cpu);
	const size_t m = cpu->m;
	uint64_t begin = ft_clock_ns();
	bool timed = true;
	cpu->half_ps = cpu->whole_ps = 0;
	for (int turn = 0; timed && turn < COLD_TURNS && (turn == 0 || ft_clock_ns() - begin < look_ns);
	        turn++) {
		timed = keep_least(&cpu->warm_ps, time_in(cpu, index, few > 0 && few < sets ? few : 1));
		/* Of a single set, half the rows. */
		cpu->rows = sets > 1 ? m : m / 2;
		timed = timed &&
		        keep_least(
		                &cpu->half_ps, time_in(cpu, index, sets > 1 ? sets / 2 : 1) * m / cpu->rows);
		cpu->rows = m;
		timed = timed && keep_least(&cpu->whole_ps, time_in(cpu, index, sets));
	}
	return timed;
}

/* Takes more arrays until a launch takes no longer in twice as many, and longer than in a cache. What of them stays there
 * is not told by its size: who shares it, what goes past it, and which lines it gives up first count as well. */
static void look_for_cold(struct cpu *cpu, size_t index)
{
	const uint64_t cache = cpu->device.traits.cache;
	size_t there = cpu->sets;
	for (size_t sets = there;; sets = 2 * sets < cpu->most ? 2 * sets : cpu->most) {
		if (!look_at(cpu, index, sets)) {
			cpu->half_ps = cpu->whole_ps = 0;
			/* More may not have been made whole in time. */
			cpu_use_sets(cpu, there);
			cpu->ended = false;
			return;
		}
		there = sets;
		const bool waits = cpu->whole_ps * 100 > cpu->warm_ps * (100 + WARM_RISE);
		if (sets == cpu->most ||
		        (!rises(cpu) && (waits || cpu_touched(cpu) * sets >= COLD_ENOUGH * cache)))
			return;
	}
}

/* What every launch costs before it does anything: below this nothing is told apart. */
static uint64_t empty_launch_ps(struct cpu *cpu)
{
	enum { FLOOR_WINDOWS = 31, FLOOR_LAUNCHES = 32 };
	uint64_t took[FLOOR_WINDOWS] = {0};
	uint64_t spent = 0;
	size_t count = 0;
	while (count < FLOOR_WINDOWS && (spent < patience_ns || count == 0)) {
		uint64_t begin = ft_clock_ns();
		for (int i = 0; i < FLOOR_LAUNCHES; i++)
			ft_pool_run(cpu->pool, ft_pool_threads(cpu->pool), empty_work, NULL);
		took[count] = ft_clock_ns() - begin;
		spent += took[count++];
	}
	return median(took, count) * 1000 / FLOOR_LAUNCHES;
}

int cpu_warm(struct ft_backend *backend, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	(void)error;
	cpu->until_ns = backend->deadline_ns;
	cpu->ended = false;
	ft_clock_probe(&cpu->clock);
	uint64_t begin = ft_clock_ns();
	cpu_note_work(cpu, begin);
	while (begin - cpu->hot_ns < (uint64_t)WARM_MS * 1000000) {
		if (cpu->warm_index < cpu->count)
			(void)time_batch(cpu, cpu->warm_index, 1);
		else
			ft_pool_run(cpu->pool, ft_pool_threads(cpu->pool), empty_work, NULL);
		cpu_note_work(cpu, begin);
		begin = ft_clock_ns();
	}
	size_t index = cpu->warm_index < cpu->count ? cpu->warm_index : cpu->built;
	if (!cpu->looked && (cpu->sets > 1 || (cpu->over_rows && cpu->m > 1)) && index < cpu->count)
		look_for_cold(cpu, index);
	cpu->looked = true;
	cpu->floor_ps = empty_launch_ps(cpu);
	cpu_note_work(cpu, begin);
	say_method(cpu);
	return 0;
}

static uint64_t interruptions(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

/* One more window of a sample, which is the median of some. One in which the scheduler took a core away is taken
 * again, while that is cheap: chosen by what happened to it and not by its time, a sample stays unbiased. */
int cpu_measure(struct ft_backend *backend, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	struct windows *windows = &cpu->windows[index];
	(void)error;
	*sample_ps = 0;
	if (!cpu->sampled[index]) {
		cpu->sampled[index] = true;
		if (cpu->batch[index].launches == 0)
			size_batch(cpu, index);
		else
			(void)time_batch(cpu, index, 1);
		*sample_ps = 1;
		return 0;
	}
	const struct batch batch = cpu->batch[index];
	/* Another config was on the cores: its code and the branches that it took are not this one's. */
	if (batch.launches >= SETTLE_LEAST)
		(void)time_batch(cpu, index, 1);
	uint64_t before = interruptions();
	uint64_t took = time_batch(cpu, index, batch.launches);
	windows->spent += took;
	if (interruptions() == before)
		windows->calm[windows->calm_count++] = took;
	else
		windows->rough[windows->rough_count++] = took;
	if (windows->calm_count < batch.windows &&
	        windows->calm_count + windows->rough_count < WINDOWS_MOST && windows->spent < patience_ns)
		return 0;
	took = windows->calm_count > 0 ? median(windows->calm, windows->calm_count)
	                               : median(windows->rough, windows->rough_count);
	cpu->samples++;
	cpu->disturbed += windows->calm_count < batch.windows;
	cpu->backend.disturbed += windows->calm_count < batch.windows;
	*windows = (struct windows){0};
	say_method(cpu);
	*sample_ps = took * 1000 / batch.launches;
	if (*sample_ps == 0)
		*sample_ps = 1;
	return 0;
}
