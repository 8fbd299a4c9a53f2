#include "client/ctl/arguments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernel.h"

enum { VALUES_MAX = 256, PROBLEMS_MAX = 65536 };

/* ---- options ---- */

/* Whether word `at` is the option `name`, as "--name value" or "--name=value". *value is NULL if it is and
 * has none; *used says how many words it takes. */
static bool is_option(const char *name, int count, char **words, int at, const char **value, int *used)
{
	const char *word = words[at];
	size_t length = strlen(name);

	if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0)
		return false;
	if (word[2 + length] == '=') {
		*value = word + 2 + length + 1;
		*used = 1;
		return true;
	}
	if (word[2 + length] != '\0')
		return false;
	*value = at + 1 < count ? words[at + 1] : NULL;
	*used = 2;
	return true;
}

static bool is_short(const char *name, int count, char **words, int at, const char **value, int *used)
{
	if (strcmp(words[at], name) != 0)
		return false;
	*value = at + 1 < count ? words[at + 1] : NULL;
	*used = 2;
	return true;
}

static bool is_flag(const char *name, const char *word)
{
	return strncmp(word, "--", 2) == 0 && strcmp(word + 2, name) == 0;
}

bool general_take(struct general *general, int *count, char **words, char *problem, size_t size)
{
	int kept = 0, used;

	for (int i = 0; i < *count; i += used) {
		const char *value;
		bool has_value = false;

		used = 1;
		if (is_flag("json", words[i])) {
			general->json = true;
		} else if (is_flag("help", words[i]) || strcmp(words[i], "-h") == 0) {
			general->help = true;
		} else if (is_flag("version", words[i])) {
			general->version = true;
		} else if (is_option("socket", *count, words, i, &value, &used)) {
			general->socket = value;
			has_value = true;
		} else if (is_option("generation", *count, words, i, &value, &used)) {
			general->generation = value;
			has_value = true;
		} else {
			words[kept++] = words[i];
			used = 1;
		}
		if (has_value && value == NULL) {
			snprintf(problem, size, "%s needs a value", words[i]);
			return false;
		}
	}
	*count = kept;
	return true;
}

static bool read_integer(const char *word, int64_t *number)
{
	char *end;
	long long value;

	if (*word == '\0' || strspn(word, "+-0123456789") != strlen(word))
		return false;
	errno = 0;
	value = strtoll(word, &end, 10);
	if (errno != 0 || *end != '\0' || end == word)
		return false;
	*number = value;
	return true;
}

bool job_number_read(const char *word, uint64_t *number)
{
	int64_t value;

	if (!read_integer(word, &value) || value <= 0)
		return false;
	*number = (uint64_t)value;
	return true;
}

/* ---- fields ---- */

/* One field and the values that it is to take. */
struct axis {
	char name[FT_NAME_SIZE];
	char *text; /* the values' own copy */
	const char *value[VALUES_MAX];
	size_t count;
	bool is_text;
};

struct axes {
	const char *kernel;
	const struct ft_schema *schema; /* NULL: only the daemon may know it */
	struct axis *axis;
	size_t count;
};

static const struct ft_schema_field_def *find_field(const struct ft_schema *schema, const char *name)
{
	for (uint32_t i = 0; schema != NULL && i < schema->field_count; i++) {
		if (strcmp(schema->field[i].name, name) == 0)
			return &schema->field[i];
	}
	return NULL;
}

/* "--weight-dtype" names the field weight_dtype. */
static bool field_name(const char *option, size_t length, char name[FT_NAME_SIZE])
{
	if (length == 0 || length >= FT_NAME_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
		name[i] = (char)(option[i] == '-' ? '_' : option[i]);
	name[length] = '\0';
	return ft_name_valid(name);
}

static enum ctl_exit split_values(
        const struct command *command, struct axis *axis, const char *option, bool lists)
{
	char *rest = axis->text;
	int64_t number;

	for (char *value; (value = strsep(&rest, lists ? "," : "")) != NULL;) {
		if (*value == '\0')
			return ctl_usage(command, "%s has an empty value", option);
		if (axis->count == VALUES_MAX)
			return ctl_usage(command, "%s has more than %d values", option, VALUES_MAX);
		axis->value[axis->count++] = value;
	}
	if (axis->is_text)
		return CTL_DONE;
	for (size_t i = 0; i < axis->count; i++) {
		if (!read_integer(axis->value[i], &number))
			return ctl_usage(command, "%s is %s; it must be an integer%s", option, axis->value[i],
			        lists ? ", or several parted by commas" : "");
	}
	return CTL_DONE;
}

/* A kernel that this program does not know has integers where they look like integers. */
static bool looks_like_text(const char *text)
{
	return strspn(text, "+-0123456789,") != strlen(text);
}

static enum ctl_exit add_axis(const struct command *command, struct axes *axes, int count, char **words,
        int at, bool lists, int *used)
{
	const struct ft_schema_field_def *field;
	struct axis *axis = &axes->axis[axes->count];
	const char *option = words[at];
	size_t length = strcspn(option + 2, "=");
	const char *value;

	if (strncmp(option, "--", 2) != 0 || !field_name(option + 2, length, axis->name))
		return ctl_usage(command, "'%s' is not understood", option);
	if (axes->count == FT_FIELDS_MAX)
		return ctl_usage(command, "there are more than %d fields", FT_FIELDS_MAX);
	for (size_t i = 0; i < axes->count; i++) {
		if (strcmp(axes->axis[i].name, axis->name) == 0)
			return ctl_usage(command, "--%.*s is given twice", (int)length, option + 2);
	}
	value = option[2 + length] == '=' ? option + 2 + length + 1 : at + 1 < count ? words[at + 1] : NULL;
	*used = option[2 + length] == '=' ? 1 : 2;
	if (value == NULL)
		return ctl_usage(command, "%s needs a value", option);
	field = find_field(axes->schema, axis->name);
	axis->is_text = field != NULL ? field->is_text : looks_like_text(value);
	axis->text = strdup(value);
	if (axis->text == NULL)
		return ctl_short();
	axes->count++;
	return split_values(command, axis, option, lists);
}

static enum ctl_exit read_own(const struct command *command, const struct own_options *own, int count,
        char **words, int at, int *used)
{
	const char *value;

	if (own->force != NULL && is_flag("force", words[at])) {
		*own->force = true;
		*used = 1;
	} else if (own->no_wait != NULL && is_flag("no-wait", words[at])) {
		*own->no_wait = true;
		*used = 1;
	} else if (own->device != NULL && is_option("device", count, words, at, &value, used)) {
		if (value == NULL)
			return ctl_usage(command, "--device needs a value");
		*own->device = value;
	} else if (own->config != NULL && is_option("config", count, words, at, &value, used)) {
		if (value == NULL)
			return ctl_usage(command, "--config needs a value");
		*own->config = value;
	} else if (own->out != NULL &&
	        (is_option("out", count, words, at, &value, used) ||
	                is_short("-o", count, words, at, &value, used))) {
		if (value == NULL)
			return ctl_usage(command, "%s needs the name of a file", words[at]);
		*own->out = value;
	} else if (own->priority != NULL && is_option("priority", count, words, at, &value, used)) {
		if (value == NULL || !read_integer(value, own->priority) || *own->priority < -100 ||
		        *own->priority > 100)
			return ctl_usage(command, "--priority is %s; it must be -100 to 100",
			        value == NULL ? "missing" : value);
	} else if (own->budget_s != NULL && is_option("budget", count, words, at, &value, used)) {
		if (value == NULL || !read_integer(value, own->budget_s) || *own->budget_s <= 0 ||
		        *own->budget_s > 86400)
			return ctl_usage(command, "--budget is %s; it must be 1 to 86400 seconds",
			        value == NULL ? "missing" : value);
	} else {
		*used = 0;
	}
	return CTL_DONE;
}

static enum ctl_exit read_words(const struct command *command, struct axes *axes, int count, char **words,
        const struct own_options *own, bool lists)
{
	int used;

	/* A word # begins a remark, as `misses` makes them. */
	for (int i = 1; i < count && strcmp(words[i], "#") != 0; i += used) {
		enum ctl_exit status = read_own(command, own, count, words, i, &used);

		if (status == CTL_DONE && used == 0)
			status = add_axis(command, axes, count, words, i, lists, &used);
		if (status != CTL_DONE)
			return status;
	}
	return CTL_DONE;
}

/* ---- problems ---- */

/* Problem number `number` of the cross product: the last field changes fastest. */
static flytune_problem *make_problem(const struct axes *axes, size_t number, struct flytune_error *error)
{
	struct flytune_field field[FT_FIELDS_MAX] = {{0}};

	for (size_t i = axes->count; i-- > 0;) {
		const struct axis *axis = &axes->axis[i];
		const char *value = axis->value[number % axis->count];

		number /= axis->count;
		field[i].name = axis->name;
		if (axis->is_text)
			field[i].text = value;
		else
			(void)read_integer(value, &field[i].number);
	}
	return flytune_problem_new(axes->kernel, field, axes->count, error);
}

/* A list is refused before anything of it is queued. What only the daemon can refuse, it refuses. */
static bool refused(const struct axes *axes, const flytune_problem *problem, struct flytune_error *out)
{
	const struct ft_kernel *kernel = ft_kernel_find(axes->kernel);
	struct ft_problem given = {0}, whole;
	struct flytune_field field;
	struct ft_error error;

	if (kernel == NULL)
		return false;
	for (size_t i = 0; flytune_problem_field(problem, i, &field); i++) {
		if (field.text != NULL)
			ft_problem_set_text(&given, field.name, field.text, NULL);
		else
			ft_problem_set_number(&given, field.name, field.number, NULL);
	}
	if (ft_problem_admit(kernel, axes->schema, &given, &whole, &error) == 0 ||
	        strcmp(error.code, FT_E_BAD_VALUE) != 0)
		return false;
	memset(out, 0, sizeof *out);
	out->code = FLYTUNE_E_BAD_VALUE;
	snprintf(out->word, sizeof out->word, "%s", error.code);
	snprintf(out->message, sizeof out->message, "%s", error.message);
	snprintf(out->field, sizeof out->field, "%s", error.field);
	snprintf(out->value, sizeof out->value, "%s", error.value);
	snprintf(out->bound, sizeof out->bound, "%s", error.bound);
	return true;
}

static enum ctl_exit make_problems(const struct ctl *ctl, const struct command *command,
        const struct axes *axes, struct problems *problems)
{
	struct flytune_error error;
	size_t total = 1;

	for (size_t i = 0; i < axes->count; i++) {
		total *= axes->axis[i].count;
		if (total == 0 || total > PROBLEMS_MAX)
			return ctl_usage(command, "that makes more than %d problems", PROBLEMS_MAX);
	}
	problems->problem = calloc(total, sizeof(flytune_problem *));
	if (problems->problem == NULL)
		return ctl_short();
	for (; problems->count < total; problems->count++) {
		flytune_problem *problem = make_problem(axes, problems->count, &error);

		if (problem == NULL)
			return ctl_fail(ctl, &error);
		problems->problem[problems->count] = problem;
		if (total > 1 && refused(axes, problem, &error)) {
			problems->count++;
			return ctl_fail(ctl, &error);
		}
	}
	return CTL_DONE;
}

enum ctl_exit problems_read(const struct ctl *ctl, const struct command *command, int count, char **words,
        const struct own_options *own, bool lists, struct problems *problems)
{
	struct axes axes = {0};
	const struct ft_kernel *kernel;
	enum ctl_exit status;

	*problems = (struct problems){0};
	if (count == 0 || words[0][0] == '-')
		return ctl_usage(
		        command, "%s needs a kernel, such as rmsnorm, as its first word", command->name);
	axes.kernel = words[0];
	kernel = ft_kernel_find(axes.kernel);
	/* The fields are the same for every kind of device. */
	axes.schema = kernel == NULL ? NULL : kernel->schema("cpu");
	axes.axis = calloc(FT_FIELDS_MAX + 1, sizeof *axes.axis);
	if (axes.axis == NULL)
		return ctl_short();
	status = read_words(command, &axes, count, words, own, lists);
	if (status == CTL_DONE)
		status = make_problems(ctl, command, &axes, problems);
	for (size_t i = 0; i < axes.count; i++)
		free(axes.axis[i].text);
	free(axes.axis);
	if (status != CTL_DONE)
		problems_free(problems);
	return status;
}

void problems_free(struct problems *problems)
{
	for (size_t i = 0; i < problems->count; i++)
		flytune_problem_free(problems->problem[i]);
	free(problems->problem);
	*problems = (struct problems){0};
}

enum ctl_exit config_read_words(const struct command *command, const char *text,
        struct flytune_knob knobs[FLYTUNE_KNOBS_MAX], size_t *count)
{
	struct ft_config config = {0};
	struct ft_error error;

	if (ft_config_parse(text, &config, &error) != 0)
		return ctl_usage(command, "--config: %s", error.message);
	for (uint32_t i = 0; i < config.count; i++) {
		memcpy(knobs[i].name, config.knob[i].name, sizeof knobs[i].name);
		knobs[i].value = config.knob[i].value;
	}
	*count = config.count;
	return CTL_DONE;
}

/* ---- help ---- */

static void explain_field(const struct ft_schema_field_def *field)
{
	char option[FT_NAME_SIZE + 8], bound[256] = "";
	size_t length = 0;

	snprintf(option, sizeof option, "--%s", field->name);
	for (char *at = option; *at != '\0'; at++) {
		if (*at == '_')
			*at = '-';
	}
	if (!field->is_text) {
		snprintf(bound, sizeof bound, "%" PRId64 " to %" PRId64, field->min, field->max);
	} else {
		for (int i = 0; i < FT_CHOICES_MAX && field->choice[i][0] != '\0'; i++)
			length += (size_t)snprintf(bound + length, sizeof bound - length, "%s%s",
			        i > 0 ? ", " : "", field->choice[i]);
	}
	printf("  %-18s %s%s%s", option, field->help, field->help[0] != '\0' ? ": " : "", bound);
	if (field->same_as[0] != '\0')
		printf("; else as --%s", field->same_as);
	else if (field->has_default && field->is_text)
		printf("; else %s", field->default_text);
	else if (field->has_default)
		printf("; else %" PRId64, field->default_number);
	puts("");
}

void arguments_explain_kernel(const char *name)
{
	const struct ft_kernel *kernel = ft_kernel_find(name == NULL ? "rmsnorm" : name);
	const struct ft_schema *schema;

	if (kernel == NULL)
		return;
	schema = kernel->schema("cpu");
	printf("Fields of %s:\n", schema->kernel);
	for (uint32_t i = 0; i < schema->field_count; i++)
		explain_field(&schema->field[i]);
	puts("");
}
