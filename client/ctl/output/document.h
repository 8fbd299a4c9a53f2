/* Writes JSON. What cannot be written (memory is short) fails the whole document, and that shows once, at its end:
 * no call before it needs to be checked, and no member is ever left out. */
#ifndef FLYTUNE_CTL_DOCUMENT_H
#define FLYTUNE_CTL_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum document_style {
	DOCUMENT_PRETTY, /* a member a line */
	DOCUMENT_SPACED, /* on one line */
	DOCUMENT_DENSE,  /* on one line, without spaces */
};

/* Begins as {.style = …}. Depth at most 31. */
struct document {
	enum document_style style;
	char *text;
	size_t length, capacity;
	unsigned depth;
	uint32_t is_array, is_filled; /* a bit a depth */
	bool failed;
};

/* `name` is that of the member; NULL in an array, and at the top. */
void document_object(struct document *document, const char *name);
void document_array(struct document *document, const char *name);
/* Ends the object or array that was begun last. */
void document_end(struct document *document);
void document_null(struct document *document, const char *name);
void document_bool(struct document *document, const char *name, bool value);
void document_count(struct document *document, const char *name, uint64_t number);
void document_integer(struct document *document, const char *name, int64_t number);
/* Null for what is no number. */
void document_real(struct document *document, const char *name, double number);
/* A byte that is no UTF-8 becomes ?. */
void document_text(struct document *document, const char *name, const char *text);
void document_bytes(struct document *document, const char *name, const char *text, size_t length);

/* The text, which is the caller's to free; NULL if the document failed. Begins anew. */
char *document_take(struct document *document);
/* Prints it and a newline to standard output, whole or not at all, which output.h notes. Begins anew. */
void document_print(struct document *document);

#endif
