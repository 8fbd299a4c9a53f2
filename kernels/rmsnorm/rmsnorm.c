#include "kernels/rmsnorm/rmsnorm.h"

static const struct ft_schema cpu_schema = {
        .kernel = "rmsnorm",
        .revision = RMSNORM_REVISION,
        FT_ROWS_FIELDS,
        FT_ROWS_CPU_KNOBS,
};

const struct ft_rows_kernel rmsnorm_rows = {
        .weights = RMSNORM_WEIGHTS,
        .weight_name = {"weight"},
        .cpu = &cpu_schema,
        .gpu = &rmsnorm_gpu_schema,
        .gpu_default = rmsnorm_gpu_default,
        .gpu_space = rmsnorm_gpu_space,
        .gpu_check_config = rmsnorm_gpu_check_config,
};

const struct ft_kernel ft_kernel_rmsnorm = {.name = "rmsnorm",
        .help = "each row over its root mean square, times a weight",
        FT_ROWS_KERNEL(rmsnorm_rows)};
