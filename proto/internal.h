/* One value's head, its first byte and the count, length or number that follows: what the scan and the cursor both read.
 * Inline, since both are on the road of every lookup. */
#ifndef FLYTUNE_PROTO_INTERNAL_H
#define FLYTUNE_PROTO_INTERNAL_H

#include "proto/reader.h"

struct head {
	enum ft_kind kind; /* FT_KIND_END: the byte that MessagePack never uses */
	uint32_t size;     /* bytes of the head */
	uint64_t follows;  /* bytes of text, binary or extension after it */
	uint64_t children; /* values inside a container: two a pair */
};

static inline uint64_t load(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;
	for (uint32_t i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

/* Reads the head at `at`, of which `have` > 0 bytes are there. False if it is cut short; kind and size are
 * right even then. */
static inline __attribute__((always_inline)) bool read_head(const uint8_t *at, size_t have, struct head *head)
{
	uint8_t first = at[0];
	uint32_t width = 0; /* of the count or length */
	uint32_t extra = 0; /* bytes that follow the length and count for `follows`: an extension's type */
	*head = (struct head){.size = 1};
	if (first < 0x80 || first >= 0xe0) {
		head->kind = FT_KIND_INT;
		return true;
	}
	if (first < 0x90) {
		head->kind = FT_KIND_MAP;
		head->children = UINT64_C(2) * (first & 0x0fu);
		return true;
	}
	if (first < 0xa0) {
		head->kind = FT_KIND_ARRAY;
		head->children = first & 0x0fu;
		return true;
	}
	if (first < 0xc0) {
		head->kind = FT_KIND_TEXT;
		head->follows = first & 0x1fu;
		return true;
	}
	switch (first) {
	case 0xc0:
		head->kind = FT_KIND_NIL;
		return true;
	case 0xc1:
		head->kind = FT_KIND_END;
		return true;
	case 0xc2:
	case 0xc3:
		head->kind = FT_KIND_BOOL;
		return true;
	case 0xc4:
	case 0xc5:
	case 0xc6:
		head->kind = FT_KIND_BYTES;
		width = 1u << (first - 0xc4);
		break;
	case 0xc7:
	case 0xc8:
	case 0xc9:
		head->kind = FT_KIND_OTHER;
		width = 1u << (first - 0xc7);
		extra = 1;
		break;
	case 0xca:
		head->kind = FT_KIND_REAL;
		head->size = 5;
		return have >= 5;
	case 0xcb:
		head->kind = FT_KIND_REAL;
		head->size = 9;
		return have >= 9;
	case 0xcc:
	case 0xcd:
	case 0xce:
	case 0xcf:
		head->kind = FT_KIND_INT;
		head->size = 1 + (1u << (first - 0xcc));
		return have >= head->size;
	case 0xd0:
	case 0xd1:
	case 0xd2:
	case 0xd3:
		head->kind = FT_KIND_INT;
		head->size = 1 + (1u << (first - 0xd0));
		return have >= head->size;
	case 0xd4:
	case 0xd5:
	case 0xd6:
	case 0xd7:
	case 0xd8:
		head->kind = FT_KIND_OTHER;
		head->follows = 1 + (1u << (first - 0xd4));
		return true;
	case 0xd9:
	case 0xda:
	case 0xdb:
		head->kind = FT_KIND_TEXT;
		width = 1u << (first - 0xd9);
		break;
	case 0xdc:
	case 0xdd:
		head->kind = FT_KIND_ARRAY;
		width = 2u << (first - 0xdc);
		break;
	default: /* 0xde, 0xdf */
		head->kind = FT_KIND_MAP;
		width = 2u << (first - 0xde);
		break;
	}
	head->size = 1 + width;
	if (have < head->size)
		return false;
	uint64_t count = load(at + 1, width);
	if (head->kind == FT_KIND_ARRAY)
		head->children = count;
	else if (head->kind == FT_KIND_MAP)
		head->children = 2 * count;
	else
		head->follows = count + extra;
	return true;
}

/* Bytes of a value that its first byte alone tells of: numbers, nil, booleans, texts of up to 31 bytes. 0: the others. */
/* clang-format off */
static const uint8_t plain_size[256] = {
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x00 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x10 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x20 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x30 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x40 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x50 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x60 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x70 */
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 0x80 */
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 0x90 */
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, /* 0xa0 */
        17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, /* 0xb0 */
        1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 5, 9, 2, 3, 5, 9, /* 0xc0 */
        2, 3, 5, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 0xd0 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0xe0 */
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0xf0 */
};
/* clang-format on */

/* A map or an array of up to 15, and the values inside. */
static inline bool is_small_container(uint8_t first)
{
	return first >= 0x80 && first < 0xa0;
}

static inline uint32_t small_children(uint8_t first)
{
	return first < 0x90 ? 2 * (first & 0x0fu) : first & 0x0fu;
}

#endif
