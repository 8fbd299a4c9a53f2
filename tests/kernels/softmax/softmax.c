/* Softmax over rows: a block is ROWS of them. Each is read three times: for its greatest element, for the sum of the exponentials,
 * and for the output; or, with TWO_PASSES, the second time writes them, and the third scales what was written. */
#include <math.h>
#include <stdint.h>

#include "element.h"

/* Elements are spread over VECTOR sums, which the compiler keeps in vectors. */
static float greatest(const element *x, int64_t n)
{
	float most[VECTOR], result = load(x[0]);
	int64_t i = 0;

	for (int k = 0; k < VECTOR; k++)
		most[k] = result;
	for (; i + VECTOR <= n; i += VECTOR) {
		for (int k = 0; k < VECTOR; k++) {
			float value = load(x[i + k]);

			most[k] = value > most[k] ? value : most[k];
		}
	}
	for (; i < n; i++)
		result = load(x[i]) > result ? load(x[i]) : result;
	for (int k = 0; k < VECTOR; k++)
		result = most[k] > result ? most[k] : result;
	return result;
}

static float exponentials(const element *x, element *y, int64_t n, float most)
{
	float sum[VECTOR] = {0}, result = 0;
	int64_t i = 0;

	for (; i + VECTOR <= n; i += VECTOR) {
		for (int k = 0; k < VECTOR; k++) {
			float value = expf(load(x[i + k]) - most);

			sum[k] += value;
			if (TWO_PASSES)
				y[i + k] = store(value);
		}
	}
	for (; i < n; i++) {
		float value = expf(load(x[i]) - most);

		result += value;
		if (TWO_PASSES)
			y[i] = store(value);
	}
	for (int k = 0; k < VECTOR; k++)
		result += sum[k];
	return result;
}

/* x and y may be the same. */
void softmax(const int64_t *block, const element *x, element *y, int64_t m, int64_t n, int64_t stride);

void softmax(const int64_t *block, const element *x, element *y, int64_t m, int64_t n, int64_t stride)
{
	const int64_t first = block[0] * ROWS, last = first + ROWS < m ? first + ROWS : m;

	for (int64_t row = first; row < last; row++) {
		const element *from = x + row * stride;
		element *to = y + row * stride;
		const float most = greatest(from, n);
		const float scale = 1 / exponentials(from, to, n, most);

		for (int64_t i = 0; i < n; i++)
			to[i] = store(TWO_PASSES ? load(to[i]) * scale : expf(load(from[i]) - most) * scale);
	}
}
