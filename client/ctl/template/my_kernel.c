/* The kernel on a CPU: y = x * scale, column by column.
 *
 * Called once for each block of the grid that kernel.json says, on as many threads as there are cores. `block` has the block's
 * place along the three axes of the grid; then come the arguments of the launch. REAL, ROWS and VECTOR are defined when a config
 * is built: "defines" in kernel.json says so. */
#include <stdint.h>

void my_kernel_run(const int64_t *block, const REAL *x, const REAL *scale, REAL *y, int64_t m, int64_t n);

void my_kernel_run(const int64_t *block, const REAL *x, const REAL *scale, REAL *y, int64_t m, int64_t n)
{
	const int64_t first = block[0] * ROWS, last = first + ROWS < m ? first + ROWS : m;

	for (int64_t row = first; row < last; row++) {
		const REAL *from = x + row * n;
		REAL *to = y + row * n;
		int64_t i = 0;

		for (; i + VECTOR <= n; i += VECTOR) {
			for (int k = 0; k < VECTOR; k++)
				to[i + k] = from[i + k] * scale[i + k];
		}
		for (; i < n; i++)
			to[i] = from[i] * scale[i];
	}
}
