/* Behind gpu_check.hip where outputs are held on the host against what they have to be. */

DEVICE void row_known(const u8 *, const tensor *, i64, double *, double *known) { known[0] = 0; }
DEVICE double row_value(const u8 *, const tensor *, i64, const double *known, i64) { return known[0]; }
