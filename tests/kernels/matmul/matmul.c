/* A product of matrices: a block is ROWS by COLUMNS of c. DEPTH columns of a are gone through at a time, for SUM_ROWS by
 * SUM_COLUMNS sums after the other; these are held in registers, as long as there are enough. */
#include <stdint.h>

void matmul(const int64_t *block, const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k);

static int64_t least(int64_t x, int64_t y)
{
	return x < y ? x : y;
}

/* All sums there are: the compiler knows all bounds but the depth. */
static void whole(const float *a, const float *b, float *c, int64_t depth, int64_t n, int64_t k)
{
	float sum[SUM_ROWS][SUM_COLUMNS];
	int64_t at = 0;

	for (int i = 0; i < SUM_ROWS; i++)
		for (int j = 0; j < SUM_COLUMNS; j++)
			sum[i][j] = c[i * n + j];
	for (; at + UNROLL <= depth; at += UNROLL)
		for (int u = 0; u < UNROLL; u++)
			for (int i = 0; i < SUM_ROWS; i++)
				for (int j = 0; j < SUM_COLUMNS; j++)
					sum[i][j] += a[i * k + at + u] * b[(at + u) * n + j];
	for (; at < depth; at++)
		for (int i = 0; i < SUM_ROWS; i++)
			for (int j = 0; j < SUM_COLUMNS; j++)
				sum[i][j] += a[i * k + at] * b[at * n + j];
	for (int i = 0; i < SUM_ROWS; i++)
		for (int j = 0; j < SUM_COLUMNS; j++)
			c[i * n + j] = sum[i][j];
}

/* What is left at the edges. */
static void part(const float *a, const float *b, float *c, int64_t rows, int64_t columns, int64_t depth,
        int64_t n, int64_t k)
{
	for (int64_t i = 0; i < rows; i++)
		for (int64_t at = 0; at < depth; at++)
			for (int64_t j = 0; j < columns; j++)
				c[i * n + j] += a[i * k + at] * b[at * n + j];
}

void matmul(const int64_t *block, const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k)
{
	const int64_t row = block[DOWN ? 0 : 1] * ROWS, column = block[DOWN ? 1 : 0] * COLUMNS;
	const int64_t rows = least(ROWS, m - row), columns = least(COLUMNS, n - column);

	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < columns; j++)
			c[(row + i) * n + column + j] = 0;
	for (int64_t from = 0; from < k; from += DEPTH) {
		const int64_t depth = least(DEPTH, k - from);

		for (int64_t i = 0; i < rows; i += SUM_ROWS) {
			for (int64_t j = 0; j < columns; j += SUM_COLUMNS) {
				const float *left = a + (row + i) * k + from,
				            *right = b + from * n + column + j;
				float *to = c + (row + i) * n + column + j;

				if (rows - i >= SUM_ROWS && columns - j >= SUM_COLUMNS)
					whole(left, right, to, depth, n, k);
				else
					part(left, right, to, least(SUM_ROWS, rows - i),
					        least(SUM_COLUMNS, columns - j), depth, n, k);
			}
		}
	}
}
