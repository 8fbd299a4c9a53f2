#include "kernels/rmsnorm/gpu.h"

#include <stdlib.h>
#include <string.h>

const struct ft_schema rmsnorm_gpu_schema =
        {
                .kernel = "rmsnorm",
                .revision = RMSNORM_REVISION,
                FT_ROWS_FIELDS,
                .knob_count = RMSNORM_KNOBS,
                .knob =
                        {
                                [RMSNORM_BLOCK_THREADS] = FT_ROWS_KNOB_BLOCK_THREADS,
                                [RMSNORM_WAVES_PER_EU] = {.name = "waves_per_eu",
                                        .count = 8,
                                        .value = {0, 1, 2, 4, 8, 10, 12, 16},
                                        .help = "waves that must fit on a SIMD unit or scheduler at once; 0 "
                                                "leaves it "
                                                "to the compiler"},
                                [RMSNORM_ROW_THREADS] = FT_ROWS_KNOB_ROW_THREADS,
                                [RMSNORM_WAVES_EXACT] = {.name = "waves_exact",
                                        .count = 2,
                                        .value = {0, 1},
                                        .help = "1: waves_per_eu is a maximum too, (k,k); AMD only"},
                                [RMSNORM_PASSES] = {.name = "PASSES",
                                        .count = 2,
                                        .value = {1, 2},
                                        .changes_bits = true,
                                        .help = "1: a row stays in registers; 2: it is read again once its "
                                                "sum is "
                                                "known"},
                                [RMSNORM_NONTEMPORAL] = {.name = "NONTEMPORAL",
                                        .count = 5,
                                        .value = {0, 1, 2, 3, 8},
                                        .help = "used once: 1 loads, 2 stores, 3 both; 8: loads pass by "
                                                "L1 and leave L2 first (NVIDIA only)"},
                                [RMSNORM_WEIGHT] = {.name = "WEIGHT",
                                        .count = 4,
                                        .value = {0, 1, 2, 3},
                                        .help = "loaded after the reduction (0), before it (1), once for all "
                                                "rows of a block (2), surely before it (3, NVIDIA only)"},
                                [RMSNORM_PREFETCH] = {.name = "PREFETCH",
                                        .count = 2,
                                        .value = {0, 1},
                                        .help = "1: a block loads its next row before it reduces this one"},
                                [RMSNORM_BLOCKS_PER_UNIT] = FT_ROWS_KNOB_BLOCKS_PER_UNIT,
                        },
};

/* NVIDIA's architecture as a number: 90 for sm_90. */
static int sm_of(const struct ft_traits *traits)
{
	return strncmp(traits->arch, "sm_", 3) == 0 ? (int)strtoul(traits->arch + 3, NULL, 10) : 0;
}

/* Registers that a row and, if it is loaded early, the weight take of a thread: 4 a vector. */
static uint64_t row_registers(const struct ft_rows *problem, const int64_t *value)
{
	uint64_t each = 4;

	if (value[RMSNORM_WEIGHT] != 0)
		each += 4 * ft_dtype_size(problem->weight) / ft_dtype_size(problem->dtype);
	if (value[RMSNORM_PREFETCH])
		each += 4;
	return each * ft_rows_slots(problem, (uint64_t)value[RMSNORM_ROW_THREADS]);
}

static bool fits(const struct ft_rows *problem, const struct ft_traits *traits, const int64_t *value)
{
	/* With more vectors a thread hiprtc's LLVM spills whatever there is room for. */
	if (ft_rows_is_amd(traits) && ft_rows_slots(problem, (uint64_t)value[RMSNORM_ROW_THREADS]) > 8)
		return false;
	uint64_t late = 0;

	/* Four vectors of the weight at a time, where it is loaded late. */
	if (ft_rows_is_amd(traits) && value[RMSNORM_WEIGHT] == 0)
		late = 16 * ft_dtype_size(problem->weight) / ft_dtype_size(problem->dtype);
	return row_registers(problem, value) + late <=
	        ft_rows_registers(traits, (uint64_t)value[RMSNORM_BLOCK_THREADS]);
}

/* Whether it may pay to read a row twice, from the second cache the second time. */
static bool may_read_twice(const struct ft_rows *problem, const struct ft_traits *traits)
{
	return sm_of(traits) >= 80 && problem->n % (16 / ft_dtype_size(problem->dtype)) == 0 &&
	        ft_rows_vectors(problem) >= 128 && ft_rows_traffic(problem, traits) >= FT_ROWS_LARGE;
}

/* Two vectors a thread, as long as a row takes `most` threads or fewer; beyond, up to eight, and of the teams that
 * leave the fewest lanes idle the largest. */
static uint64_t wide_row(const struct ft_rows *problem, const struct ft_traits *traits, uint64_t most)
{
	const struct ft_knob_def *def = &rmsnorm_gpu_schema.knob[RMSNORM_ROW_THREADS];
	uint64_t row = ft_rows_team(problem, traits, 2), best = ft_rows_team(problem, traits, 8);

	if (row <= most)
		return row;
	for (uint32_t i = 0; i < def->count; i++) {
		uint64_t threads = (uint64_t)def->value[i];

		if (threads > best && threads <= most && threads % ft_rows_wave(traits) == 0 &&
		        ft_rows_slots(problem, threads) * threads <= ft_rows_slots(problem, best) * best)
			best = threads;
	}
	return best;
}

/* Whether all rows' blocks, one row each, are on the device at once where a unit has room for so many threads. */
static bool at_once(
        const struct ft_rows *problem, const struct ft_traits *traits, uint64_t row, uint64_t threads_a_unit)
{
	return problem->m <= threads_a_unit / row * traits->units;
}

/* Whether time is latency: little is read; or blocks of two vectors a thread, in 40 registers, would come in two
 * turns, and those of four, in 64, do not. */
static bool waits(const struct ft_rows *problem, const struct ft_traits *traits)
{
	uint64_t two = ft_rows_team(problem, traits, 2), four = ft_rows_team(problem, traits, 4);

	if (ft_rows_traffic(problem, traits) != FT_ROWS_MIDDLE)
		return ft_rows_traffic(problem, traits) == FT_ROWS_SMALL;
	return ft_rows_vectors(problem) >= 128 && two > four && two <= 256 &&
	        ft_rows_slots(problem, four) <= 4 &&
	        ft_dtype_size(problem->weight) == ft_dtype_size(problem->dtype) &&
	        !at_once(problem, traits, two, 1536) && at_once(problem, traits, four, 1024);
}

/* Fitted to what won on an H200 over some 15 shapes from 1 x 4096 to 131072 x 2048. Where time is latency: four
 * vectors a thread, all blocks there at once, hints for the caches. Far beyond the last cache, reading a row
 * twice beats holding it in registers, as more blocks are under way; so does loading the weight late where
 * holding both takes 127 registers and the row alone 80. */
static void nvidia_default(const struct ft_rows *problem, const struct ft_traits *traits, int64_t *value)
{
	enum ft_rows_traffic traffic = ft_rows_traffic(problem, traits);
	uint64_t row = ft_rows_team(problem, traits, 4), all = ft_rows_vectors(problem), block;

	/* short rows: no more lanes than vectors, and a whole wave if there are as many */
	if (row < 32)
		row = all <= 8 ? 8 : all <= 16 ? 16 : 32;
	value[RMSNORM_WEIGHT] = 1;
	if (waits(problem, traits)) {
		value[RMSNORM_NONTEMPORAL] = 3;
		value[RMSNORM_WEIGHT] = problem->m < 8 || traffic == FT_ROWS_MIDDLE ? 3 : 1;
		value[RMSNORM_WAVES_PER_EU] = row >= 64 && ft_rows_slots(problem, row) <= 4 ? 8 : 0;
	} else if (all >= 128) {
		bool twice = traffic == FT_ROWS_HUGE && may_read_twice(problem, traits);

		row = wide_row(problem, traits, twice ? 512 : 256);
		value[RMSNORM_PASSES] = twice ? 2 : 1;
		value[RMSNORM_NONTEMPORAL] = twice ? 8 : 0;
		value[RMSNORM_WEIGHT] = ft_rows_slots(problem, row) < 8 ? 3 : 0;
	}
	block = row;
	if (row < 64 && problem->m > traits->units * 8)
		block = 128;
	else if (row < 32)
		block = 32;
	value[RMSNORM_ROW_THREADS] = (int64_t)row;
	value[RMSNORM_BLOCK_THREADS] = (int64_t)block;
}

/* One wave a row up to 512 elements of 16 bits, 256 threads from 2048 on, 512 beyond 8192; the order of a
 * row's sum is the same for every m. */
static void amd_default(const struct ft_rows *problem, const struct ft_traits *traits, int64_t *value)
{
	uint64_t row_vectors = ft_rows_vectors(problem);
	bool few = problem->m < 256;
	uint64_t row = 8, block;

	while (row < 256 && row < row_vectors)
		row *= 2;
	if (row_vectors > UINT64_C(4) * 256)
		row = 512;
	if (row_vectors > UINT64_C(4) * 512)
		row = 1024;
	block = few ? ft_rows_wave(traits) : 256;
	if (block < row)
		block = row;
	value[RMSNORM_ROW_THREADS] = (int64_t)row;
	value[RMSNORM_BLOCK_THREADS] = (int64_t)block;
	value[RMSNORM_WEIGHT] = 1;
	value[RMSNORM_NONTEMPORAL] = 1;
}

/* Settles what follows from the rest: a row that has no room in registers is read twice, too. */
static void settle(const struct ft_rows *problem, const struct ft_traits *traits, int64_t *value)
{
	if (value[RMSNORM_PASSES] != 2) {
		value[RMSNORM_PASSES] = 1;
		if (fits(problem, traits, value))
			return;
	}
	value[RMSNORM_WEIGHT] = 0;
	value[RMSNORM_PREFETCH] = 0;
	if (!fits(problem, traits, value))
		value[RMSNORM_PASSES] = 2;
}

void rmsnorm_gpu_default(
        const struct ft_rows *problem, const struct ft_traits *traits, struct ft_config *config)
{
	int64_t value[RMSNORM_KNOBS] = {0};

	if (ft_rows_is_amd(traits))
		amd_default(problem, traits, value);
	else
		nvidia_default(problem, traits, value);
	settle(problem, traits, value);
	ft_rows_config(&rmsnorm_gpu_schema, value, config);
}

/* Blocks of 128, 256, 512 and 1024 threads, one row each, times three values of waves_per_eu. */
static int add_plain(struct ft_rows_adding *adding)
{
	bool amd = ft_rows_is_amd(adding->traits),
	     small = ft_rows_traffic(adding->problem, adding->traits) == FT_ROWS_SMALL;
	int64_t hint = amd ? adding->default_config.knob[RMSNORM_NONTEMPORAL].value : small ? 3 : 0;
	int64_t weight = amd ? 1 : 3;

	for (int64_t block = 128; block <= 1024; block *= 2)
		for (int64_t waves = 0; waves <= 2; waves++) {
			int64_t value[RMSNORM_KNOBS] = {
			        [RMSNORM_BLOCK_THREADS] = block,
			        [RMSNORM_ROW_THREADS] = block,
			        [RMSNORM_WAVES_PER_EU] = waves,
			        [RMSNORM_NONTEMPORAL] = hint,
			        [RMSNORM_WEIGHT] = weight,
			};

			settle(adding->problem, adding->traits, value);
			if (ft_rows_add_once(adding, value, ft_rows_idle(adding->problem, (uint64_t)block)) <
			        0)
				return -1;
		}
	return 0;
}

/* A team with the weight loaded in either of two ways. */
static int add_team(
        struct ft_rows_adding *adding, uint64_t row, uint64_t rows, int64_t hint, const int64_t weights[2])
{
	const struct ft_rows *problem = adding->problem;

	if (row * rows > 1024 || !ft_rows_has_block(row * rows))
		return 0;
	for (int i = 0; i < 2; i++) {
		int64_t value[RMSNORM_KNOBS] = {
		        [RMSNORM_BLOCK_THREADS] = (int64_t)(row * rows),
		        [RMSNORM_ROW_THREADS] = (int64_t)row,
		        [RMSNORM_NONTEMPORAL] = hint,
		        [RMSNORM_WEIGHT] = weights[i],
		};

		settle(problem, adding->traits, value);
		if (value[RMSNORM_PASSES] == 2 && row < 512)
			continue; /* longer rows want more threads, not more passes */
		if (ft_rows_add_once(adding, value, NULL) < 0)
			return -1;
	}
	return 0;
}

static const int64_t early_or_late[2] = {1, 0};

static int add_amd(struct ft_rows_adding *adding)
{
	const struct ft_knob_def *teams = &rmsnorm_gpu_schema.knob[RMSNORM_ROW_THREADS];
	const struct ft_rows *problem = adding->problem;
	uint64_t wave = ft_rows_wave(adding->traits);

	for (uint32_t i = 0; i < teams->count; i++) {
		uint64_t row = (uint64_t)teams->value[i];

		if (row > wave ? row % wave != 0 : wave % row != 0)
			continue;
		if (ft_rows_slots(problem, row) > 8 || ft_rows_idle(problem, row))
			continue;
		if (row < wave && row > 8 && row / 2 >= ft_rows_vectors(problem))
			continue;
		for (uint64_t rows = 1; row * rows <= 512 || rows == 1; rows *= 2) {
			if (row * rows < 2 * wave || row * rows % wave != 0)
				continue;
			if (rows > 1 && problem->m < rows * adding->traits->units)
				continue;
			if (add_team(adding, row, rows, 3, early_or_late) < 0 ||
			        add_team(adding, row, rows, 0, early_or_late) < 0)
				return -1;
		}
	}
	return 0;
}

/* With a few vectors a thread the compiler schedules in another way if it is told an exact occupancy; as a
 * minimum alone the number changes nothing. */
static int add_exact(struct ft_rows_adding *adding)
{
	int64_t value[RMSNORM_KNOBS];

	for (unsigned i = 0; i < RMSNORM_KNOBS; i++)
		value[i] = adding->default_config.knob[i].value;
	if (ft_rows_slots(adding->problem, (uint64_t)value[RMSNORM_ROW_THREADS]) < 4 ||
	        value[RMSNORM_PASSES] == 2)
		return 0;
	value[RMSNORM_WAVES_EXACT] = 1;
	for (int64_t waves = 1; waves <= 4; waves *= 2) {
		value[RMSNORM_WAVES_PER_EU] = waves;
		if (ft_rows_add_once(adding, value, NULL) < 0)
			return -1;
	}
	return 0;
}

static int add_nvidia_one(struct ft_rows_adding *adding, uint64_t row, uint64_t rows, int64_t hint,
        int64_t weight, int64_t waves, int64_t passes)
{
	int64_t value[RMSNORM_KNOBS] = {
	        [RMSNORM_BLOCK_THREADS] = (int64_t)(row * rows),
	        [RMSNORM_ROW_THREADS] = (int64_t)row,
	        [RMSNORM_NONTEMPORAL] = hint,
	        [RMSNORM_WEIGHT] = weight,
	        [RMSNORM_WAVES_PER_EU] = waves,
	        [RMSNORM_PASSES] = passes,
	};

	if (!ft_rows_has_block(row * rows) || ft_rows_idle(adding->problem, row) ||
	        (row * rows) % ft_rows_wave(adding->traits) != 0)
		return 0;
	settle(adding->problem, adding->traits, value);
	return ft_rows_add_once(adding, value, NULL);
}

/* Rows of less than 128 vectors: teams that leave a thread 1 to 8 of them, in a block of their own or one of
 * 256 threads. */
static int add_nvidia_short(struct ft_rows_adding *adding)
{
	uint64_t wave = ft_rows_wave(adding->traits), units = adding->traits->units;
	int64_t hint = ft_rows_traffic(adding->problem, adding->traits) == FT_ROWS_SMALL ? 3 : 0;

	for (uint64_t each = 1; each <= 8; each *= 2) {
		uint64_t row = ft_rows_team(adding->problem, adding->traits, each);
		uint64_t least = row < wave ? wave / row : 1;

		for (int64_t weight = 0; weight <= 1; weight++) {
			if (add_nvidia_one(adding, row, least, hint, weight, 0, 1) < 0)
				return -1;
			if (adding->problem->m >= 256 / row * units &&
			        add_nvidia_one(adding, row, 256 / row, hint, weight, 0, 1) < 0)
				return -1;
		}
	}
	return 0;
}

/* What hides latency: blocks small enough in registers to be all there at once. */
static int add_nvidia_small(struct ft_rows_adding *adding)
{
	for (uint64_t each = 2; each <= 8; each *= 2) {
		uint64_t row = ft_rows_team(adding->problem, adding->traits, each);

		for (int64_t weight = 1; weight <= 3; weight += 2)
			if (each <= 4 && ft_rows_slots(adding->problem, row) <= 4 &&
			        add_nvidia_one(adding, row, 1, 3, weight, 8, 1) < 0)
				return -1;
		if (each >= 4 && add_nvidia_one(adding, row, 1, 3, 1, 0, 1) < 0)
			return -1;
	}
	return 0;
}

static int add_nvidia_middle(struct ft_rows_adding *adding)
{
	for (uint64_t each = 2; each <= 8; each *= 2) {
		uint64_t row = ft_rows_team(adding->problem, adding->traits, each);

		for (int64_t hint = 0; hint <= 3; hint += 3)
			for (int64_t weight = 1; weight <= 3; weight += 2)
				if (add_nvidia_one(adding, row, 1, hint, weight, 0, 1) < 0)
					return -1;
	}
	return 0;
}

static int add_nvidia_large(struct ft_rows_adding *adding)
{
	uint64_t wide = wide_row(adding->problem, adding->traits, 512);

	for (uint64_t each = 2; each <= 8; each *= 2) {
		uint64_t row = ft_rows_team(adding->problem, adding->traits, each);

		for (int64_t weight = 1; weight <= 3; weight += 2)
			if (add_nvidia_one(adding, row, 1, 0, weight, 0, 1) < 0)
				return -1;
		if (row < 256 && 256 % row == 0 && add_nvidia_one(adding, row, 256 / row, 0, 3, 0, 1) < 0)
			return -1;
		if (each == 8 && add_nvidia_one(adding, row, 1, 0, 0, 0, 1) < 0)
			return -1;
	}
	if (!may_read_twice(adding->problem, adding->traits))
		return 0;
	if (add_nvidia_one(adding, wide, 1, 8, 0, 0, 2) < 0)
		return -1;
	for (uint64_t rows = 1; rows <= 4; rows *= 2)
		if (wide % 64 == 0 && wide / 2 * rows <= 512 && wide / 2 * rows >= 256 &&
		        add_nvidia_one(adding, wide / 2, rows, 8, 0, 0, 2) < 0)
			return -1;
	return 0;
}

/* What won or came within 2 % of it in some shape, when a far wider product was measured on an H200. What lost there
 * has no knob any more: a cluster of blocks that share a long row took 39.3 us at 2048 x 16384, where the best,
 * a block of 256 threads a row, takes 33.95. */
static int add_nvidia(struct ft_rows_adding *adding)
{
	const struct ft_rows *problem = adding->problem;
	enum ft_rows_traffic traffic = ft_rows_traffic(problem, adding->traits);
	int result;

	if (ft_rows_vectors(problem) < 128)
		return add_nvidia_short(adding);
	result = traffic == FT_ROWS_SMALL   ? add_nvidia_small(adding)
	        : traffic == FT_ROWS_MIDDLE ? add_nvidia_middle(adding)
	                                    : add_nvidia_large(adding);
	/* Very long rows: in registers if they fit, else read twice. */
	for (uint64_t row = 512; result == 0 && ft_rows_slots(problem, 1024) > 4 && row <= 1024; row *= 2)
		result = add_nvidia_one(adding, row, 1, traffic == FT_ROWS_SMALL ? 3 : 0, 1, 0, 1);
	return result;
}

int rmsnorm_gpu_space(const struct ft_rows *problem, const struct ft_traits *traits, struct ft_space *space,
        struct ft_error *error)
{
	struct ft_rows_adding adding = {.schema = &rmsnorm_gpu_schema,
	        .problem = problem,
	        .traits = traits,
	        .space = space,
	        .error = error};

	rmsnorm_gpu_default(problem, traits, &adding.default_config);
	if (ft_rows_is_amd(traits) ? add_amd(&adding) < 0 || add_exact(&adding) < 0 : add_nvidia(&adding) < 0)
		return -1;
	return add_plain(&adding) < 0 ? -1 : ft_rows_finish(&adding);
}

int rmsnorm_gpu_check_config(const struct ft_rows *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error)
{
	bool amd = ft_rows_is_amd(traits);
	int64_t value[RMSNORM_KNOBS];

	if (ft_rows_check_threads(traits, config, RMSNORM_ROW_THREADS, error) < 0)
		return -1;
	for (unsigned i = 0; i < RMSNORM_KNOBS; i++)
		value[i] = config->knob[i].value;
	uint64_t row = (uint64_t)value[RMSNORM_ROW_THREADS];

	if (!amd && value[RMSNORM_WAVES_EXACT])
		return ft_rows_refuse(config, RMSNORM_WAVES_EXACT, "0 on this kind of device", error);
	if (amd && value[RMSNORM_NONTEMPORAL] > 3)
		return ft_rows_refuse(config, RMSNORM_NONTEMPORAL, "at most 3 on this kind of device", error);
	if (value[RMSNORM_NONTEMPORAL] >= 8 && sm_of(traits) < 80)
		return ft_rows_refuse(config, RMSNORM_NONTEMPORAL, "below 8 before sm_80", error);
	if (amd && value[RMSNORM_WEIGHT] > 2)
		return ft_rows_refuse(config, RMSNORM_WEIGHT, "at most 2 on this kind of device", error);
	if (value[RMSNORM_PASSES] == 1 && ft_rows_slots(problem, row) > 32)
		return ft_rows_refuse(config, RMSNORM_PASSES, "2 for rows of that length", error);
	if (value[RMSNORM_PASSES] == 2 && (value[RMSNORM_PREFETCH] || value[RMSNORM_WEIGHT]))
		return ft_rows_refuse(config, RMSNORM_PASSES, "1 with PREFETCH or WEIGHT", error);
	return 0;
}
