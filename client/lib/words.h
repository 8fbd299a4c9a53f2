/* The words of knobs, each kept once and never freed, so that answers can be copied, kept and forgotten as plain memory. */
#ifndef FLYTUNE_CLIENT_WORDS_H
#define FLYTUNE_CLIENT_WORDS_H

/* The kept copy of a word; NULL when out of memory, or when this process has met more words than any set of kernels has. Any
 * thread, without a lock, across fork. */
const char *words_keep(const char *word);

#endif
