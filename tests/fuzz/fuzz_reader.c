/* The scan and the cursor: what a peer sends before anything about it is known.
 *
 * The first byte chooses the size of the pieces in which the rest arrives. */
#include "tests/fuzz/target.h"

#include <string.h>

#include "proto/reader.h"

/* Small enough that a fuzzer reaches every bound. */
static const struct ft_bounds tight = {.bytes = 300, .depth = 5, .values = 40};

static void walk(const uint8_t *data, size_t size, size_t piece, const struct ft_bounds *bounds)
{
	struct ft_scan scan;
	struct ft_error error;
	ft_scan_init(&scan, bounds);
	int whole = ft_scan_walk(&scan, data, size, &error);

	struct ft_scan slow;
	ft_scan_init(&slow, bounds);
	int slow_whole = 0;
	for (size_t length = 0; slow_whole == 0 && length < size;) {
		length = size - length < piece ? size : length + piece;
		slow_whole = ft_scan_walk(&slow, data, length, &error);
	}
	if (size > 0)
		MUST(whole == slow_whole);
	MUST(scan.offset == slow.offset);
	MUST(scan.offset <= size && scan.offset <= bounds->bytes);
	MUST(scan.values <= bounds->values && scan.depth <= bounds->depth);
	if (whole != 1)
		return;
	struct ft_cursor cursor = ft_cursor_of(data, size);
	struct ft_view view;
	MUST(ft_read_view(&cursor, &view));
	MUST(view.length == scan.offset);
}

/* Reads one value after the other, into containers, by what each says that it is. */
static void read_all(const uint8_t *data, size_t size)
{
	struct ft_cursor cursor = ft_cursor_of(data, size);
	for (;;) {
		const uint8_t *before = cursor.at;
		uint32_t count = 0;
		bool flag = false;
		int64_t number = 0;
		uint64_t large = 0;
		double real = 0;
		const char *text = NULL;
		const uint8_t *bytes = NULL;
		size_t length = 0;
		char name[16];
		struct ft_view view;
		struct ft_problem problem;
		struct ft_config config;
		struct ft_error error;
		struct ft_cursor ahead = cursor;
		if (ft_read_problem(&ahead, &problem, &error) == 0) {
			char shown[FT_PROBLEM_TEXT_SIZE];
			MUST(ft_problem_format(&problem, ' ', shown, sizeof(shown)) < FT_PROBLEM_TEXT_SIZE);
		}
		ahead = cursor;
		if (ft_read_config(&ahead, &config, &error) == 0) {
			char shown[FT_CONFIG_TEXT_SIZE];
			struct ft_config parsed;
			if (config.document_length > 0) {
				MUST(config.document >= (const char *)data &&
				        config.document + config.document_length <=
				                (const char *)data + size);
			} else {
				MUST(ft_config_format(&config, ' ', shown, sizeof(shown)) <
				        FT_CONFIG_TEXT_SIZE);
				MUST(ft_config_parse(shown, &parsed, &error) == 0);
				MUST(ft_config_equal(&config, &parsed));
			}
		}
		ahead = cursor;
		if (ft_read_text_into(&ahead, name, sizeof(name)))
			MUST(strlen(name) < sizeof(name));
		switch (ft_peek(&cursor)) {
		case FT_KIND_END:
			return;
		case FT_KIND_NIL:
			MUST(ft_read_nil(&cursor));
			break;
		case FT_KIND_BOOL:
			MUST(ft_read_bool(&cursor, &flag));
			break;
		case FT_KIND_INT:
			MUST(ft_read_int(&cursor, &number) || ft_read_uint(&cursor, &large));
			break;
		case FT_KIND_REAL:
			if (!ft_read_real(&cursor, &real))
				MUST(ft_read_view(&cursor, &view));
			break;
		case FT_KIND_TEXT:
			if (!ft_read_text(&cursor, &text, &length))
				return;
			break;
		case FT_KIND_BYTES:
			if (!ft_read_bytes(&cursor, &bytes, &length))
				return;
			break;
		case FT_KIND_ARRAY:
			if (!ft_read_array(&cursor, &count))
				return;
			MUST(count <= (size_t)(cursor.end - cursor.at));
			break;
		case FT_KIND_MAP:
			if (!ft_read_map(&cursor, &count))
				return;
			MUST(count <= (size_t)(cursor.end - cursor.at));
			break;
		case FT_KIND_OTHER:
			if (!ft_read_view(&cursor, &view))
				return;
			break;
		}
		MUST(cursor.at > before && cursor.at <= cursor.end);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	size_t piece = 1 + data[0] % 16;
	walk(data + 1, size - 1, piece, &tight);
	walk(data + 1, size - 1, piece, &ft_bounds_request);
	walk(data + 1, size - 1, piece, &ft_bounds_large);
	read_all(data + 1, size - 1);
	return 0;
}
