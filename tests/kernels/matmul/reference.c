/* Rows [first, last) of a product of matrices, in float64. */
#include <stdint.h>

void matmul_reference(
        int64_t first, int64_t last, const double *a, const double *b, double *c, int64_t n, int64_t k);

void matmul_reference(
        int64_t first, int64_t last, const double *a, const double *b, double *c, int64_t n, int64_t k)
{
	for (int64_t row = first; row < last; row++) {
		double *to = c + row * n;

		for (int64_t i = 0; i < n; i++)
			to[i] = 0;
		for (int64_t at = 0; at < k; at++)
			for (int64_t i = 0; i < n; i++)
				to[i] += a[row * k + at] * b[at * n + i];
	}
}
