#include "kernels/layernorm/layernorm.h"

static const struct ft_schema cpu_schema = {
        .kernel = "layernorm",
        .revision = LAYERNORM_REVISION,
        FT_ROWS_FIELDS,
        FT_ROWS_CPU_KNOBS,
};

const struct ft_rows_kernel layernorm_rows = {
        .weights = LAYERNORM_WEIGHTS,
        .weight_name = {"weight", "bias"},
        .absolute = LAYERNORM_ABSOLUTE,
        .cpu = &cpu_schema,
        .gpu = &layernorm_gpu_schema,
        .gpu_default = layernorm_gpu_default,
        .gpu_space = layernorm_gpu_space,
        .gpu_check_config = layernorm_gpu_check_config,
};

const struct ft_kernel ft_kernel_layernorm = {.name = "layernorm",
        .help = "each row less its mean, over its deviation, times a weight, plus a bias",
        FT_ROWS_KERNEL(layernorm_rows)};
