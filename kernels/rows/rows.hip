/* What the device source of a kernel over rows begins with (kernels/rows/gpu.h): what the hardware is asked for, elements and
 * vectors of memory, a row in registers, sums over the threads of a row.
 *
 * One source for hiprtc, clang's HIP without any header, and nvrtc; so it names no type or function that a
 * header would bring. What the builder defines, beside what each kernel has of its own:
 *
 *   RN_N                 elements of a row
 *   RN_X, RN_W           type of the rows and of the weights: 0 f32, 1 f16, 2 bf16
 *   RN_WAVE              lanes of a wave
 *   RN_BLOCK_THREADS     threads of a block
 *   RN_ROW_THREADS       threads that share a row: a power of two below the wave, or whole waves
 *   RN_NONTEMPORAL       a sum of: 1: loads of x are marked as used once, 2: stores of y are; or 8, NVIDIA only:
 *                        loads of x pass by the first cache and are the first to leave the second one (of a
 *                        row that is read twice, only once it was)
 *   RN_WAVES_PER_EU      AMD, may be left out: waves that must fit on a SIMD unit; 0: the compiler's choice
 *   RN_WAVES_EXACT       AMD, beside it: 1: and no more than that
 *   RN_MIN_BLOCKS        NVIDIA, may be left out: blocks that must fit on a unit; 0: the compiler's choice
 *
 *   FT_FAULT             for tests of a tuner: 1 never ends, 2 writes far outside, 3 right behind the output, 4 into the
 *                        input; 5 is wrong in one of 50 launches, 6 in one of 200 */

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define RN_NVIDIA 1
#else
#define RN_NVIDIA 0
#endif

/* no config takes all of them */
#define RN_DEVICE static __attribute__((device, unused)) inline __attribute__((always_inline))
/* A function of its own, so that rare code does not lie between the kernel's beginning and its usual way. */
#if RN_NVIDIA
#define RN_ASIDE static __device__ __noinline__
#else
#define RN_ASIDE RN_DEVICE
#endif

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

enum { F32 = 0, F16 = 1, BF16 = 2 };

#if RN_NVIDIA
struct __align__(16) quad {
	u32 word[4];
};
#else
typedef u32 words4 __attribute__((ext_vector_type(4)));
typedef float floats4 __attribute__((ext_vector_type(4)));
struct quad {
	words4 word;
};
#endif

template <int TYPE> struct element {
	typedef u16 bits;
};
template <> struct element<F32> {
	typedef u32 bits;
};
typedef element<RN_X>::bits x_bits;
typedef element<RN_W>::bits w_bits;

#define N RN_N
#define BLOCK RN_BLOCK_THREADS
#define THREADS RN_ROW_THREADS
#define WAVE RN_WAVE
/* elements in 128 bits of a row (a number for the preprocessor, too), and 128-bit loads for as many weights */
#if RN_X == 0
#define VEC 4
#else
#define VEC 8
#endif
#define WEIGHT_QUADS (VEC * (int)sizeof(w_bits) / 16 > 0 ? VEC * (int)sizeof(w_bits) / 16 : 1)
/* With rows that are no whole vectors, a row starts anywhere in a vector: one more may be touched. */
#define EDGES (N % VEC != 0)
#define VECTORS (EDGES ? (N + 2 * VEC - 2) / VEC : N / VEC)
#define SLOTS ((VECTORS + THREADS - 1) / THREADS)
#define ROWS (BLOCK / THREADS)
#define ROW_WAVES (THREADS / WAVE)

static_assert(BLOCK % THREADS == 0, "the threads of a row must divide those of a block");
static_assert(THREADS % WAVE == 0 || (WAVE % THREADS == 0 && BLOCK % WAVE == 0),
        "a row takes whole waves, or whole rows a wave");
static_assert(VEC * sizeof(x_bits) == 16, "a vector has 128 bits");
static_assert(sizeof(w_bits) >= sizeof(x_bits), "a weight is of the rows' type or f32");

/* ---- what the hardware is asked for ---- */

#if RN_NVIDIA
RN_DEVICE u32 thread_index() { return threadIdx.x; }
RN_DEVICE u32 block_index() { return blockIdx.x; }
RN_DEVICE u32 grid_blocks() { return gridDim.x; }
#define RN_SHARED __shared__
#else
RN_DEVICE u32 thread_index() { return __builtin_amdgcn_workitem_id_x(); }
RN_DEVICE u32 block_index() { return __builtin_amdgcn_workgroup_id_x(); }
RN_DEVICE u32 grid_blocks() { return __builtin_amdgcn_grid_size_x() / BLOCK; }
#define RN_SHARED __attribute__((shared))
#endif

#ifdef FT_FAULT
#if RN_NVIDIA
RN_DEVICE u64 cycles() { return (u64)clock64(); }
#else
RN_DEVICE u64 cycles() { return __builtin_readcyclecounter(); }
#endif
#endif

/* All threads of one row have reached it, and see each other's shared memory. */
RN_DEVICE void row_barrier(u32 row)
{
#if RN_NVIDIA
	/* Rows of a block need not wait for each other: there are 16 numbered barriers. */
	if (ROWS > 1 && ROWS < 16)
		asm volatile("bar.sync %0, %1;" ::"r"(row + 1), "n"(THREADS) : "memory");
	else
		__syncthreads();
#else
	/* The barrier alone does not order accesses to shared memory. */
	(void)row;
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#endif
}

#if !RN_NVIDIA
RN_DEVICE u32 lane_index()
{
#if RN_WAVE == 64
	return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
#else
	return __builtin_amdgcn_mbcnt_lo(~0u, 0u);
#endif
}
#endif

/* The value of the lane whose index differs in the bit MASK, given that lower bits were added up before. */
template <int MASK> RN_DEVICE float across(float value)
{
#if RN_NVIDIA
	return __shfl_xor_sync(0xffffffffu, value, MASK);
#else
	int bits = __builtin_bit_cast(int, value);
	int other;
	if (MASK == 1)
		other = __builtin_amdgcn_mov_dpp(bits, 0xb1, 0xf, 0xf, true); /* quad_perm 1,0,3,2 */
	else if (MASK == 2)
		other = __builtin_amdgcn_mov_dpp(bits, 0x4e, 0xf, 0xf, true); /* quad_perm 2,3,0,1 */
	else if (MASK == 4)
		other = __builtin_amdgcn_mov_dpp(bits, 0x141, 0xf, 0xf, true); /* row_half_mirror */
	else if (MASK == 8)
		other = __builtin_amdgcn_mov_dpp(bits, 0x140, 0xf, 0xf, true); /* row_mirror */
	else if (MASK == 16)
		other = __builtin_amdgcn_ds_swizzle(bits, 0x401f); /* xor 16 */
	else
		other = __builtin_amdgcn_ds_bpermute((int)((lane_index() ^ MASK) << 2), bits);
	return __builtin_bit_cast(float, other);
#endif
}

#define RN_LANES (THREADS < WAVE ? THREADS : WAVE)

RN_DEVICE float wave_sum(float value)
{
	if (RN_LANES > 1)
		value += across<1>(value);
	if (RN_LANES > 2)
		value += across<2>(value);
	if (RN_LANES > 4)
		value += across<4>(value);
	if (RN_LANES > 8)
		value += across<8>(value);
	if (RN_LANES > 16)
		value += across<16>(value);
	if (RN_LANES > 32)
		value += across<32>(value);
	return value;
}

RN_DEVICE float inverse_root(float value)
{
#if RN_NVIDIA
	return rsqrtf(value);
#else
	/* The instruction takes denormal numbers for zero. */
	return value < 0x1p-100f ? __builtin_amdgcn_rsqf(value * 0x1p+100f) * 0x1p+50f :
	                           __builtin_amdgcn_rsqf(value);
#endif
}

/* ---- memory ---- */

RN_DEVICE quad zero_quad()
{
	quad zero;
	for (int i = 0; i < 4; i++)
		zero.word[i] = 0;
	return zero;
}

#if RN_NVIDIA
RN_DEVICE u64 leaves_first()
{
	u64 policy;
	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}
#endif

RN_DEVICE quad load_row(const void *at)
{
	quad value;
#if RN_NVIDIA
#if RN_NONTEMPORAL & 8
	asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
	             : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
	             : "l"(at), "l"(leaves_first()));
#elif RN_NONTEMPORAL & 1
	asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
	             : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
	             : "l"(at));
#else
	asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
	             : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
	             : "l"(at));
#endif
#elif RN_NONTEMPORAL & 1
	value.word = __builtin_nontemporal_load((const words4 *)at);
#else
	value.word = *(const words4 *)at;
#endif
	return value;
}

/* Of a row that is read a second time soon. */
RN_DEVICE quad load_row_at_first(const void *at)
{
#if RN_NVIDIA && RN_NONTEMPORAL & 8
	quad value;
	u64 policy;
	asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
	             : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
	             : "l"(at), "l"(policy));
	return value;
#else
	return load_row(at);
#endif
}

RN_DEVICE quad load_row_again(const void *at)
{
#if RN_NVIDIA && RN_NONTEMPORAL & 8
	quad value;
	asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
	             : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
	             : "l"(at), "l"(leaves_first()));
	return value;
#else
	return load_row(at);
#endif
}

RN_DEVICE quad load_weight(const void *at)
{
	quad value;
#if RN_NVIDIA
	asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
	             : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
	             : "l"(at));
#else
	value.word = *(const words4 *)at;
#endif
	return value;
}

RN_DEVICE void store_row(void *at, quad value)
{
#if RN_NVIDIA
#if RN_NONTEMPORAL & 2
	asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.word[0]),
	             "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
	             : "memory");
#else
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.word[0]),
	             "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
	             : "memory");
#endif
#elif RN_NONTEMPORAL & 2
	__builtin_nontemporal_store(value.word, (words4 *)at);
#else
	*(words4 *)at = value.word;
#endif
}

/* ---- numbers ---- */

RN_DEVICE float word_as_float(u32 word)
{
#if RN_NVIDIA
	return __uint_as_float(word);
#else
	return __builtin_bit_cast(float, word);
#endif
}

RN_DEVICE u32 float_as_word(float value)
{
#if RN_NVIDIA
	return __float_as_uint(value);
#else
	return __builtin_bit_cast(u32, value);
#endif
}

template <int TYPE> RN_DEVICE float widen(u32 bits)
{
	if (TYPE == F32)
		return word_as_float(bits);
	if (TYPE == BF16)
		return word_as_float(bits << 16);
#if RN_NVIDIA
	float value;
	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)bits));
	return value;
#else
	return (float)__builtin_bit_cast(_Float16, (u16)bits);
#endif
}

/* To nearest even. */
template <int TYPE> RN_DEVICE u32 narrow(float value)
{
	u32 word = float_as_word(value);
	if (TYPE == F32)
		return word;
	if (TYPE == BF16) {
		/* Only an f32 weight can bring a NaN whose low bits would carry into the sign. */
		if (RN_W == F32 && (word & 0x7fffffffu) > 0x7f800000u)
			return word >> 16 | 0x40u;
		return (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
	}
#if RN_NVIDIA
	u16 bits;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
	return bits;
#else
	return __builtin_bit_cast(u16, (_Float16)value);
#endif
}

template <int TYPE> RN_DEVICE u32 narrow_pair(float low, float high)
{
#if RN_NVIDIA && __CUDA_ARCH__ >= 800
	u32 word;
	if (TYPE == BF16)
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
	return word;
#else
	return narrow<TYPE>(low) | narrow<TYPE>(high) << 16;
#endif
}

/* The element at INDEX of 128 bits. */
template <int TYPE> RN_DEVICE float element_of(const quad &value, int index)
{
	if (TYPE == F32)
		return word_as_float(value.word[index & 3]);
	u32 word = value.word[(index >> 1) & 3];
	if (TYPE == BF16)
		return word_as_float(index & 1 ? word & 0xffff0000u : word << 16);
	return widen<TYPE>(index & 1 ? word >> 16 : word & 0xffffu);
}

/* ---- a row in registers ---- */

struct row_data {
	quad slot[SLOTS];
};
struct weight_data {
	quad slot[SLOTS][WEIGHT_QUADS];
};

/* Where in the row this thread's vector of a slot begins. `skew` elements of the first vector lie before it. */
RN_DEVICE int first_element(u32 lane, int slot, int skew)
{
	return ((int)lane + slot * THREADS) * VEC - (EDGES ? skew : 0);
}

/* Whether a slot's vector lies within the row; decided when compiling wherever that is possible. */
RN_DEVICE bool whole(int slot, int first)
{
	if (EDGES)
		return first >= 0 && first + VEC <= N;
	return (slot + 1) * THREADS <= VECTORS || first < N;
}

RN_DEVICE void load_data(row_data &data, const x_bits *row, u32 lane, int skew, bool active)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++) {
		int first = first_element(lane, s, skew);
		if (active && whole(s, first)) {
			data.slot[s] = load_row(row + first);
			continue;
		}
		data.slot[s] = zero_quad();
		if (!EDGES || !active)
			continue;
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			int at = first + k;
			if (at < 0 || at >= N)
				continue;
			if (sizeof(x_bits) == 4)
				data.slot[s].word[k & 3] = row[at];
			else
				data.slot[s].word[(k >> 1) & 3] |= (u32)row[at] << (k & 1 ? 16 : 0);
		}
	}
}

RN_DEVICE void load_weights(
        weight_data &data, const w_bits *weight, u32 lane, int skew, int from, int to)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++) {
		if (s < from || s >= to)
			continue;
		int first = first_element(lane, s, skew);
#pragma unroll
		for (int q = 0; q < WEIGHT_QUADS; q++)
			data.slot[s][q] = zero_quad();
		if (!EDGES) {
			if (whole(s, first))
#pragma unroll
				for (int q = 0; q < WEIGHT_QUADS; q++)
					data.slot[s][q] = load_weight(
					        (const char *)(weight + first) + 16 * q);
			continue;
		}
		/* The row's vectors are aligned, so these are not; but they come from a cache. */
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			int at = first + k;
			if (at < 0 || at >= N)
				continue;
			if (sizeof(w_bits) == 4)
				data.slot[s][(k >> 2) & (WEIGHT_QUADS - 1)].word[k & 3] = weight[at];
			else
				data.slot[s][0].word[(k >> 1) & 3] |= (u32)weight[at] << (k & 1 ? 16 : 0);
		}
	}
}

RN_DEVICE float weight_of(const weight_data &data, int slot, int k)
{
	if (sizeof(w_bits) == 4)
		return element_of<RN_W>(data.slot[slot][(k >> 2) & (WEIGHT_QUADS - 1)], k & 3);
	return element_of<RN_W>(data.slot[slot][0], k);
}

/* Weights of a vector of elements, from memory. */
RN_DEVICE void widen_weights(float *to, const w_bits *at)
{
	if (EDGES) {
#pragma unroll
		for (int k = 0; k < VEC; k++)
			to[k] = widen<RN_W>(at[k]);
		return;
	}
	quad bits[WEIGHT_QUADS];
#pragma unroll
	for (int q = 0; q < WEIGHT_QUADS; q++)
		bits[q] = load_weight((const char *)at + 16 * q);
#pragma unroll
	for (int k = 0; k < VEC; k++)
		to[k] = sizeof(w_bits) == 4 ? element_of<RN_W>(bits[(k >> 2) & (WEIGHT_QUADS - 1)], k & 3) :
		                              element_of<RN_W>(bits[0], k);
}

/* Rounded once. */
RN_DEVICE quad packed(const float *y)
{
	quad out;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (RN_X == F32)
			out.word[i] = float_as_word(y[i]);
		else
			out.word[i] = narrow_pair<RN_X>(y[(2 * i) & (VEC - 1)], y[(2 * i + 1) & (VEC - 1)]);
	}
	return out;
}

/* Keeps the compiler from holding widened copies over the reduction: widening again costs less than registers. */
RN_DEVICE void forget_widened(row_data &data)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++) {
#if RN_NVIDIA
#pragma unroll
		for (int i = 0; i < 4; i++)
			asm volatile("" : "+r"(data.slot[s].word[i]));
#else
		asm volatile("" : "+v"(data.slot[s].word));
#endif
	}
}

/* ---- sums over a row ---- */

#define RN_SHARED_FLOATS (ROW_WAVES > 1 ? ROWS * ROW_WAVES : 1)

/* Sums over the threads of a row, COUNT at once. `shared` has so many floats a wave, and may be used again after one more
 * barrier of all threads: two calls later. So one barrier a call is enough. */
template <int COUNT> RN_DEVICE void row_sums(float *value, float *shared, u32 row, u32 lane)
{
#pragma unroll
	for (int c = 0; c < COUNT; c++)
		value[c] = wave_sum(value[c]);
	if (ROW_WAVES <= 1)
		return;
	float *mine = shared + row * (ROW_WAVES * COUNT);
	if (lane % WAVE == 0)
#pragma unroll
		for (int c = 0; c < COUNT; c++)
			mine[c * ROW_WAVES + lane / WAVE] = value[c];
	row_barrier(row);
#pragma unroll
	for (int c = 0; c < COUNT; c++) {
		/* Four chains: this lies on the way from the last load to the first store. */
		float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
		for (int i = 0; i < ROW_WAVES; i++)
			part[i & 3] = i < 4 ? mine[c * ROW_WAVES + i] : part[i & 3] + mine[c * ROW_WAVES + i];
		value[c] = (part[0] + part[1]) + (part[2] + part[3]);
	}
}

RN_DEVICE float row_sum(float value, float *shared, u32 row, u32 lane)
{
	row_sums<1>(&value, shared, row, lane);
	return value;
}

RN_DEVICE int skew_of(const void *at)
{
	return EDGES ? (int)((u64)at % 16 / sizeof(x_bits)) : 0;
}

/* Vectors that are loaded at once in a loop over a row; elements, where they are loaded one by one. */
#define RN_AHEAD (SLOTS < 4 ? SLOTS : 4)
#define RN_SINGLES 8

/* A row that is read in a loop: elements before the first whole vector, the vectors, and where these end. */
struct row_cut {
	int head, vectors, tail;
};

RN_DEVICE row_cut cut_of(int skew)
{
	row_cut cut;
	cut.head = EDGES ? (VEC - skew) % VEC : 0;
	cut.head = cut.head < N ? cut.head : N;
	cut.vectors = (N - cut.head) / VEC;
	cut.tail = cut.head + cut.vectors * VEC;
	return cut;
}

/* ---- the kernel's function ---- */

#if RN_NVIDIA
#if defined(RN_MIN_BLOCKS) && RN_MIN_BLOCKS > 0
#define RN_KERNEL __global__ void __launch_bounds__(BLOCK, RN_MIN_BLOCKS)
#else
#define RN_KERNEL __global__ void __launch_bounds__(BLOCK)
#endif
#else
#if defined(RN_WAVES_PER_EU) && RN_WAVES_PER_EU > 0 && RN_WAVES_EXACT
#define RN_WAVES __attribute__((amdgpu_waves_per_eu(RN_WAVES_PER_EU, RN_WAVES_PER_EU)))
#elif defined(RN_WAVES_PER_EU) && RN_WAVES_PER_EU > 0
#define RN_WAVES __attribute__((amdgpu_waves_per_eu(RN_WAVES_PER_EU)))
#else
#define RN_WAVES
#endif
#define RN_KERNEL __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(BLOCK, BLOCK))) RN_WAVES void
#endif

/* Whether whole vectors of rows and weights can be loaded and stored; `weights` are the addresses of these, or'ed. */
RN_DEVICE bool is_aligned(const void *y, const void *x, u64 weights, i64 row_stride)
{
	if (EDGES)
		return ((u64)x - (u64)y) % 16 == 0;
	return (((u64)x | (u64)y | weights) % 16 | ((u64)row_stride * sizeof(x_bits)) % 16) == 0;
}

#ifdef FT_FAULT
RN_DEVICE void spoil(x_bits **y, const void *x, i64 m, i64 row_stride, float *eps)
{
	while (FT_FAULT == 1)
		((volatile u32 *)*y)[0] = 0;
	if (FT_FAULT == 3)
		((volatile x_bits *)*y)[(m - 1) * row_stride + N] = 0;
	if (FT_FAULT == 4)
		((volatile x_bits *)x)[N - 1] = 0;
	if (FT_FAULT == 2)
		*y += (i64)1 << 44;
	if (FT_FAULT >= 5 && block_index() == 0 && thread_index() == 0 &&
	        (u32)(cycles() * 0x9e3779b97f4a7c15ull >> 32) % (FT_FAULT == 5 ? 50 : 200) == 0)
		*eps = 1e30f;
}
#endif

