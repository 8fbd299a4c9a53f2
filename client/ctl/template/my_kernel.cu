/* The kernel on a GPU: y = x * scale, column by column. One source for CUDA and HIP, as nvrtc and hiprtc take it: no headers of
 * the host, and a function of C, so that its name is found.
 *
 * REAL, THREADS and ITEMS are defined when a config is built: "defines" in kernel.json says so. The arguments are those of
 * "launch" there, in that order. y may be x ("alias" there), so neither is __restrict__. */
extern "C" __global__ void __launch_bounds__(THREADS)
my_kernel_run(const REAL *x, const REAL *scale, REAL *y, unsigned count, unsigned n)
{
	const unsigned first = blockIdx.x * (THREADS * ITEMS) + threadIdx.x;

	for (unsigned k = 0; k < ITEMS; k++) {
		const unsigned i = first + k * THREADS;

		if (i < count)
			y[i] = x[i] * scale[i % n];
	}
}
