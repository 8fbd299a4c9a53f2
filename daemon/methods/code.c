#include "daemon/methods/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/lookup.h"
#include "kernels/code_file.h"

static int read_code(const char *path, const char *device, struct ft_code_file *file, struct ft_error *error)
{
	switch (ft_code_file_read(path, file)) {
	case FT_CODE_ABSENT:
		if (strncmp(device, "cpu:", 4) == 0)
			return ft_fail(error, FT_E_UNAVAILABLE,
			        "%s has no code to hand out: its kernels are part of the runner's program",
			        device);
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "its code is not kept: tune it again, with force; "
		        "that of a kernel that is a folder is not handed out");
	case FT_CODE_DAMAGED:
		return ft_fail(error, FT_E_STORE,
		        "its code is kept in %.200s, which is damaged: tune it again, with force", path);
	case FT_CODE_NO_MEMORY:
		return ft_fail(error, FT_E_MEMORY, "no memory for a code object");
	case FT_CODE_WHOLE:
		break;
	}
	return 0;
}

/* The winner's code, as its sweep kept it. */
static int find_code(struct context *context, const struct ft_code_request *request,
        struct ft_code_reply *reply, uint8_t **data, struct ft_error *error)
{
	struct target target;
	struct trials *trials = NULL;
	struct ft_code_file file;
	char path[512];
	int status = -1;

	if (context_read(context, error) != 0 ||
	        target_admit(&target, context->devices, request->kernel, request->device, &request->problem,
	                error) != 0)
		return -1;
	if (lookup_trials(context->store, &target, &trials, error) < 0)
		return -1;
	if (trials == NULL || trials->winner < 0) {
		(void)ft_fail(error, FT_E_UNAVAILABLE,
		        "there is no code yet: this problem has not been tuned here");
		goto out;
	}
	const struct trial *winner = &trials->trial[trials->winner];

	memcpy(reply->kernel, request->kernel, sizeof(reply->kernel));
	reply->problem = target.problem;
	reply->config = winner->config;
	memcpy(reply->device, target.device->shown.id, sizeof(reply->device));
	memcpy(reply->identity, target.kernel->identity_hash, sizeof(reply->identity));
	/* The hash came from a runner: it names a file only if it is one. */
	if (strlen(winner->code) != FT_HASH_SIZE - 1 ||
	        strspn(winner->code, "0123456789abcdef") != FT_HASH_SIZE - 1) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "the runner of this device keeps no code");
		goto out;
	}
	(void)snprintf(path, sizeof(path), "%s/code/%s.code", context->settings->state_dir, winner->code);
	status = read_code(path, reply->device, &file, error);
	if (status == 0) {
		reply->about = file.about;
		reply->object = file.object;
		*data = file.data;
	}
out:
	trials_free(trials);
	return status;
}

void method_code(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_code_request request;
	struct ft_code_reply reply = {0};
	struct ft_error error;
	uint8_t *data = NULL;

	if (ft_decode(&ft_code_request_message, envelope->body, &request, &error) != 0 ||
	        find_code(group, &request, &reply, &data, &error) != 0)
		session_fail(session, envelope->id, &error);
	else
		session_reply(session, envelope->id, &ft_code_reply_message, &reply);
	free(data);
}
