/* Rows [first, last), in float64; y comes as it is before the launch. */
#include <stdint.h>

void scaled_add_reference(int64_t first, int64_t last, const double *x, double *y, int64_t n, double factor);

void scaled_add_reference(int64_t first, int64_t last, const double *x, double *y, int64_t n, double factor)
{
	for (int64_t i = first * n; i < last * n; i++)
		y[i] += factor * x[i];
}
