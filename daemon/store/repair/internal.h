/* What the files that read LMDB's file share: its layout. */
#ifndef FLYTUNE_DAEMON_REPAIR_INTERNAL_H
#define FLYTUNE_DAEMON_REPAIR_INTERNAL_H

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/repair/lmdb_file.h"

/* LMDB 0.9's format, for 64-bit words in the machine's byte order. */
enum {
	LMDB_MAGIC_SIZE = 4,
	LMDB_VERSION = 1,
	PAGE_MIN = 512,
	PAGE_MAX = 65536,
	PAGE_HEADER = 16,
	NODE_HEADER = 8,
	KEY_MAX = 511,
	DEPTH_MAX = 32,     /* of LMDB's own cursors */
	SHORT_MAX = 131072, /* pages that one transaction may have touched, and so left unwritten */

	FREED_FLAGS = 0x08, /* keys are integers */
	FREED_ANY = 0x4000, /* that a tool of LMDB's opened it as one file is remembered there */

	FLAG_BRANCH = 0x01,
	FLAG_LEAF = 0x02,
	FLAG_OVERFLOW = 0x04,
	FLAG_META = 0x08,

	NODE_BIG = 0x01, /* the value stands on pages of its own */
};
static const uint32_t lmdb_magic = 0xBEEFC0DE;
static const uint64_t no_page = UINT64_MAX;

static inline uint16_t load_u16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline uint32_t load_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline uint64_t load_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Reads up to `length` bytes; returns how many there were. */
static inline size_t read_at(int fd, uint64_t offset, void *data, size_t length)
{
	uint8_t *to = data;
	size_t done = 0;

	while (done < length) {
		ssize_t got = pread(fd, to + done, length - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

#endif
