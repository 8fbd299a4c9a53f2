#include "kernels/runner/gpu/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tell(struct gpu *gpu, const struct ft_built *built, struct ft_error *error)
{
	struct ready *ready = calloc(1, sizeof *ready);

	if (!ready)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	ready->built = *built;
	*gpu->last = ready;
	gpu->last = &ready->next;
	return 0;
}

static void describe(const struct member *member, struct ft_built *built)
{
	const struct gpu_code *code = &member->code;

	memcpy(built->code, code->hash, sizeof built->code);
	if (member->how[0])
		gpu_hash_text((const char *[]){code->hash, member->how}, 2, built->code);
	built->registers = code->registers;
	built->spills = code->spills;
	built->build_ns = code->build_ns;
}

/* For tests of what a sweep does with a bad kernel: "loop:KNOB=VALUE,…" makes the configs that match it run
 * for ever, "wild:…" makes them write far outside, "near:…" just behind the output, "hurt:…" into their input; by
 * "race:…" they are wrong in one of 50 launches, by "rare:…" in one of 200. */
static unsigned fault_of(const struct ft_config *config)
{
	static const char *const names[] = {"loop:", "wild:", "near:", "hurt:", "race:", "rare:"};
	const char *text = secure_getenv("FLYTUNE_TEST_FAULT");
	struct ft_config match;

	for (unsigned i = 0; text && i < sizeof names / sizeof *names; i++) {
		if (strncmp(text, names[i], 5) != 0 || ft_config_parse(text + 5, &match, NULL) < 0)
			continue;
		for (uint32_t k = 0; k < match.count; k++) {
			const struct ft_knob_value *knob = ft_config_find(config, match.knob[k].name);

			if (!knob || !ft_knob_same(knob, &match.knob[k]))
				return 0;
		}
		return i + 1;
	}
	return 0;
}

/* A member that is compiled, or was, from the same options: some knobs change nothing on a device. */
static size_t find_twin(const struct gpu *gpu, size_t index)
{
	for (size_t i = 0; i < gpu->count; i++)
		if (i != index && (gpu->member[i].compiling || gpu->member[i].code.data) &&
		        strcmp(gpu->member[i].key, gpu->member[index].key) == 0)
			return i;
	return gpu->count;
}

static int copy_code(const struct gpu_code *from, struct gpu_code *to, struct ft_error *error)
{
	uint8_t *data = malloc(from->size);

	if (!data)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	memcpy(data, from->data, from->size);
	*to = *from;
	to->data = data;
	return 0;
}

/* What was built for `twin` is there for the member, too. */
static int tell_twin(struct gpu *gpu, size_t index, const struct ft_built *twin, struct ft_error *error)
{
	struct ft_built built = *twin;

	built.index = index;
	built.cached = true;
	gpu->member[index].follows = 0;
	if (!built.failed && copy_code(&gpu->member[twin->index].code, &gpu->member[index].code, error) < 0)
		return -1;
	if (!built.failed)
		describe(&gpu->member[index], &built);
	return tell(gpu, &built, error);
}

int gpu_build_start(struct ft_backend *self, size_t index, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = &gpu->member[index];
	const struct ft_config *config = &gpu->config[index];
	struct ft_built built = {.index = index};
	struct gpu_options options;
	const char *text[GPU_OPTIONS_MAX + 3];
	unsigned fault = fault_of(config);
	size_t count = 0;

	if (gpu_kernel_options(gpu->code, &gpu->problem, &gpu->traits, config, &options, &built.error) < 0 ||
	        gpu->code->launch(
	                gpu->code, &gpu->problem, &gpu->traits, config, &member->launch, &built.error) < 0) {
		built.failed = true;
		return tell(gpu, &built, error);
	}
	if (fault)
		snprintf(options.text[options.count++], sizeof options.text[0], "-DFT_FAULT=%u", fault);
	if (member->launch.rows > 0)
		snprintf(member->launch_text, sizeof member->launch_text, "block=%u rows=%u blocks=%u",
		        member->launch.step[0].block[0], member->launch.rows, member->launch.blocks_limit);
	else
		gpu_hash_launch(&member->launch, member->how);
	for (; count < options.count; count++)
		text[count] = options.text[count];
	text[count] = gpu->code->hash ? gpu->code->hash : gpu->code->source.text;
	text[count + 1] = gpu->builder;
	text[count + 2] = member->launch_text;
	gpu_hash_text(text, count + 3, member->key);
	size_t twin = find_twin(gpu, index);

	if (twin < gpu->count && gpu->member[twin].compiling) {
		member->follows = twin + 1;
		return 0;
	}
	if (twin < gpu->count) {
		built.index = twin;
		describe(&gpu->member[twin], &built);
		return tell_twin(gpu, index, &built, error);
	}
	if (gpu->code_dir[0] && gpu_code_load(gpu->code_dir, member->key, &member->code)) {
		built.cached = true;
		describe(member, &built);
		return tell(gpu, &built, error);
	}
	if (gpu_pool_submit(
	            gpu->pool, member, &gpu->code->source, gpu->traits.arch, text, options.count, error) < 0)
		return -1;
	member->compiling = true;
	return 0;
}

static void keep(
        const struct gpu *gpu, const char *key, const struct gpu_code *code, const struct gpu_about *launch)
{
	if (gpu->code_writer)
		gpu_code_writer_put(gpu->code_writer, key, code, launch);
}

static void take_check(struct gpu *gpu, struct gpu_compiled *compiled)
{
	gpu->check_tried = true;
	gpu->check_error = compiled->error;
	if (!compiled->failed) {
		gpu->check.data = compiled->data;
		gpu->check.size = compiled->size;
		compiled->data = NULL;
		if (gpu_code_inspect(&gpu->check, "check_rows", compiled->log, "", &gpu->check_error) < 0)
			gpu_code_free(&gpu->check);
		else
			keep(gpu, gpu->check_key, &gpu->check, NULL);
	}
	free(compiled->data);
	free(compiled->log);
}

static int take_member(
        struct gpu *gpu, struct gpu_compiled *compiled, struct ft_built *built, struct ft_error *error)
{
	struct member *member = compiled->tag;
	struct gpu_about launch;

	memset(built, 0, sizeof *built);
	member->compiling = false;
	built->index = (size_t)(member - gpu->member);
	built->failed = compiled->failed;
	built->error = compiled->error;
	built->build_ns = compiled->build_ns;
	if (!compiled->failed) {
		member->code.data = compiled->data;
		member->code.size = compiled->size;
		member->code.build_ns = compiled->build_ns;
		compiled->data = NULL;
		if (gpu_code_inspect(&member->code, member->launch.step[0].symbol, compiled->log,
		            member->launch_text, &built->error) < 0) {
			built->failed = true;
			gpu_code_free(&member->code);
		} else {
			if (!member->code.target[0])
				snprintf(member->code.target, sizeof member->code.target, "%s",
				        gpu->traits.arch);
			if (gpu->code->arguments)
				gpu_launch_about(
				        gpu->code, &gpu->traits, &member->launch, gpu->builder, &launch);
			keep(gpu, member->key, &member->code, gpu->code->arguments ? &launch : NULL);
			describe(member, built);
		}
	}
	free(compiled->data);
	free(compiled->log);
	for (size_t i = 0; i < gpu->count; i++)
		if (gpu->member[i].follows == built->index + 1 && tell_twin(gpu, i, built, error) < 0)
			return -1;
	return 0;
}

int gpu_build_wait(struct ft_backend *self, struct ft_built *built, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct gpu_compiled compiled;

	for (;;) {
		if (atomic_load(&gpu->setup_over) && gpu->setup_failed) {
			if (error)
				*error = gpu->setup_error;
			return -1;
		}
		if (gpu->first) {
			struct ready *ready = gpu->first;

			*built = ready->built;
			gpu->first = ready->next;
			if (!gpu->first)
				gpu->last = &gpu->first;
			free(ready);
			return 1;
		}
		int got = gpu_pool_wait(gpu->pool, gpu->base.deadline_ns, &compiled, error);

		if (got <= 0)
			return got;
		if (compiled.tag)
			return take_member(gpu, &compiled, built, error) < 0 ? -1 : 1;
		take_check(gpu, &compiled);
	}
}

int gpu_await_check(struct gpu *gpu, struct ft_error *error)
{
	struct gpu_compiled compiled;
	struct ft_built built;
	int code;

	while (!gpu->check_tried) {
		code = gpu_pool_wait(gpu->pool, gpu->base.deadline_ns, &compiled, error);
		if (code < 0)
			return code;
		if (code == 0)
			return ft_fail(error, FT_E_UNAVAILABLE, "the checking code was never built");
		if (!compiled.tag) {
			take_check(gpu, &compiled);
			continue;
		}
		if (take_member(gpu, &compiled, &built, error) < 0 || tell(gpu, &built, error) < 0)
			return -1;
	}
	if (!gpu->check.data) {
		if (error)
			*error = gpu->check_error;
		return -1;
	}
	return 0;
}
