#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/alike.h"
#include "client/lib/cancel.h"
#include "client/lib/handle.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"
#include "client/lib/words.h"
#include "kernels/kernel.h"

_Static_assert((int)FLYTUNE_CHOICES_MAX == FT_CHOICES_MAX && FLYTUNE_KNOB_VALUES_MAX == FT_KNOB_VALUES_MAX,
        "what is told fits");

struct kernel {
	struct flytune_kernel shown;
	struct flytune_kernel_field *field;
	struct flytune_kernel_knob *knob;
};

struct flytune_kernel_list {
	struct kernel *kernel;
	size_t count;
};

static void show_field(const struct ft_schema *schema, uint32_t index, struct flytune_kernel_field *to)
{
	const struct ft_schema_field_def *from = &schema->field[index];

	*to = (struct flytune_kernel_field){.size = sizeof *to};
	memcpy(to->name, from->name, sizeof to->name);
	memcpy(to->help, from->help, sizeof to->help);
	to->is_text = from->is_text;
	to->min = from->min;
	to->max = from->max;
	for (uint32_t i = 0; i < FT_CHOICES_MAX && from->choice[i][0] != '\0'; i++)
		memcpy(to->choice[to->choice_count++], from->choice[i], sizeof to->choice[0]);
	memcpy(to->same_as, from->same_as, sizeof to->same_as);
	to->has_default = from->has_default;
	to->default_number = from->default_number;
	memcpy(to->default_text, from->default_text, sizeof to->default_text);
}

static int show_knob(const struct ft_knob_def *from, struct flytune_kernel_knob *to, struct ft_error *error)
{
	*to = (struct flytune_kernel_knob){.size = sizeof *to};
	memcpy(to->name, from->name, sizeof to->name);
	memcpy(to->help, from->help, sizeof to->help);
	to->changes_bits = from->changes_bits;
	to->value_count = from->count;
	for (uint32_t i = 0; i < from->count; i++) {
		memcpy(to->value[i].name, from->name, sizeof to->value[i].name);
		to->value[i].value = from->value[i];
		to->value[i].word = from->is_word ? words_keep(from->word[i]) : NULL;
		if (from->is_word && to->value[i].word == NULL)
			return ft_fail(error, FT_E_MEMORY, "out of memory");
	}
	return 0;
}

/* Words are kept once, so that equal ones are one pointer. */
static bool same_knob(const struct flytune_kernel_knob *a, const struct flytune_kernel_knob *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->help, b->help) == 0 &&
	        a->changes_bits == b->changes_bits && a->value_count == b->value_count &&
	        memcmp(a->value, b->value, sizeof a->value) == 0;
}

static void add_word(char *list, size_t size, const char *word)
{
	size_t length = strlen(list);

	snprintf(list + length, size - length, "%s%s", length > 0 ? " " : "", word);
}

/* What several kinds of device have alike is one knob. */
static int add_knobs(
        struct kernel *kernel, const struct ft_schema *schema, const char *kind, struct ft_error *error)
{
	struct flytune_kernel_knob *more =
	        realloc(kernel->knob, (kernel->shown.knob_count + schema->knob_count + 1) * sizeof *more);

	if (more == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	kernel->knob = more;
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		struct flytune_kernel_knob *fresh = &more[kernel->shown.knob_count];
		uint32_t at = 0;

		if (show_knob(&schema->knob[i], fresh, error) != 0)
			return -1;
		while (!same_knob(&more[at], fresh))
			at++;
		add_word(more[at].kinds, sizeof more[at].kinds, kind);
		kernel->shown.knob_count += at == kernel->shown.knob_count;
	}
	return 0;
}

static int add_fields(struct kernel *kernel, const struct ft_schema *schema, struct ft_error *error)
{
	kernel->field = calloc(schema->field_count + 1, sizeof *kernel->field);
	if (kernel->field == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	for (uint32_t i = 0; i < schema->field_count; i++)
		show_field(schema, i, &kernel->field[i]);
	kernel->shown.field_count = schema->field_count;
	return 0;
}

/* The schema as each kind of device has it, whose fields are the same. */
static int add_kinds(struct kernel *kernel, const struct ft_kernel_state *state, struct ft_schema *schema,
        struct ft_error *error)
{
	struct ft_cursor kinds = ft_cursor_of(state->kinds.data, state->kinds.length);
	struct ft_runner_kernel message = {.fields = state->fields};
	uint32_t count;

	memcpy(message.name, state->name, sizeof message.name);
	memcpy(message.scale, state->scale, sizeof message.scale);
	if (!ft_read_array(&kinds, &count))
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent something else than a list");
	for (uint32_t i = 0; i < count; i++) {
		struct ft_kernel_kind kind;
		struct ft_view view;

		if (!ft_read_view(&kinds, &view))
			return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent a list that ends early");
		if (ft_decode(&ft_kernel_kind_message, view, &kind, error) != 0)
			return -1;
		message.knobs = kind.knobs;
		if (ft_schema_read(&message, schema, error) != 0 ||
		        (kernel->field == NULL && add_fields(kernel, schema, error) != 0) ||
		        add_knobs(kernel, schema, kind.kind, error) != 0)
			return -1;
		add_word(kernel->shown.kinds, sizeof kernel->shown.kinds, kind.kind);
	}
	return 0;
}

static int read_kernel(
        struct ft_view data, struct kernel *kernel, struct ft_schema *schema, struct ft_error *error)
{
	struct ft_kernel_state state, *from = &state;
	struct flytune_kernel *to = &kernel->shown;

	if (ft_decode(&ft_kernel_state_message, data, &state, error) != 0)
		return -1;
	*to = (struct flytune_kernel){.size = sizeof *to};
	FT_KERNEL_STATE(COPY_ALIKE);
	return add_kinds(kernel, &state, schema, error);
}

static int read_list(
        struct ft_view data, flytune_kernel_list *list, struct ft_schema *schema, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint32_t count;

	if (!ft_read_array(&cursor, &count))
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent something else than a list");
	list->kernel = calloc((size_t)count + 1, sizeof *list->kernel);
	if (list->kernel == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	for (; list->count < count; list->count++) {
		struct ft_view view;

		if (!ft_read_view(&cursor, &view))
			return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent a list that ends early");
		if (read_kernel(view, &list->kernel[list->count], schema, error) != 0) {
			list->count++; /* what there is of it is freed with the others */
			return -1;
		}
	}
	return 0;
}

static int read_kernels(void *data, const struct client_reply *reply, struct ft_error *error)
{
	flytune_kernel_list *list = calloc(1, sizeof *list);
	struct ft_schema *schema = calloc(1, sizeof *schema);
	struct ft_kernels_reply kernels;
	int result;

	if (list == NULL || schema == NULL)
		result = ft_fail(error, FT_E_MEMORY, "out of memory");
	else if (ft_decode(&ft_kernels_reply_message, reply->body, &kernels, error) != 0)
		result = -1;
	else
		result = read_list(kernels.kernels, list, schema, error);
	free(schema);
	if (result == 0)
		*(flytune_kernel_list **)data = list;
	else
		flytune_kernel_list_free(list);
	return result;
}

enum flytune_result flytune_kernels(
        flytune_client *client, const char *name, flytune_kernel_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_kernels_request request = {0};
	struct ft_error error;

	REQUIRE(list, out);
	if (name != NULL && strlen(name) >= sizeof request.kernel) {
		(void)ft_fail_field(
		        &error, FT_E_BAD_VALUE, "name", name, "a kernel's name, of at most 63 bytes");
		return outcome(out, &error);
	}
	if (name != NULL)
		snprintf(request.kernel, sizeof request.kernel, "%s", name);
	return client_ask(client, "kernels", &ft_kernels_request_message, &request, read_kernels, list, out);
}

size_t flytune_kernel_list_count(const flytune_kernel_list *list)
{
	return list != NULL ? list->count : 0;
}

int flytune_kernel_list_get(const flytune_kernel_list *list, size_t index, struct flytune_kernel *kernel)
{
	return list != NULL && index < list->count &&
	        sized_out(kernel, &list->kernel[index].shown, sizeof list->kernel[index].shown);
}

int flytune_kernel_list_get_field(
        const flytune_kernel_list *list, size_t kernel, size_t index, struct flytune_kernel_field *field)
{
	return list != NULL && kernel < list->count && index < list->kernel[kernel].shown.field_count &&
	        sized_out(field, &list->kernel[kernel].field[index], sizeof *list->kernel[kernel].field);
}

int flytune_kernel_list_get_knob(
        const flytune_kernel_list *list, size_t kernel, size_t index, struct flytune_kernel_knob *knob)
{
	return list != NULL && kernel < list->count && index < list->kernel[kernel].shown.knob_count &&
	        sized_out(knob, &list->kernel[kernel].knob[index], sizeof *list->kernel[kernel].knob);
}

void flytune_kernel_list_free(flytune_kernel_list *list)
{
	UNCANCELLED;

	for (size_t i = 0; list != NULL && i < list->count; i++) {
		free(list->kernel[i].field);
		free(list->kernel[i].knob);
	}
	if (list != NULL)
		free(list->kernel);
	free(list);
}
