/* Softmax over rows on a GPU, for CUDA and HIP alike: THREADS share a row. Each row is read three times: for its greatest element, for
 * the sum of the exponentials, and for the output; or, with TWO_PASSES, the second time writes them, and the third scales what
 * was written. */

#if BF16
typedef unsigned short element;

static __device__ float load(element bits)
{
	return __int_as_float((int)bits << 16);
}

/* To nearest even. */
static __device__ element store(float value)
{
	const unsigned bits = (unsigned)__float_as_int(value);

	return (element)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
typedef float element;

static __device__ float load(element value)
{
	return value;
}

static __device__ element store(float value)
{
	return value;
}
#endif

extern __shared__ float partial[]; /* THREADS */

/* Of what each thread has: the sum, or the greatest. */
static __device__ float of_all(float mine, bool is_sum)
{
	__syncthreads(); /* others may still read what was there */
	partial[threadIdx.x] = mine;
	__syncthreads();
	for (unsigned half = THREADS / 2; half > 0; half /= 2) {
		if (threadIdx.x < half) {
			const float other = partial[threadIdx.x + half], own = partial[threadIdx.x];

			partial[threadIdx.x] = is_sum ? own + other : own > other ? own : other;
		}
		__syncthreads();
	}
	return partial[0];
}

/* x and y may be the same: an element is written by the thread that reads it. */
extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const element *x, element *y, long long m, long long n, long long stride)
{
	for (long long row = blockIdx.x; row < m; row += gridDim.x) {
		const element *from = x + row * stride;
		element *to = y + row * stride;
		float most = load(from[0]), sum = 0;

		for (long long i = threadIdx.x; i < n; i += THREADS)
			most = load(from[i]) > most ? load(from[i]) : most;
		/* In place, element 0 may be written only when all have read it. */
		most = of_all(most, false);
		for (long long i = threadIdx.x; i < n; i += THREADS) {
			const float value = expf(load(from[i]) - most);

			sum += value;
			if (TWO_PASSES)
				to[i] = store(value);
		}
		const float scale = 1 / of_all(sum, true);

		for (long long i = threadIdx.x; i < n; i += THREADS)
			to[i] = store(TWO_PASSES ? load(to[i]) * scale : expf(load(from[i]) - most) * scale);
	}
}
