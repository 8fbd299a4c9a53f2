#include "kernels/rmsnorm/rmsnorm.h"

#include <string.h>

enum { BLOCK_THREADS, WAVES_PER_EU, KNOBS };

const struct ft_schema rmsnorm_gpu_schema = {
        RMSNORM_SCHEMA_FIELDS,
        .knob_count = KNOBS,
        .knob =
                {
                        [BLOCK_THREADS] = {.name = "BLOCK_THREADS",
                                .count = 4,
                                .value = {128, 256, 512, 1024},
                                .changes_bits = true,
                                .help = "threads of a block; a block does one row"},
                        [WAVES_PER_EU] = {.name = "waves_per_eu",
                                .count = 3,
                                .value = {0, 1, 2},
                                .help = "waves the compiler aims at for each SIMD; 0 leaves it the choice"},
                },
};

/* 128-bit pieces of a row. */
static uint64_t vectors(const struct rmsnorm_problem *problem)
{
	uint64_t width = 16 / rmsnorm_dtype_size(problem->dtype);

	return (problem->n + width - 1) / width;
}

/* As few threads as keep a row in registers, at most 4 vectors a thread. With fewer rows than units the rest
 * of the device idles, so a row gets twice the threads. */
void rmsnorm_gpu_standard(
        const struct rmsnorm_problem *problem, const struct ft_traits *traits, struct ft_config *config)
{
	uint64_t row = vectors(problem);
	uint64_t each = problem->m < traits->units ? 2 : 4;
	int64_t value[KNOBS] = {[BLOCK_THREADS] = 128, [WAVES_PER_EU] = 0};

	while (value[BLOCK_THREADS] < 1024 && (uint64_t)value[BLOCK_THREADS] * each < row)
		value[BLOCK_THREADS] *= 2;
	rmsnorm_config_of(&rmsnorm_gpu_schema, value, config);
}

int rmsnorm_gpu_space(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        struct ft_space *space, struct ft_error *error)
{
	const struct ft_knob_def *threads = &rmsnorm_gpu_schema.knob[BLOCK_THREADS];
	const struct ft_knob_def *waves = &rmsnorm_gpu_schema.knob[WAVES_PER_EU];
	struct ft_config standard;

	rmsnorm_gpu_standard(problem, traits, &standard);
	for (uint32_t i = 0; i < threads->count; i++) {
		/* The next smaller block has a thread for every vector already. */
		bool idle = i > 0 && (uint64_t)threads->value[i - 1] >= vectors(problem);

		for (uint32_t j = 0; j < waves->count; j++) {
			int64_t value[KNOBS] = {
			        [BLOCK_THREADS] = threads->value[i], [WAVES_PER_EU] = waves->value[j]};
			struct ft_config config;

			rmsnorm_config_of(&rmsnorm_gpu_schema, value, &config);
			if (rmsnorm_space_add(space, &config, &standard,
			            idle ? "half of the threads or more have nothing to do" : NULL,
			            error) < 0)
				return -1;
		}
	}
	return 0;
}

int rmsnorm_gpu_check_config(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error)
{
	(void)problem; /* every problem has the whole product of the knobs */
	(void)traits;
	(void)config;
	(void)error;
	return 0;
}
