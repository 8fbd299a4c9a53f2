/* Where a message ends (reader.h). */
#include <inttypes.h>
#include <stdio.h>

#include "proto/internal.h"

const struct ft_bounds ft_bounds_request = {.bytes = 1 << 20, .depth = 8, .values = 65536};
const struct ft_bounds ft_bounds_large = {.bytes = 64 << 20, .depth = 12, .values = 4194304};

void ft_scan_init(struct ft_scan *scan, const struct ft_bounds *bounds)
{
	scan->bounds = *bounds;
	if (scan->bounds.depth > FT_DEPTH_MAX)
		scan->bounds.depth = FT_DEPTH_MAX;
	scan->offset = 0;
	scan->skip = 0;
	scan->pending = 1;
	scan->values = 1;
	scan->depth = 0;
}

static int refuse(struct ft_error *error, const char *what, uint64_t bound)
{
	ft_fail(error, FT_E_BAD_FRAME, "the message %s %" PRIu64, what, bound);
	if (error != NULL)
		snprintf(error->bound, sizeof(error->bound), "at most %" PRIu64, bound);
	return -1;
}

/* Opens a container of `children` values, or counts one that is empty against the depth. */
static int open_container(struct ft_scan *scan, uint64_t children, struct ft_error *error)
{
	if (scan->depth >= scan->bounds.depth)
		return refuse(error, "nests deeper than", scan->bounds.depth);
	if (children > scan->bounds.values - scan->values)
		return refuse(error, "has more values than", scan->bounds.values);
	scan->values += (uint32_t)children;
	scan->pending += children;
	if (children > 0)
		scan->left[scan->depth++] = children;
	return 0;
}

/* Takes the next value out of the innermost container. Containers close when the next value comes, not with
 * their last: that one may be a container and nests as deep as any. */
static inline void take_value(struct ft_scan *scan)
{
	scan->pending--;
	while (scan->depth > 0 && scan->left[scan->depth - 1] == 0)
		scan->depth--;
	if (scan->depth > 0)
		scan->left[scan->depth - 1]--;
}

/* Passes over plain values and small containers, which most are. Whatever is not, is cut short, or may be too much is
 * left for the long way. */
static inline void walk_plain(struct ft_scan *scan, const uint8_t *data, size_t length)
{
	const uint8_t *at = data + scan->offset;
	const uint8_t *end = data + length;
	uint64_t pending = scan->pending;
	uint32_t depth = scan->depth;
	uint64_t left = depth > 0 ? scan->left[depth - 1] : pending;

	/* Else a plain value could announce more than the message may have. */
	if (pending > scan->bounds.bytes || length > scan->bounds.bytes - pending)
		return;
	while (pending > 0) {
		const uint64_t before = left;
		uint32_t children;

		for (; left > 0 && at < end; left--) {
			size_t size = plain_size[*at];

			if (size == 0 || size > (size_t)(end - at))
				break;
			at += size;
		}
		pending -= before - left;
		if (left == 0 && pending > 0) {
			/* It is closed only now that another value comes: its last may be a container, and nests as deep. */
			left = scan->left[--depth - 1];
			continue;
		}
		if (left == 0 || at == end || !is_small_container(*at))
			break;
		children = small_children(*at);
		if (depth >= scan->bounds.depth || children > scan->bounds.values - scan->values ||
		        length + pending + children > scan->bounds.bytes)
			break;
		at++;
		left--;
		pending += children;
		pending--;
		scan->values += children;
		if (children > 0) {
			if (depth > 0)
				scan->left[depth - 1] = left;
			depth++;
			left = children;
		}
	}
	if (depth > 0)
		scan->left[depth - 1] = left;
	scan->depth = depth;
	scan->pending = pending;
	scan->offset = (size_t)(at - data);
}

int ft_scan_walk(struct ft_scan *scan, const uint8_t *data, size_t length, struct ft_error *error)
{
	for (;;) {
		if (scan->skip > 0) {
			size_t have = length - scan->offset;
			size_t passed = scan->skip < have ? (size_t)scan->skip : have;
			scan->offset += passed;
			scan->skip -= passed;
			if (scan->skip > 0)
				return 0;
		}
		walk_plain(scan, data, length);
		if (scan->pending == 0)
			return 1;
		if (scan->offset >= length)
			return 0;
		struct head head;
		bool whole = read_head(data + scan->offset, length - scan->offset, &head);
		if (head.kind == FT_KIND_END)
			return ft_fail(error, FT_E_BAD_FRAME,
			        "the message has the byte 0xc1 where a value should begin");
		/* Every value that is still to come takes a byte at least. What they need together was
		 * checked to fit when they were announced, so that the sums below do not wrap. */
		uint64_t room = scan->bounds.bytes - scan->offset;
		uint64_t needed = head.size + head.follows + head.children + (scan->pending - 1);
		if (needed > room)
			return refuse(error, "is or will be longer in bytes than", scan->bounds.bytes);
		if (!whole)
			return 0;
		take_value(scan);
		if ((head.kind == FT_KIND_ARRAY || head.kind == FT_KIND_MAP) &&
		        open_container(scan, head.children, error) != 0)
			return -1;
		scan->offset += head.size;
		scan->skip = head.follows;
	}
}
