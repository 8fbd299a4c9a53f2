#include "kernels/runner/cpu/expect.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/runner/backend.h"
#include "kernels/runner/parallel.h"

enum { PARTS = 8 /* of the rows, for each thread: who is done early takes more */ };

typedef void reference_function(int64_t first, int64_t last, void *const *argument);

void ft_cell_set(union ft_cell *cell, const struct ft_folder_argument *argument)
{
	switch (argument->type) {
	case FT_SCALAR_I32:
		cell->i32 = (int32_t)argument->number;
		break;
	case FT_SCALAR_U32:
		cell->u32 = (uint32_t)argument->number;
		break;
	case FT_SCALAR_I64:
	case FT_SCALAR_U64:
		cell->i64 = argument->number;
		break;
	case FT_SCALAR_F32:
		cell->f32 = (float)argument->real;
		break;
	case FT_SCALAR_F64:
		cell->f64 = argument->real;
		break;
	}
}

void *ft_expect_load(const char *path, struct ft_error *error)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		ft_fail(error, FT_E_UNAVAILABLE, "it cannot be loaded: %s", dlerror());
	return library;
}

/* All elements of one, packed, in cells of 8 bytes: float64, or int64 of integers. */
static void load_cells(const struct ft_tensor *tensor, const void *data, union ft_cell *to)
{
	for (uint64_t row = 0; row < tensor->rows; row++) {
		for (uint64_t i = 0; i < tensor->length; i++) {
			uint64_t at = row * tensor->stride + i;
			if (tensor->type == FT_I64)
				to->i64 = ((const int64_t *)data)[at];
			else if (ft_dtype_is_integer(tensor->type))
				to->i64 = (int64_t)ft_load(tensor->type, data, at);
			else
				to->f64 = ft_load(tensor->type, data, at);
			to++;
		}
	}
}

struct expect {
	reference_function *function;
	void *argument[FT_FOLDER_ARGUMENTS_MAX];
	uint64_t rows, at_once;
};

static void expect_piece(void *context, size_t index)
{
	const struct expect *expect = context;
	const uint64_t first = index * expect->at_once;
	const uint64_t left = expect->rows - first;
	expect->function((int64_t)first,
	        (int64_t)(left > expect->at_once ? first + expect->at_once : expect->rows), expect->argument);
}

static int compile(struct cpu_build *build, const struct ft_folder_reference *reference, uint64_t until_ns,
        void **library, struct ft_error *error)
{
	struct cc_done done;
	char path[320];
	if (cpu_build_reference(build, 0, reference, "reference.so", error) < 0)
		return -1;
	int got = cc_wait(build->cc, until_ns, &done, error);
	if (got != 1)
		return got == 0 ? ft_fail(error, FT_E_SYSTEM, "the reference was not compiled") : got;
	if (done.failed)
		return ft_fail(error, FT_E_UNAVAILABLE, "the reference: %s", done.error.message);
	snprintf(path, sizeof(path), "%s/reference.so", build->where);
	*library = ft_expect_load(path, error);
	return *library ? 0 : -1;
}

/* Not what is only written to: an output, or scratch that begins with anything. */
static bool is_read(const struct ft_tensor *tensor)
{
	return tensor->role != FT_OUTPUT && (tensor->role != FT_SCRATCH || tensor->is_filled);
}

static int compute(void *library, const struct ft_folder_reference *reference,
        const struct ft_tensors *tensors, const void *const *data, struct ft_pool *pool, uint64_t until_ns,
        union ft_cell **cells, struct ft_error *error)
{
	union ft_cell number[FT_FOLDER_ARGUMENTS_MAX];
	struct expect all = {.rows = reference->rows};
	bool whole = false;
	*(void **)&all.function = dlsym(library, "flytune_reference");
	for (uint32_t i = 0; i < tensors->count; i++) {
		const struct ft_tensor *tensor = &tensors->tensor[i];
		cells[i] = calloc(tensor->rows * tensor->length + 1, sizeof(**cells));
		if (!cells[i])
			return ft_fail(
			        error, FT_E_MEMORY, "no memory for what the reference reads and writes");
		if (is_read(tensor))
			load_cells(tensor, data[i], cells[i]);
		/* Rows that are written already are read, maybe, for others. */
		whole = whole || tensor->role == FT_INOUT;
	}
	for (uint32_t i = 0; i < reference->arguments.count; i++) {
		const struct ft_folder_argument *argument = &reference->arguments.argument[i];
		ft_cell_set(&number[i], argument);
		all.argument[i] = argument->is_buffer ? (void *)cells[argument->buffer] : (void *)&number[i];
	}
	all.at_once = whole ? all.rows : all.rows / ((uint64_t)PARTS * ft_pool_threads(pool)) + 1;
	return ft_parallel(pool, until_ns, (all.rows + all.at_once - 1) / all.at_once, expect_piece, &all)
	        ? 0
	        : FT_BACKEND_ENDED;
}

int ft_expect(struct cpu_build *build, const struct ft_problem *problem, const struct ft_tensors *tensors,
        const void *const *data, struct ft_pool *pool, uint64_t until_ns, double *want[FT_TENSORS_MAX],
        struct ft_error *error)
{
	struct ft_folder_reference reference;
	union ft_cell *cells[FT_TENSORS_MAX] = {0};
	void *library = NULL;
	memset(want, 0, FT_TENSORS_MAX * sizeof(*want));
	if (ft_folder_reference(build->folder, problem, &reference, error) < 0)
		return -1;
	if (!reference.file)
		return ft_fail(error, FT_E_UNAVAILABLE, "the runner needs a reference in C");
	int code = compile(build, &reference, until_ns, &library, error);
	if (code == 0)
		code = compute(library, &reference, tensors, data, pool, until_ns, cells, error);
	for (uint32_t i = 0; i < FT_TENSORS_MAX; i++) {
		const struct ft_tensor *tensor = &tensors->tensor[i];
		if (code != 0 || !cells[i] || (tensor->role != FT_OUTPUT && tensor->role != FT_INOUT)) {
			free(cells[i]);
			continue;
		}
		for (uint64_t j = 0; j < tensor->rows * tensor->length && ft_dtype_is_integer(tensor->type);
		        j++)
			cells[i][j].f64 = (double)cells[i][j].i64;
		want[i] = &cells[i]->f64;
	}
	if (library)
		dlclose(library);
	return code;
}
