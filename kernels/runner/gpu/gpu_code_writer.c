#include "kernels/runner/gpu/gpu_code_writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kept {
	struct kept *next;
	char key[FT_HASH_SIZE];
	struct gpu_code code; /* a copy, owned */
	bool has_launch;
	struct gpu_about launch;
};

struct gpu_code_writer {
	char folder[256];
	pthread_t thread;
	bool runs; /* the thread does */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t more;
	struct kept *first, **last;
	bool ends;
};

static struct kept *take(struct gpu_code_writer *code_writer)
{
	struct kept *kept;

	pthread_mutex_lock(&code_writer->lock);
	while (!code_writer->first && !code_writer->ends)
		pthread_cond_wait(&code_writer->more, &code_writer->lock);
	kept = code_writer->first;
	if (kept) {
		code_writer->first = kept->next;
		if (!code_writer->first)
			code_writer->last = &code_writer->first;
	}
	pthread_mutex_unlock(&code_writer->lock);
	return kept;
}

static void keep(const struct gpu_code_writer *code_writer, struct kept *kept)
{
	gpu_code_keep(
	        code_writer->folder, kept->key, &kept->code, kept->has_launch ? &kept->launch : NULL, NULL);
	gpu_code_free(&kept->code);
	free(kept);
}

static void *keep_all(void *argument)
{
	struct gpu_code_writer *code_writer = argument;
	struct kept *kept;

	while ((kept = take(code_writer)))
		keep(code_writer, kept);
	return NULL;
}

int gpu_code_writer_open(struct gpu_code_writer **code_writer, const char *folder, struct ft_error *error)
{
	*code_writer = calloc(1, sizeof **code_writer);
	if (!*code_writer)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	snprintf((*code_writer)->folder, sizeof(*code_writer)->folder, "%s", folder);
	pthread_mutex_init(&(*code_writer)->lock, NULL);
	pthread_cond_init(&(*code_writer)->more, NULL);
	(*code_writer)->last = &(*code_writer)->first;
	return 0;
}

void gpu_code_writer_put(struct gpu_code_writer *code_writer, const char *key, const struct gpu_code *code,
        const struct gpu_about *launch)
{
	struct kept *kept = calloc(1, sizeof *kept);
	uint8_t *data = malloc(code->size);

	if (!kept || !data) {
		free(kept);
		free(data);
		return;
	}
	snprintf(kept->key, sizeof kept->key, "%s", key);
	memcpy(data, code->data, code->size);
	kept->code = *code;
	kept->code.data = data;
	kept->has_launch = launch != NULL;
	if (launch)
		kept->launch = *launch;
	if (!code_writer->runs)
		code_writer->runs = pthread_create(&code_writer->thread, NULL, keep_all, code_writer) == 0;
	if (!code_writer->runs) {
		keep(code_writer, kept);
		return;
	}
	pthread_mutex_lock(&code_writer->lock);
	*code_writer->last = kept;
	code_writer->last = &kept->next;
	pthread_cond_signal(&code_writer->more);
	pthread_mutex_unlock(&code_writer->lock);
}

void gpu_code_writer_close(struct gpu_code_writer *code_writer)
{
	if (!code_writer)
		return;
	pthread_mutex_lock(&code_writer->lock);
	code_writer->ends = true;
	pthread_cond_signal(&code_writer->more);
	pthread_mutex_unlock(&code_writer->lock);
	if (code_writer->runs)
		pthread_join(code_writer->thread, NULL);
	pthread_cond_destroy(&code_writer->more);
	pthread_mutex_destroy(&code_writer->lock);
	free(code_writer);
}
