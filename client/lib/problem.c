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

/* What a problem is made of. */
struct draft {
	const char *kernel;
	struct ft_problem given, whole;
	uint64_t key[PROBLEM_KEY_WORDS];
};

/* The same whatever the order of the fields. Its length in words. */
static uint32_t make_key(struct draft *draft)
{
	const struct ft_problem *whole = &draft->whole;
	const struct ft_field *fields[FT_FIELDS_MAX];
	char *key = (char *)draft->key; /* zeroed when it was made */
	size_t length = append_text(key, 0, draft->kernel);

	for (uint32_t i = 0; i < whole->count; i++) {
		uint32_t at = i;

		for (; at > 0 && strcmp(fields[at - 1]->name, whole->field[i].name) > 0; at--)
			fields[at] = fields[at - 1];
		fields[at] = &whole->field[i];
	}
	for (uint32_t i = 0; i < whole->count; i++) {
		length = append_text(key, length, fields[i]->name);
		key[length++] = (char)fields[i]->is_text;
		if (fields[i]->is_text) {
			length = append_text(key, length, fields[i]->text);
		} else {
			memcpy(key + length, &fields[i]->number, sizeof fields[i]->number);
			length += sizeof fields[i]->number;
		}
	}
	return (uint32_t)((length + 7) / 8);
}

static int fill(
        struct ft_problem *given, const struct flytune_field *fields, size_t count, struct ft_error *error)
{
	for (size_t i = 0; i < count; i++) {
		const struct flytune_field *field = &fields[i];

		if (field->name == NULL)
			return ft_fail(error, FT_E_BAD_VALUE, "field number %zu has no name", i + 1);
		if (ft_problem_find(given, field->name) != NULL)
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, field->name, "given twice", "given once");
		if (field->text != NULL) {
			if (ft_problem_set_text(given, field->name, field->text, error) != 0)
				return -1;
		} else if (ft_problem_set_number(given, field->name, field->number, error) != 0) {
			return -1;
		}
	}
	return 0;
}

/* NULL when out of memory. */
static flytune_problem *make(struct draft *draft)
{
	const struct ft_kernel *built_in = ft_kernel_find(draft->kernel);
	struct ft_error refusal = {0};
	struct problem_about *about;
	flytune_problem *problem;
	bool admitted = false;
	uint32_t words;
	size_t size;

	/* Fields are the same for every kind of device; knobs are not. */
	if (built_in == NULL)
		ft_fail_field(&refusal, FT_E_UNKNOWN_KERNEL, "kernel", draft->kernel,
		        "one that this library knows while flytuned is away");
	else if (ft_problem_admit(built_in, built_in->schema(built_in, "cpu"), &draft->given, &draft->whole,
	                 &refusal) == 0)
		admitted = true;
	if (!admitted)
		ft_problem_copy(&draft->whole, &draft->given);
	words = make_key(draft);
	size = sizeof *problem + words * sizeof *problem->key + sizeof *about +
	        (draft->given.count + draft->whole.count) * sizeof about->field[0];
	problem = aligned_alloc(PROBLEM_LINE, (size + PROBLEM_LINE - 1) / PROBLEM_LINE * PROBLEM_LINE);
	if (problem == NULL)
		return NULL;
	memcpy(problem->key, draft->key, words * sizeof *problem->key);
	problem->key_words = words;
	problem->hash = XXH3_64bits(problem->key, words * sizeof *problem->key);
	if (problem->hash == 0)
		problem->hash = 1;
	about = problem->about = (struct problem_about *)(void *)&problem->key[words];
	*about = (struct problem_about){.built_in = built_in,
	        .admitted = admitted,
	        .refusal = refusal,
	        .given_count = draft->given.count,
	        .whole_count = draft->whole.count};
	snprintf(about->kernel, sizeof about->kernel, "%s", draft->kernel);
	memcpy(about->field, draft->given.field, draft->given.count * sizeof about->field[0]);
	memcpy(about->field + draft->given.count, draft->whole.field,
	        draft->whole.count * sizeof about->field[0]);
	return problem;
}

flytune_problem *flytune_problem_new(
        const char *kernel, const struct flytune_field *fields, size_t count, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_error error;
	flytune_problem *problem = NULL;
	struct draft *draft;

	if (kernel == NULL || (fields == NULL && count > 0)) {
		outcome_null(out, kernel == NULL ? "kernel" : "fields");
		return NULL;
	}
	if (!ft_kernel_name_valid(kernel)) {
		ft_fail_field(&error, FT_E_BAD_VALUE, "kernel", kernel,
		        "a name of letters, digits and _ . / -, under 64");
		outcome(out, &error);
		return NULL;
	}
	draft = calloc(1, sizeof *draft);
	if (draft == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		outcome(out, &error);
		return NULL;
	}
	draft->kernel = kernel;
	if (fill(&draft->given, fields, count, &error) != 0) {
		outcome(out, &error);
	} else {
		problem = make(draft);
		if (problem == NULL) {
			ft_fail(&error, FT_E_MEMORY, "out of memory");
			outcome(out, &error);
		}
	}
	free(draft);
	return problem;
}

void flytune_problem_free(flytune_problem *problem)
{
	UNCANCELLED;

	free(problem);
}

static void copy_fields(struct ft_problem *to, const struct ft_field *field, uint32_t count)
{
	to->count = count;
	memcpy(to->field, field, count * sizeof *field);
}

void problem_given(const flytune_problem *problem, struct ft_problem *given)
{
	copy_fields(given, problem->about->field, problem->about->given_count);
}

void problem_whole(const flytune_problem *problem, struct ft_problem *whole)
{
	copy_fields(whole, problem->about->field + problem->about->given_count, problem->about->whole_count);
}

const char *flytune_problem_kernel(const flytune_problem *problem)
{
	return problem != NULL ? problem->about->kernel : NULL;
}

int flytune_problem_field(const flytune_problem *problem, size_t index, struct flytune_field *field)
{
	const struct ft_field *own;

	if (problem == NULL || field == NULL || index >= problem->about->whole_count)
		return 0;
	own = &problem->about->field[problem->about->given_count + index];
	*field = (struct flytune_field){.name = own->name,
	        .text = own->is_text ? own->text : NULL,
	        .number = own->is_text ? 0 : own->number};
	return 1;
}
