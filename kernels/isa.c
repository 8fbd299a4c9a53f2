#include "kernels/isa.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* What the builtin does not know by name in every compiler. */
static bool has_the_rest_of_v3(void)
{
	unsigned a;
	unsigned b;
	unsigned c = 0;
	unsigned d;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C) || !(c & bit_MOVBE))
		return false;
	c = 0;
	return __get_cpuid(0x80000001U, &a, &b, &c, &d) && (c & bit_LZCNT);
}

size_t ft_isa_usable(enum ft_isa isa[FT_ISAS])
{
	size_t count = 0;
	/* The builtin asks the operating system too: registers that it does not save count as absent. */
	__builtin_cpu_init();
	bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
	        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
	        __builtin_cpu_supports("popcnt") && has_the_rest_of_v3();
	if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
	        __builtin_cpu_supports("avx512vl"))
		isa[count++] = FT_ISA_V4;
	if (v3)
		isa[count++] = FT_ISA_V3;
	isa[count++] = FT_ISA_BASE;
	return count;
}

const char *ft_isa_name(enum ft_isa isa)
{
	static const char *const names[FT_ISAS] = {"x86-64", "x86-64-v3", "x86-64-v4"};
	return names[isa];
}
#else
size_t ft_isa_usable(enum ft_isa isa[FT_ISAS])
{
	isa[0] = FT_ISA_BASE;
	return 1;
}

const char *ft_isa_name(enum ft_isa isa)
{
	(void)isa;
	return "portable";
}
#endif
