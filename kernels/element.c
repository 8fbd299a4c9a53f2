#include "kernels/element.h"

#include <math.h>

static const struct {
	const char *name;
	size_t size;
	double error, least, most; /* the bounds of an integer */
} types[FT_DTYPES] = {
        [FT_F32] = {"f32", 4, .error = 1e-6},
        [FT_F16] = {"f16", 2, .error = 0x1p-11 + 1e-6},
        [FT_BF16] = {"bf16", 2, .error = 0x1p-8 + 1e-6},
        [FT_F64] = {"f64", 8, .error = 1e-14},
        [FT_I8] = {"i8", 1, .least = -0x1p7, .most = 0x1p7 - 1},
        [FT_U8] = {"u8", 1, .least = 0, .most = 0x1p8 - 1},
        [FT_I32] = {"i32", 4, .least = -0x1p31, .most = 0x1p31 - 1},
        [FT_I64] = {"i64", 8, .least = -0x1p63, .most = 0x1.fffffffffffffp62},
};

size_t ft_dtype_size(enum ft_dtype type)
{
	return types[type].size;
}

const char *ft_dtype_name(enum ft_dtype type)
{
	return types[type].name;
}

bool ft_dtype_find(const char *name, enum ft_dtype *type)
{
	for (int i = 0; i < FT_DTYPES; i++) {
		if (strcmp(name, types[i].name) == 0) {
			*type = (enum ft_dtype)i;
			return true;
		}
	}
	return false;
}

enum ft_dtype ft_dtype_named(const char *name)
{
	enum ft_dtype type = FT_F32;

	(void)ft_dtype_find(name, &type);
	return type;
}

bool ft_dtype_is_integer(enum ft_dtype type)
{
	return types[type].most > 0;
}

double ft_dtype_error(enum ft_dtype type)
{
	return types[type].error;
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

/* The nearest integer that the type has. */
static int64_t whole(enum ft_dtype type, double value)
{
	if (isnan(value))
		return 0;
	return (int64_t)rint(value < types[type].least ? types[type].least
	                : value > types[type].most     ? types[type].most
	                                               : value);
}

void ft_store(enum ft_dtype type, void *data, uint64_t index, double value)
{
	switch (type) {
	case FT_F32:
		((float *)data)[index] = (float)value;
		break;
	case FT_F64:
		((double *)data)[index] = value;
		break;
	case FT_I8:
		((int8_t *)data)[index] = (int8_t)whole(type, value);
		break;
	case FT_U8:
		((uint8_t *)data)[index] = (uint8_t)whole(type, value);
		break;
	case FT_I32:
		((int32_t *)data)[index] = (int32_t)whole(type, value);
		break;
	case FT_I64:
		((int64_t *)data)[index] = whole(type, value);
		break;
	default:
		((uint16_t *)data)[index] = type == FT_F16 ? ft_to_f16(value) : ft_to_bf16(value);
		break;
	}
}
