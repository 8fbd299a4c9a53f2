/* A file of kept code (PROTOCOL.md, "Kept code"): what is known of a code object and how it is launched, then its bytes. */
#ifndef FLYTUNE_KERNELS_CODE_FILE_H
#define FLYTUNE_KERNELS_CODE_FILE_H

#include "proto/messages.h"

struct ft_code_file {
	uint8_t *data;                /* the caller's to free */
	struct ft_view about, object; /* in there; the first is a code_about */
	struct ft_code_about known;   /* that one */
};

enum ft_code_found { FT_CODE_ABSENT, FT_CODE_DAMAGED, FT_CODE_NO_MEMORY, FT_CODE_WHOLE };

/* Checks all of it. But for FT_CODE_WHOLE there is nothing to free. */
enum ft_code_found ft_code_file_read(const char *path, struct ft_code_file *file);

/* 128 bits of XXH3, in hexadecimal. */
void ft_hash_text(const void *data, size_t size, char text[FT_HASH_SIZE]);

#endif
