#include "kernels/runner/gpu/hip.h"

#include <string.h>

/* flytune-runner-cuda: the same table from CUDA's driver and nvrtc. Most calls take the same arguments under
 * another name; a device address is a pointer here and an integer of that size there. */

const char hip_kind[] = "cuda";
const char hip_rtc_name[] = "nvrtc";

#define SYMBOL(name, cuda, ...) {"cu" cuda, offsetof(struct hip, name)},
#define PART(cuda, index)                                                                \
	{                                                                                \
		"cu" cuda, offsetof(struct hip, part) + (index) * sizeof(void (*)(void)) \
	}

enum { PART_RETAIN, PART_SET_CURRENT, PART_INSTANTIATE, PART_ERROR, PART_SET_ATTRIBUTE };

static const struct hip_symbol symbols[] = {PART("DevicePrimaryCtxRetain", PART_RETAIN),
        PART("CtxSetCurrent", PART_SET_CURRENT), PART("GraphInstantiateWithFlags", PART_INSTANTIATE),
        PART("GetErrorString", PART_ERROR), PART("FuncSetAttribute", PART_SET_ATTRIBUTE), HIP_CALLS(SYMBOL)};

/* A device's primary context is retained by the first call and kept until the process ends. */
static hip_error set_device(const struct hip *hip, int device)
{
	void *context = NULL;
	hip_error failed = ((hip_error(*)(void **, int))hip->part[PART_RETAIN])(&context, device);

	return failed ? failed : ((hip_error(*)(void *))hip->part[PART_SET_CURRENT])(context);
}

static hip_error instantiate(const struct hip *hip, hip_graph_exec *exec, hip_graph graph)
{
	return ((hip_error(*)(hip_graph_exec *, hip_graph, unsigned long long))hip->part[PART_INSTANTIATE])(
	        exec, graph, 0);
}

/* More than 48 KiB is asked for. */
static hip_error allow_shared(const struct hip *hip, hip_function function, int bytes)
{
	enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

	return ((hip_error(*)(hip_function, int, int))hip->part[PART_SET_ATTRIBUTE])(
	        function, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static const char *error_string(const struct hip *hip, hip_error error)
{
	const char *text = NULL;

	((hip_error(*)(hip_error, const char **))hip->part[PART_ERROR])(error, &text);
	return text ? text : "unknown error";
}

static const char *const driver_names[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", NULL};
static const char *const compiler_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
        "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12",
        "/usr/local/cuda/lib64/libnvrtc.so.11.2", NULL};

int hip_load(struct hip *hip, struct ft_error *error)
{
	static const struct hip_loader loader = {
	        .names = driver_names,
	        .absent = "NVIDIA's driver is not installed: libcuda.so.1 was looked for",
	        .symbol = symbols,
	        .symbols = sizeof symbols / sizeof *symbols,
	        /* CUdevice_attribute and CUfunction_attribute */
	        .attribute = {[HIP_ATTRIBUTE_UNITS] = 16,
	                [HIP_ATTRIBUTE_WAVE] = 10,
	                [HIP_ATTRIBUTE_L2] = 38,
	                [HIP_ATTRIBUTE_MAJOR] = 75,
	                [HIP_ATTRIBUTE_MINOR] = 76,
	                [HIP_ATTRIBUTE_MEMORY_CLOCK] = 36,
	                [HIP_ATTRIBUTE_MEMORY_BITS] = 37,
	                [HIP_ATTRIBUTE_ECC] = 32,
	                [HIP_ATTRIBUTE_THREADS_BLOCK] = 1,
	                [HIP_ATTRIBUTE_REGISTERS_BLOCK] = 12,
	                [HIP_ATTRIBUTE_SHARED_BLOCK] = 97},
	        .function_attribute = {[HIP_FUNCTION_MAX_THREADS] = 0,
	                [HIP_FUNCTION_SHARED] = 1,
	                [HIP_FUNCTION_LOCAL] = 3,
	                [HIP_FUNCTION_REGISTERS] = 4},
	        .set_device = set_device,
	        .instantiate = instantiate,
	        .allow_shared = allow_shared,
	        .error_string = error_string,
	};

	return hip_fill(hip, &loader, error);
}

#define RTC(name, cuda, ...) {"nvrtc" cuda, offsetof(struct hip_rtc, name)},

static const struct hip_symbol rtc_symbols[] = {
        HIP_RTC_CALLS(RTC){"nvrtcGetErrorString", offsetof(struct hip_rtc, GetErrorString)},
};

int hip_rtc_load(struct hip_rtc *rtc, struct ft_error *error)
{
	void *library[1];

	memset(rtc, 0, sizeof *rtc);
	library[0] = hip_open_library(compiler_names, rtc->path, sizeof rtc->path);
	if (!library[0])
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "CUDA's run-time compiler is not installed: libnvrtc.so.13, .12 and .11.2 were "
		        "looked "
		        "for, by name and in /usr/local/cuda/lib64");
	return hip_find_symbols(
	        library, 1, rtc->path, rtc_symbols, sizeof rtc_symbols / sizeof *rtc_symbols, rtc, error);
}
