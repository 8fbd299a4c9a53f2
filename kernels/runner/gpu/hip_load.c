#include "kernels/runner/gpu/hip.h"

#include <string.h>

/* flytune-runner-hip: AMD's runtime, whichever of its releases is there. */

const char hip_kind[] = "hip";
const char hip_rtc_name[] = "hiprtc";

#define SYMBOL(name, cuda, ...) {"hip" #name, offsetof(struct hip, name)},
#define PART(name, index)                                                                  \
	{                                                                                  \
		"hip" #name, offsetof(struct hip, part) + (index) * sizeof(void (*)(void)) \
	}

enum { PART_SET_DEVICE, PART_INSTANTIATE, PART_ERROR };

static const struct hip_symbol symbols[] = {PART(SetDevice, PART_SET_DEVICE),
        PART(GraphInstantiate, PART_INSTANTIATE), PART(GetErrorString, PART_ERROR), HIP_CALLS(SYMBOL)};

static hip_error set_device(const struct hip *hip, int device)
{
	return ((hip_error(*)(int))hip->part[PART_SET_DEVICE])(device);
}

static hip_error instantiate(const struct hip *hip, hip_graph_exec *exec, hip_graph graph)
{
	return ((hip_error(*)(hip_graph_exec *, hip_graph, void **, char *,
	        size_t))hip->part[PART_INSTANTIATE])(exec, graph, NULL, NULL, 0);
}

/* All that there is may be had without asking. */
static hip_error allow_shared(const struct hip *hip, hip_function function, int bytes)
{
	(void)hip;
	(void)function;
	(void)bytes;
	return 0;
}

static const char *error_string(const struct hip *hip, hip_error error)
{
	return ((const char *(*)(hip_error))hip->part[PART_ERROR])(error);
}

static const char *const runtime_names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so.7", "/opt/rocm/lib/libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so.5",
        NULL};
/* Beside the runtime from 6 on, inside of it before; the soname does not follow the version. */
static const char *const compiler_names[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5",
        "/opt/rocm/lib/libhiprtc.so.7", "/opt/rocm/lib/libhiprtc.so.6", "/opt/rocm/lib/libhiprtc.so.5", NULL};

static const char absent[] =
        "HIP is not installed: libamdhip64.so.7, .6 and .5 were looked for, by name and in /opt/rocm/lib";

int hip_load(struct hip *hip, struct ft_error *error)
{
	static const struct hip_loader loader = {
	        .names = runtime_names,
	        .absent = absent,
	        .symbol = symbols,
	        .symbols = sizeof symbols / sizeof *symbols,
	        /* hipDeviceAttribute_t and hipFunction_attribute */
	        .attribute = {[HIP_ATTRIBUTE_UNITS] = 63,
	                [HIP_ATTRIBUTE_WAVE] = 87,
	                [HIP_ATTRIBUTE_L2] = 19,
	                [HIP_ATTRIBUTE_MAJOR] = 23,
	                [HIP_ATTRIBUTE_MINOR] = 61,
	                [HIP_ATTRIBUTE_MEMORY_CLOCK] = 60,
	                [HIP_ATTRIBUTE_MEMORY_BITS] = 59,
	                [HIP_ATTRIBUTE_ECC] = 0,
	                [HIP_ATTRIBUTE_THREADS_BLOCK] = 56,
	                [HIP_ATTRIBUTE_REGISTERS_BLOCK] = 71,
	                [HIP_ATTRIBUTE_SHARED_BLOCK] = 74},
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

#define RTC(name, cuda, ...) {"hiprtc" #name, offsetof(struct hip_rtc, name)},

static const struct hip_symbol rtc_symbols[] = {
        HIP_RTC_CALLS(RTC){"hiprtcGetErrorString", offsetof(struct hip_rtc, GetErrorString)},
};

int hip_rtc_load(struct hip_rtc *rtc, struct ft_error *error)
{
	static const struct hip_symbol wake[] = {{"hipGetDeviceCount", offsetof(struct hip_rtc, Wake)}};
	char runtime_path[sizeof rtc->path];
	void *library[2];

	memset(rtc, 0, sizeof *rtc);
	library[1] = hip_open_library(runtime_names, runtime_path, sizeof runtime_path);
	if (!library[1])
		return ft_fail(error, FT_E_UNAVAILABLE, "%s", absent);
	library[0] = hip_open_library(compiler_names, rtc->path, sizeof rtc->path);
	if (!library[0])
		memcpy(rtc->path, runtime_path, sizeof rtc->path);
	if (hip_find_symbols(library, 2, rtc->path, rtc_symbols, sizeof rtc_symbols / sizeof *rtc_symbols,
	            rtc, error) < 0)
		return -1;
	return hip_find_symbols(library + 1, 1, runtime_path, wake, 1, rtc, error);
}
