#include "kernels/compare.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

uint32_t ft_tensors_find(const struct ft_tensors *tensors, enum ft_role role)
{
	uint32_t i = 0;

	while (i < tensors->count && tensors->tensor[i].role != role)
		i++;
	return i;
}

bool ft_tensors_are_rows(const struct ft_tensors *tensors)
{
	uint32_t in = ft_tensors_find(tensors, FT_INPUT_ROWS), out = ft_tensors_find(tensors, FT_OUTPUT);
	uint32_t shared = 0;

	for (uint32_t i = 0; i < tensors->count; i++)
		shared += tensors->tensor[i].role == FT_INPUT_SHARED;
	if (in == tensors->count || out == tensors->count || shared + 2 != tensors->count)
		return false;
	const struct ft_tensor *input = &tensors->tensor[in], *output = &tensors->tensor[out];

	return input->type == output->type && input->rows == output->rows &&
	        input->length == output->length && input->stride == output->stride;
}

void ft_reference_rows(const struct ft_reference *reference, const struct ft_tensors *tensors,
        const void *const *data, uint64_t first, uint64_t rows, double *want)
{
	uint64_t length = tensors->tensor[ft_tensors_find(tensors, FT_OUTPUT)].length;

	for (uint64_t row = first; row < first + rows; row++) {
		double known[FT_ROW_KNOWN];

		reference->row(tensors, data, row, known);
		reference->values(tensors, data, row, known, 0, length, want);
		want += length;
	}
}

FT_INLINE double smallest_normal(enum ft_dtype type)
{
	return type == FT_F16 ? 0x1p-14 : type == FT_F64 ? 0x1p-1022 : 0x1p-126;
}

/* The first power of two that the type lacks, as far as float64 has it. */
static double beyond(enum ft_dtype type)
{
	return type == FT_F16 ? 0x1p16 : type == FT_F64 ? DBL_MAX : 0x1p128;
}

/* The error of one element, where the quick test below did not do. */
static double error_of(const struct ft_tensor *output, double got, double want)
{
	double limit = beyond(output->type);

	if (isnan(got) || isnan(want))
		return isnan(got) && isnan(want) ? 0 : HUGE_VAL;
	if (got == want)
		return 0;
	if (isinf(want))
		return HUGE_VAL;
	if (isinf(got)) {
		if (fabs(want) >= limit && signbit(got) == signbit(want))
			return 0;
		got = copysign(limit, got);
	}
	double off = fabs(got - want) - output->absolute;

	return off > 0 ? off / fmax(fmax(fabs(got), fabs(want)), smallest_normal(output->type)) : 0;
}

/* Is any of these worse than the worst so far? No division and no branch. Infinities and NaN fail the test and so
 * are looked at; the size is kept finite for that. */
FT_INLINE void suspect_as(enum ft_dtype type, const void *data, uint64_t start, const double *want,
        uint64_t count, const struct ft_tensor *output, double bound, uint64_t *suspects)
{
	double least = smallest_normal(type), absolute = output->absolute;
	uint64_t suspect = 0;

	for (uint64_t i = 0; i < count; i++) {
		double got = ft_load(type, data, start + i);
		double size = fabs(got) > fabs(want[i]) ? fabs(got) : fabs(want[i]);

		size = size > least ? size : least;
		size = size < DBL_MAX ? size : DBL_MAX;
		suspect |= !(fabs(got - want[i]) <= bound * size + absolute);
	}
	*suspects = suspect;
}

FT_INLINE void suspect_any(const void *data, uint64_t start, const double *want, uint64_t count,
        const struct ft_tensor *output, double bound, uint64_t *suspects)
{
	if (output->type == FT_F32)
		suspect_as(FT_F32, data, start, want, count, output, bound, suspects);
	else if (output->type == FT_F16)
		suspect_as(FT_F16, data, start, want, count, output, bound, suspects);
	else if (output->type != FT_BF16)
		suspect_as(output->type, data, start, want, count, output, bound, suspects);
	else
		suspect_as(FT_BF16, data, start, want, count, output, bound, suspects);
}

FT_WIDE(suspect,
        (const void *data, uint64_t start, const double *want, uint64_t count, const struct ft_tensor *output,
                double bound, uint64_t *suspects),
        (data, start, want, count, output, bound, suspects))

/* Elements looked at together: as many as make the calls for them cheap, and stay in the first cache. */
enum { BLOCK = 512 };

/* `count` elements, at most a block, from that one of the row on. */
static void compare_block(const struct ft_tensor *output, const void *data, uint64_t row, uint64_t first,
        uint64_t count, const double *want, struct ft_worst *worst)
{
	uint64_t start = row * output->stride + first, suspects;

	suspect(data, start, want, count, output, worst->error, &suspects);
	for (uint64_t i = 0; suspects && i < count; i++) {
		double got = ft_load(output->type, data, start + i);
		double error = error_of(output, got, want[i]);

		if (error > worst->error)
			*worst = (struct ft_worst){
			        .error = error, .row = row, .column = first + i, .got = got, .want = want[i]};
	}
}

static uint64_t block_of(const struct ft_tensor *output, uint64_t first)
{
	return output->length - first < BLOCK ? output->length - first : BLOCK;
}

void ft_compare_rows(const struct ft_reference *reference, const struct ft_tensors *tensors,
        const void *const *data, uint64_t first, uint64_t rows, struct ft_worst *worst)
{
	uint32_t at = ft_tensors_find(tensors, FT_OUTPUT);
	const struct ft_tensor *output = &tensors->tensor[at];

	for (uint64_t row = first; row < first + rows; row++) {
		double known[FT_ROW_KNOWN], want[BLOCK];

		reference->row(tensors, data, row, known);
		for (uint64_t i = 0; i < output->length; i += BLOCK) {
			reference->values(tensors, data, row, known, i, block_of(output, i), want);
			compare_block(output, data[at], row, i, block_of(output, i), want, worst);
		}
	}
}

void ft_compare_values(const struct ft_tensor *output, const void *data, uint64_t first, uint64_t rows,
        const double *want, struct ft_worst *worst)
{
	for (uint64_t row = first; row < first + rows; row++)
		for (uint64_t i = 0; i < output->length; i += BLOCK)
			compare_block(output, data, row, i, block_of(output, i),
			        want + (row - first) * output->length + i, worst);
}

void ft_worst_merge(struct ft_worst *worst, const struct ft_worst *other)
{
	bool first = other->row < worst->row || (other->row == worst->row && other->column < worst->column);

	if (other->error > worst->error || (other->error == worst->error && other->error > 0 && first))
		*worst = *other;
}

int ft_worst_check(const struct ft_worst *worst, const struct ft_tensor *output, struct ft_error *error)
{
	if (worst->error <= output->relative)
		return 0;
	return ft_fail(error, FT_E_RUNNER,
	        "row %" PRIu64 ", column %" PRIu64 " is %.9g where the reference says %.9g: relative error "
	        "%.3g, at most %.3g is right",
	        worst->row, worst->column, worst->got, worst->want, worst->error, output->relative);
}
