#include "client/lib/words.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { WORDS_MAX = 4096 };

static _Atomic(char *) table[WORDS_MAX];

const char *words_keep(const char *word)
{
	size_t at = XXH3_64bits(word, strlen(word)) % WORDS_MAX;
	char *made = NULL;

	for (size_t tried = 0; tried < WORDS_MAX; tried++, at = (at + 1) % WORDS_MAX) {
		char *kept = atomic_load_explicit(&table[at], memory_order_acquire);

		if (kept == NULL) {
			if (made == NULL)
				made = strdup(word);
			if (made == NULL ||
			        atomic_compare_exchange_strong_explicit(
			                &table[at], &kept, made, memory_order_acq_rel, memory_order_acquire))
				return made;
		}
		if (strcmp(kept, word) == 0) {
			free(made);
			return kept;
		}
	}
	free(made);
	return NULL;
}
