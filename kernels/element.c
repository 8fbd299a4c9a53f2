#include "kernels/element.h"

size_t ft_dtype_size(enum ft_dtype type)
{
	return type == FT_F32 ? 4 : 2;
}

const char *ft_dtype_name(enum ft_dtype type)
{
	if (type == FT_F16)
		return "f16";
	return type == FT_BF16 ? "bf16" : "f32";
}

bool ft_dtype_find(const char *name, enum ft_dtype *type)
{
	for (int each = 0; each < FT_DTYPES; each++) {
		if (strcmp(name, ft_dtype_name(each)) == 0) {
			*type = each;
			return true;
		}
	}
	return false;
}

enum ft_dtype ft_dtype_named(const char *name)
{
	enum ft_dtype type = FT_F32;

	ft_dtype_find(name, &type);
	return type;
}

double ft_dtype_error(enum ft_dtype type)
{
	static const double arithmetic = 1e-6;

	if (type == FT_F16)
		return 0x1p-11 + arithmetic;
	return type == FT_BF16 ? 0x1p-8 + arithmetic : arithmetic;
}

/* What a type with fewer bits than float64 looks like. */
struct shape {
	int fraction; /* explicit bits */
	int bias;
	int exponent; /* bits */
};

static const struct shape shape_f16 = {.fraction = 10, .bias = 15, .exponent = 5};
static const struct shape shape_bf16 = {.fraction = 7, .bias = 127, .exponent = 8};

static uint64_t bits_of(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* Drops the last `count` bits (1 to 63), to nearest even. A carry walks into the exponent, as it must. */
static uint64_t shift_to_even(uint64_t bits, int count)
{
	uint64_t half = UINT64_C(1) << (count - 1);
	uint64_t rest = bits & ((half << 1) - 1);
	uint64_t kept = bits >> count;

	return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint16_t narrow(double value, const struct shape *shape)
{
	uint64_t bits = bits_of(value);
	uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
	int exponent = (int)(bits >> 52 & 0x7ff);
	uint64_t sign = bits >> 63 << 15;
	uint64_t infinity = ((UINT64_C(1) << shape->exponent) - 1) << shape->fraction;
	int drop = 52 - shape->fraction;
	uint64_t result;

	if (exponent == 0x7ff) {
		uint64_t quiet = UINT64_C(1) << (shape->fraction - 1);

		return (uint16_t)(sign | infinity | (fraction ? quiet | fraction >> drop : 0));
	}
	exponent += shape->bias - 1023;
	if (exponent > 0) {
		result = shift_to_even((uint64_t)exponent << 52 | fraction, drop);
	} else {
		/* Subnormal: the leading bit becomes explicit, and each step below drops one bit more. A
		 * subnormal float64 is far below half of any of these and gives 0 all the same. */
		int more = drop + 1 - exponent;

		result = more < 64 ? shift_to_even(UINT64_C(1) << 52 | fraction, more) : 0;
	}
	return (uint16_t)(sign | (result < infinity ? result : infinity));
}

uint16_t ft_to_f16(double value)
{
	return narrow(value, &shape_f16);
}

uint16_t ft_to_bf16(double value)
{
	return narrow(value, &shape_bf16);
}

void ft_store(enum ft_dtype type, void *data, uint64_t index, double value)
{
	if (type == FT_F32)
		((float *)data)[index] = (float)value;
	else
		((uint16_t *)data)[index] = type == FT_F16 ? ft_to_f16(value) : ft_to_bf16(value);
}
