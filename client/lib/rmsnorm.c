/* The typed helper of flytune/rmsnorm.h: nothing else in the library knows this kernel. */
#include <flytune/rmsnorm.h>

#include "client/lib/outcome.h"
#include "client/lib/sized.h"

flytune_problem *flytune_problem_rmsnorm(const struct flytune_rmsnorm *given, struct flytune_error *out)
{
	struct flytune_rmsnorm shape;
	struct flytune_field fields[5];
	size_t count = 0;

	if (given == NULL) {
		outcome_null(out, "shape");
		return NULL;
	}
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
