/* flytunectl kernels, and the fields of kernels for --help */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"
#include "kernels/kernel.h"

enum { HELP_ANSWER_MS = 500 }; /* that the daemon may take to answer whoever asks for --help */

/* ---- fields and knobs ---- */

static void print_field(const struct flytune_kernel_field *field)
{
	char option[FLYTUNE_NAME_SIZE + 8];

	snprintf(option, sizeof option, "--%s", field->name);
	for (char *at = option; *at != '\0'; at++) {
		if (*at == '_')
			*at = '-';
	}
	printf("  %-18s %s%s", option, field->help, field->help[0] != '\0' ? ": " : "");
	if (!field->is_text)
		printf("%" PRId64 " to %" PRId64, field->min, field->max);
	for (uint32_t i = 0; i < field->choice_count; i++)
		printf("%s%s", i > 0 ? ", " : "", field->choice[i]);
	if (field->same_as[0] != '\0')
		printf("; else as --%s", field->same_as);
	else if (field->has_default && field->is_text)
		printf("; else %s", field->default_text);
	else if (field->has_default)
		printf("; else %" PRId64, field->default_number);
	puts("");
}

static void print_fields(const flytune_kernel_list *list, size_t kernel)
{
	struct flytune_kernel_field field;

	flytune_kernel_field_init(&field);
	for (size_t i = 0; flytune_kernel_list_get_field(list, kernel, i, &field); i++)
		print_field(&field);
}

static void print_knob(const struct flytune_kernel_knob *knob, const char *kinds)
{
	char text[FORMAT_SIZE];

	printf("  %-18s %s%s", knob->name, knob->help, knob->help[0] != '\0' ? ": " : "");
	for (uint32_t i = 0; i < knob->value_count; i++)
		printf("%s%s", i > 0 ? ", " : "", format_knob(&knob->value[i], text));
	if (strcmp(knob->kinds, kinds) != 0)
		printf("; on %s alone", knob->kinds);
	if (knob->changes_bits)
		fputs("; can change a result's bits", stdout);
	puts("");
}

/* As the library tells one; `to` comes zeroed. */
static void tell_field(const struct ft_schema_field_def *from, struct flytune_kernel_field *to)
{
	snprintf(to->name, sizeof to->name, "%s", from->name);
	snprintf(to->help, sizeof to->help, "%s", from->help);
	to->is_text = from->is_text;
	to->min = from->min;
	to->max = from->max;
	for (uint32_t i = 0; i < FLYTUNE_CHOICES_MAX && from->choice[i][0] != '\0'; i++)
		snprintf(to->choice[to->choice_count++], sizeof to->choice[0], "%s", from->choice[i]);
	snprintf(to->same_as, sizeof to->same_as, "%s", from->same_as);
	to->has_default = from->has_default;
	to->default_number = from->default_number;
	snprintf(to->default_text, sizeof to->default_text, "%s", from->default_text);
}

static bool explain_built_in(const char *name)
{
	bool found = false;

	for (const struct ft_kernel *const *kernel = ft_kernels; *kernel != NULL; kernel++) {
		const struct ft_schema *schema = (*kernel)->schema(*kernel, "cpu");

		if (name != NULL && strcmp(name, (*kernel)->name) != 0)
			continue;
		found = true;
		printf("Fields of %s:\n", (*kernel)->name);
		for (uint32_t i = 0; i < schema->field_count; i++) {
			struct flytune_kernel_field field = {0};

			tell_field(&schema->field[i], &field);
			print_field(&field);
		}
		puts("");
	}
	return found;
}

static flytune_kernel_list *ask(const struct ctl *ctl, const char *name, struct flytune_error *error)
{
	struct flytune_options options;
	flytune_kernel_list *list = NULL;
	flytune_client *client;

	ctl_client_options(ctl, &options);
	options.generation = "";
	options.call_timeout_ms = HELP_ANSWER_MS;
	client = flytune_open(&options, error);
	if (client != NULL && flytune_kernels(client, name, &list, error) != FLYTUNE_OK)
		list = NULL;
	flytune_close(client);
	return list;
}

void kernels_explain(const struct ctl *ctl, const char *name)
{
	struct flytune_error error = {0};
	struct flytune_kernel kernel;
	flytune_kernel_list *list;
	bool found = false;

	/* What an option's value may be is no kernel's name. */
	if (name != NULL && name[0] == '-')
		name = NULL;
	list = ask(ctl, name, &error);
	flytune_kernel_init(&kernel);
	for (size_t i = 0; flytune_kernel_list_get(list, i, &kernel); i++) {
		if (kernel.field_count == 0)
			continue;
		found = true;
		printf("Fields of %s:\n", kernel.name);
		print_fields(list, i);
		puts("");
	}
	if (list == NULL)
		found = explain_built_in(name);
	if (!found && name != NULL && list == NULL)
		printf("Fields of %s are not known here: %s\n\n", name, error.message);
	else if (!found && name != NULL)
		printf("There is no kernel %s: `flytunectl kernels` lists them.\n\n", name);
	flytune_kernel_list_free(list);
}

/* ---- the command ---- */

static void json_words(struct document *json, const char *name, const char *words)
{
	char text[FLYTUNE_REASON_SIZE], *rest = text;

	snprintf(text, sizeof text, "%s", words);
	document_array(json, name);
	for (char *word; (word = strsep(&rest, " ")) != NULL;) {
		if (*word != '\0')
			document_text(json, NULL, word);
	}
	document_end(json);
}

static void json_field(struct document *json, const struct flytune_kernel_field *field)
{
	document_object(json, NULL);
	document_text(json, "name", field->name);
	document_text(json, "help", field->help);
	document_text(json, "type", field->is_text ? "text" : "integer");
	if (field->is_text) {
		document_null(json, "min");
		document_null(json, "max");
	} else {
		document_integer(json, "min", field->min);
		document_integer(json, "max", field->max);
	}
	document_array(json, "choices");
	for (uint32_t i = 0; i < field->choice_count; i++)
		document_text(json, NULL, field->choice[i]);
	document_end(json);
	json_text(json, "same_as", field->same_as);
	if (!field->has_default)
		document_null(json, "default");
	else if (field->is_text)
		document_text(json, "default", field->default_text);
	else
		document_integer(json, "default", field->default_number);
	document_end(json);
}

static void json_kernel_knob(struct document *json, const struct flytune_kernel_knob *knob)
{
	document_object(json, NULL);
	document_text(json, "name", knob->name);
	document_text(json, "help", knob->help);
	json_words(json, "kinds", knob->kinds);
	document_bool(json, "changes_bits", knob->changes_bits);
	document_array(json, "values");
	for (uint32_t i = 0; i < knob->value_count; i++)
		json_knob(json, NULL, &knob->value[i]);
	document_end(json);
	document_end(json);
}

static void json_kernel(struct document *json, const flytune_kernel_list *list, size_t index)
{
	struct flytune_kernel kernel;
	struct flytune_kernel_field field;
	struct flytune_kernel_knob knob;

	flytune_kernel_init(&kernel);
	flytune_kernel_field_init(&field);
	flytune_kernel_knob_init(&knob);
	flytune_kernel_list_get(list, index, &kernel);
	document_object(json, NULL);
	document_text(json, "name", kernel.name);
	document_text(json, "help", kernel.help);
	document_text(json, "state", kernel.state);
	document_text(json, "origin", kernel.origin);
	json_text(json, "path", kernel.path);
	document_text(json, "reason", kernel.reason);
	json_words(json, "kinds", kernel.kinds);
	json_words(json, "devices", kernel.devices);
	json_text(json, "scale", kernel.scale);
	document_array(json, "fields");
	for (size_t i = 0; flytune_kernel_list_get_field(list, index, i, &field); i++)
		json_field(json, &field);
	document_end(json);
	document_array(json, "knobs");
	for (size_t i = 0; flytune_kernel_list_get_knob(list, index, i, &knob); i++)
		json_kernel_knob(json, &knob);
	document_end(json);
	document_end(json);
}

static void print_json(const flytune_kernel_list *list)
{
	struct document json = {0};

	document_object(&json, NULL);
	document_array(&json, "kernels");
	for (size_t i = 0; i < flytune_kernel_list_count(list); i++)
		json_kernel(&json, list, i);
	document_end(&json);
	document_end(&json);
	document_print(&json);
}

static const char *state_words(const struct flytune_kernel *kernel)
{
	return strcmp(kernel->state, "kept") == 0 ? "last good copy" : kernel->state;
}

static const char *place_of(const struct flytune_kernel *kernel)
{
	return kernel->path[0] != '\0' ? kernel->path : "built in";
}

static void print_table(const flytune_kernel_list *list)
{
	static const char *const head[] = {"KERNEL", "STATE", "DEVICES", "FROM", "WHAT IT IS"};
	struct flytune_kernel kernel;
	struct table table;

	table_init(&table, head, sizeof head / sizeof *head);
	flytune_kernel_init(&kernel);
	for (size_t i = 0; flytune_kernel_list_get(list, i, &kernel); i++) {
		table_add(&table, "%s", kernel.name);
		table_add(&table, "%s", state_words(&kernel));
		table_add(&table, "%s", kernel.devices);
		table_add(&table, "%s", place_of(&kernel));
		table_add(&table, "%s", kernel.help);
	}
	table_print(&table);
	for (size_t i = 0; flytune_kernel_list_get(list, i, &kernel); i++) {
		if (kernel.reason[0] != '\0')
			printf("%s: %s\n", kernel.name, kernel.reason);
	}
}

static void print_kernel(const flytune_kernel_list *list, size_t index)
{
	struct flytune_kernel kernel;
	struct flytune_kernel_knob knob;
	struct table table;

	flytune_kernel_init(&kernel);
	flytune_kernel_knob_init(&knob);
	flytune_kernel_list_get(list, index, &kernel);
	table_init(&table, NULL, 2);
	table_fact(&table, "kernel", "%s", kernel.name);
	table_fact(&table, "what it is", "%s", kernel.help);
	table_fact(&table, "state", "%s", state_words(&kernel));
	table_fact(&table, "from", "%s", place_of(&kernel));
	table_fact(&table, "for", "%s", kernel.kinds);
	table_fact(&table, "runs on", "%s", kernel.devices);
	table_fact(&table, "scale field", "%s", kernel.scale);
	table_print(&table);
	if (kernel.reason[0] != '\0')
		printf("%s: %s\n", kernel.name, kernel.reason);
	if (kernel.field_count == 0)
		return;
	puts("\nFields of its problems:");
	print_fields(list, index);
	puts("\nKnobs of its configs:");
	for (size_t i = 0; flytune_kernel_list_get_knob(list, index, i, &knob); i++)
		print_knob(&knob, kernel.kinds);
}

static enum ctl_exit refuse_name(const struct ctl *ctl, const char *name)
{
	struct flytune_error error = {.code = FLYTUNE_E_UNKNOWN_KERNEL, .field = "kernel"};

	snprintf(error.word, sizeof error.word, "%s", flytune_result_word(error.code));
	snprintf(error.value, sizeof error.value, "%s", name);
	snprintf(error.bound, sizeof error.bound, "one that `flytunectl kernels` lists");
	snprintf(error.message, sizeof error.message, "there is no kernel %.60s: it must be %s", name,
	        error.bound);
	ft_make_plain(error.message);
	return ctl_fail(ctl, &error);
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	const char *name = count > 0 ? words[0] : NULL;
	flytune_kernel_list *list;
	struct flytune_error error;
	enum ctl_exit status = CTL_DONE;
	size_t found;

	if (count > 1 || (count == 1 && words[0][0] == '-'))
		return stray_word(&command_kernels, words[count - 1]);
	if (flytune_kernels(ctl->client, name, &list, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	found = flytune_kernel_list_count(list);
	if (found == 0)
		status = refuse_name(ctl, name);
	else if (ctl->json)
		print_json(list);
	else if (name == NULL)
		print_table(list);
	for (size_t i = 0; name != NULL && !ctl->json && i < found; i++)
		print_kernel(list, i);
	flytune_kernel_list_free(list);
	return status;
}

static void explain(void)
{
	puts("Of all of them where they come from and which devices run them, of one its fields and knobs as "
	     "well.\n"
	     "A folder that is broken is listed with what is wrong with it: its last good copy serves, or, "
	     "where\n"
	     "there is none, it is refused.");
}

const struct command command_kernels = {
        .name = "kernels",
        .words = "[KERNEL]",
        .help = "List the kernels that are served, or tell about one",
        .run = run,
        .explain = explain,
};
