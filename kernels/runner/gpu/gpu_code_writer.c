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
	struct ft_code_about launch;
};

struct gpu_keeper {
	char folder[256];
	pthread_t thread;
	bool runs; /* the thread does */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t more;
	struct kept *first, **last;
	bool ends;
};

static struct kept *take(struct gpu_keeper *keeper)
{
	struct kept *kept;

	pthread_mutex_lock(&keeper->lock);
	while (!keeper->first && !keeper->ends)
		pthread_cond_wait(&keeper->more, &keeper->lock);
	kept = keeper->first;
	if (kept) {
		keeper->first = kept->next;
		if (!keeper->first)
			keeper->last = &keeper->first;
	}
	pthread_mutex_unlock(&keeper->lock);
	return kept;
}

static void keep(const struct gpu_keeper *keeper, struct kept *kept)
{
	gpu_code_keep(keeper->folder, kept->key, &kept->code, kept->has_launch ? &kept->launch : NULL, NULL);
	gpu_code_free(&kept->code);
	free(kept);
}

static void *keep_all(void *argument)
{
	struct gpu_keeper *keeper = argument;
	struct kept *kept;

	while ((kept = take(keeper)))
		keep(keeper, kept);
	return NULL;
}

int gpu_keeper_open(struct gpu_keeper **keeper, const char *folder, struct ft_error *error)
{
	*keeper = calloc(1, sizeof **keeper);
	if (!*keeper)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	snprintf((*keeper)->folder, sizeof(*keeper)->folder, "%s", folder);
	pthread_mutex_init(&(*keeper)->lock, NULL);
	pthread_cond_init(&(*keeper)->more, NULL);
	(*keeper)->last = &(*keeper)->first;
	return 0;
}

void gpu_keeper_put(struct gpu_keeper *keeper, const char *key, const struct gpu_code *code,
        const struct ft_code_about *launch)
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
	if (!keeper->runs)
		keeper->runs = pthread_create(&keeper->thread, NULL, keep_all, keeper) == 0;
	if (!keeper->runs) {
		keep(keeper, kept);
		return;
	}
	pthread_mutex_lock(&keeper->lock);
	*keeper->last = kept;
	keeper->last = &kept->next;
	pthread_cond_signal(&keeper->more);
	pthread_mutex_unlock(&keeper->lock);
}

void gpu_keeper_close(struct gpu_keeper *keeper)
{
	if (!keeper)
		return;
	pthread_mutex_lock(&keeper->lock);
	keeper->ends = true;
	pthread_cond_signal(&keeper->more);
	pthread_mutex_unlock(&keeper->lock);
	if (keeper->runs)
		pthread_join(keeper->thread, NULL);
	pthread_cond_destroy(&keeper->more);
	pthread_mutex_destroy(&keeper->lock);
	free(keeper);
}
