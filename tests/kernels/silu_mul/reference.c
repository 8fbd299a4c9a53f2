/* Rows [first, last), in float64. */
#include <math.h>
#include <stdint.h>

void silu_mul_reference(
        int64_t first, int64_t last, const double *x, const double *gate, double *y, int64_t n);

void silu_mul_reference(
        int64_t first, int64_t last, const double *x, const double *gate, double *y, int64_t n)
{
	for (int64_t i = first * n; i < last * n; i++)
		y[i] = x[i] / (1 + exp(-x[i])) * gate[i];
}
