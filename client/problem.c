#include "client/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/outcome.h"
#include "client/sized.h"

static uint64_t hash_of(const char *kernel, const struct ft_problem *problem)
{
	XXH64_hash_t hash = XXH3_64bits(kernel, strlen(kernel));

	/* The same whatever the order of the fields. */
	for (uint32_t i = 0; i < problem->count; i++) {
		const struct ft_field *field = &problem->field[i];
		XXH64_hash_t name = XXH3_64bits(field->name, strlen(field->name));

		if (field->is_text)
			hash += XXH3_64bits_withSeed(field->text, strlen(field->text), name);
		else
			hash += XXH3_64bits_withSeed(&field->number, sizeof field->number, name);
	}
	return hash;
}

static int fill(
        flytune_problem *problem, const struct flytune_field *fields, size_t count, struct ft_error *error)
{
	for (size_t i = 0; i < count; i++) {
		const struct flytune_field *field = &fields[i];

		if (field->name == NULL)
			return ft_fail(error, FT_E_BAD_VALUE, "field number %zu has no name", i + 1);
		if (ft_problem_find(&problem->given, field->name) != NULL)
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, field->name, "given twice", "given once");
		if (field->text != NULL) {
			if (ft_problem_set_text(&problem->given, field->name, field->text, error) != 0)
				return -1;
		} else if (ft_problem_set_number(&problem->given, field->name, field->number, error) != 0) {
			return -1;
		}
	}
	return 0;
}

flytune_problem *flytune_problem_new(
        const char *kernel, const struct flytune_field *fields, size_t count, struct flytune_error *out)
{
	struct ft_error error;
	flytune_problem *problem;

	if (kernel == NULL || !ft_name_valid(kernel)) {
		ft_fail_field(&error, FT_E_BAD_VALUE, "kernel", kernel == NULL ? "missing" : kernel,
		        "a name of letters, digits and underscores, under 32");
		outcome(out, &error);
		return NULL;
	}
	problem = calloc(1, sizeof *problem);
	if (problem == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		outcome(out, &error);
		return NULL;
	}
	atomic_init(&problem->references, 1);
	snprintf(problem->kernel, sizeof problem->kernel, "%s", kernel);
	if (fill(problem, fields, count, &error) != 0) {
		outcome(out, &error);
		free(problem);
		return NULL;
	}
	problem->built_in = ft_kernel_find(kernel);
	/* Fields are the same for every kind of device; knobs are not. */
	if (problem->built_in == NULL)
		ft_fail_field(&problem->refusal, FT_E_UNKNOWN_KERNEL, "kernel", kernel,
		        "one that this library knows while flytuned is away");
	else if (ft_problem_admit(problem->built_in, problem->built_in->schema("cpu"), &problem->given,
	                 &problem->whole, &problem->refusal) == 0)
		problem->admitted = true;
	if (!problem->admitted)
		problem->whole = problem->given;
	problem->hash = hash_of(kernel, &problem->whole);
	return problem;
}

flytune_problem *flytune_problem_rmsnorm(const struct flytune_rmsnorm *given, struct flytune_error *out)
{
	struct flytune_rmsnorm shape;
	struct flytune_field fields[5];
	size_t count = 0;

	if (!sized_in(&shape, sizeof shape, given)) {
		outcome_unsized(out, "flytune_rmsnorm");
		return NULL;
	}
	fields[count++] = (struct flytune_field){.name = "m", .number = shape.m};
	fields[count++] = (struct flytune_field){.name = "n", .number = shape.n};
	if (shape.dtype != NULL)
		fields[count++] = (struct flytune_field){.name = "dtype", .text = shape.dtype};
	if (shape.weight_dtype != NULL)
		fields[count++] = (struct flytune_field){.name = "weight_dtype", .text = shape.weight_dtype};
	if (shape.row_stride != 0)
		fields[count++] = (struct flytune_field){.name = "row_stride", .number = shape.row_stride};
	return flytune_problem_new("rmsnorm", fields, count, out);
}

/* The count is the one thing about a problem that changes. */
static atomic_uint *references_of(const flytune_problem *problem)
{
	return &((flytune_problem *)(uintptr_t)problem)->references;
}

const flytune_problem *problem_hold(const flytune_problem *problem)
{
	atomic_fetch_add_explicit(references_of(problem), 1, memory_order_relaxed);
	return problem;
}

void problem_release(const flytune_problem *problem)
{
	if (problem != NULL &&
	        atomic_fetch_sub_explicit(references_of(problem), 1, memory_order_acq_rel) == 1)
		free((flytune_problem *)(uintptr_t)problem);
}

void flytune_problem_free(flytune_problem *problem)
{
	problem_release(problem);
}

bool problem_equal(const flytune_problem *a, const flytune_problem *b)
{
	return a == b ||
	        (a->hash == b->hash && strcmp(a->kernel, b->kernel) == 0 &&
	                ft_problem_equal(&a->whole, &b->whole));
}

const char *flytune_problem_kernel(const flytune_problem *problem)
{
	return problem->kernel;
}

int flytune_problem_field(const flytune_problem *problem, size_t index, struct flytune_field *field)
{
	const struct ft_field *own;

	if (index >= problem->whole.count)
		return 0;
	own = &problem->whole.field[index];
	*field = (struct flytune_field){.name = own->name,
	        .text = own->is_text ? own->text : NULL,
	        .number = own->is_text ? 0 : own->number};
	return 1;
}
