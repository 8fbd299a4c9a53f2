#include "kernels/rows/gpu.h"

#include <stdio.h>
#include <string.h>

static const int64_t teams[] = {FT_ROWS_TEAMS};
static const struct ft_knob_def blocks = FT_ROWS_KNOB_BLOCK_THREADS;

bool ft_rows_is_amd(const struct ft_traits *traits)
{
	return strcmp(traits->kind, "cuda") != 0;
}

uint64_t ft_rows_wave(const struct ft_traits *traits)
{
	return traits->wave ? traits->wave : ft_rows_is_amd(traits) ? 64 : 32;
}

uint64_t ft_rows_vectors(const struct ft_rows *problem)
{
	uint64_t width = 16 / ft_dtype_size(problem->dtype);

	return problem->n % width ? (problem->n + 2 * width - 2) / width : problem->n / width;
}

uint64_t ft_rows_slots(const struct ft_rows *problem, uint64_t row_threads)
{
	return (ft_rows_vectors(problem) + row_threads - 1) / row_threads;
}

uint64_t ft_rows_team(const struct ft_rows *problem, const struct ft_traits *traits, uint64_t each)
{
	uint64_t wave = ft_rows_wave(traits);

	for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
		uint64_t threads = (uint64_t)teams[i];

		if (threads > wave && threads % wave != 0)
			continue;
		if (ft_rows_slots(problem, threads) <= each)
			return threads;
	}
	return 1024;
}

bool ft_rows_has_block(uint64_t threads)
{
	for (uint32_t i = 0; i < blocks.count; i++)
		if ((uint64_t)blocks.value[i] == threads)
			return true;
	return false;
}

const char *ft_rows_idle(const struct ft_rows *problem, uint64_t row_threads)
{
	uint64_t given = ft_rows_slots(problem, row_threads) * row_threads;
	uint64_t used = ft_rows_vectors(problem);

	if (row_threads > 32 && used * 2 <= row_threads)
		return "half of the threads or more have nothing to do";
	if (row_threads > 32 && used * 5 < given * 4)
		return "a fifth of the lanes or more are idle";
	return NULL;
}

uint64_t ft_rows_registers(const struct ft_traits *traits, uint64_t block_threads)
{
	bool large = strncmp(traits->arch, "gfx90a", 6) == 0 || strncmp(traits->arch, "gfx94", 5) == 0 ||
	        strncmp(traits->arch, "gfx95", 5) == 0;
	bool amd = ft_rows_is_amd(traits);
	uint64_t file = !amd || ft_rows_wave(traits) == 32 ? 65536 : large ? 512 * 64 * 4 : 256 * 64 * 4;
	uint64_t most = file / block_threads;
	uint64_t rest = amd ? 36 : 30;

	if (most > 255)
		most = 255;
	return most > rest + 10 ? most - rest : most / 4;
}

enum ft_rows_traffic ft_rows_traffic(const struct ft_rows *problem, const struct ft_traits *traits)
{
	uint64_t bytes = 2 * problem->m * problem->n * ft_dtype_size(problem->dtype);
	uint64_t cache = traits->cache ? traits->cache : (uint64_t)32 << 20;

	return bytes > 4 * cache    ? FT_ROWS_HUGE
	        : bytes > cache     ? FT_ROWS_LARGE
	        : bytes > cache / 8 ? FT_ROWS_MIDDLE
	                            : FT_ROWS_SMALL;
}

/* ---- a space ---- */

int ft_rows_add_once(struct ft_rows_adding *adding, const int64_t *value, const char *pruned)
{
	struct ft_config config;

	ft_rows_config(adding->schema, value, &config);
	for (uint32_t i = 0; i < adding->space->count; i++)
		if (ft_config_equal(&adding->space->config[i], &config))
			return 0;
	return ft_rows_add(adding->space, &config, &adding->default_config, pruned, adding->error);
}

static void sort_space(struct ft_space *space)
{
	for (uint32_t i = 1; i < space->count; i++) {
		struct ft_config config = space->config[i];
		bool is_default = space->default_index == i;
		char pruned[sizeof space->pruned[0]];
		uint32_t at = i;

		memcpy(pruned, space->pruned[i], sizeof pruned);
		for (; at > 0 &&
		        space->config[at - 1].knob[FT_ROWS_BLOCK_THREADS].value >
		                config.knob[FT_ROWS_BLOCK_THREADS].value;
		        at--) {
			space->config[at] = space->config[at - 1];
			memcpy(space->pruned[at], space->pruned[at - 1], sizeof pruned);
			if (space->default_index == at - 1)
				space->default_index = at;
		}
		space->config[at] = config;
		memcpy(space->pruned[at], pruned, sizeof pruned);
		if (is_default)
			space->default_index = at;
	}
}

int ft_rows_finish(struct ft_rows_adding *adding)
{
	int64_t value[FT_KNOBS_MAX];

	for (uint32_t i = 0; i < adding->default_config.count; i++)
		value[i] = adding->default_config.knob[i].value;
	if (ft_rows_add_once(adding, value, NULL) < 0)
		return -1;
	sort_space(adding->space);
	return 0;
}

int ft_rows_check_threads(const struct ft_traits *traits, const struct ft_config *config, uint32_t row_knob,
        struct ft_error *error)
{
	uint64_t wave = ft_rows_wave(traits);
	uint64_t block = (uint64_t)config->knob[FT_ROWS_BLOCK_THREADS].value;
	uint64_t row = (uint64_t)config->knob[row_knob].value;
	char bound[64];

	if (block % wave != 0) {
		snprintf(bound, sizeof bound, "a multiple of the wave, %llu", (unsigned long long)wave);
		return ft_rows_refuse(config, FT_ROWS_BLOCK_THREADS, bound, error);
	}
	if (block % row != 0 || (row > wave ? row % wave != 0 : wave % row != 0)) {
		snprintf(bound, sizeof bound,
		        "whole waves of %llu or a part of one, and divide BLOCK_THREADS",
		        (unsigned long long)wave);
		return ft_rows_refuse(config, row_knob, bound, error);
	}
	return 0;
}

/* ---- code and launch ---- */

void ft_rows_define(struct ft_defines *defines, const char *name, uint64_t value)
{
	snprintf(defines->text[defines->count++], FT_DEFINE_SIZE, "-D%s=%llu", name,
	        (unsigned long long)value);
}

void ft_rows_defines(const struct ft_rows *problem, const struct ft_traits *traits,
        const struct ft_rows_shape *shape, struct ft_defines *defines)
{
	memset(defines, 0, sizeof *defines);
	ft_rows_define(defines, "RN_N", problem->n);
	ft_rows_define(defines, "RN_X", problem->dtype);
	ft_rows_define(defines, "RN_W", problem->weight);
	ft_rows_define(defines, "RN_WAVE", traits->wave);
	ft_rows_define(defines, "RN_BLOCK_THREADS", shape->block);
	ft_rows_define(defines, "RN_ROW_THREADS", shape->row);
}

void ft_rows_launch(const struct ft_kernel_gpu *code, const struct ft_rows_kernel *kernel,
        const struct ft_rows *problem, const struct ft_traits *traits, const struct ft_rows_shape *shape,
        float eps, struct ft_launch *launch)
{
	struct ft_step *step = &launch->step[0];
	const unsigned block = (unsigned)shape->block;
	uint64_t grid;
	uint32_t count = 0;

	memset(launch, 0, sizeof *launch);
	launch->count = 1;
	launch->rows = block / (unsigned)shape->row;
	/* HIP counts the threads of a whole grid in 32 bits, CUDA the blocks in 31; a block walks on, so fewer
	 * blocks do as well. */
	if (shape->each)
		launch->blocks_limit = (unsigned)(shape->each * traits->units);
	else
		launch->blocks_limit = ft_rows_is_amd(traits) ? (1u << 31) / block : INT32_MAX;
	grid = (problem->m + launch->rows - 1) / launch->rows;
	snprintf(step->symbol, sizeof step->symbol, "flytune_%.48s", code->name);
	step->grid[0] = grid < launch->blocks_limit ? (unsigned)grid : launch->blocks_limit;
	step->block[0] = block;
	step->grid[1] = step->grid[2] = step->block[1] = step->block[2] = 1;
	for (; count < FT_ROWS_WEIGHT + kernel->weights; count++)
		step->argument[count] = (struct ft_argument){.kind = FT_ARGUMENT_TENSOR, .tensor = count};
	step->argument[count++] =
	        (struct ft_argument){.kind = FT_ARGUMENT_INT64, .int64 = (int64_t)problem->m};
	step->argument[count++] =
	        (struct ft_argument){.kind = FT_ARGUMENT_INT64, .int64 = (int64_t)problem->row_stride};
	step->argument[count++] = (struct ft_argument){.kind = FT_ARGUMENT_FLOAT, .float32 = eps};
	step->count = count;
}
