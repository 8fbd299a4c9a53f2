/* A target: what a request is about, once checked: a kernel's problem on a device, with its key in the
 * store. */
#ifndef FLYTUNE_DAEMON_TARGET_H
#define FLYTUNE_DAEMON_TARGET_H

#include "daemon/devices/device.h"

struct target {
	struct device *device; /* lives until a runner of its kind says another hello */
	struct device_kernel *kernel;
	struct ft_problem problem; /* whole, checked */
	struct store_key key;      /* ids are 0 while the device is probing */
};

/* Checks kernel, device and problem. Errors name the field, the value and the bound. */
int target_admit(struct target *target, struct devices *devices, const char *kernel, const char *device,
        const struct ft_problem *given, struct ft_error *error);
/* The analytic default. Fails for a kernel that has none. */
int target_default(const struct target *target, struct ft_config *config, struct ft_error *error);
/* Whether a config is in this problem's space today; puts its knobs in the schema's order. */
bool target_takes(const struct target *target, struct ft_config *config, struct ft_error *error);
/* And whether a search of this problem would try it: what is pruned cannot win. Of a kernel that is not built in only its
 * runner knows. Makes the whole space, but for kernels that can tell without. */
bool target_tries(const struct target *target, const struct ft_config *config);
/* Hash of the configs that a search of this problem would try today; 0 if only its runner knows. */
uint64_t target_space_hash(const struct target *target);
/* The same of configs at hand; those that are pruned do not count. */
uint64_t target_members_hash(const struct target *target, const struct ft_config *config,
        const char (*pruned)[FT_REASON_SIZE], uint32_t count);

#endif
