#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/runner/load.h"

bool ft_load_amd(const char *pci, unsigned *percent)
{
	char path[128], text[16];
	FILE *file;
	bool known;

	if (strlen(pci) > 32 || strchr(pci, '/'))
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/gpu_busy_percent", pci);
	file = fopen(path, "re");
	if (!file)
		return false;
	known = fgets(text, sizeof(text), file) && *text >= '0' && *text <= '9';
	fclose(file);
	*percent = known ? (unsigned)strtoul(text, NULL, 10) : 0;
	return known && *percent <= 100;
}

/* Of nvml.h, what is used: every release since 2013 has it so. */
typedef struct nvml_device *nvml_device;
struct nvml_utilization {
	unsigned gpu, memory;
};
enum { NVML_SUCCESS = 0 };

/* A function of a library, in the type that is wanted: ISO C has no cast for it. */
#define FIND(library, function, name)                          \
	do {                                                   \
		void *found = dlsym(library, name);            \
		memcpy(&(function), &found, sizeof(function)); \
	} while (0)

bool ft_load_nvidia(const char *pci, unsigned *percent)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*init)(void), (*shutdown)(void);
	int (*find)(const char *, nvml_device *);
	int (*utilization)(nvml_device, struct nvml_utilization *);
	struct nvml_utilization used;
	nvml_device device;
	bool known = false;

	if (!library)
		return false;
	FIND(library, init, "nvmlInit_v2");
	FIND(library, shutdown, "nvmlShutdown");
	FIND(library, find, "nvmlDeviceGetHandleByPciBusId_v2");
	FIND(library, utilization, "nvmlDeviceGetUtilizationRates");
	if (init && shutdown && find && utilization && init() == NVML_SUCCESS) {
		known = find(pci, &device) == NVML_SUCCESS && utilization(device, &used) == NVML_SUCCESS &&
		        used.gpu <= 100;
		if (known)
			*percent = used.gpu;
		(void)shutdown();
	}
	dlclose(library);
	return known;
}
