#include "daemon/methods/code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/answers/lookup.h"

/* Reads a whole file of kept code and checks it; the caller frees *data. The object begins at `object`. */
static int read_code(const char *path, const char *device, uint8_t **data, struct ft_view *about,
        struct ft_view *object, struct ft_error *error)
{
	const size_t magic = sizeof FT_CODE_MAGIC - 1;
	struct ft_code_about known;
	struct ft_cursor cursor;
	XXH128_canonical_t canonical;
	char sum[FT_HASH_SIZE];
	struct stat facts;
	uint8_t *whole = NULL;
	size_t size, at = 0;
	int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (descriptor < 0 && strncmp(device, "cpu:", 4) == 0)
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "%s has no code to hand out: its kernels are part of the runner's program", device);
	if (descriptor < 0)
		return ft_fail(error, FT_E_UNAVAILABLE, "its code is not kept: tune it again, with force");
	if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) ||
	        facts.st_size > FT_CODE_BYTES_MAX + 4096 || facts.st_size <= (off_t)magic)
		goto damaged;
	size = (size_t)facts.st_size;
	whole = malloc(size);
	if (whole == NULL) {
		(void)close(descriptor);
		return ft_fail(error, FT_E_MEMORY, "no memory for a code object");
	}
	while (at < size) {
		ssize_t got = read(descriptor, whole + at, size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			goto damaged;
		at += (size_t)got;
	}
	cursor = ft_cursor_of(whole + magic, size - magic);
	if (memcmp(whole, FT_CODE_MAGIC, magic) != 0 || !ft_read_view(&cursor, about) ||
	        ft_decode(&ft_code_about_message, *about, &known, NULL) != 0)
		goto damaged;
	*object = (struct ft_view){cursor.at, (size_t)(cursor.end - cursor.at)};
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(object->data, object->length));
	for (size_t i = 0; i < sizeof(canonical.digest); i++)
		(void)snprintf(sum + 2 * i, 3, "%02x", canonical.digest[i]);
	if (object->length == 0 || known.size != object->length || strcmp(sum, known.checksum) != 0)
		goto damaged;
	(void)close(descriptor);
	*data = whole;
	return 0;
damaged:
	free(whole);
	(void)close(descriptor);
	return ft_fail(error, FT_E_STORE,
	        "its code is kept in %.200s, which is damaged: tune it again, with force", path);
}

/* The winner's code, as its sweep kept it. */
static int find_code(struct context *context, const struct ft_code_request *request,
        struct ft_code_reply *reply, uint8_t **data, struct ft_error *error)
{
	struct target target;
	struct trials *trials = NULL;
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
	(void)snprintf(path, sizeof(path), "%s/code/%s.code", context->options->state_dir, winner->code);
	status = read_code(path, reply->device, data, &reply->about, &reply->object, error);
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
