/* y = x * rsqrt(mean(x * x) + eps) * weight over rows: f32 arithmetic, one rounding to nearest even at the end.
 *
 * One source for hiprtc, clang's HIP without any header, and nvrtc; so it names no type or function that a
 * header would bring. How to launch what comes out of it stands in LAUNCH.md. What the builder defines:
 *
 *   RN_N                 elements of a row
 *   RN_X, RN_W           type of the rows and of the weight: 0 f32, 1 f16, 2 bf16
 *   RN_WAVE              lanes of a wave
 *   RN_BLOCK_THREADS     threads of a block
 *   RN_ROW_THREADS       threads that share a row: a power of two below the wave, or whole waves
 *   RN_WAVES_PER_EU      AMD: 0: the compiler's choice; else waves that must fit on a SIMD unit
 *   RN_WAVES_EXACT       AMD: 1: and no more than that
 *   RN_MIN_BLOCKS        NVIDIA: 0: the compiler's choice; else blocks that must fit on a unit
 *   RN_PASSES            1: a row stays in registers; 2: it is read twice
 *   RN_NONTEMPORAL       a sum of: 1: loads of x are marked as used once, 2: stores of y are; or 8, NVIDIA only:
 *                        loads of x pass by the first cache and are the first to leave the second one (of a
 *                        row that is read twice, only once it was)
 *   RN_WEIGHT            0: loaded after the reduction, 1: before it, 2: once for all rows of a block, 3: surely
 *                        before it, whatever registers that takes (NVIDIA only)
 *   RN_PREFETCH          1: the next row is loaded before this one is reduced
 *   RN_WALK              1: a block takes many sets of rows, as the grid is cut to the device; 0: one, as a rule
 *
 *   FT_FAULT             for tests of a tuner: 1 never ends, 2 writes far outside, 3 right behind the output, 4 into the
 *                        input; 5 is wrong in one of 50 launches, 6 in one of 200
 *
 * A block takes rows_a_block rows at once and walks on by the whole grid until it is past the last row, so any
 * grid gives the right result. */

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

RN_DEVICE float square_sum(const row_data &data)
{
	float part[VEC];
#pragma unroll
	for (int k = 0; k < VEC; k++)
		part[k] = 0.0f;
#pragma unroll
	for (int s = 0; s < SLOTS; s++)
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			float x = element_of<RN_X>(data.slot[s], k);
			part[k] = x * x + part[k];
		}
#pragma unroll
	for (int half = VEC / 2; half > 0; half /= 2)
#pragma unroll
		for (int k = 0; k < half; k++)
			part[k] += part[k + half];
	return part[0];
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

RN_DEVICE quad scaled_wide(const float *x, const float *weight, float scale)
{
	float y[VEC];
	quad out;
#pragma unroll
	for (int k = 0; k < VEC; k++)
		y[k] = x[k] * scale * weight[k];
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (RN_X == F32)
			out.word[i] = float_as_word(y[i]);
		else
			out.word[i] = narrow_pair<RN_X>(y[(2 * i) & (VEC - 1)], y[(2 * i + 1) & (VEC - 1)]);
	}
	return out;
}

RN_DEVICE quad scaled(const quad &x, const weight_data &weights, int slot, float scale)
{
	float wide[VEC], weight[VEC];
#pragma unroll
	for (int k = 0; k < VEC; k++) {
		wide[k] = element_of<RN_X>(x, k);
		weight[k] = weight_of(weights, slot, k);
	}
	return scaled_wide(wide, weight, scale);
}

RN_DEVICE void store_data(x_bits *row, const row_data &data, const weight_data &weights, float scale,
        u32 lane, int skew, int from, int to)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++) {
		if (s < from || s >= to)
			continue;
		int first = first_element(lane, s, skew);
		if (whole(s, first)) {
			store_row(row + first, scaled(data.slot[s], weights, s, scale));
			continue;
		}
		if (!EDGES)
			continue;
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			int at = first + k;
			if (at >= 0 && at < N)
				row[at] = (x_bits)narrow<RN_X>(element_of<RN_X>(data.slot[s], k) * scale *
				                               weight_of(weights, s, k));
		}
	}
}

/* ---- the reduction ---- */

/* Sums over the threads of a row. `shared` has a float a wave and is used again two calls later, by when every
 * thread has passed the barrier between: so one barrier a call is enough. */
RN_DEVICE float row_sum(float value, float *shared, u32 row, u32 lane)
{
	value = wave_sum(value);
	if (ROW_WAVES <= 1)
		return value;
	float *mine = shared + row * ROW_WAVES;
	if (lane % WAVE == 0)
		mine[lane / WAVE] = value;
	row_barrier(row);
	/* Four chains: this lies on the way from the last load to the first store. */
	float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
	for (int i = 0; i < ROW_WAVES; i++)
		part[i & 3] = i < 4 ? mine[i] : part[i & 3] + mine[i];
	return (part[0] + part[1]) + (part[2] + part[3]);
}

RN_DEVICE float scale_of(float sum, float eps)
{
	return inverse_root(sum * (1.0f / N) + eps);
}

/* ---- the ways through a row: the one that is taken, as compiling takes longer than a launch by far ---- */

#if RN_PASSES == 2
#define RN_WAY rows_twice
#elif !RN_NVIDIA || EDGES || RN_PREFETCH || RN_WALK
#define RN_WAY rows_in_registers
#else
#define RN_WAY rows_straight
#define RN_ONE_SET 1
#endif

struct job {
	x_bits *y;
	const x_bits *x;
	const w_bits *weight;
	i64 m;
	i64 stride;
	float eps;
};

#define RN_SHARED_FLOATS (ROW_WAVES > 1 ? ROWS * ROW_WAVES : 1)

RN_DEVICE int skew_of(const void *at)
{
	return EDGES ? (int)((u64)at % 16 / sizeof(x_bits)) : 0;
}

#define RN_CHUNK (RN_WEIGHT == 0 && SLOTS > 4 ? 4 : SLOTS)

#if RN_PASSES == 1

#ifndef RN_ONE_SET

/* Vectors, the row kept in registers. */
RN_DEVICE void rows_in_registers(const job &job, float *shared)
{
	u32 group = thread_index() / THREADS;
	u32 lane = thread_index() % THREADS;
	i64 set = block_index();
	i64 sets = (job.m + ROWS - 1) / ROWS;
	i64 step = grid_blocks();
	u32 parity = 0;
	row_data data;
	weight_data weights;

	if (set >= sets)
		return;
	i64 row = set * ROWS + group;
	bool active = row < job.m;
	int skew = skew_of(job.x + row * job.stride);
	load_data(data, job.x + row * job.stride, lane, skew, active);
	if (RN_WEIGHT == 2 && !EDGES)
		load_weights(weights, job.weight, lane, 0, 0, SLOTS);
	for (;;) {
		i64 next = row + step * ROWS;
		bool more = set + step < sets;
		row_data ahead;
		int next_skew = skew_of(job.x + next * job.stride);
		if (RN_PREFETCH)
			load_data(ahead, job.x + next * job.stride, lane, next_skew, next < job.m);
		if ((RN_WEIGHT & 1) || (RN_WEIGHT == 2 && EDGES))
			load_weights(weights, job.weight, lane, skew, 0, SLOTS);
		float sum = row_sum(square_sum(data), shared + parity * RN_SHARED_FLOATS, group, lane);
		float scale = scale_of(sum, job.eps);
		forget_widened(data);
		/* A few vectors at a time where the weight comes late, so that it takes few registers. */
#pragma unroll
		for (int s = 0; s < SLOTS; s += RN_CHUNK) {
			if (RN_WEIGHT == 0)
				load_weights(weights, job.weight, lane, skew, s, s + RN_CHUNK);
			if (active)
				store_data(job.y + row * job.stride, data, weights, scale, lane, skew, s,
				        s + RN_CHUNK);
		}
		if (!more)
			return;
		set += step;
		row = next;
		active = row < job.m;
		skew = next_skew;
		parity ^= 1;
		if (RN_PREFETCH)
			data = ahead;
		else
			load_data(data, job.x + row * job.stride, lane, skew, active);
	}
}

#else

/* A vector a thread or two: there is room to widen all of it while the sum is under way. */
#define RN_WIDE (SLOTS * VEC <= 16 && RN_WEIGHT != 0)

/* To save registers compilers move a load of the weight to where the row has come already, and the time of a
 * second load is added. So the row's values are made to need it: `zero` is 0, but only we know. */
RN_DEVICE void await_weights(row_data &data, const weight_data &weights, u32 zero)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++)
#pragma unroll
		for (int q = 0; q < WEIGHT_QUADS; q++)
			data.slot[s].word[q] |= weights.slot[s][q].word[0] & zero;
}

struct wide_data {
	float x[SLOTS][VEC];
	float weight[SLOTS][VEC];
};

RN_DEVICE void widen_all(wide_data &wide, const row_data &data, const weight_data &weights)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++)
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			wide.x[s][k] = element_of<RN_X>(data.slot[s], k);
			wide.weight[s][k] = weight_of(weights, s, k);
#if RN_NVIDIA
			asm volatile("" : "+f"(wide.x[s][k]), "+f"(wide.weight[s][k]));
#endif
		}
}

/* Whole vectors from begin to end, the row in registers; one set of rows, which is all that there is
 * for a block. Where rows are few, the time is that of the instructions from the launch to the first
 * load, and from the last value to the first store: nothing is there that could be elsewhere, and no loop, as
 * compilers move things out of one, to its front. */
RN_DEVICE void rows_straight(const job &job, float *shared)
{
	u32 group = ROWS > 1 ? thread_index() / THREADS : 0;
	u32 lane = ROWS > 1 ? thread_index() % THREADS : thread_index();
	u64 row = (u64)block_index() * ROWS + group;
	row_data data;
	weight_data weights;
	wide_data wide;

	if ((i64)block_index() * ROWS >= job.m)
		return;
	bool active = ROWS == 1 || (i64)row < job.m;
	u64 offset = row * (u64)job.stride;

	/* Its address needs no row: it is on its way while the row's is computed. */
	if (RN_WEIGHT != 0)
		load_weights(weights, job.weight, lane, 0, 0, SLOTS);
	load_data(data, job.x + offset, lane, 0, active);
	if (RN_WEIGHT == 3)
		await_weights(data, weights, (u32)(job.m >> 63));
	float sum = square_sum(data);
	if (RN_WIDE)
		widen_all(wide, data, weights);
	/* the half that a walk over what is left would use second */
	sum = row_sum(sum, shared + RN_SHARED_FLOATS, group, lane);
	float scale = scale_of(sum, job.eps);
	if (RN_WIDE) {
#pragma unroll
		for (int s = 0; s < SLOTS; s++) {
			int first = first_element(lane, s, 0);
			if (active && whole(s, first))
				store_row(job.y + offset + first,
				        scaled_wide(wide.x[s], wide.weight[s], scale));
		}
		return;
	}
	forget_widened(data);
	/* A few vectors at a time where the weight comes late, so that it takes few registers. */
#pragma unroll
	for (int s = 0; s < SLOTS; s += RN_CHUNK) {
		if (RN_WEIGHT == 0)
			load_weights(weights, job.weight, lane, 0, s, s + RN_CHUNK);
		if (active)
			store_data(job.y + offset, data, weights, scale, lane, 0, s, s + RN_CHUNK);
	}
}

#endif

#else

#define RN_AHEAD (SLOTS < 4 ? SLOTS : 4)

/* Vectors, the row read a second time after its sum is known. Several loads are in flight in both passes. */
RN_DEVICE void rows_twice(const job &job, float *shared)
{
	u32 group = thread_index() / THREADS;
	u32 lane = thread_index() % THREADS;
	i64 sets = (job.m + ROWS - 1) / ROWS;
	u32 parity = 0;

	for (i64 set = block_index(); set < sets; set += grid_blocks()) {
		i64 row = set * ROWS + group;
		bool active = row < job.m;
		const x_bits *x = job.x + row * job.stride;
		x_bits *y = job.y + row * job.stride;
		int skew = skew_of(x);
		/* elements before the first whole vector and after the last, and the vectors between */
		int head = EDGES ? (VEC - skew) % VEC : 0;
		head = head < N ? head : N;
		int vectors = (N - head) / VEC;
		int tail = head + vectors * VEC;
		float sum = 0.0f;
		if (active) {
			float part[VEC];
			for (int k = 0; k < VEC; k++)
				part[k] = 0.0f;
			for (int v = (int)lane; v < vectors; v += RN_AHEAD * THREADS) {
				quad value[RN_AHEAD];
#pragma unroll
				for (int a = 0; a < RN_AHEAD; a++) {
					int at = v + a * THREADS;
					value[a] = at < vectors ? load_row_at_first(x + head + at * VEC) : zero_quad();
				}
#pragma unroll
				for (int a = 0; a < RN_AHEAD; a++)
#pragma unroll
					for (int k = 0; k < VEC; k++) {
						float e = element_of<RN_X>(value[a], k);
						part[k] = e * e + part[k];
					}
			}
			for (int k = 0; k < VEC; k++)
				sum += part[k];
			if (EDGES) {
				for (int at = (int)lane; at < head; at += THREADS)
					sum += widen<RN_X>(x[at]) * widen<RN_X>(x[at]);
				for (int at = tail + (int)lane; at < N; at += THREADS)
					sum += widen<RN_X>(x[at]) * widen<RN_X>(x[at]);
			}
		}
		sum = row_sum(sum, shared + parity * RN_SHARED_FLOATS, group, lane);
		float scale = scale_of(sum, job.eps);
		parity ^= 1;
		if (!active)
			continue;
		for (int v = (int)lane; v < vectors; v += RN_AHEAD * THREADS) {
			quad value[RN_AHEAD];
#pragma unroll
			for (int a = 0; a < RN_AHEAD; a++) {
				int at = v + a * THREADS;
				value[a] = at < vectors ? load_row_again(x + head + at * VEC) : zero_quad();
			}
#pragma unroll
			for (int a = 0; a < RN_AHEAD; a++) {
				int at = head + (v + a * THREADS) * VEC;
				if (v + a * THREADS >= vectors)
					continue;
				float e[VEC];
				if (EDGES) {
#pragma unroll
					for (int k = 0; k < VEC; k++)
						e[k] = element_of<RN_X>(value[a], k) * scale *
						       widen<RN_W>(job.weight[at + k]);
				} else {
					quad w[WEIGHT_QUADS];
#pragma unroll
					for (int q = 0; q < WEIGHT_QUADS; q++)
						w[q] = load_weight((const char *)(job.weight + at) + 16 * q);
#pragma unroll
					for (int k = 0; k < VEC; k++)
						e[k] = element_of<RN_X>(value[a], k) * scale *
						       (sizeof(w_bits) == 4 ?
						                       element_of<RN_W>(
						                               w[(k >> 2) & (WEIGHT_QUADS - 1)],
						                               k & 3) :
						                       element_of<RN_W>(w[0], k));
				}
				quad out;
#pragma unroll
				for (int i = 0; i < 4; i++)
					out.word[i] = RN_X == F32 ?
					                      float_as_word(e[i]) :
					                      narrow_pair<RN_X>(e[(2 * i) & (VEC - 1)],
					                              e[(2 * i + 1) & (VEC - 1)]);
				store_row(y + at, out);
			}
		}
		if (EDGES) {
			for (int at = (int)lane; at < head; at += THREADS)
				y[at] = (x_bits)narrow<RN_X>(
				        widen<RN_X>(x[at]) * scale * widen<RN_W>(job.weight[at]));
			for (int at = tail + (int)lane; at < N; at += THREADS)
				y[at] = (x_bits)narrow<RN_X>(
				        widen<RN_X>(x[at]) * scale * widen<RN_W>(job.weight[at]));
		}
	}
}

#endif

#define RN_SINGLES 8

/* One element an access, neighbours side by side: for rows whose input and output (or weight) do not start at the same
 * place in a vector; sets of rows from `set` on. */
RN_ASIDE void rows_unaligned(
        x_bits *to, const x_bits *from, const w_bits *weight_at, i64 m, i64 stride, float eps, float *shared, i64 set)
{
	job job = {to, from, weight_at, m, stride, eps};
	u32 group = thread_index() / THREADS;
	u32 lane = thread_index() % THREADS;
	i64 sets = (job.m + ROWS - 1) / ROWS;
	u32 parity = 0;

#pragma unroll 1
	for (; set < sets; set += grid_blocks()) {
		i64 row = set * ROWS + group;
		bool active = row < job.m;
		const x_bits *x = job.x + row * job.stride;
		x_bits *y = job.y + row * job.stride;
		float sum = 0.0f;
		if (active) {
			float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
			for (int at = (int)lane; at < N; at += RN_SINGLES * THREADS) {
				u32 bits[RN_SINGLES];
#pragma unroll
				for (int a = 0; a < RN_SINGLES; a++)
					bits[a] = at + a * THREADS < N ? x[at + a * THREADS] : 0;
#pragma unroll
				for (int a = 0; a < RN_SINGLES; a++) {
					float e = widen<RN_X>(bits[a]);
					part[a & 3] = e * e + part[a & 3];
				}
			}
			sum = (part[0] + part[1]) + (part[2] + part[3]);
		}
		sum = row_sum(sum, shared + parity * RN_SHARED_FLOATS, group, lane);
		float scale = scale_of(sum, job.eps);
		parity ^= 1;
		if (!active)
			continue;
#pragma unroll 1
		for (int at = (int)lane; at < N; at += RN_SINGLES * THREADS) {
			u32 bits[RN_SINGLES], weight[RN_SINGLES];
#pragma unroll
			for (int a = 0; a < RN_SINGLES; a++) {
				bool inside = at + a * THREADS < N;
				bits[a] = inside ? x[at + a * THREADS] : 0;
				weight[a] = inside ? job.weight[at + a * THREADS] : 0;
			}
#pragma unroll
			for (int a = 0; a < RN_SINGLES; a++)
				if (at + a * THREADS < N)
					y[at + a * THREADS] = (x_bits)narrow<RN_X>(
					        widen<RN_X>(bits[a]) * scale * widen<RN_W>(weight[a]));
		}
	}
}

#if RN_NVIDIA
#if RN_MIN_BLOCKS > 0
#define RN_KERNEL __global__ void __launch_bounds__(BLOCK, RN_MIN_BLOCKS)
#else
#define RN_KERNEL __global__ void __launch_bounds__(BLOCK)
#endif
#else
#if RN_WAVES_PER_EU > 0 && RN_WAVES_EXACT
#define RN_WAVES __attribute__((amdgpu_waves_per_eu(RN_WAVES_PER_EU, RN_WAVES_PER_EU)))
#elif RN_WAVES_PER_EU > 0
#define RN_WAVES __attribute__((amdgpu_waves_per_eu(RN_WAVES_PER_EU)))
#else
#define RN_WAVES
#endif
#define RN_KERNEL __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(BLOCK, BLOCK))) RN_WAVES void
#endif

extern "C" RN_KERNEL flytune_rmsnorm(void *y, const void *x, const void *weight, i64 m, i64 row_stride, float eps)
{
	RN_SHARED __attribute__((aligned(16))) float shared[2 * RN_SHARED_FLOATS];
	job job = {(x_bits *)y, (const x_bits *)x, (const w_bits *)weight, m, row_stride, eps};
	i64 set = block_index();
	bool aligned;

#ifdef FT_FAULT
	while (FT_FAULT == 1)
		((volatile u32 *)y)[0] = 0;
	if (FT_FAULT == 2)
		job.y += (i64)1 << 44;
	if (FT_FAULT == 3)
		((volatile x_bits *)y)[(m - 1) * row_stride + N] = 0;
	if (FT_FAULT == 4)
		((volatile x_bits *)x)[N - 1] = 0;
	if (FT_FAULT >= 5 && block_index() == 0 && thread_index() == 0 &&
	        (u32)(cycles() * 0x9e3779b97f4a7c15ull >> 32) % (FT_FAULT == 5 ? 50 : 200) == 0)
		job.eps = 1e30f;
#endif
	if (EDGES)
		aligned = ((u64)x - (u64)y) % 16 == 0;
	else
		aligned = (((u64)x | (u64)y | (u64)weight) % 16 | ((u64)row_stride * sizeof(x_bits)) % 16) == 0;
	if (__builtin_expect(aligned, 1)) {
		RN_WAY(job, shared);
#ifdef RN_ONE_SET
		if ((i64)(block_index() + (u64)grid_blocks()) * ROWS >= m)
			return;
		/* A grid smaller than it was to be: right all the same, if not as fast. */
		set += grid_blocks();
#else
		return;
#endif
	}
	rows_unaligned(job.y, job.x, job.weight, m, row_stride, eps, shared, set);
}
