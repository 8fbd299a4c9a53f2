/* y = x / (1 + exp(-x)) * gate: a block is ROWS rows, of which VECTOR elements are worked on at once. */
#include <math.h>
#include <stdint.h>

static inline REAL one(REAL x, REAL gate)
{
	return x / (1 + EXP(-x)) * gate;
}

/* x and y may be the same. */
void silu_mul(const int64_t *block, const REAL *x, const REAL *gate, REAL *y, int64_t m, int64_t n);

void silu_mul(const int64_t *block, const REAL *x, const REAL *gate, REAL *y, int64_t m, int64_t n)
{
	const int64_t first = block[0] * ROWS, last = first + ROWS < m ? first + ROWS : m;

	for (int64_t row = first; row < last; row++) {
		const REAL *from = x + row * n, *by = gate + row * n;
		REAL *to = y + row * n;
		int64_t i = 0;

		for (; i + VECTOR <= n; i += VECTOR) {
			REAL result[VECTOR];

			for (int k = 0; k < VECTOR; k++)
				result[k] = one(from[i + k], by[i + k]);
			for (int k = 0; k < VECTOR; k++)
				to[i + k] = result[k];
		}
		for (; i < n; i++)
			to[i] = one(from[i], by[i]);
	}
}
