#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

struct flytune_code_object {
	struct flytune_code_info info;
	struct flytune_code_step step[FT_CODE_STEPS_MAX];
	size_t length;
	/* Drivers read a code object as an ELF file in place: aligned as the heap is. */
	_Alignas(max_align_t) unsigned char data[];
};

/* Numbers of 32 bits that a driver is called with; a daemon that says more is not to be believed. */
static int read_step(struct ft_view view, struct flytune_code_step *shown, struct ft_error *error)
{
	struct ft_code_step step;

	if (ft_decode(&ft_code_step_message, view, &step, error) != 0)
		return -1;
	if (step.block == 0 || step.block > 1024 || step.rows == 0 || step.rows > step.block ||
	        step.blocks_max == 0 || step.blocks_max > UINT32_MAX || step.dynamic_shared > UINT32_MAX)
		return ft_fail(error, FT_E_BAD_FRAME, "the code came with a launch that cannot be");
	flytune_code_step_init(shown);
	snprintf(shown->symbol, sizeof shown->symbol, "%s", step.symbol);
	snprintf(shown->arguments, sizeof shown->arguments, "%s", step.arguments);
	shown->block = (uint32_t)step.block;
	shown->rows = (uint32_t)step.rows;
	shown->blocks_max = (uint32_t)step.blocks_max;
	shown->dynamic_shared = (uint32_t)step.dynamic_shared;
	return 0;
}

static int read_steps(
        struct ft_view list, struct flytune_code_step *step, uint32_t *count, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(list.data, list.length);
	struct ft_view view;

	if (!ft_read_array(&cursor, count) || *count == 0 || *count > FT_CODE_STEPS_MAX)
		return ft_fail(error, FT_E_BAD_FRAME, "the code came with no launch, or too many");
	for (uint32_t i = 0; i < *count; i++) {
		if (!ft_read_view(&cursor, &view) || read_step(view, &step[i], error) != 0)
			return ft_fail(error, FT_E_BAD_FRAME, "the code came with a launch that cannot be");
	}
	return 0;
}

static void describe(
        const struct ft_code_reply *reply, const struct ft_code_about *about, struct flytune_code_info *info)
{
	snprintf(info->device, sizeof info->device, "%s", reply->device);
	snprintf(info->identity, sizeof info->identity, "%s", reply->identity);
	snprintf(info->hash, sizeof info->hash, "%s", about->hash);
	snprintf(info->target, sizeof info->target, "%s", about->target);
	snprintf(info->builder, sizeof info->builder, "%s", about->builder);
	info->object_version = about->version;
	info->max_threads = about->max_threads;
	info->registers = about->registers;
	info->spills = about->spills;
	info->shared = about->shared;
	info->wave = about->wave;
}

static int read_code(void *to, const struct client_reply *answer, struct ft_error *error)
{
	flytune_code_object **object = to;
	struct ft_code_reply reply;
	struct ft_code_about about;
	flytune_code_object *made;

	if (ft_decode(&ft_code_reply_message, answer->body, &reply, error) != 0 ||
	        ft_decode(&ft_code_about_message, reply.about, &about, error) != 0)
		return -1;
	if (reply.object.length == 0 || about.size != reply.object.length)
		return ft_fail(error, FT_E_BAD_FRAME, "the code object is cut off");
	made = calloc(1, sizeof *made + reply.object.length);
	if (made == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	flytune_code_info_init(&made->info);
	describe(&reply, &about, &made->info);
	if (read_steps(about.steps, made->step, &made->info.step_count, error) != 0 ||
	        answer_knobs(&reply.config, made->info.knob, &made->info.knob_count, error) != 0) {
		free(made);
		return -1;
	}
	made->length = reply.object.length;
	memcpy(made->data, reply.object.data, made->length);
	*object = made;
	return 0;
}

enum flytune_result flytune_code(flytune_client *client, const flytune_problem *problem, const char *device,
        flytune_code_object **object, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_code_request request = {0};
	struct ft_error error;

	REQUIRE(problem, out);
	REQUIRE(object, out);
	if (client_device(client, device, request.device, &error) != 0)
		return outcome(out, &error);
	memcpy(request.kernel, problem->about->kernel, sizeof request.kernel);
	problem_given(problem, &request.problem);
	return client_ask(client, "code", &ft_code_request_message, &request, read_code, object, out);
}

const void *flytune_code_data(const flytune_code_object *object, size_t *length)
{
	if (length != NULL)
		*length = object != NULL ? object->length : 0;
	return object != NULL ? object->data : NULL;
}

int flytune_code_describe(const flytune_code_object *object, struct flytune_code_info *info)
{
	return object != NULL && sized_out(info, &object->info, sizeof object->info);
}

int flytune_code_get_step(const flytune_code_object *object, size_t index, struct flytune_code_step *step)
{
	return object != NULL && index < object->info.step_count &&
	        sized_out(step, &object->step[index], sizeof object->step[index]);
}

uint32_t flytune_code_blocks(const struct flytune_code_step *step, int64_t scale)
{
	uint64_t rows, blocks;

	if (step == NULL)
		return 0;
	rows = step->rows > 0 ? step->rows : 1;
	blocks = scale > 0 ? ((uint64_t)scale + rows - 1) / rows : 1;
	return blocks < step->blocks_max ? (uint32_t)blocks : step->blocks_max;
}

void flytune_code_free(flytune_code_object *object)
{
	UNCANCELLED;

	free(object);
}
