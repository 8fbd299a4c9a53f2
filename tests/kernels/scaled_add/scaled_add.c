/* y = y + factor x, in place: a block is ROWS rows, of which VECTOR elements are worked on at once. */
#include <stdint.h>

void scaled_add(const int64_t *block, const float *x, float *y, int64_t m, int64_t n, float factor);

void scaled_add(const int64_t *block, const float *x, float *y, int64_t m, int64_t n, float factor)
{
	const int64_t first = block[0] * ROWS, last = first + ROWS < m ? first + ROWS : m;

	for (int64_t row = first; row < last; row++) {
		const float *from = x + row * n;
		float *to = y + row * n;
		int64_t i = 0;

		for (; i + VECTOR <= n; i += VECTOR) {
			float result[VECTOR];

			for (int k = 0; k < VECTOR; k++)
				result[k] = to[i + k] + factor * from[i + k];
			for (int k = 0; k < VECTOR; k++)
				to[i + k] = result[k];
		}
		for (; i < n; i++)
			to[i] += factor * from[i];
	}
}
