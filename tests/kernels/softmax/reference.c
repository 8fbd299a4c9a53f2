/* Rows [first, last) of a softmax, in float64. */
#include <math.h>
#include <stdint.h>

void softmax_reference(int64_t first, int64_t last, const double *x, double *y, int64_t n);

void softmax_reference(int64_t first, int64_t last, const double *x, double *y, int64_t n)
{
	for (int64_t row = first; row < last; row++) {
		const double *from = x + row * n;
		double *to = y + row * n;
		double most = from[0], sum = 0;

		for (int64_t i = 1; i < n; i++)
			most = from[i] > most ? from[i] : most;
		for (int64_t i = 0; i < n; i++) {
			to[i] = exp(from[i] - most);
			sum += to[i];
		}
		for (int64_t i = 0; i < n; i++)
			to[i] /= sum;
	}
}
