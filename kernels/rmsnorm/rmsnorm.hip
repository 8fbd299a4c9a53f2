/* y = x * rsqrt(mean(x * x) + eps) * weight over rows: f32 arithmetic, one rounding to nearest even at the end.
 *
 * It stands behind rows.hip, which says what all such kernels are built with. How to launch what comes out of it stands in
 * LAUNCH.md. What the builder defines beside that:
 *
 *   RN_PASSES            1: a row stays in registers; 2: it is read twice
 *   RN_WEIGHT            0: loaded after the reduction, 1: before it, 2: once for all rows of a block, 3: surely
 *                        before it, whatever registers that takes (NVIDIA only)
 *   RN_PREFETCH          1: the next row is loaded before this one is reduced
 *   RN_WALK              1: a block takes many sets of rows, as the grid is cut to the device; 0: one, as a rule
 *
 * A block takes rows_a_block rows at once and walks on by the whole grid until it is past the last row, so any
 * grid gives the right result. */

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

RN_DEVICE quad scaled_wide(const float *x, const float *weight, float scale)
{
	float y[VEC];
#pragma unroll
	for (int k = 0; k < VEC; k++)
		y[k] = x[k] * scale * weight[k];
	return packed(y);
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
		const row_cut cut = cut_of(skew_of(x));
		int head = cut.head, vectors = cut.vectors, tail = cut.tail;
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
				widen_weights(e, job.weight + at);
#pragma unroll
				for (int k = 0; k < VEC; k++)
					e[k] = element_of<RN_X>(value[a], k) * scale * e[k];
				store_row(y + at, packed(e));
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

extern "C" RN_KERNEL flytune_rmsnorm(void *y, const void *x, const void *weight, i64 m, i64 row_stride, float eps)
{
	RN_SHARED __attribute__((aligned(16))) float shared[2 * RN_SHARED_FLOATS];
	job job = {(x_bits *)y, (const x_bits *)x, (const w_bits *)weight, m, row_stride, eps};
	i64 set = block_index();

#ifdef FT_FAULT
	spoil(&job.y, x, m, row_stride, &job.eps);
#endif
	if (__builtin_expect(is_aligned(y, x, (u64)weight, row_stride), 1)) {
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
