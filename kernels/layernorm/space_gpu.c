#include "kernels/layernorm/gpu.h"

enum {
	VECTORS_MAX = 16,    /* of a thread that holds a row in registers */
	AMD_VECTORS_MAX = 8, /* with more, hiprtc's LLVM spills whatever there is room for */
	AMD_EARLY_MAX = 4,   /* where weight and bias are held beside it */
	SUMS = 56, /* registers for both reductions and a vector widened, beside what any kernel needs */
	SHORT_BLOCK = 256, /* threads of a block that takes several rows */
	TWICE = 256, /* vectors from which it may pay to read a row twice, from a cache the second time */
};

const struct ft_schema layernorm_gpu_schema = {
        .kernel = "layernorm",
        .revision = LAYERNORM_REVISION,
        FT_ROWS_FIELDS,
        .knob_count = LAYERNORM_KNOBS,
        .knob =
                {
                        [LAYERNORM_BLOCK_THREADS] = FT_ROWS_KNOB_BLOCK_THREADS,
                        [LAYERNORM_ROW_THREADS] = FT_ROWS_KNOB_ROW_THREADS,
                        [LAYERNORM_PASSES] = {.name = "PASSES",
                                .count = 2,
                                .value = {1, 2},
                                .changes_bits = true,
                                .help = "1: a row stays in registers; 2: it is read again once its mean and "
                                        "variance are known"},
                        [LAYERNORM_NONTEMPORAL] = {.name = "NONTEMPORAL",
                                .count = 2,
                                .value = {0, 3},
                                .help = "3: loads of the input and stores are marked as used once"},
                        [LAYERNORM_WEIGHT] = {.name = "WEIGHT",
                                .count = 2,
                                .value = {0, 1},
                                .help = "weight and bias are loaded after the reductions (0) or before them "
                                        "(1)"},
                },
};

/* Registers that a row, its weight and its bias take of a thread: 4 a vector of the row's type. */
static bool fits(const struct ft_rows *problem, const struct ft_traits *traits, const int64_t *value)
{
	uint64_t vectors = ft_rows_slots(problem, (uint64_t)value[LAYERNORM_ROW_THREADS]);
	uint64_t weight = 8 * ft_dtype_size(problem->weight) / ft_dtype_size(problem->dtype);
	uint64_t weights = value[LAYERNORM_WEIGHT] ? vectors : 1; /* at a time */

	if (ft_rows_is_amd(traits) && vectors > (value[LAYERNORM_WEIGHT] ? AMD_EARLY_MAX : AMD_VECTORS_MAX))
		return false;
	if (vectors > VECTORS_MAX)
		return false;
	return 4 * vectors + weight * weights + SUMS <=
	        ft_rows_registers(traits, (uint64_t)value[LAYERNORM_BLOCK_THREADS]);
}

/* What has no room in registers is loaded late, or twice. */
static void settle(const struct ft_rows *problem, const struct ft_traits *traits, int64_t *value)
{
	if (value[LAYERNORM_PASSES] != 2 && fits(problem, traits, value))
		return;
	value[LAYERNORM_WEIGHT] = 0;
	if (value[LAYERNORM_PASSES] != 2 && !fits(problem, traits, value))
		value[LAYERNORM_PASSES] = 2;
}

/* A block of whole waves for teams of `row` threads: one of them if it is a wave or more, else as many as `threads` hold,
 * if there are rows enough to give every unit such a block. */
static uint64_t block_for(
        const struct ft_rows *problem, const struct ft_traits *traits, uint64_t row, uint64_t threads)
{
	uint64_t wave = ft_rows_wave(traits), least = row < wave ? wave : row;

	if (row >= threads || threads % row != 0 || problem->m < threads / row * traits->units)
		return least;
	return threads;
}

/* By what serves rmsnorm, which moves the same rows: four vectors a thread, or eight where blocks that large leave too few
 * registers for four; no more lanes than vectors where rows are short, and several of these a block where there are many. */
void layernorm_gpu_default(
        const struct ft_rows *problem, const struct ft_traits *traits, struct ft_config *config)
{
	uint64_t wave = ft_rows_wave(traits);
	int64_t value[LAYERNORM_KNOBS] = {[LAYERNORM_PASSES] = 2};

	for (uint64_t each = 4; each <= 8 && value[LAYERNORM_PASSES] == 2; each *= 2) {
		uint64_t row = ft_rows_team(problem, traits, each);

		while (row < wave && row < ft_rows_vectors(problem))
			row *= 2;
		value[LAYERNORM_ROW_THREADS] = (int64_t)row;
		value[LAYERNORM_BLOCK_THREADS] =
		        (int64_t)(row <= wave ? block_for(problem, traits, row, SHORT_BLOCK) : row);
		value[LAYERNORM_PASSES] = 1;
		value[LAYERNORM_WEIGHT] = 1;
		settle(problem, traits, value);
	}
	ft_rows_config(&layernorm_gpu_schema, value, config);
}

static int add(struct ft_rows_adding *adding, uint64_t row, uint64_t block, int64_t hint, int64_t passes)
{
	const char *idle = ft_rows_idle(adding->problem, row);

	if (!ft_rows_has_block(block) || block % row != 0)
		return 0;
	for (int64_t weight = passes == 2 ? 0 : 1; weight >= 0; weight--) {
		int64_t value[LAYERNORM_KNOBS] = {
		        [LAYERNORM_BLOCK_THREADS] = (int64_t)block,
		        [LAYERNORM_ROW_THREADS] = (int64_t)row,
		        [LAYERNORM_PASSES] = passes,
		        [LAYERNORM_NONTEMPORAL] = hint,
		        [LAYERNORM_WEIGHT] = weight,
		};

		settle(adding->problem, adding->traits, value);
		if (ft_rows_add_once(adding, value, idle) < 0)
			return -1;
	}
	return 0;
}

/* Teams that leave a thread 1 to 16 vectors, in a block of their own or with others; the plain blocks of a row each; and long
 * rows read twice. */
static int add_all(struct ft_rows_adding *adding, int64_t hint)
{
	const struct ft_rows *problem = adding->problem;
	const struct ft_traits *traits = adding->traits;

	for (uint64_t each = 1; each <= VECTORS_MAX; each *= 2) {
		uint64_t row = ft_rows_team(problem, traits, each);

		if (add(adding, row, block_for(problem, traits, row, 0), hint, 1) < 0 ||
		        add(adding, row, block_for(problem, traits, row, SHORT_BLOCK), hint, 1) < 0)
			return -1;
	}
	for (uint64_t block = 128; block <= 1024; block *= 2) {
		bool twice = block >= 512 && ft_rows_vectors(problem) >= TWICE &&
		        ft_rows_traffic(problem, traits) >= FT_ROWS_LARGE;

		if (add(adding, block, block, hint, 1) < 0 ||
		        (twice && add(adding, block, block, hint, 2) < 0))
			return -1;
	}
	return 0;
}

int layernorm_gpu_space(const struct ft_rows *problem, const struct ft_traits *traits, struct ft_space *space,
        struct ft_error *error)
{
	struct ft_rows_adding adding = {.schema = &layernorm_gpu_schema,
	        .problem = problem,
	        .traits = traits,
	        .space = space,
	        .error = error};

	layernorm_gpu_default(problem, traits, &adding.default_config);
	if (add_all(&adding, 0) < 0 || add_all(&adding, 3) < 0)
		return -1;
	return ft_rows_finish(&adding);
}

int layernorm_gpu_check_config(const struct ft_rows *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error)
{
	uint64_t row = (uint64_t)config->knob[LAYERNORM_ROW_THREADS].value;
	bool twice = config->knob[LAYERNORM_PASSES].value == 2;

	if (ft_rows_check_threads(traits, config, LAYERNORM_ROW_THREADS, error) < 0)
		return -1;
	if (!twice && ft_rows_slots(problem, row) > VECTORS_MAX)
		return ft_rows_refuse(config, LAYERNORM_PASSES, "2 for rows of that length", error);
	if (twice && config->knob[LAYERNORM_WEIGHT].value)
		return ft_rows_refuse(config, LAYERNORM_WEIGHT, "0 with PASSES 2", error);
	return 0;
}
