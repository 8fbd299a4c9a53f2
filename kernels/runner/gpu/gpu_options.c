#include "kernels/runner/gpu/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void gpu_hash_text(const char *const *text, size_t count, char hash[FT_HASH_SIZE])
{
	XXH128_canonical_t canonical;
	XXH3_state_t state;

	XXH3_128bits_reset(&state);
	for (size_t i = 0; i < count; i++)
		XXH3_128bits_update(&state, text[i], strlen(text[i]) + 1);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
	for (size_t i = 0; i < sizeof canonical.digest; i++)
		snprintf(hash + 2 * i, 3, "%02x", canonical.digest[i]);
}

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

void gpu_kernel_options(const struct ft_kernel_gpu *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct gpu_options *options)
{
	struct ft_defines defines;

	gpu_base_options(traits->arch, options);
	kernel->defines(problem, traits, config, &defines);
	for (unsigned i = 0; i < defines.count; i++)
		option(options, defines.text[i]);
}

void gpu_launch_about(const struct ft_kernel_gpu *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, const char *builder,
        struct gpu_about *about)
{
	struct ft_launch launch;

	memset(about, 0, sizeof *about);
	kernel->launch(problem, traits, config, &launch);
	about->step.block = launch.block;
	about->step.rows = launch.rows;
	about->step.blocks_max = launch.blocks_limit;
	about->code.wave = traits->wave;
	snprintf(about->code.builder, sizeof about->code.builder, "%s", builder);
	snprintf(about->step.arguments, sizeof about->step.arguments, "%s", kernel->arguments);
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
