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
	size_t length;
	/* Drivers read a code object as an ELF file in place: aligned as the heap is. */
	_Alignas(max_align_t) unsigned char data[];
};

/* Numbers of 32 bits that a driver is called with; a daemon that says more is not to be believed. */
static int read_launch(
        const struct ft_code_about *about, struct flytune_code_info *info, struct ft_error *error)
{
	if (about->block == 0 || about->block > 1024 || about->rows == 0 || about->rows > about->block ||
	        about->blocks_max == 0 || about->blocks_max > UINT32_MAX ||
	        about->dynamic_shared > UINT32_MAX)
		return ft_fail(error, FT_E_BAD_FRAME, "the code came with a launch that cannot be");
	info->block = (uint32_t)about->block;
	info->rows = (uint32_t)about->rows;
	info->blocks_max = (uint32_t)about->blocks_max;
	info->dynamic_shared = (uint32_t)about->dynamic_shared;
	return 0;
}

static int read_code(void *to, const struct client_reply *answer, struct ft_error *error)
{
	flytune_code_object **object = to;
	struct ft_code_reply reply;
	struct ft_code_about about;
	struct flytune_code_info info;
	flytune_code_object *made;

	if (ft_decode(&ft_code_reply_message, answer->body, &reply, error) != 0 ||
	        ft_decode(&ft_code_about_message, reply.about, &about, error) != 0)
		return -1;
	if (reply.object.length == 0 || about.size != reply.object.length)
		return ft_fail(error, FT_E_BAD_FRAME, "the code object is cut off");
	flytune_code_info_init(&info);
	if (read_launch(&about, &info, error) != 0)
		return -1;
	snprintf(info.device, sizeof info.device, "%s", reply.device);
	snprintf(info.identity, sizeof info.identity, "%s", reply.identity);
	snprintf(info.hash, sizeof info.hash, "%s", about.hash);
	snprintf(info.symbol, sizeof info.symbol, "%s", about.symbol);
	snprintf(info.target, sizeof info.target, "%s", about.target);
	snprintf(info.builder, sizeof info.builder, "%s", about.builder);
	snprintf(info.arguments, sizeof info.arguments, "%s", about.arguments);
	info.object_version = about.version;
	info.max_threads = about.max_threads;
	info.registers = about.registers;
	info.spills = about.spills;
	info.shared = about.shared;
	info.wave = about.wave;
	if (answer_knobs(&reply.config, info.knob, &info.knob_count, error) != 0)
		return -1;
	made = calloc(1, sizeof *made + reply.object.length);
	if (made == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	made->info = info;
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

uint32_t flytune_code_blocks(const struct flytune_code_info *info, int64_t scale)
{
	uint64_t rows, blocks;

	if (info == NULL)
		return 0;
	rows = info->rows > 0 ? info->rows : 1;
	blocks = scale > 0 ? ((uint64_t)scale + rows - 1) / rows : 1;
	return blocks < info->blocks_max ? (uint32_t)blocks : info->blocks_max;
}

void flytune_code_free(flytune_code_object *object)
{
	UNCANCELLED;

	free(object);
}
