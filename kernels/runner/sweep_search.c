/* Which members are tried of a space that is too large to be tried whole: kernels/search.h proposes them, from what others showed
 * at a look; the best of all that were looked at race.
 *
 * A look is a build, a verification (what is wrong is often fast, and would lead the search astray) and the median of some
 * samples. Of the time from the first look to the race's end three quarters are for looks: what costs is to build and to
 * verify, which a racer has behind it, and the rule drops most racers after few rounds. Members come in batches, so that the
 * compiler's processes have work: small ones first, when each look teaches most. */
#include "kernels/runner/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/search.h"
#include "proto/clock.h"

enum {
	RACE_PARTS = 4, /* one part of the time is the race's */
	SAMPLES = 3,    /* of a look, besides one that is thrown away */
	BATCH_LEAST = 8,
	BATCH_PROCESSORS = 16, /* as many as processors, up to this, are no fewer than the least */
	BATCH_MOST = 64,
	BATCH_PART = 8, /* between these, so many looks for one of the next batch */
	RACERS_LEAST = 4,
	RACERS_MOST = 32,
	RACE_ROUNDS = 20, /* that there is to be time for */
};

static const double race_slower = 1.5; /* who took so much longer than the best does not race */

_Static_assert((int)FT_SEARCH_MEMBERS_MAX == (int)FT_MEMBERS_MAX, "it searches the largest spaces");
_Static_assert((int)FT_SEARCH_TRIES_MAX == (int)FT_TRIES_MAX, "and tries as many");
_Static_assert((int)FT_SEARCH_KNOBS_MAX == (int)FT_KNOBS_MAX, "of as many knobs");

struct look {
	struct run *run;
	const struct ft_schema *schema;
	struct ft_members members;
	struct ft_search *search;
	uint64_t begin_ns;
	uint64_t each_ns; /* that one took, in the last batch; 0: not known */
	size_t batch[BATCH_MOST], batched;
};

/* ---- the space ---- */

/* The search's space has the values of numbers in their order, whatever the schema's is. */
static uint8_t rank_of(const struct ft_knob_def *def, uint32_t value)
{
	uint8_t rank = 0;
	if (def->is_word)
		return (uint8_t)value;
	for (uint32_t i = 0; i < def->count; i++)
		rank += def->value[i] < def->value[value];
	return rank;
}

static int open_search(struct look *look, struct ft_error *error)
{
	const struct ft_members *members = &look->members;
	const struct ft_sweep *sweep = look->run->sweep;
	uint16_t *row = calloc((size_t)members->count * members->knobs + 1, sizeof(*row));
	if (!row)
		return ft_fail(error, FT_E_MEMORY, "no memory for a search");
	for (size_t i = 0; i < (size_t)members->count * members->knobs; i++)
		row[i] = rank_of(&look->schema->knob[i % members->knobs], members->row[i]);
	look->search = ft_search_new(
	        &(struct ft_search_space){row, members->count, members->knobs, members->default_index},
	        FT_TRIES_MAX, sweep->seed, error);
	free(row);
	return look->search ? 0 : -1;
}

static void config_at(const struct look *look, uint32_t place, struct ft_config *config)
{
	ft_schema_member(look->schema, look->members.row + (size_t)place * look->members.knobs, config);
}

/* Where a config is, most likely at `place`; `count`: nowhere. */
static uint32_t place_of(const struct look *look, const struct ft_config *config, uint32_t place)
{
	struct ft_config there;
	if (place < look->members.count) {
		config_at(look, place, &there);
		if (ft_config_equal(&there, config))
			return place;
	}
	for (place = 0; place < look->members.count; place++) {
		config_at(look, place, &there);
		if (ft_config_equal(&there, config))
			return place;
	}
	return place;
}

/* ---- what is known ---- */

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;
	return *one < *other ? -1 : *one > *other;
}

/* One that raced before was looked at as well. */
static uint64_t median_of_race(const struct ft_sweep *sweep, const struct ft_sweep_trial *trial)
{
	uint64_t sample[FT_ROUNDS_MAX];
	size_t count = 0;
	for (size_t i = 0; trial->sample_ps && i < sweep->rounds; i++) {
		if (trial->sample_ps[i] > 0)
			sample[count++] = trial->sample_ps[i];
	}
	qsort(sample, count, sizeof(*sample), compare_numbers);
	return count > 0 ? sample[count / 2] : 0;
}

static void take_known(struct look *look)
{
	struct ft_sweep *sweep = look->run->sweep;
	for (size_t i = 0; i < sweep->count; i++) {
		struct ft_sweep_trial *trial = &sweep->trial[i];
		trial->place = place_of(look, &trial->config, trial->place);
		if (trial->place == look->members.count) {
			if (!trial->out)
				run_put_out(look->run, i, "pruned", "no longer in the space");
			continue;
		}
		if (trial->look_ps == 0)
			trial->look_ps = median_of_race(sweep, trial);
		if (trial->look_ps > 0 || trial->out)
			(void)ft_search_tell(look->search, trial->place, trial->look_ps);
		trial->aside = i != sweep->default_index && trial->look_ps > 0;
	}
}

/* ---- a batch ---- */

static void add_member(struct look *look, size_t place)
{
	struct ft_sweep *sweep = look->run->sweep;
	const size_t index = sweep->count++;
	struct ft_sweep_trial *trial = &sweep->trial[index];
	struct ft_runner_event event = run_event(look->run, "member", index);
	*trial = (struct ft_sweep_trial){.place = (uint32_t)place};
	config_at(look, trial->place, &trial->config);
	look->run->config[index] = event.config = trial->config;
	event.place = place;
	run_tell(look->run, &event);
	look->batch[look->batched++] = index;
}

/* What came up before and was not reached goes first, and alone: the search does not know of it yet. But for the default, which
 * it names first. */
static void fill_batch(struct look *look, size_t size)
{
	struct ft_sweep *sweep = look->run->sweep;
	bool alone = false;
	look->batched = 0;
	for (size_t i = 0; i < sweep->count && look->batched < size; i++) {
		const struct ft_sweep_trial *trial = &sweep->trial[i];
		if (trial->out || trial->aside || trial->dropped || trial->look_ps > 0)
			continue;
		look->batch[look->batched++] = i;
		alone = alone || i != sweep->default_index;
	}
	while (!alone && look->batched < size && sweep->count < sweep->room) {
		const size_t place = ft_search_next(look->search);
		if (place == FT_SEARCH_NONE)
			return;
		if (place != look->members.default_index)
			add_member(look, place);
	}
}

static int sample_once(struct run *run, size_t index, uint64_t *sample_ps)
{
	*sample_ps = 0;
	while (*sample_ps == 0 && run_is_measured(run, index)) {
		if (run_cancelled(run))
			return RUN_CANCELLED;
		if (run_measure(run, index, sample_ps) == FT_BACKEND_LOST)
			return FT_BACKEND_LOST;
	}
	return 0;
}

static void tell_look(struct run *run, size_t index, uint64_t *sample)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	struct ft_runner_event event = run_event(run, "looked", index);
	if (!run_is_measured(run, index))
		return;
	qsort(sample, SAMPLES, sizeof(*sample), compare_numbers);
	if (sample[SAMPLES / 2] < FT_SAMPLE_LEAST_PS) {
		run_put_out(run, index, "failed", "it was timed at less than any launch takes");
		return;
	}
	trial->look_ps = event.look_ps = run->sample[index] = sample[SAMPLES / 2];
	run_tell(run, &event);
}

static int measure_batch(struct look *look, struct ft_error *error)
{
	struct run *run = look->run;
	uint64_t sample[BATCH_MOST][SAMPLES];
	int result = run_warm(run, error);
	for (size_t k = 0; k < look->batched && result == 0; k++)
		result = run_sample_first(run, look->batch[k]);
	if (result == 0)
		run_tell_stage(run, "measure"); /* none is announced from here on */
	for (size_t pass = 0; pass < SAMPLES; pass++) {
		for (size_t k = 0; k < look->batched && result == 0; k++)
			result = sample_once(run, look->batch[k], &sample[k][pass]);
	}
	for (size_t k = 0; k < look->batched && result == 0; k++)
		tell_look(run, look->batch[k], sample[k]);
	return result;
}

static int look_at_batch(struct look *look, struct ft_error *error)
{
	struct run *run = look->run;
	struct ft_sweep *sweep = run->sweep;
	const uint64_t begin = ft_monotonic_ns(), waited = run->waited_ns;
	int result = run_build_all(run, error);
	if (result == 0)
		result = run_take_host(run, FT_HOST_TIMED, "measure");
	if (result == 0)
		result = measure_batch(look, error);
	run_leave_host(run);
	if (result != 0)
		return result;
	for (size_t k = 0; k < look->batched; k++) {
		struct ft_sweep_trial *trial = &sweep->trial[look->batch[k]];
		/* One that has another's code is as fast as that; what was not reached is not told. */
		if (trial->look_ps > 0 || trial->out)
			(void)ft_search_tell(look->search, trial->place, trial->look_ps);
		trial->aside = look->batch[k] != sweep->default_index && trial->look_ps > 0;
	}
	if (look->batched > 0)
		look->each_ns = (ft_monotonic_ns() - begin - (run->waited_ns - waited)) / look->batched + 1;
	run_set_reserve(run);
	return 0;
}

/* How many fit into what is left for looks; 0: none do. */
static size_t next_batch(struct look *look)
{
	struct run *run = look->run;
	const uint64_t end = run_race_end_ns(run), now = ft_monotonic_ns();
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	size_t least = processors > BATCH_PROCESSORS ? BATCH_PROCESSORS
	        : processors > BATCH_LEAST           ? (size_t)processors
	                                             : BATCH_LEAST;
	size_t size = ft_search_tried(look->search) / BATCH_PART;
	run->look_end_ns = look->begin_ns;
	if (end > look->begin_ns)
		run->look_end_ns += (end - look->begin_ns) / RACE_PARTS * (RACE_PARTS - 1);
	if (size < least)
		size = least;
	if (size > BATCH_MOST)
		size = BATCH_MOST;
	/* What one takes is to be known before many are begun. */
	if (look->each_ns == 0)
		return processors > 2 && processors < (long)least ? (size_t)processors
		        : processors > 2                          ? least
		                                                  : 2;
	const uint64_t fit = now < run->look_end_ns ? (run->look_end_ns - now) / look->each_ns : 0;
	return fit < size ? (size_t)fit : size;
}

/* ---- who races ---- */

struct candidate {
	uint64_t look_ps;
	size_t index;
};

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *one = a, *other = b;
	if (one->look_ps != other->look_ps)
		return one->look_ps < other->look_ps ? -1 : 1;
	return one->index < other->index ? -1 : one->index > other->index;
}

static size_t racers_most(const struct run *run)
{
	const uint64_t end = run_race_end_ns(run), now = ft_monotonic_ns();
	const uint64_t each = RACE_ROUNDS * run->sample_ns + 1;
	const uint64_t fit = now < end ? (end - now) / each : 0;
	return fit < RACERS_LEAST ? RACERS_LEAST : fit < RACERS_MOST ? (size_t)fit : RACERS_MOST;
}

/* The best, the default, and what is served. */
static int choose_racers(struct run *run, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	struct candidate *candidate = calloc(sweep->count, sizeof(*candidate));
	struct ft_runner_event event = run_event(run, "race", 0);
	const size_t most = racers_most(run);
	size_t count = 0;
	uint32_t racing = 0;
	if (!candidate)
		return ft_fail(error, FT_E_MEMORY, "no memory for a search");
	for (size_t i = 0; i < sweep->count; i++) {
		struct ft_sweep_trial *trial = &sweep->trial[i];
		trial->aside = i != sweep->default_index && !trial->served;
		if (!trial->out && trial->look_ps > 0)
			candidate[count++] = (struct candidate){trial->look_ps, i};
	}
	qsort(candidate, count, sizeof(*candidate), compare_candidates);
	for (size_t k = 0; k < count && k < most; k++) {
		struct ft_sweep_trial *trial = &sweep->trial[candidate[k].index];
		if ((double)candidate[k].look_ps > race_slower * (double)candidate[0].look_ps)
			break;
		trial->aside = trial->dropped = false;
	}
	free(candidate);
	for (size_t i = 0; i < sweep->count; i++)
		racing += !sweep->trial[i].out && !sweep->trial[i].aside;
	ft_writer_reset(&run->writer);
	ft_write_array(&run->writer, racing);
	for (size_t i = 0; i < sweep->count; i++) {
		if (!sweep->trial[i].out && !sweep->trial[i].aside)
			ft_write_uint(&run->writer, i);
	}
	if (!ft_writer_ok(&run->writer))
		return ft_fail(error, FT_E_MEMORY, "no memory for a search");
	event.samples = (struct ft_view){run->writer.data, run->writer.length};
	run_tell(run, &event);
	return 0;
}

static int look_around(struct look *look, struct ft_error *error)
{
	struct run *run = look->run;
	int result = 0;
	look->begin_ns = ft_monotonic_ns();
	while (result == 0) {
		if (run_cancelled(run))
			return RUN_CANCELLED;
		fill_batch(look, next_batch(look));
		if (look->batched == 0)
			break;
		result = look_at_batch(look, error);
	}
	return result;
}

int run_search(struct run *run, struct ft_error *error)
{
	const struct ft_sweep *sweep = run->sweep;
	const struct ft_kernel *kernel = sweep->kernel;
	struct look look = {.run = run, .schema = kernel->schema(kernel, run->backend->kind)};
	int result = kernel->members(
	        kernel, &sweep->problem, &run->backend->device[sweep->device].traits, &look.members, error);
	if (result == 0)
		result = open_search(&look, error);
	if (result == 0) {
		take_known(&look);
		result = look_around(&look, error);
	}
	run->look_end_ns = 0;
	ft_search_free(look.search);
	free(look.members.row);
	return result == 0 ? choose_racers(run, error) : result;
}
