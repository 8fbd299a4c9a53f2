/* Rows [first, last) of y. */
#include <stdint.h>

void transpose_reference(int64_t first, int64_t last, const double *x, double *y, int64_t m, int64_t n);

void transpose_reference(int64_t first, int64_t last, const double *x, double *y, int64_t m, int64_t n)
{
	for (int64_t j = first; j < last; j++) {
		for (int64_t i = 0; i < m; i++)
			y[j * m + i] = x[i * n + j];
	}
}
