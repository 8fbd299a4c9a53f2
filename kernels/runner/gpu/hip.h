/* HIP as this runner knows it: the few dozen calls that it makes, declared by hand and found at run time.
 *
 * One binary serves every release: the shared objects are opened when they are there (hip_load.c), and a unit
 * test holds these declarations against the real headers where those are installed. cuda_load.c fills the
 * same table with CUDA's driver API and nvrtc. Only calls, types and numbers that did not change between HIP
 * 5 and 7 are used; properties of a device are asked for one by one, since the struct that holds them all
 * changed. */
#ifndef FLYTUNE_KERNELS_RUNNER_HIP_H
#define FLYTUNE_KERNELS_RUNNER_HIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

typedef int hip_error; /* 0 is success */
typedef void *hip_stream;
typedef void *hip_event;
typedef void *hip_module;
typedef void *hip_function;
typedef void *hip_graph;
typedef void *hip_graph_exec;
typedef void *hip_program;

enum {
	HIP_EVENT_DEFAULT = 0,
	HIP_STREAM_NON_BLOCKING = 1,
	HIP_CAPTURE_THREAD_LOCAL = 1,
};

/* What is asked of a device; each library has numbers of its own. */
enum hip_attribute {
	HIP_ATTRIBUTE_UNITS,
	HIP_ATTRIBUTE_WAVE,
	HIP_ATTRIBUTE_L2,
	HIP_ATTRIBUTE_MAJOR,
	HIP_ATTRIBUTE_MINOR,
	HIP_ATTRIBUTE_MEMORY_CLOCK, /* kHz */
	HIP_ATTRIBUTE_MEMORY_BITS,
	HIP_ATTRIBUTE_ECC,
	HIP_ATTRIBUTE_THREADS_BLOCK,
	HIP_ATTRIBUTE_REGISTERS_BLOCK,
	HIP_ATTRIBUTE_SHARED_BLOCK, /* at most, where more than the usual has to be asked for */
	HIP_ATTRIBUTE_COUNT,
};

enum hip_function_attribute {
	HIP_FUNCTION_MAX_THREADS,
	HIP_FUNCTION_SHARED,
	HIP_FUNCTION_LOCAL,
	HIP_FUNCTION_REGISTERS,
	HIP_FUNCTION_ATTRIBUTE_COUNT,
};

/* The calls that are the same in both but for their names: HIP's, CUDA's, arguments. */
#define HIP_CALLS(CALL)                                                                                      \
	CALL(Init, "Init", unsigned flags)                                                                   \
	CALL(GetDeviceCount, "DeviceGetCount", int *count)                                                   \
	CALL(DeviceGetPCIBusId, "DeviceGetPCIBusId", char *text, int size, int device)                       \
	CALL(DeviceGetAttribute, "DeviceGetAttribute", int *value, int attribute, int device)                \
	CALL(DeviceTotalMem, "DeviceTotalMem_v2", size_t *bytes, int device)                                 \
	CALL(DeviceGetName, "DeviceGetName", char *text, int size, int device)                               \
	CALL(DriverGetVersion, "DriverGetVersion", int *version)                                             \
	CALL(RuntimeGetVersion, "DriverGetVersion", int *version)                                            \
	CALL(MemGetInfo, "MemGetInfo_v2", size_t *available, size_t *total)                                  \
	CALL(Malloc, "MemAlloc_v2", void **memory, size_t size)                                              \
	CALL(Free, "MemFree_v2", void *memory)                                                               \
	CALL(MemcpyHtoD, "MemcpyHtoD_v2", void *to, void *from, size_t size)                                 \
	CALL(MemcpyDtoH, "MemcpyDtoH_v2", void *to, void *from, size_t size)                                 \
	CALL(MemcpyDtoDAsync, "MemcpyDtoDAsync_v2", void *to, void *from, size_t size, hip_stream stream)    \
	CALL(MemsetD8Async, "MemsetD8Async", void *to, unsigned char value, size_t count, hip_stream stream) \
	CALL(ModuleLoadData, "ModuleLoadData", hip_module *module, const void *image)                        \
	CALL(ModuleUnload, "ModuleUnload", hip_module module)                                                \
	CALL(ModuleGetFunction, "ModuleGetFunction", hip_function *function, hip_module module,              \
	        const char *name)                                                                            \
	CALL(FuncGetAttribute, "FuncGetAttribute", int *value, int attribute, hip_function function)         \
	CALL(ModuleLaunchKernel, "LaunchKernel", hip_function function, unsigned grid_x, unsigned grid_y,    \
	        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,      \
	        hip_stream stream, void **arguments, void **extra)                                           \
	CALL(StreamCreateWithFlags, "StreamCreate", hip_stream *stream, unsigned flags)                      \
	CALL(StreamDestroy, "StreamDestroy_v2", hip_stream stream)                                           \
	CALL(StreamSynchronize, "StreamSynchronize", hip_stream stream)                                      \
	CALL(StreamBeginCapture, "StreamBeginCapture_v2", hip_stream stream, int mode)                       \
	CALL(StreamEndCapture, "StreamEndCapture", hip_stream stream, hip_graph *graph)                      \
	CALL(GraphLaunch, "GraphLaunch", hip_graph_exec exec, hip_stream stream)                             \
	CALL(GraphExecDestroy, "GraphExecDestroy", hip_graph_exec exec)                                      \
	CALL(GraphDestroy, "GraphDestroy", hip_graph graph)                                                  \
	CALL(EventCreateWithFlags, "EventCreate", hip_event *event, unsigned flags)                          \
	CALL(EventRecord, "EventRecord", hip_event event, hip_stream stream)                                 \
	CALL(EventSynchronize, "EventSynchronize", hip_event event)                                          \
	CALL(EventElapsedTime, "EventElapsedTime", float *milliseconds, hip_event start, hip_event stop)     \
	CALL(EventDestroy, "EventDestroy_v2", hip_event event)

/* Of the run-time compilers. */
#define HIP_RTC_CALLS(CALL)                                                                              \
	CALL(Version, "Version", int *major, int *minor)                                                 \
	CALL(CreateProgram, "CreateProgram", hip_program *program, const char *source, const char *name, \
	        int headers, const char **header, const char **include_name)                             \
	CALL(CompileProgram, "CompileProgram", hip_program program, int options, const char **option)    \
	CALL(GetProgramLogSize, "GetProgramLogSize", hip_program program, size_t *size)                  \
	CALL(GetProgramLog, "GetProgramLog", hip_program program, char *log)                             \
	CALL(GetCodeSize, "GetCUBINSize", hip_program program, size_t *size)                             \
	CALL(GetCode, "GetCUBIN", hip_program program, char *code)                                       \
	CALL(DestroyProgram, "DestroyProgram", hip_program *program)

#define HIP_MEMBER(name, cuda, ...) hip_error (*name)(__VA_ARGS__);

struct hip {
	const char *kind;                 /* "hip" or "cuda" */
	char library[256], rtc_path[256]; /* the files found */
	int attribute[HIP_ATTRIBUTE_COUNT];
	int function_attribute[HIP_FUNCTION_ATTRIBUTE_COUNT];

	HIP_CALLS(HIP_MEMBER)
	/* What the libraries do each in its own way; SetDevice makes the device's context, if it has none yet, and the calling
	 * thread's own. */
	hip_error (*SetDevice)(const struct hip *hip, int device);
	hip_error (*GraphInstantiate)(const struct hip *hip, hip_graph_exec *exec, hip_graph graph);
	/* Launches of that function may have so many bytes of dynamic shared memory. */
	hip_error (*AllowShared)(const struct hip *hip, hip_function function, int bytes);
	const char *(*GetErrorString)(const struct hip *hip, hip_error error);

	/* What the calls above that take the table are made of; each library's own. */
	void (*part[5])(void);
};

/* The run-time compiler, a library of its own or a part of the other. */
struct hip_rtc {
	char path[256];
	/* Must be called before the first program: without a call to the runtime, the compiler inside of
	 * HIP's registers its options twice and aborts. It may open devices, so only a compiling process
	 * calls it. */
	hip_error (*Wake)(int *ignored);
	HIP_RTC_CALLS(HIP_MEMBER)
	const char *(*GetErrorString)(hip_error error);
};

/* "hip" or "cuda": which of the two this program was linked with. */
extern const char hip_kind[];
/* Opens the libraries and fills the table. Neither makes a context. An error says what was looked for. */
int hip_load(struct hip *hip, struct ft_error *error);
int hip_rtc_load(struct hip_rtc *rtc, struct ft_error *error);
/* "nvrtc" or "hiprtc" */
extern const char hip_rtc_name[];

/* ---- shared by both loaders ---- */

/* Opens the first of the names (the last is NULL) that is there; fills `path` with the file found. */
void *hip_open_library(const char *const *names, char *path, size_t size);

struct hip_symbol {
	const char *name;
	size_t offset; /* of a pointer to a function, in the table */
};
/* Looks each up in the first library that has it. */
int hip_find_symbols(void *const *library, size_t libraries, const char *path,
        const struct hip_symbol *symbol, size_t count, void *table, struct ft_error *error);

/* What the two libraries differ in. */
struct hip_loader {
	const char *const *names; /* of the library's files; the last is NULL */
	const char *absent;       /* what is said where none is there */
	const struct hip_symbol *symbol;
	size_t symbols;
	int attribute[HIP_ATTRIBUTE_COUNT];
	int function_attribute[HIP_FUNCTION_ATTRIBUTE_COUNT];
	hip_error (*set_device)(const struct hip *hip, int device);
	hip_error (*instantiate)(const struct hip *hip, hip_graph_exec *exec, hip_graph graph);
	hip_error (*allow_shared)(const struct hip *hip, hip_function function, int bytes);
	const char *(*error_string)(const struct hip *hip, hip_error error);
};
/* The whole of hip_load; the numbers are filled in even where the library is not there. */
int hip_fill(struct hip *hip, const struct hip_loader *loader, struct ft_error *error);

#endif
