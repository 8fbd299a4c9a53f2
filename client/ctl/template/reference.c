/* What the outputs have to be, in plain loops and in double: every config is held to it, within the tolerance of kernel.json.
 *
 * Computes rows [first, last) of y. Whatever the types of the buffers are, here they are arrays of double (of int64_t, if
 * their elements are integers), without gaps between rows. */
#include <stdint.h>

void my_kernel_reference(
        int64_t first, int64_t last, const double *x, const double *scale, double *y, int64_t n);

void my_kernel_reference(
        int64_t first, int64_t last, const double *x, const double *scale, double *y, int64_t n)
{
	for (int64_t row = first; row < last; row++) {
		for (int64_t i = 0; i < n; i++)
			y[row * n + i] = x[row * n + i] * scale[i];
	}
}
