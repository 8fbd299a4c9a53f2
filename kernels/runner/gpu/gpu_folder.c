#include "kernels/runner/gpu/gpu_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder_gpu_check.h"
#include "kernels/runner/gpu/hip.h"

/* First what others see: who has it frees all. */
struct made {
	struct ft_kernel_gpu code;
	const char *include_name[FT_FOLDER_FILES_MAX], *include[FT_FOLDER_FILES_MAX];
	const char *option[FT_FOLDER_OPTIONS_MAX + 1];
	char headers[128];
};

static int defines_of(const struct ft_kernel_gpu *code, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_defines *defines,
        struct ft_error *error)
{
	return ft_folder_defines(code->own, problem, traits, config, defines, error);
}

static struct ft_argument argument_of(const struct ft_folder_argument *from)
{
	if (from->is_buffer)
		return (struct ft_argument){.kind = FT_ARGUMENT_TENSOR, .tensor = from->buffer};
	switch (from->type) {
	case FT_SCALAR_I32:
	case FT_SCALAR_U32:
		return (struct ft_argument){.kind = FT_ARGUMENT_INT32, .int32 = (int32_t)from->number};
	case FT_SCALAR_F32:
		return (struct ft_argument){.kind = FT_ARGUMENT_FLOAT, .float32 = (float)from->real};
	case FT_SCALAR_F64:
		return (struct ft_argument){.kind = FT_ARGUMENT_DOUBLE, .float64 = from->real};
	case FT_SCALAR_I64:
	case FT_SCALAR_U64:
		break;
	}
	return (struct ft_argument){.kind = FT_ARGUMENT_INT64, .int64 = from->number};
}

static int step_of(const struct ft_folder_step *from, struct ft_step *to, struct ft_error *error)
{
	if (from->cluster[0] * from->cluster[1] * from->cluster[2] > 1)
		return ft_fail(error, FT_E_BAD_VALUE,
		        "%s is to be launched in clusters, which this runner cannot: the source may have "
		        "__cluster_dims__",
		        from->symbol);
	if (strlen(from->symbol) >= sizeof to->symbol)
		return ft_fail_field(error, FT_E_BAD_VALUE, "symbol", from->symbol, "63 bytes at most");
	snprintf(to->symbol, sizeof to->symbol, "%s", from->symbol);
	for (int i = 0; i < 3; i++) {
		to->grid[i] = (unsigned)from->grid[i];
		to->block[i] = (unsigned)from->block[i];
	}
	to->shared = (unsigned)from->shared;
	to->count = from->arguments.count;
	for (uint32_t i = 0; i < to->count; i++)
		to->argument[i] = argument_of(&from->arguments.argument[i]);
	return 0;
}

static int launch_of(const struct ft_kernel_gpu *code, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_launch *launch,
        struct ft_error *error)
{
	struct ft_folder_launch evaluated;

	_Static_assert((int)FT_STEPS_MAX >= (int)FT_FOLDER_STEPS_MAX, "a launch has no room");
	_Static_assert((int)FT_ARGUMENTS_MAX >= (int)FT_FOLDER_ARGUMENTS_MAX, "a step has no room");
	memset(launch, 0, sizeof *launch);
	if (ft_folder_launch(code->own, problem, traits, config, &evaluated, error) < 0)
		return -1;
	for (; launch->count < evaluated.count; launch->count++)
		if (step_of(&evaluated.step[launch->count], &launch->step[launch->count], error) < 0)
			return -1;
	return 0;
}

struct ft_kernel_gpu *gpu_folder_code(
        const struct ft_folder *folder, const char *headers, struct ft_error *error)
{
	const struct ft_folder_source *source = ft_folder_source(folder, hip_kind);
	struct made *made = source ? calloc(1, sizeof *made) : NULL;
	uint32_t count;
	const struct ft_folder_file *file = ft_folder_files(folder, &count);

	if (!source)
		ft_fail(error, FT_E_UNAVAILABLE, "%s has no source for %s devices",
		        ft_folder_kernel(folder)->name, hip_kind);
	else if (!made)
		ft_fail(error, FT_E_MEMORY, "out of memory");
	if (!made)
		return NULL;
	made->code = (struct ft_kernel_gpu){.name = ft_folder_kernel(folder)->name,
	        .own = folder,
	        .source = {.name = source->file,
	                .include_name = made->include_name,
	                .include = made->include},
	        .check = check,
	        .hash = source->hash,
	        .option = made->option,
	        .defines = defines_of,
	        .launch = launch_of};
	for (uint32_t i = 0; i < count; i++) {
		if (strcmp(file[i].name, source->file) == 0) {
			made->code.source.text = file[i].text;
			continue;
		}
		made->include_name[made->code.source.include_count] = file[i].name;
		made->include[made->code.source.include_count++] = file[i].text;
	}
	while (made->code.option_count < source->option_count) {
		made->option[made->code.option_count] = source->option[made->code.option_count];
		made->code.option_count++;
	}
	if (headers[0] &&
	        snprintf(made->headers, sizeof made->headers, "-I%s", headers) < (int)sizeof made->headers)
		made->option[made->code.option_count++] = made->headers;
	return &made->code;
}
