/* The float64 rmsnorm on a device, for what gpu_check.hip checks: tensors 1 and 2 are x and the weight. */

DEVICE void row_known(const u8 *set, const tensor *tensors, i64 row, double *shared, double *known)
{
	const tensor x = tensors[1];
	i64 base = row * x.stride;
	double sum = 0;

#pragma unroll 1
	for (i64 at = thread_index(); at < x.length; at += BLOCK) {
		double value = load(set + x.at, base + at, x.type);
		sum += value * value;
	}
	known[0] = inverse_root(block_sum(sum, shared) * x.inverse + 1e-5);
}

DEVICE double row_value(const u8 *set, const tensor *tensors, i64 row, const double *known, i64 at)
{
	const tensor x = tensors[1], weight = tensors[2];

	return load(set + x.at, row * x.stride + at, x.type) * known[0] * load(set + weight.at, at, weight.type);
}
