#include "kernels/runner/gpu/internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static void write_hash(const XXH3_state_t *state, char hash[FT_HASH_SIZE])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
	for (size_t i = 0; i < sizeof canonical.digest; i++)
		snprintf(hash + 2 * i, 3, "%02x", canonical.digest[i]);
}

void gpu_hash_text(const char *const *text, size_t count, char hash[FT_HASH_SIZE])
{
	XXH3_state_t state;

	XXH3_128bits_reset(&state);
	for (size_t i = 0; i < count; i++)
		XXH3_128bits_update(&state, text[i], strlen(text[i]) + 1);
	write_hash(&state, hash);
}

/* All that it is, by itself. */
static void add_number(XXH3_state_t *state, uint64_t number)
{
	XXH3_128bits_update(state, &number, sizeof number);
}

static void add_argument(XXH3_state_t *state, const struct ft_argument *argument)
{
	add_number(state, argument->kind);
	switch (argument->kind) {
	case FT_ARGUMENT_TENSOR:
		add_number(state, argument->tensor);
		break;
	case FT_ARGUMENT_INT32:
		add_number(state, (uint32_t)argument->int32);
		break;
	case FT_ARGUMENT_FLOAT:
		XXH3_128bits_update(state, &argument->float32, sizeof argument->float32);
		break;
	case FT_ARGUMENT_INT64:
	case FT_ARGUMENT_DOUBLE:
		add_number(state, (uint64_t)argument->int64);
		break;
	}
}

void gpu_hash_launch(const struct ft_launch *launch, char hash[FT_HASH_SIZE])
{
	XXH3_state_t state;

	XXH3_128bits_reset(&state);
	for (uint32_t i = 0; i < launch->count; i++) {
		const struct ft_step *step = &launch->step[i];

		XXH3_128bits_update(&state, step->symbol, strlen(step->symbol) + 1);
		XXH3_128bits_update(&state, step->grid, sizeof step->grid);
		XXH3_128bits_update(&state, step->block, sizeof step->block);
		add_number(&state, step->shared);
		for (uint32_t k = 0; k < step->count; k++)
			add_argument(&state, &step->argument[k]);
	}
	write_hash(&state, hash);
}

enum { STANDARD = 1 /* the place among options that all have of the one that names the language's */ };

bool gpu_is_cuda(void)
{
	return strcmp(hip_kind, "cuda") == 0;
}

static void option(struct gpu_options *options, const char *text)
{
	snprintf(options->text[options->count++], sizeof options->text[0], "%s", text);
}

void gpu_base_options(const char *arch, struct gpu_options *options)
{
	char text[sizeof options->text[0]];

	memset(options, 0, sizeof *options);
	if (gpu_is_cuda()) {
		snprintf(text, sizeof text, "--gpu-architecture=%s", arch);
		option(options, text);
		option(options, "--std=c++17");
		option(options, "--ptxas-options=-v");
		return;
	}
	snprintf(text, sizeof text, "--offload-arch=%.*s", (int)strcspn(arch, ":"), arch);
	option(options, text);
	option(options, "-std=c++17");
	option(options, "-O3");
	/* Said, as the default changed between releases. */
	option(options, "-mcode-object-version=4");
	if (strncmp(arch, "gfx1", 4) == 0)
		option(options, "-mcumode");
}

int gpu_kernel_options(const struct ft_kernel_gpu *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct gpu_options *options,
        struct ft_error *error)
{
	struct ft_defines defines;

	gpu_base_options(traits->arch, options);
	for (unsigned i = 0; i < kernel->option_count; i++)
		if (strstr(kernel->option[i], "-std="))
			snprintf(options->text[STANDARD], sizeof options->text[0], "%s", kernel->option[i]);
		else
			option(options, kernel->option[i]);
	if (kernel->defines(kernel, problem, traits, config, &defines, error) < 0)
		return -1;
	for (unsigned i = 0; i < defines.count; i++)
		option(options, defines.text[i]);
	return 0;
}

void gpu_launch_about(const struct ft_kernel_gpu *kernel, const struct ft_traits *traits,
        const struct ft_launch *launch, const char *builder, struct gpu_about *about)
{
	memset(about, 0, sizeof *about);
	about->step.block = launch->step[0].block[0];
	about->step.rows = launch->rows;
	about->step.blocks_max = launch->blocks_limit;
	about->code.wave = traits->wave;
	snprintf(about->code.builder, sizeof about->code.builder, "%s", builder);
	snprintf(about->step.arguments, sizeof about->step.arguments, "%s", kernel->arguments);
}

void gpu_headers(const char *compiler, char *path, size_t size)
{
	const char *file = gpu_is_cuda() ? "cuda_fp16.h" : "hip/hip_fp16.h";
	char real[PATH_MAX], header[PATH_MAX + 64];
	char *name = realpath(compiler, real) ? strrchr(real, '/') : NULL;

	path[0] = '\0';
	if (!name)
		return;
	snprintf(name, sizeof real - (size_t)(name - real), "/../include");
	snprintf(header, sizeof header, "%s/%s", real, file);
	if (access(header, R_OK) == 0 && strlen(real) < size)
		snprintf(path, size, "%s", real);
}

int gpu_builder(char *text, size_t size, char *path, size_t path_size, struct ft_error *error)
{
	char build[80], real[4096];
	struct hip_rtc rtc;
	int major = 0, minor = 0;

	if (hip_rtc_load(&rtc, error) < 0)
		return -1;
	rtc.Version(&major, &minor);
	gpu_build_id(rtc.path, build, sizeof build);
	snprintf(path, path_size, "%s", rtc.path);
	/* hiprtc answers 9.0 in every release: the file's name says more. */
	const char *name = realpath(rtc.path, real) ? strrchr(real, '/') + 1 : rtc.path;

	snprintf(text, size, "%s-%d.%d file=%.60s build=%.40s", hip_rtc_name, major, minor, name,
	        build[0] ? build : "none");
	return 0;
}
