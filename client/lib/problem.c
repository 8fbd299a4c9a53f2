#include "client/lib/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/lib/cancel.h"
#include "client/lib/outcome.h"

/* Appends a text with its NUL. */
static size_t append_text(char *key, size_t length, const char *text)
{
	size_t size = strlen(text) + 1;

	memcpy(key + length, text, size);
	return length + size;
}

/* The same whatever the order of the fields. */
static void make_key(flytune_problem *problem)
{
	const struct ft_field *fields[FT_FIELDS_MAX];
	char *key = (char *)problem->key; /* zeroed when it was made */
	size_t length = append_text(key, 0, problem->kernel);

	for (uint32_t i = 0; i < problem->whole.count; i++) {
		uint32_t at = i;

		for (; at > 0 && strcmp(fields[at - 1]->name, problem->whole.field[i].name) > 0; at--)
			fields[at] = fields[at - 1];
		fields[at] = &problem->whole.field[i];
	}
	for (uint32_t i = 0; i < problem->whole.count; i++) {
		length = append_text(key, length, fields[i]->name);
		key[length++] = (char)fields[i]->is_text;
		if (fields[i]->is_text) {
			length = append_text(key, length, fields[i]->text);
		} else {
			memcpy(key + length, &fields[i]->number, sizeof fields[i]->number);
			length += sizeof fields[i]->number;
		}
	}
	problem->key_words = (uint32_t)((length + 7) / 8);
	problem->hash = XXH3_64bits(problem->key, problem->key_words * sizeof *problem->key);
	if (problem->hash == 0)
		problem->hash = 1;
}

static int fill(
        flytune_problem *problem, const struct flytune_field *fields, size_t count, struct ft_error *error)
{
	for (size_t i = 0; i < count; i++) {
		const struct flytune_field *field = &fields[i];

		if (field->name == NULL)
			return ft_fail(error, FT_E_BAD_VALUE, "field number %zu has no name", i + 1);
		if (ft_problem_find(&problem->given, field->name) != NULL)
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, field->name, "given twice", "given once");
		if (field->text != NULL) {
			if (ft_problem_set_text(&problem->given, field->name, field->text, error) != 0)
				return -1;
		} else if (ft_problem_set_number(&problem->given, field->name, field->number, error) != 0) {
			return -1;
		}
	}
	return 0;
}

flytune_problem *flytune_problem_new(
        const char *kernel, const struct flytune_field *fields, size_t count, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_error error;
	flytune_problem *problem;

	if (kernel == NULL || (fields == NULL && count > 0)) {
		outcome_null(out, kernel == NULL ? "kernel" : "fields");
		return NULL;
	}
	if (!ft_name_valid(kernel)) {
		ft_fail_field(&error, FT_E_BAD_VALUE, "kernel", kernel,
		        "a name of letters, digits and underscores, under 32");
		outcome(out, &error);
		return NULL;
	}
	problem = aligned_alloc(PROBLEM_LINE, sizeof *problem);
	if (problem == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		outcome(out, &error);
		return NULL;
	}
	memset(problem, 0, sizeof *problem);
	snprintf(problem->kernel, sizeof problem->kernel, "%s", kernel);
	if (fill(problem, fields, count, &error) != 0) {
		outcome(out, &error);
		free(problem);
		return NULL;
	}
	problem->built_in = ft_kernel_find(kernel);
	/* Fields are the same for every kind of device; knobs are not. */
	if (problem->built_in == NULL)
		ft_fail_field(&problem->refusal, FT_E_UNKNOWN_KERNEL, "kernel", kernel,
		        "one that this library knows while flytuned is away");
	else if (ft_problem_admit(problem->built_in, problem->built_in->schema("cpu"), &problem->given,
	                 &problem->whole, &problem->refusal) == 0)
		problem->admitted = true;
	if (!problem->admitted)
		problem->whole = problem->given;
	make_key(problem);
	return problem;
}

void flytune_problem_free(flytune_problem *problem)
{
	UNCANCELLED;

	free(problem);
}

bool problem_equal(const flytune_problem *a, const flytune_problem *b)
{
	return a == b ||
	        (a->hash == b->hash && a->key_words == b->key_words &&
	                memcmp(a->key, b->key, a->key_words * sizeof *a->key) == 0);
}

const char *flytune_problem_kernel(const flytune_problem *problem)
{
	return problem != NULL ? problem->kernel : NULL;
}

int flytune_problem_field(const flytune_problem *problem, size_t index, struct flytune_field *field)
{
	const struct ft_field *own;

	if (problem == NULL || field == NULL || index >= problem->whole.count)
		return 0;
	own = &problem->whole.field[index];
	*field = (struct flytune_field){.name = own->name,
	        .text = own->is_text ? own->text : NULL,
	        .number = own->is_text ? 0 : own->number};
	return 1;
}
