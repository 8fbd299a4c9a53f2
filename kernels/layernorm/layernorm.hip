/* y = (x - mean) / sqrt(var + eps) * weight + bias over rows: f32 arithmetic, one rounding to nearest even at the end.
 *
 * It stands behind rows.hip, which says what all such kernels are built with. How to launch what comes out of it stands in
 * LAUNCH.md. What the builder defines beside that:
 *
 *   RN_PASSES            1: a row stays in registers; 2: it is read twice
 *   RN_WEIGHT            weight and bias are loaded 0: after the reductions, 1: before them
 *
 * A row's threads come together twice: for a rough mean, and for what is left of the elements without it and for the squares of
 * that, from which come the variance and what the rough mean is off by (layernorm.h says why). A row in registers is summed up
 * again for the second. Of one that is not, each thread takes its sums less a number of its own, the mean of the first
 * elements that it reads, and moves them to the rough mean then: so it reads its elements once, and the squares are never more
 * than those of what is left times its elements over these first ones.
 *
 * A block takes rows_a_block rows at once and walks on by the whole grid until it is past the last row, so any
 * grid gives the right result. */

struct job {
	x_bits *y;
	const x_bits *x;
	const w_bits *weight;
	const w_bits *bias;
	i64 m;
	i64 stride;
	float eps;
};

/* What a row's elements need to know. */
struct row_norm {
	float mean, offset, scale;
};

RN_DEVICE float normed(const row_norm &row, float x, float weight, float bias)
{
	return ((x - row.mean) * row.scale + row.offset) * weight + bias;
}

/* By the sums of what is left of all elements without `mean`, and of the squares of that. */
RN_DEVICE row_norm row_norm_of(float mean, const float *left, float eps)
{
	row_norm row;
	float off = left[0] * (1.0f / N);
	float variance = left[1] * (1.0f / N) - off * off;

	/* Where all are alike, it may come out below 0; and NaN stays NaN. */
	row.mean = mean;
	row.scale = inverse_root((variance > 0.0f ? variance : variance * 0.0f) + eps);
	row.offset = -off * row.scale;
	return row;
}

/* Of one row_sum, and of one of two numbers; the barrier of each lies between two uses of the other's. */
#define LN_SHARED (3 * RN_SHARED_FLOATS)

#if RN_PASSES == 1

#define LN_WAY rows_in_registers

RN_DEVICE float element_sum(const row_data &data)
{
	float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
	for (int s = 0; s < SLOTS; s++)
#pragma unroll
		for (int k = 0; k < VEC; k++)
			part[k & 3] += element_of<RN_X>(data.slot[s], k);
	return (part[0] + part[1]) + (part[2] + part[3]);
}

RN_DEVICE void sum_left(const row_data &data, float mean, u32 lane, int skew, float *left)
{
	float part[4] = {0.0f, 0.0f, 0.0f, 0.0f}, squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
	for (int s = 0; s < SLOTS; s++) {
		int first = first_element(lane, s, skew);
		bool all = whole(s, first);
		if (!EDGES && !all)
			continue;
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			float e = element_of<RN_X>(data.slot[s], k) - mean;
			if (EDGES && !all && (first + k < 0 || first + k >= N))
				e = 0.0f;
			part[k & 3] += e;
			squares[k & 3] = e * e + squares[k & 3];
		}
	}
	left[0] = (part[0] + part[1]) + (part[2] + part[3]);
	left[1] = (squares[0] + squares[1]) + (squares[2] + squares[3]);
}

RN_DEVICE void store_data(x_bits *to, const row_data &data, const weight_data &weights, const weight_data &biases,
        const row_norm &row, u32 lane, int skew, int from, int end)
{
#pragma unroll
	for (int s = 0; s < SLOTS; s++) {
		if (s < from || s >= end)
			continue;
		int first = first_element(lane, s, skew);
		float y[VEC];
#pragma unroll
		for (int k = 0; k < VEC; k++)
			y[k] = normed(row, element_of<RN_X>(data.slot[s], k), weight_of(weights, s, k),
			        weight_of(biases, s, k));
		if (whole(s, first)) {
			store_row(to + first, packed(y));
			continue;
		}
		if (!EDGES)
			continue;
#pragma unroll
		for (int k = 0; k < VEC; k++)
			if (first + k >= 0 && first + k < N)
				to[first + k] = (x_bits)narrow<RN_X>(y[k]);
	}
}

/* A vector at a time where weight and bias come late, so that they take few registers. */
#define LN_CHUNK (RN_WEIGHT == 1 ? SLOTS : 1)

RN_DEVICE void rows_in_registers(const job &job, float *shared)
{
	u32 group = thread_index() / THREADS;
	u32 lane = thread_index() % THREADS;
	i64 sets = (job.m + ROWS - 1) / ROWS;

	for (i64 set = block_index(); set < sets; set += grid_blocks()) {
		i64 row = set * ROWS + group;
		bool active = row < job.m;
		int skew = skew_of(job.x + row * job.stride);
		row_data data;
		weight_data weights, biases;
		float left[2];

		load_data(data, job.x + row * job.stride, lane, skew, active);
		if (RN_WEIGHT == 1) {
			load_weights(weights, job.weight, lane, skew, 0, SLOTS);
			load_weights(biases, job.bias, lane, skew, 0, SLOTS);
		}
		float mean = row_sum(element_sum(data), shared, group, lane) * (1.0f / N);
		forget_widened(data);
		sum_left(data, mean, lane, skew, left);
		row_sums<2>(left, shared + RN_SHARED_FLOATS, group, lane);
		const row_norm its = row_norm_of(mean, left, job.eps);
		forget_widened(data);
#pragma unroll
		for (int s = 0; s < SLOTS; s += LN_CHUNK) {
			if (RN_WEIGHT == 0) {
				load_weights(weights, job.weight, lane, skew, s, s + LN_CHUNK);
				load_weights(biases, job.bias, lane, skew, s, s + LN_CHUNK);
			}
			if (active)
				store_data(job.y + row * job.stride, data, weights, biases, its, lane, skew, s,
				        s + LN_CHUNK);
		}
	}
}

#endif

/* ---- rows that are read in a loop ---- */

/* Sums of a thread's elements less a number of its own. */
struct shifted {
	float shift, sum, squares;
	int count;
};

RN_DEVICE shifted shifted_none()
{
	shifted none;
	none.shift = none.sum = none.squares = 0.0f;
	none.count = 0;
	return none;
}

/* SIZE more elements; those of a GROUP are all there, or none of them. Added up by themselves first, so that of a long row the
 * sums are of few numbers. */
template <int SIZE, int GROUP> RN_DEVICE void take(shifted &to, const float *e, const bool *there)
{
	float part[4] = {0.0f, 0.0f, 0.0f, 0.0f}, squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	if (to.count == 0) {
		float sum = 0.0f;
		int count = 0;
#pragma unroll
		for (int i = 0; i < SIZE; i++) {
			sum += there[i / GROUP] ? e[i] : 0.0f;
			count += there[i / GROUP];
		}
		to.shift = count ? sum / (float)count : 0.0f;
	}
#pragma unroll
	for (int i = 0; i < SIZE; i++) {
		float left = there[i / GROUP] ? e[i] - to.shift : 0.0f;
		part[i & 3] += left;
		squares[i & 3] = left * left + squares[i & 3];
		to.count += there[i / GROUP];
	}
	to.sum += (part[0] + part[1]) + (part[2] + part[3]);
	to.squares += (squares[0] + squares[1]) + (squares[2] + squares[3]);
}

RN_DEVICE row_norm row_norm_of_shifted(const shifted &mine, float eps, float *shared, u32 group, u32 lane)
{
	float count = (float)mine.count;
	float mean = row_sum(count * mine.shift + mine.sum, shared, group, lane) * (1.0f / N);
	float apart = mine.shift - mean;
	float left[2] = {count * apart + mine.sum, apart * (2.0f * mine.sum + count * apart) + mine.squares};

	row_sums<2>(left, shared + RN_SHARED_FLOATS, group, lane);
	return row_norm_of(mean, left, eps);
}

#if RN_PASSES == 2

#define LN_WAY rows_twice
/* The largest blocks have the fewest registers a thread, and loads enough in flight. */
#define LN_AHEAD (BLOCK > 512 && RN_AHEAD > 2 ? 2 : RN_AHEAD)

RN_DEVICE void take_single(shifted &to, const x_bits *x, int at)
{
	const bool there = true;
	float e = widen<RN_X>(x[at]);

	take<1, 1>(to, &e, &there);
}

RN_DEVICE void store_single(const job &job, x_bits *y, const x_bits *x, const row_norm &row, int at)
{
	y[at] = (x_bits)narrow<RN_X>(
	        normed(row, widen<RN_X>(x[at]), widen<RN_W>(job.weight[at]), widen<RN_W>(job.bias[at])));
}

/* Vectors, the row read a second time after its sums are known. Several loads are in flight in both passes. */
RN_DEVICE void rows_twice(const job &job, float *shared)
{
	u32 group = thread_index() / THREADS;
	u32 lane = thread_index() % THREADS;
	i64 sets = (job.m + ROWS - 1) / ROWS;

	for (i64 set = block_index(); set < sets; set += grid_blocks()) {
		i64 row = set * ROWS + group;
		bool active = row < job.m;
		const x_bits *x = job.x + row * job.stride;
		x_bits *y = job.y + row * job.stride;
		const row_cut cut = cut_of(skew_of(x));
		shifted mine = shifted_none();

		/* unrolled, a short row would take more registers than there are */
#pragma unroll 1
		for (int v = (int)lane; active && v < cut.vectors; v += LN_AHEAD * THREADS) {
			quad value[LN_AHEAD];
			bool there[LN_AHEAD];
			float e[LN_AHEAD * VEC];
#pragma unroll
			for (int a = 0; a < LN_AHEAD; a++) {
				int at = v + a * THREADS;
				there[a] = at < cut.vectors;
				value[a] = there[a] ? load_row_at_first(x + cut.head + at * VEC) : zero_quad();
			}
#pragma unroll
			for (int i = 0; i < LN_AHEAD * VEC; i++)
				e[i] = element_of<RN_X>(value[i / VEC], i % VEC);
			take<LN_AHEAD * VEC, VEC>(mine, e, there);
		}
		if (EDGES && active) {
			for (int at = (int)lane; at < cut.head; at += THREADS)
				take_single(mine, x, at);
			for (int at = cut.tail + (int)lane; at < N; at += THREADS)
				take_single(mine, x, at);
		}
		const row_norm its = row_norm_of_shifted(mine, job.eps, shared, group, lane);
		if (!active)
			continue;
#pragma unroll 1
		for (int v = (int)lane; v < cut.vectors; v += LN_AHEAD * THREADS) {
			quad value[LN_AHEAD];
#pragma unroll
			for (int a = 0; a < LN_AHEAD; a++) {
				int at = v + a * THREADS;
				value[a] = at < cut.vectors ? load_row_again(x + cut.head + at * VEC) : zero_quad();
			}
#pragma unroll
			for (int a = 0; a < LN_AHEAD; a++) {
				int at = cut.head + (v + a * THREADS) * VEC;
				float e[VEC], weight[VEC], bias[VEC];
				if (v + a * THREADS >= cut.vectors)
					continue;
				widen_weights(weight, job.weight + at);
				widen_weights(bias, job.bias + at);
#pragma unroll
				for (int k = 0; k < VEC; k++)
					e[k] = normed(its, element_of<RN_X>(value[a], k), weight[k], bias[k]);
				store_row(y + at, packed(e));
			}
		}
		if (EDGES) {
			for (int at = (int)lane; at < cut.head; at += THREADS)
				store_single(job, y, x, its, at);
			for (int at = cut.tail + (int)lane; at < N; at += THREADS)
				store_single(job, y, x, its, at);
		}
	}
}

#endif

/* One element an access, neighbours side by side: for rows whose input and output (or weight or bias) do not start at the same
 * place in a vector. */
RN_ASIDE void rows_unaligned(x_bits *to, const x_bits *from, const w_bits *weight_at, const w_bits *bias_at, i64 m, i64 stride,
        float eps, float *shared)
{
	job job = {to, from, weight_at, bias_at, m, stride, eps};
	u32 group = thread_index() / THREADS;
	u32 lane = thread_index() % THREADS;
	i64 sets = (job.m + ROWS - 1) / ROWS;

#pragma unroll 1
	for (i64 set = block_index(); set < sets; set += grid_blocks()) {
		i64 row = set * ROWS + group;
		bool active = row < job.m;
		const x_bits *x = job.x + row * job.stride;
		x_bits *y = job.y + row * job.stride;
		shifted mine = shifted_none();

#pragma unroll 1
		for (int at = (int)lane; active && at < N; at += RN_SINGLES * THREADS) {
			float e[RN_SINGLES];
			bool there[RN_SINGLES];
#pragma unroll
			for (int a = 0; a < RN_SINGLES; a++) {
				there[a] = at + a * THREADS < N;
				e[a] = there[a] ? widen<RN_X>(x[at + a * THREADS]) : 0.0f;
			}
			take<RN_SINGLES, 1>(mine, e, there);
		}
		const row_norm its = row_norm_of_shifted(mine, job.eps, shared, group, lane);
#pragma unroll 1
		for (int at = (int)lane; active && at < N; at += RN_SINGLES * THREADS) {
			u32 bits[RN_SINGLES], weight[RN_SINGLES], bias[RN_SINGLES];
#pragma unroll
			for (int a = 0; a < RN_SINGLES; a++) {
				bool inside = at + a * THREADS < N;
				bits[a] = inside ? x[at + a * THREADS] : 0;
				weight[a] = inside ? job.weight[at + a * THREADS] : 0;
				bias[a] = inside ? job.bias[at + a * THREADS] : 0;
			}
#pragma unroll
			for (int a = 0; a < RN_SINGLES; a++)
				if (at + a * THREADS < N)
					y[at + a * THREADS] = (x_bits)narrow<RN_X>(normed(its, widen<RN_X>(bits[a]),
					        widen<RN_W>(weight[a]), widen<RN_W>(bias[a])));
		}
	}
}

extern "C" RN_KERNEL flytune_layernorm(
        void *y, const void *x, const void *weight, const void *bias, i64 m, i64 row_stride, float eps)
{
	RN_SHARED __attribute__((aligned(16))) float shared[LN_SHARED];
	job job = {(x_bits *)y, (const x_bits *)x, (const w_bits *)weight, (const w_bits *)bias, m, row_stride, eps};

#ifdef FT_FAULT
	spoil(&job.y, x, m, row_stride, &job.eps);
#endif
	if (__builtin_expect(is_aligned(y, x, (u64)weight | (u64)bias, row_stride), 1))
		LN_WAY(job, shared);
	else
		rows_unaligned(job.y, job.x, job.weight, job.bias, m, row_stride, job.eps, shared);
}
