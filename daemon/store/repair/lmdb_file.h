/* Reads an LMDB data file without LMDB: page by page with pread, believing nothing of what it finds.
 *
 * LMDB trusts its file: a damaged one kills the process that opens it. So whatever must be known before it is
 * trusted, or got out of a file that no longer can be, is read here. The file must not change meanwhile.
 *
 * Words. The *header* is two meta pages, of which the one with the higher transaction number counts. A *lost*
 * place is a page or entry that could not be read; the walk goes on behind it. */
#ifndef FLYTUNE_DAEMON_LMDB_FILE_H
#define FLYTUNE_DAEMON_LMDB_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum pages_state {
	PAGES_OPEN,    /* the header is sound */
	PAGES_EMPTY,   /* no bytes at all */
	PAGES_FOREIGN, /* another version of LMDB's format, or another byte order or word size */
	PAGES_BAD,     /* no LMDB file, or its header is damaged */
};

struct pages_tree {
	uint32_t depth, flags;
	uint64_t branch, leaf, overflow; /* pages */
	uint64_t entries;
	uint64_t root; /* UINT64_MAX: empty */
};

struct pages {
	int fd; /* borrowed */
	uint64_t size;
	uint32_t page_size;
	uint32_t version;   /* of LMDB's format */
	uint64_t last_page; /* ever used, as the header says; the file may end before if that one was never
	                       written */
	uint64_t transaction;
	struct pages_tree freed, main;
};

/* The two meta pages as they stand in the file, one after the other. */
enum { PAGES_META_SIZE = 152, PAGES_HEADER_SIZE = 2 * PAGES_META_SIZE };

/* Copies the header out; false if it cannot be read. page_size 0: what the first meta page says. */
bool pages_copy_header(int fd, uint32_t page_size, uint8_t header[PAGES_HEADER_SIZE], uint32_t *found_size);
/* Writes it, durably. */
int pages_put_header(
        int fd, uint32_t page_size, const uint8_t header[PAGES_HEADER_SIZE], struct ft_error *error);

/* Reads the header, and judges every field of it that LMDB would act upon. -1 only if the file cannot be read at all. */
int pages_open(struct pages *pages, int fd, enum pages_state *state, struct ft_error *error);
/* The same with this header instead of the file's. */
int pages_open_with(struct pages *pages, int fd, uint32_t page_size, const uint8_t header[PAGES_HEADER_SIZE],
        enum pages_state *state, struct ft_error *error);
/* For repair: opens as each meta page says by itself that can be taken for one, however little it is to be believed, the
 * one of the lower transaction number first. The older one describes the store as it was a transaction before. Gives how
 * many there are, -1 on an error. */
int pages_open_each(struct pages pages[2], int fd, struct ft_error *error);
/* Whether the file is shorter than the header says. Most often damage, but not always: pages that were
 * allocated and given back in one transaction are counted and never written. pages_walk finds out. */
bool pages_short(const struct pages *pages);

/* Copies a value of the main tree into `value`, cut to `size`. 1 found, 0 not, -1 if a page on the way is
 * damaged. */
int pages_get(const struct pages *pages, const void *key, size_t key_length, void *value, size_t size,
        size_t *length);

struct pages_report {
	uint64_t records;
	uint64_t lost;
	uint64_t pages;  /* reached */
	char first[160]; /* what the first loss was, for people */
};

typedef bool (*pages_visit)(void *data, const void *key, size_t key_length, const void *value, size_t length);
/* Visits every record of the main tree that can be read, in order, until `visit` (may be NULL) returns false;
 * with `freed` also checks the list of free pages. -1 only when out of memory. */
int pages_walk(const struct pages *pages, bool freed, pages_visit visit, void *data,
        struct pages_report *report, struct ft_error *error);

#endif
