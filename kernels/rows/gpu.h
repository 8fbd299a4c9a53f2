/* What kernels over rows share on a GPU: how a row lies in a block, what their spaces are made of and counted by, and how they
 * are compiled and launched. The first part of their device source is rows.hip. */
#ifndef FLYTUNE_KERNELS_ROWS_GPU_H
#define FLYTUNE_KERNELS_ROWS_GPU_H

#include "kernels/rows/rows.h"

/* The knob of that place in each of their schemas. */
enum { FT_ROWS_BLOCK_THREADS };

#define FT_ROWS_KNOB_BLOCK_THREADS                                                                          \
	{                                                                                                   \
		.name = "BLOCK_THREADS", .count = 24,                                                       \
		.value = {32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576, \
		        640, 704, 768, 832, 896, 960, 1024},                                                \
		.help = "threads of a block",                                                               \
	}
#define FT_ROWS_TEAMS                                                                                      \
	8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, \
	        768, 832, 896, 960, 1024
#define FT_ROWS_KNOB_ROW_THREADS                                                                         \
	{                                                                                                \
		.name = "ROW_THREADS", .count = 26, .value = {FT_ROWS_TEAMS}, .changes_bits = true,      \
		.help = "threads that share a row; the block works on BLOCK_THREADS / ROW_THREADS rows " \
		        "at once",                                                                       \
	}
#define FT_ROWS_KNOB_BLOCKS_PER_UNIT                                                                   \
	{                                                                                              \
		.name = "BLOCKS_PER_UNIT", .count = 7, .value = {0, 1, 2, 3, 4, 6, 8},                 \
		.help = "blocks launched for each compute unit, which share all rows; 0: a block for " \
		        "each set of rows",                                                            \
	}

bool ft_rows_is_amd(const struct ft_traits *traits);
uint64_t ft_rows_wave(const struct ft_traits *traits);

/* ---- a row in a block ---- */

/* 128-bit pieces of a row, as the device source counts them; and those of a thread, where so many share it. */
uint64_t ft_rows_vectors(const struct ft_rows *problem);
uint64_t ft_rows_slots(const struct ft_rows *problem, uint64_t row_threads);
/* The least team for a row that leaves a thread `each` vectors or fewer. */
uint64_t ft_rows_team(const struct ft_rows *problem, const struct ft_traits *traits, uint64_t each);
/* Whether BLOCK_THREADS has the value. */
bool ft_rows_has_block(uint64_t threads);
/* Why a config with these threads a row cannot win; NULL if it may. */
const char *ft_rows_idle(const struct ft_rows *problem, uint64_t row_threads);
/* Registers that a thread can have with blocks of that size, less what addresses and sums need. */
uint64_t ft_rows_registers(const struct ft_traits *traits, uint64_t block_threads);

/* Bytes that a launch reads and writes, held against what the last cache holds. */
enum ft_rows_traffic { FT_ROWS_SMALL, FT_ROWS_MIDDLE, FT_ROWS_LARGE, FT_ROWS_HUGE };
enum ft_rows_traffic ft_rows_traffic(const struct ft_rows *problem, const struct ft_traits *traits);

/* ---- a space ---- */

struct ft_rows_adding {
	const struct ft_schema *schema;
	const struct ft_rows *problem;
	const struct ft_traits *traits;
	struct ft_config default_config;
	struct ft_space *space;
	struct ft_error *error;
};

/* Appends a config, unless it is there. */
int ft_rows_add_once(struct ft_rows_adding *adding, const int64_t *value, const char *pruned);
/* Appends the default, unless it is there, and sorts: smaller blocks first, else as they were added. */
int ft_rows_finish(struct ft_rows_adding *adding);
/* That a block is made of whole waves, and a row's threads divide it; `row_knob` is the index of ROW_THREADS. */
int ft_rows_check_threads(const struct ft_traits *traits, const struct ft_config *config, uint32_t row_knob,
        struct ft_error *error);

/* ---- code and launch ---- */

struct ft_rows_shape {
	uint64_t block, row; /* threads */
	uint64_t each;       /* BLOCKS_PER_UNIT */
};

void ft_rows_define(struct ft_defines *defines, const char *name, uint64_t value);
/* Those that rows.hip wants; the first ones. */
void ft_rows_defines(const struct ft_rows *problem, const struct ft_traits *traits,
        const struct ft_rows_shape *shape, struct ft_defines *defines);
/* Of the function flytune_NAME; arguments are all tensors, m, row_stride and eps. */
void ft_rows_launch(const struct ft_kernel_gpu *code, const struct ft_rows_kernel *kernel,
        const struct ft_rows *problem, const struct ft_traits *traits, const struct ft_rows_shape *shape,
        float eps, struct ft_launch *launch);

#endif
