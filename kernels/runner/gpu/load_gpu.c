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
enum { NVML_SUCCESS = 0, NVML_INSUFFICIENT_SIZE = 7 };
/* Why clocks are not as high as they could be. */
enum {
	NVML_POWER_CAP = 0x4,
	NVML_SLOWDOWN = 0x8,
	NVML_SOFTWARE_THERMAL = 0x20,
	NVML_HARDWARE_THERMAL = 0x40,
	NVML_POWER_BRAKE = 0x80,
};

struct ft_nvidia {
	void *library;
	nvml_device device;
	int (*shutdown)(void);
	int (*utilization)(nvml_device, struct nvml_utilization *);
	int (*reasons)(nvml_device, unsigned long long *);
	int (*processes)(nvml_device, unsigned *, void *);
};

/* A function of a library, in the type that is wanted: ISO C has no cast for it. */
#define FIND(library, function, name)                          \
	do {                                                   \
		void *found = dlsym(library, name);            \
		memcpy(&(function), &found, sizeof(function)); \
	} while (0)

struct ft_nvidia *ft_nvidia_open(const char *pci)
{
	struct ft_nvidia *nvidia = calloc(1, sizeof(*nvidia));
	int (*init)(void);
	int (*find)(const char *, nvml_device *);

	if (!nvidia)
		return NULL;
	nvidia->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!nvidia->library)
		goto failed;
	FIND(nvidia->library, init, "nvmlInit_v2");
	FIND(nvidia->library, nvidia->shutdown, "nvmlShutdown");
	FIND(nvidia->library, find, "nvmlDeviceGetHandleByPciBusId_v2");
	FIND(nvidia->library, nvidia->utilization, "nvmlDeviceGetUtilizationRates");
	FIND(nvidia->library, nvidia->reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
	FIND(nvidia->library, nvidia->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (!init || !nvidia->shutdown || !find || !nvidia->utilization || init() != NVML_SUCCESS)
		goto failed;
	if (find(pci, &nvidia->device) == NVML_SUCCESS)
		return nvidia;
	(void)nvidia->shutdown();
failed:
	if (nvidia->library)
		dlclose(nvidia->library);
	free(nvidia);
	return NULL;
}

void ft_nvidia_close(struct ft_nvidia *nvidia)
{
	if (!nvidia)
		return;
	(void)nvidia->shutdown();
	dlclose(nvidia->library);
	free(nvidia);
}

void ft_nvidia_look(const struct ft_nvidia *nvidia, bool processes, struct ft_nvidia_state *state)
{
	struct nvml_utilization used = {0};
	unsigned long long reasons = 0;

	*state = (struct ft_nvidia_state){0};
	state->load_known = nvidia->utilization(nvidia->device, &used) == NVML_SUCCESS && used.gpu <= 100;
	state->load = state->load_known ? used.gpu : 0;
	if (nvidia->reasons && nvidia->reasons(nvidia->device, &reasons) == NVML_SUCCESS) {
		state->held = reasons &
		        (NVML_SLOWDOWN | NVML_SOFTWARE_THERMAL | NVML_HARDWARE_THERMAL | NVML_POWER_BRAKE);
		state->capped = reasons & NVML_POWER_CAP;
	}
	/* Room for none: the number is all that is wanted. */
	if (processes && nvidia->processes &&
	        nvidia->processes(nvidia->device, &state->processes, NULL) != NVML_INSUFFICIENT_SIZE)
		state->processes = 0;
}

bool ft_load_nvidia(const char *pci, unsigned *percent)
{
	struct ft_nvidia *nvidia = ft_nvidia_open(pci);
	struct ft_nvidia_state state = {0};

	if (!nvidia)
		return false;
	ft_nvidia_look(nvidia, false, &state);
	ft_nvidia_close(nvidia);
	*percent = state.load;
	return state.load_known;
}
