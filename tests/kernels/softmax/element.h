/* An element as the build fixed it, and as it is computed with. */
#include <stdint.h>
#include <string.h>

#if BF16
typedef uint16_t element;

static inline float load(element from)
{
	uint32_t bits = (uint32_t)from << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* To nearest even; a softmax has no NaN of a finite input. */
static inline element store(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (element)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
typedef float element;

static inline float load(element from)
{
	return from;
}

static inline element store(float value)
{
	return value;
}
#endif
