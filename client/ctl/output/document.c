#include "client/ctl/output/document.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/output/output.h"
#include "proto/codec.h"

enum { FIRST_CAPACITY = 1024, REAL_DIGITS = 12 };

static void put(struct document *document, const char *text, size_t length)
{
	if (document->failed)
		return;
	if (document->capacity - document->length <= length) {
		size_t capacity = document->capacity == 0 ? FIRST_CAPACITY : document->capacity;
		char *grown;

		while (capacity - document->length <= length)
			capacity *= 2;
		grown = realloc(document->text, capacity);
		if (grown == NULL) {
			document->failed = true;
			return;
		}
		document->text = grown;
		document->capacity = capacity;
	}
	memcpy(document->text + document->length, text, length);
	document->length += length;
	document->text[document->length] = '\0';
}

static void put_text(struct document *document, const char *text)
{
	put(document, text, strlen(text));
}

static void put_escaped(struct document *document, unsigned char byte)
{
	static const char short_form[] = {
	        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
	char text[8];

	if (byte == '"' || byte == '\\')
		snprintf(text, sizeof text, "\\%c", byte);
	else if (byte < sizeof short_form && short_form[byte] != '\0')
		snprintf(text, sizeof text, "\\%c", short_form[byte]);
	else
		snprintf(text, sizeof text, "\\u%04X", byte);
	put_text(document, text);
}

static void put_string(struct document *document, const char *text, size_t length)
{
	const uint8_t *bytes = (const uint8_t *)text;
	size_t plain = 0;

	put(document, "\"", 1);
	for (size_t i = 0; i < length;) {
		size_t size = ft_utf8_length(bytes + i, length - i);

		if (size == 0 || bytes[i] < 0x20 || bytes[i] == '"' || bytes[i] == '\\') {
			put(document, text + plain, i - plain);
			if (size == 0)
				put(document, "?", 1);
			else
				put_escaped(document, bytes[i]);
			plain = i + 1;
		}
		i += size > 0 ? size : 1;
	}
	put(document, text + plain, length - plain);
	put(document, "\"", 1);
}

static void new_line(struct document *document)
{
	if (document->style != DOCUMENT_PRETTY)
		return;
	put(document, "\n", 1);
	for (unsigned i = 0; i < document->depth; i++)
		put(document, "  ", 2);
}

/* What stands before a value: a comma after the last one, and the member's name. */
static void begin_value(struct document *document, const char *name)
{
	uint32_t here = UINT32_C(1) << document->depth;

	if ((document->is_filled & here) != 0)
		put(document, ", ", document->style == DOCUMENT_SPACED ? 2 : 1);
	document->is_filled |= here;
	if (document->depth > 0)
		new_line(document);
	if (name == NULL)
		return;
	put_string(document, name, strlen(name));
	put(document, ": ", document->style == DOCUMENT_DENSE ? 1 : 2);
}

static void put_value(struct document *document, const char *name, const char *value)
{
	begin_value(document, name);
	put_text(document, value);
}

static void begin(struct document *document, const char *name, bool is_array)
{
	uint32_t inside;

	put_value(document, name, is_array ? "[" : "{");
	inside = UINT32_C(1) << ++document->depth;
	document->is_filled &= ~inside;
	document->is_array = is_array ? document->is_array | inside : document->is_array & ~inside;
}

void document_object(struct document *document, const char *name)
{
	begin(document, name, false);
}

void document_array(struct document *document, const char *name)
{
	begin(document, name, true);
}

void document_end(struct document *document)
{
	uint32_t inside = UINT32_C(1) << document->depth--;

	if ((document->is_filled & inside) != 0)
		new_line(document);
	put(document, (document->is_array & inside) != 0 ? "]" : "}", 1);
}

void document_null(struct document *document, const char *name)
{
	put_value(document, name, "null");
}

void document_bool(struct document *document, const char *name, bool value)
{
	put_value(document, name, value ? "true" : "false");
}

void document_count(struct document *document, const char *name, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof text, "%" PRIu64, number);
	put_value(document, name, text);
}

void document_integer(struct document *document, const char *name, int64_t number)
{
	char text[24];

	snprintf(text, sizeof text, "%" PRId64, number);
	put_value(document, name, text);
}

void document_real(struct document *document, const char *name, double number)
{
	char text[40];

	if (!isfinite(number)) {
		document_null(document, name);
		return;
	}
	snprintf(text, sizeof text, "%.*g", REAL_DIGITS, number);
	put_value(document, name, text);
	/* It stays a real number for whoever makes a difference between these and integers. */
	if (strpbrk(text, ".e") == NULL)
		put_text(document, ".0");
}

void document_bytes(struct document *document, const char *name, const char *text, size_t length)
{
	begin_value(document, name);
	put_string(document, text, length);
}

void document_text(struct document *document, const char *name, const char *text)
{
	document_bytes(document, name, text, strlen(text));
}

char *document_take(struct document *document)
{
	char *text = document->text;

	if (document->failed) {
		free(text);
		text = NULL;
	}
	*document = (struct document){.style = document->style};
	return text;
}

void document_print(struct document *document)
{
	size_t length = document->length;
	char *text = document_take(document);

	if (text == NULL) {
		output_short();
		return;
	}
	if (fwrite(text, 1, length, stdout) == length)
		putchar('\n');
	free(text);
}
