/* The hand-written declarations of HIP, held against the real headers where those are installed. */
#include "tests/unit/check.h"

#include <stdio.h>

#include "kernels/runner/gpu/hip.h"

#if defined(__has_include)
#if __has_include(<hip/hip_runtime_api.h>) && __has_include(<hip/hiprtc.h>)
#define HAVE_HEADERS 1
#endif
#endif

#ifndef HAVE_HEADERS

int main(void)
{
	puts("skipped: HIP's headers are not installed");
	return 77;
}

#else

#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>

#define IS(what, type) __builtin_types_compatible_p(__typeof__(what), type)
/* A call, and the member of the table that is called in its place: each is declared as said, the parameters pair
 * by pair of the same size and kind. */
#define PAIR(function, member, theirs, ours)                                                             \
	_Static_assert(IS(function, hipError_t theirs), #function " is declared in another way by now"); \
	_Static_assert(IS(*((struct hip *)0)->member, hip_error ours), #member " was changed in hip.h")
#define RTC(function, member, theirs, newer, ours)                                            \
	_Static_assert(IS(function, hiprtcResult theirs) || IS(function, hiprtcResult newer), \
	        #function " is declared in another way by now");                              \
	_Static_assert(IS(*((struct hip_rtc *)0)->member, hip_error ours), #member " was changed in hip.h")
#define POINTER(type) _Static_assert(sizeof(type) == sizeof(void *), #type " is no pointer any more")

POINTER(hipStream_t);
POINTER(hipEvent_t);
POINTER(hipModule_t);
POINTER(hipFunction_t);
POINTER(hipGraph_t);
POINTER(hipGraphExec_t);
POINTER(hipDeviceptr_t);
POINTER(hiprtcProgram);
_Static_assert(sizeof(hipError_t) == sizeof(hip_error), "an error is no int any more");
_Static_assert(sizeof(hiprtcResult) == sizeof(hip_error), "a result is no int any more");
_Static_assert(sizeof(hipDevice_t) == sizeof(int), "a device is no int any more");
_Static_assert(sizeof(hipDeviceAttribute_t) == sizeof(int), "an attribute is no int any more");
_Static_assert(sizeof(hipFunction_attribute) == sizeof(int), "an attribute is no int any more");
_Static_assert(sizeof(hipStreamCaptureMode) == sizeof(int), "a mode is no int any more");

PAIR(hipInit, Init, (unsigned), (unsigned));
PAIR(hipGetDeviceCount, GetDeviceCount, (int *), (int *));
PAIR(hipDeviceGetPCIBusId, DeviceGetPCIBusId, (char *, int, int), (char *, int, int));
PAIR(hipDeviceGetAttribute, DeviceGetAttribute, (int *, hipDeviceAttribute_t, int), (int *, int, int));
PAIR(hipDeviceTotalMem, DeviceTotalMem, (size_t *, hipDevice_t), (size_t *, int));
PAIR(hipDeviceGetName, DeviceGetName, (char *, int, hipDevice_t), (char *, int, int));
PAIR(hipDriverGetVersion, DriverGetVersion, (int *), (int *));
PAIR(hipRuntimeGetVersion, RuntimeGetVersion, (int *), (int *));
PAIR(hipMemGetInfo, MemGetInfo, (size_t *, size_t *), (size_t *, size_t *));
PAIR(hipMalloc, Malloc, (void **, size_t), (void **, size_t));
PAIR(hipFree, Free, (void *), (void *));
PAIR(hipMemcpyHtoD, MemcpyHtoD, (hipDeviceptr_t, void *, size_t), (void *, void *, size_t));
PAIR(hipMemcpyDtoH, MemcpyDtoH, (void *, hipDeviceptr_t, size_t), (void *, void *, size_t));
PAIR(hipMemcpyDtoDAsync, MemcpyDtoDAsync, (hipDeviceptr_t, hipDeviceptr_t, size_t, hipStream_t),
        (void *, void *, size_t, hip_stream));
PAIR(hipMemsetD8Async, MemsetD8Async, (hipDeviceptr_t, unsigned char, size_t, hipStream_t),
        (void *, unsigned char, size_t, hip_stream));
PAIR(hipModuleLoadData, ModuleLoadData, (hipModule_t *, const void *), (hip_module *, const void *));
PAIR(hipModuleUnload, ModuleUnload, (hipModule_t), (hip_module));
PAIR(hipModuleGetFunction, ModuleGetFunction, (hipFunction_t *, hipModule_t, const char *),
        (hip_function *, hip_module, const char *));
PAIR(hipFuncGetAttribute, FuncGetAttribute, (int *, hipFunction_attribute, hipFunction_t),
        (int *, int, hip_function));
PAIR(hipModuleLaunchKernel, ModuleLaunchKernel,
        (hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t,
                void **, void **),
        (hip_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hip_stream,
                void **, void **));
PAIR(hipStreamCreateWithFlags, StreamCreateWithFlags, (hipStream_t *, unsigned), (hip_stream *, unsigned));
PAIR(hipStreamDestroy, StreamDestroy, (hipStream_t), (hip_stream));
PAIR(hipStreamSynchronize, StreamSynchronize, (hipStream_t), (hip_stream));
PAIR(hipStreamBeginCapture, StreamBeginCapture, (hipStream_t, hipStreamCaptureMode), (hip_stream, int));
PAIR(hipStreamEndCapture, StreamEndCapture, (hipStream_t, hipGraph_t *), (hip_stream, hip_graph *));
PAIR(hipGraphLaunch, GraphLaunch, (hipGraphExec_t, hipStream_t), (hip_graph_exec, hip_stream));
PAIR(hipGraphExecDestroy, GraphExecDestroy, (hipGraphExec_t), (hip_graph_exec));
PAIR(hipGraphDestroy, GraphDestroy, (hipGraph_t), (hip_graph));
PAIR(hipEventCreateWithFlags, EventCreateWithFlags, (hipEvent_t *, unsigned), (hip_event *, unsigned));
PAIR(hipEventRecord, EventRecord, (hipEvent_t, hipStream_t), (hip_event, hip_stream));
PAIR(hipEventSynchronize, EventSynchronize, (hipEvent_t), (hip_event));
PAIR(hipEventElapsedTime, EventElapsedTime, (float *, hipEvent_t, hipEvent_t),
        (float *, hip_event, hip_event));
PAIR(hipEventDestroy, EventDestroy, (hipEvent_t), (hip_event));
/* These three are called through functions of the table's own. */
_Static_assert(IS(hipSetDevice, hipError_t(int)), "hipSetDevice is declared in another way by now");
_Static_assert(IS(hipGetErrorString, const char *(hipError_t)),
        "hipGetErrorString is declared in another way by now");
_Static_assert(
        IS(hipGraphInstantiate, hipError_t(hipGraphExec_t *, hipGraph_t, hipGraphNode_t *, char *, size_t)),
        "hipGraphInstantiate is declared in another way by now");

RTC(hiprtcVersion, Version, (int *, int *), (int *, int *), (int *, int *));
RTC(hiprtcCreateProgram, CreateProgram,
        (hiprtcProgram *, const char *, const char *, int, const char **, const char **),
        (hiprtcProgram *, const char *, const char *, int, const char *const *, const char *const *),
        (hip_program *, const char *, const char *, int, const char **, const char **));
RTC(hiprtcCompileProgram, CompileProgram, (hiprtcProgram, int, const char **),
        (hiprtcProgram, int, const char *const *), (hip_program, int, const char **));
RTC(hiprtcGetProgramLogSize, GetProgramLogSize, (hiprtcProgram, size_t *), (hiprtcProgram, size_t *),
        (hip_program, size_t *));
RTC(hiprtcGetProgramLog, GetProgramLog, (hiprtcProgram, char *), (hiprtcProgram, char *),
        (hip_program, char *));
RTC(hiprtcGetCodeSize, GetCodeSize, (hiprtcProgram, size_t *), (hiprtcProgram, size_t *),
        (hip_program, size_t *));
RTC(hiprtcGetCode, GetCode, (hiprtcProgram, char *), (hiprtcProgram, char *), (hip_program, char *));
RTC(hiprtcDestroyProgram, DestroyProgram, (hiprtcProgram *), (hiprtcProgram *), (hip_program *));

_Static_assert(HIP_EVENT_DEFAULT == (int)hipEventDefault, "a number changed");
_Static_assert(HIP_STREAM_NON_BLOCKING == (int)hipStreamNonBlocking, "a number changed");
_Static_assert(HIP_CAPTURE_THREAD_LOCAL == (int)hipStreamCaptureModeThreadLocal, "a number changed");

static void what_is_asked_of_a_device_has_the_headers_numbers(void **state)
{
	static const int attributes[] = {[HIP_ATTRIBUTE_UNITS] = hipDeviceAttributeMultiprocessorCount,
	        [HIP_ATTRIBUTE_WAVE] = hipDeviceAttributeWarpSize,
	        [HIP_ATTRIBUTE_L2] = hipDeviceAttributeL2CacheSize,
	        [HIP_ATTRIBUTE_MAJOR] = hipDeviceAttributeComputeCapabilityMajor,
	        [HIP_ATTRIBUTE_MINOR] = hipDeviceAttributeComputeCapabilityMinor,
	        [HIP_ATTRIBUTE_MEMORY_CLOCK] = hipDeviceAttributeMemoryClockRate,
	        [HIP_ATTRIBUTE_MEMORY_BITS] = hipDeviceAttributeMemoryBusWidth,
	        [HIP_ATTRIBUTE_ECC] = hipDeviceAttributeEccEnabled,
	        [HIP_ATTRIBUTE_THREADS_BLOCK] = hipDeviceAttributeMaxThreadsPerBlock,
	        [HIP_ATTRIBUTE_REGISTERS_BLOCK] = hipDeviceAttributeMaxRegistersPerBlock,
	        [HIP_ATTRIBUTE_SHARED_BLOCK] = hipDeviceAttributeMaxSharedMemoryPerBlock};
	static const int of_functions[] = {
	        [HIP_FUNCTION_MAX_THREADS] = HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
	        [HIP_FUNCTION_SHARED] = HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
	        [HIP_FUNCTION_LOCAL] = HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
	        [HIP_FUNCTION_REGISTERS] = HIP_FUNC_ATTRIBUTE_NUM_REGS};
	struct hip hip;
	struct ft_error error;

	(void)state;
	/* The numbers are there whether the library is or not. */
	if (hip_load(&hip, &error) < 0)
		printf("the library is not there: %s\n", error.message);
	for (int i = 0; i < HIP_ATTRIBUTE_COUNT; i++)
		assert_int_equal(hip.attribute[i], attributes[i]);
	for (int i = 0; i < HIP_FUNCTION_ATTRIBUTE_COUNT; i++)
		assert_int_equal(hip.function_attribute[i], of_functions[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_is_asked_of_a_device_has_the_headers_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
