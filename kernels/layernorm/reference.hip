/* The float64 layernorm on a device, for what gpu_check.hip checks: tensors 1 to 3 are x, the weight and the bias. */

DEVICE void row_known(const u8 *set, const tensor *tensors, i64 row, double *shared, double *known)
{
	const tensor x = tensors[1];
	i64 base = row * x.stride;

	/* The mean, and then that of the squares of what is left. */
	known[0] = 0;
#pragma unroll 1
	for (int pass = 0; pass < 2; pass++) {
		double sum = 0;
#pragma unroll 1
		for (i64 at = thread_index(); at < x.length; at += BLOCK) {
			double value = load(set + x.at, base + at, x.type) - known[0];
			sum += pass ? value * value : value;
		}
		known[pass] = block_sum(sum, shared) * x.inverse;
	}
	known[1] = inverse_root(known[1] + 1e-5);
}

DEVICE double row_value(const u8 *set, const tensor *tensors, i64 row, const double *known, i64 at)
{
	const tensor x = tensors[1], weight = tensors[2], bias = tensors[3];

	return (load(set + x.at, row * x.stride + at, x.type) - known[0]) * known[1] * load(set + weight.at, at, weight.type) +
	       load(set + bias.at, at, bias.type);
}
