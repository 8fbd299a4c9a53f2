/* y[j][i] = x[i][j]: a block of the grid's two dimensions is a tile of TILE_M rows and TILE_N columns of x. */
#include <stdint.h>

void transpose(const int64_t *block, const REAL *x, REAL *y, int64_t m, int64_t n);

void transpose(const int64_t *block, const REAL *x, REAL *y, int64_t m, int64_t n)
{
	const int64_t column = block[0] * TILE_N, row = block[1] * TILE_M;
	const int64_t columns = column + TILE_N < n ? column + TILE_N : n;
	const int64_t rows = row + TILE_M < m ? row + TILE_M : m;

#if READ
	for (int64_t i = row; i < rows; i++) {
		for (int64_t j = column; j < columns; j++)
			y[j * m + i] = x[i * n + j];
	}
#else
	for (int64_t j = column; j < columns; j++) {
		for (int64_t i = row; i < rows; i++)
			y[j * m + i] = x[i * n + j];
	}
#endif
}
