/* What the runner itself runs on a GPU: inputs, the float64 check of an output, guards, and kernels to time with.
 *
 * Compiled at run time once, like the kernels that it checks, and with as little: no header. Types are 0 f32,
 * 1 f16, 2 bf16. RN_WAVE is not needed: nothing here depends on the wave. The first sweep waits for this to be
 * compiled, so no loop is unrolled: there are threads enough to hide what that costs. */

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define NVIDIA 1
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define SHARED __shared__
#else
#define NVIDIA 0
#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define KERNEL                                                                                   \
	extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(256, 256))) void
#define SHARED __attribute__((shared))
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum { F32 = 0, F16 = 1, BF16 = 2, BLOCK = 256 };

#if NVIDIA
DEVICE u32 thread_index() { return threadIdx.x; }
DEVICE u32 block_index() { return blockIdx.x; }
DEVICE u32 grid_blocks() { return gridDim.x; }
DEVICE void barrier() { __syncthreads(); }
DEVICE void raise(u64 *to, u64 value) { atomicMax(to, value); }
DEVICE void add(u64 *to, u64 value) { atomicAdd(to, value); }
DEVICE float rough_inverse_root(float value) { return rsqrtf(value); }
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 as_bits(float value) { return __float_as_uint(value); }
DEVICE float from_f16(u16 bits)
{
	float value;
	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
	return value;
}
DEVICE u16 to_f16(float value)
{
	u16 bits;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
	return bits;
}
#else
DEVICE u32 thread_index() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_index() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 grid_blocks() { return __builtin_amdgcn_grid_size_x() / BLOCK; }
DEVICE void barrier()
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEVICE void raise(u64 *to, u64 value)
{
	u64 seen = __atomic_load_n(to, __ATOMIC_RELAXED);
	while (seen < value &&
	        !__atomic_compare_exchange_n(to, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}
DEVICE void add(u64 *to, u64 value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
DEVICE float rough_inverse_root(float value) { return __builtin_amdgcn_rsqf(value); }
DEVICE float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE u32 as_bits(float value) { return __builtin_bit_cast(u32, value); }
DEVICE float from_f16(u16 bits) { return (float)__builtin_bit_cast(_Float16, bits); }
DEVICE u16 to_f16(float value) { return __builtin_bit_cast(u16, (_Float16)value); }
#endif

DEVICE double load(const void *data, i64 at, int type)
{
	if (type == F32)
		return ((const float *)data)[at];
	u16 bits = ((const u16 *)data)[at];
	return type == F16 ? from_f16(bits) : as_float((u32)bits << 16);
}

DEVICE void store(void *data, i64 at, int type, float value)
{
	if (type == F32)
		((float *)data)[at] = value;
	else if (type == F16)
		((u16 *)data)[at] = to_f16(value);
	else
		((u16 *)data)[at] = (u16)(as_bits(value) >> 16);
}

/* A well-mixed 64-bit number for each index (splitmix64's finisher). */
DEVICE u64 mixed(u64 value)
{
	value += 0x9e3779b97f4a7c15ull;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
	return value ^ (value >> 31);
}

/* A tensor of the kernel that is checked (kernels/kernel.h): row 0 lies `at` bytes into a set of them. */
struct tensor {
	i64 at, rows, length, stride;
	double inverse; /* 1 / length */
	double absolute;
	int type, role;
};

/* What the kernel's own source defines, behind this one: what all elements of a row need to know, by all threads of a block
 * (`shared` has an element for each), and the element then, in float64. */
enum { KNOWN = 4 };
DEVICE void row_known(const u8 *set, const tensor *tensors, i64 row, double *shared, double *known);
DEVICE double row_value(const u8 *set, const tensor *tensors, i64 row, const double *known, i64 at);

/* Below, `sets` sets of the arrays lie `set_bytes` apart. */
DEVICE u64 seed_of(u64 seed, i64 set) { return seed + ((u64)set << 40); }

/* Rows of random numbers, about normal, each row of its own magnitude, and each fourth far from 0; NaN between the
 * rows, so that whoever reads there is found out. The last row of a set has nothing after it. */
KERNEL fill_rows(u8 *x, i64 m, i64 n, i64 stride, int type, u64 seed, i64 sets, i64 set_bytes)
{
#pragma unroll 1
	for (i64 each = block_index(); each < m * sets; each += grid_blocks()) {
		i64 set = each / m, row = each - set * m;
		u64 its = seed_of(seed, set);
		u8 *to = x + set * set_bytes;
		float magnitude = as_float((127u - 6u + (u32)mixed(its ^ (u64)row) % 13u) << 23) * 1.7320508f;
		i64 base = row * stride;
		i64 end = row + 1 < m ? stride : n;
#pragma unroll 1
		for (i64 at = thread_index(); at < end; at += BLOCK) {
			u64 bits = mixed(its + (u64)(base + at));
			float sum = (float)(bits & 0xffff) + (float)(bits >> 16 & 0xffff) +
			            (float)(bits >> 32 & 0xffff) + (float)(bits >> 48);
			float value = (sum * (1.0f / 65536.0f) - 2.0f + ((row & 3) == 3 ? 64.0f : 0.0f)) * magnitude;
			store(to, base + at, type, at < n ? value : as_float(0x7fc00000u));
		}
	}
}

/* Numbers between 0.5 and 1.5, of either sign. */
KERNEL fill_numbers(u8 *to, i64 n, int type, u64 seed, i64 sets, i64 set_bytes)
{
	i64 step = (i64)grid_blocks() * BLOCK;

#pragma unroll 1
	for (i64 each = (i64)block_index() * BLOCK + thread_index(); each < n * sets; each += step) {
		i64 set = each / n, at = each - set * n;
		u64 bits = mixed(~seed_of(seed, set) + (u64)at);
		float value = 0.5f + (float)(bits & 0xffffff) * (1.0f / 16777216.0f);
		store(to + set * set_bytes, at, type, bits >> 63 ? -value : value);
	}
}

/* By Newton's rule: much less code than a square root and a division, and the host checks what comes out. */
DEVICE double inverse_root(double value)
{
	double root = rough_inverse_root((float)value);
#pragma unroll 1
	for (int i = 0; i < 3; i++)
		root = root * (1.5 - 0.5 * value * root * root);
	return root;
}

DEVICE double block_sum(double value, double *shared)
{
	shared[thread_index()] = value;
#pragma unroll 1
	for (u32 half = BLOCK / 2; half > 0; half /= 2) {
		barrier();
		if (thread_index() < half)
			shared[thread_index()] += shared[thread_index() + half];
	}
	barrier();
	double sum = shared[0];
	barrier();
	return sum;
}

/* Bytes [from, to) behind `zone` that are not `poison`: result[1] counts them, result[2] is raised to ~offset of one. */
DEVICE void look_for_poison(const u8 *zone, i64 from, i64 to, u32 poison, u64 *result)
{
#pragma unroll 1
	for (i64 at = from + thread_index(); at < to; at += BLOCK) {
		if (zone[at] == poison)
			continue;
		add(result + 1, 1);
		raise(result + 2, ~(u64)at);
	}
}

/* Holds outputs, with `guard` bytes around each and what lies between its rows (if `gaps`), against the reference. The output of
 * one set's input lies `turn` sets further on; where its sum in `sign` is the one in `known`, it is right already (NULL: none is).
 * result[0]: the largest error as float bits above the row's low 32 bits. The error of an element is that of
 * compare.h. Of the grid's blocks as many as there are rows, at most all, take a set. */
KERNEL check_rows(const u8 *base, const tensor *tensors, int which, u64 *result, i64 guard, u32 poison, int gaps, i64 sets,
        i64 set_bytes, i64 turn, const u64 *sign, const u64 *known_sign)
{
	SHARED double shared[BLOCK];
	SHARED u64 found[BLOCK];
	const tensor to = tensors[which];
	const i64 m = to.rows, n = to.length, stride = to.stride;
	const int type = to.type;
	u64 mine = 0;
	double smallest = type == F16 ? 6.103515625e-05 : 1.1754943508222875e-38;
	i64 element = type == F32 ? 4 : 2;
	i64 rows = m < grid_blocks() ? m : grid_blocks(), groups = grid_blocks() / rows;
	i64 group = block_index() / rows, first = block_index() - group * rows;

#pragma unroll 1
	for (i64 set = group; set < sets; set += groups) {
		i64 place = set + turn < sets ? set + turn : set + turn - sets;
		const u8 *from = base + set * set_bytes, *out = base + place * set_bytes + to.at;
		if (known_sign && sign[place] == known_sign[set])
			continue;
#pragma unroll 1
		for (i64 row = first; row < m; row += rows) {
			i64 start = row * stride;
			double known[KNOWN];
			float worst = 0;
			row_known(from, tensors, row, shared, known);
#pragma unroll 1
			for (i64 at = thread_index(); at < n; at += BLOCK) {
				double want = row_value(from, tensors, row, known, at);
				double got = load(out, start + at, type);
				double off = (got > want ? got - want : want - got) - to.absolute;
				double large = want < 0 ? -want : want;
				double size = got < 0 ? -got : got;
				large = size > large ? size : large;
				large = large > smallest ? large : smallest;
				float error = (float)off / (float)large;
				if (!(error < 3.0e38f)) /* NaN too */
					error = 3.0e38f;
				worst = error > worst ? error : worst;
			}
			u64 here = (u64)as_bits(worst) << 32 | (u64)(row & 0xffffffff);
			mine = here > mine ? here : mine;
			const u8 *zone = out - guard;
			i64 end = guard + (start + n) * element;
			if (row == 0)
				look_for_poison(zone, 0, guard, poison, result);
			if (row + 1 == m)
				look_for_poison(zone, end, end + guard, poison, result);
			else if (gaps)
				look_for_poison(zone, end, guard + (start + stride) * element, poison, result);
		}
	}
	/* All blocks tell one address: each of them once. */
	found[thread_index()] = mine;
#pragma unroll 1
	for (u32 half = BLOCK / 2; half > 0; half /= 2) {
		barrier();
		if (thread_index() < half && found[thread_index() + half] > found[thread_index()])
			found[thread_index()] = found[thread_index() + half];
	}
	barrier(); /* compilers let all threads read it */
	if (thread_index() == 0 && found[0] > 0)
		raise(result, found[0]);
}

/* The float64 reference of one row of a set, to be held against the host's. */
KERNEL reference_row(double *out, const u8 *set, const tensor *tensors, int which, i64 row)
{
	SHARED double shared[BLOCK];
	double known[KNOWN];

	row_known(set, tensors, row, shared, known);
#pragma unroll 1
	for (i64 at = thread_index(); at < tensors[which].length; at += BLOCK)
		out[at] = row_value(set, tensors, row, known, at);
}

struct quad {
	u32 word[4];
};

/* In what follows, an array of `quads` times 16 bytes lies in each of `sets` sets, `stride` bytes apart; a block takes
 * pieces of it. */
enum { PIECE = 16 * BLOCK };

/* Fills them. */
KERNEL fill_sets(u8 *data, i64 quads, i64 stride, i64 sets, u32 word)
{
	i64 pieces = (quads + PIECE - 1) / PIECE;
	quad all = {{word, word, word, word}};

#pragma unroll 1
	for (i64 piece = block_index(); piece < pieces * sets; piece += grid_blocks()) {
		i64 set = piece / pieces, first = (piece - set * pieces) * PIECE;
		i64 end = quads - first > PIECE ? first + PIECE : quads;
#pragma unroll 1
		for (i64 at = first + thread_index(); at < end; at += BLOCK)
			((quad *)(data + set * stride))[at] = all;
	}
}

/* sign[set], zeroed before: a sum over all of an array that tells two contents apart, in whatever order it was made. */
KERNEL sign_sets(const u8 *data, i64 quads, i64 stride, i64 sets, u64 *sign)
{
	SHARED u64 shared[BLOCK];
	i64 pieces = (quads + PIECE - 1) / PIECE;

#pragma unroll 1
	for (i64 piece = block_index(); piece < pieces * sets; piece += grid_blocks()) {
		i64 set = piece / pieces, first = (piece - set * pieces) * PIECE;
		i64 end = quads - first > PIECE ? first + PIECE : quads;
		u64 sum = 0;
#pragma unroll 1
		for (i64 at = first + thread_index(); at < end; at += BLOCK) {
			quad value = ((const quad *)(data + set * stride))[at];
			u64 place = (u64)at * 0xd1342543de82ef95ull;
			sum += mixed(place ^ ((u64)value.word[1] << 32 | value.word[0]));
			sum += mixed(~place ^ ((u64)value.word[3] << 32 | value.word[2]));
		}
		shared[thread_index()] = sum;
#pragma unroll 1
		for (u32 half = BLOCK / 2; half > 0; half /= 2) {
			barrier();
			if (thread_index() < half)
				shared[thread_index()] += shared[thread_index() + half];
		}
		barrier(); /* compilers let all threads read it */
		if (thread_index() == 0)
			add(sign + set, shared[0]);
		barrier();
	}
}

/* Does nothing: what a launch costs. */
KERNEL nothing(u64 *unused)
{
	(void)unused;
}

/* Reads everything, to drive what is there out of the caches; the write never happens. */
KERNEL read_all(const quad *data, i64 quads, u32 *never)
{
	i64 step = (i64)grid_blocks() * BLOCK;
	u32 sum = 0;

#pragma unroll 1
	for (i64 at = (i64)block_index() * BLOCK + thread_index(); at < quads; at += step) {
		quad value = data[at];
		sum |= value.word[0] & value.word[1] & value.word[2] & value.word[3];
	}
	if (sum == 0x5a17c0deu)
		*never = sum;
}
