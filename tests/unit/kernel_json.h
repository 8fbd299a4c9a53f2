/* A kernel.json with one of everything, and others that differ from it in one part. */
#ifndef FLYTUNE_TESTS_KERNEL_JSON_H
#define FLYTUNE_TESTS_KERNEL_JSON_H

#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/folder/folder.h"

static const char good[] =
        "{\"name\": \"scale\", \"help\": \"y = a x\","
        " \"fields\": [{\"name\": \"m\", \"min\": 1, \"max\": 4096, \"scale\": true},"
        "  {\"name\": \"n\", \"min\": 1, \"max\": 1048576, \"default\": 64},"
        "  {\"name\": \"dtype\", \"choices\": [\"f32\", \"bf16\"], \"default\": \"bf16\"},"
        "  {\"name\": \"stride\", \"min\": 0, \"max\": 9223372036854775807, \"same_as\": \"n\"}],"
        " \"checks\": [{\"rule\": \"stride >= n\", \"why\": \"rows may not overlap\"}],"
        " \"knobs\": [{\"name\": \"BLOCK\", \"values\": [64, 128, 256, 2048]},"
        "  {\"name\": \"WALK\", \"values\": [\"rows\", \"columns\"], \"changes_bits\": true},"
        "  {\"name\": \"threads\", \"values\": [1, 2], \"kinds\": [\"cpu\"]}],"
        " \"space\": [{\"rule\": \"BLOCK <= 2 * n\", \"why\": \"a block is too long\"},"
        "  {\"rule\": \"threads <= units\", \"why\": \"there are not so many cores\"},"
        "  {\"rule\": \"WALK == 'rows' or m > 1\", \"prune\": \"there is one row\"}],"
        " \"default\": {\"BLOCK\": \"n >= 128 ? 128 : 64\", \"WALK\": \"'rows'\", \"threads\": 1},"
        " \"order\": [\"threads\", \"-BLOCK\"],"
        " \"buffers\": [{\"name\": \"x\", \"role\": \"in\", \"type\": \"dtype\", \"rows\": \"m\", "
        "\"length\": \"n\","
        "   \"stride\": \"stride\", \"fill\": \"uniform\"},"
        "  {\"name\": \"y\", \"role\": \"out\", \"type\": \"dtype\", \"rows\": \"m\", \"length\": \"n\","
        "   \"stride\": \"stride\", \"alias\": \"x\"},"
        "  {\"name\": \"room\", \"role\": \"scratch\", \"type\": \"f32\", \"length\": 16, \"fill\": "
        "\"zeros\"}],"
        " \"sources\": {\"cpu\": {\"file\": \"scale.c\", \"options\": [\"fast-math\"]},"
        "  \"cuda\": {\"file\": \"scale.cu\", \"defines\": {\"BLOCK\": \"BLOCK\", \"T\": \"dtype\"},"
        "   \"options\": [\"no-fma\"]}, \"hip\": \"cuda\"},"
        " \"launch\": {\"cpu\": [{\"symbol\": \"scale\", \"grid\": [\"m\", \"threads\"],"
        "   \"arguments\": [\"x\", \"y\"]}],"
        "  \"cuda\": [{\"symbol\": \"fill\", \"grid\": [1], \"block\": [32], \"arguments\": [\"room\"]},"
        "   {\"symbol\": \"scale\", \"grid\": [\"m\", 1, \"ceildiv(n, BLOCK)\"], \"block\": [\"BLOCK\"],"
        "    \"shared\": \"BLOCK * 4\", \"arguments\": [\"x\", \"y\", \"room\", {\"i32\": \"m * n\"},"
        "    {\"f32\": 1.5}, {\"f64\": \"n\"}]}], \"hip\": \"cuda\"},"
        " \"reference\": {\"file\": \"reference.c\", \"symbol\": \"scale_reference\","
        "  \"arguments\": [\"x\", \"y\", {\"i64\": \"n\"}]},"
        " \"tolerance\": {\"f32\": {\"relative\": 1e-5, \"absolute\": 1}},"
        " \"bytes\": \"2 * m * n * sizeof(dtype)\", \"flops\": \"m * n\"}";

/* The good one with one part replaced; the caller frees it. */
static inline char *replaced(const char *from, const char *to)
{
	const char *at = strstr(good, from);
	size_t size = sizeof(good) + strlen(to);
	char *text = malloc(size);

	if (at == NULL)
		fail_msg("there is no %s", from);
	assert_non_null(text);
	snprintf(text, size, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
	return text;
}

static inline struct ft_folder *parse(const char *text)
{
	struct ft_error error;
	struct ft_folder *folder = ft_folder_parse(text, strlen(text), &error);

	if (folder == NULL)
		fail_msg("%s", error.message);
	return folder;
}

/* Puts more behind a text. */
static inline void append(char *text, size_t size, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static inline void append(char *text, size_t size, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	length += (size_t)vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
	assert_true(length < size);
}

#endif
