#include "client/ctl/arguments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernel.h"
#include "proto/messages.h"

enum { VALUES_MAX = 256, PROBLEMS_MAX = 65536, KERNELS_SIZE = 256 };

/* ---- options ---- */

/* What follows a word is its value, unless that is an option itself. */
static const char *next_value(int count, char **words, int at)
{
	return at + 1 < count && strncmp(words[at + 1], "--", 2) != 0 ? words[at + 1] : NULL;
}

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
	*value = next_value(count, words, at);
	*used = 2;
	return true;
}

static bool is_short(const char *name, int count, char **words, int at, const char **value, int *used)
{
	if (strcmp(words[at], name) != 0)
		return false;
	*value = next_value(count, words, at);
	*used = 2;
	return true;
}

static bool is_flag(const char *name, const char *word)
{
	return strncmp(word, "--", 2) == 0 && strcmp(word + 2, name) == 0;
}

/* "UUID:COUNTER" */
static bool is_token(const char *text)
{
	size_t length = strspn(text, "0123456789abcdefABCDEF-");
	size_t digits = strspn(text + length + (text[length] == ':'), "0123456789");

	return length == FT_UUID_SIZE - 1 && text[length] == ':' && digits > 0 && digits < 20 &&
	        text[length + 1 + digits] == '\0';
}

static bool check_token(const char *where, const char *text, char *problem, size_t size)
{
	if (text == NULL || *text == '\0' || is_token(text))
		return true;
	snprintf(problem, size, "%s is %.40s; it must be UUID:COUNTER, as `status` shows it", where, text);
	return false;
}

bool general_take(struct general *general, int *count, char **words, char *problem, size_t size)
{
	int kept = 0, used;

	for (int i = 0; i < *count; i += used) {
		const char *value = "-";

		used = 1;
		if (is_flag("json", words[i]))
			general->json = true;
		else if (is_flag("help", words[i]) || strcmp(words[i], "-h") == 0)
			general->help = true;
		else if (is_flag("version", words[i]))
			general->version = true;
		else if (is_option("socket", *count, words, i, &value, &used))
			general->socket = value;
		else if (is_option("generation", *count, words, i, &value, &used))
			general->generation = value;
		else
			words[kept++] = words[i];
		if ((value == NULL || *value == '\0') && *problem == '\0')
			snprintf(problem, size, "%.*s needs a value", (int)strcspn(words[i], "="), words[i]);
		used = value == NULL ? 1 : used;
	}
	*count = kept;
	return *problem == '\0' && check_token("--generation", general->generation, problem, size) &&
	        (general->generation != NULL ||
	                check_token(
	                        "FLYTUNE_GENERATION", secure_getenv("FLYTUNE_GENERATION"), problem, size));
}

/* ---- words that are none ---- */

/* The option of a command, or of all, that was meant by one that there is not; else "". */
static const char *meant_option(const struct command *command, const char *word, char meant[FT_NAME_SIZE])
{
	static const char general[] = "socket json generation help version ";
	const char *names[32], *found;
	char given[FT_NAME_SIZE], list[512], *rest = list;
	size_t count = 0;

	meant[0] = '\0';
	word += strspn(word, "-");
	snprintf(given, sizeof given, "%.*s", (int)strcspn(word, "="), word);
	snprintf(list, sizeof list, "%s%s", general, command->options != NULL ? command->options : "");
	for (char *name; (name = strsep(&rest, " ")) != NULL && count < 32;) {
		if (*name != '\0')
			names[count++] = name;
	}
	found = ft_meant_word(given, names, count);
	if (found != NULL)
		snprintf(meant, FT_NAME_SIZE, "%s", found);
	return meant;
}

bool is_option_of(const struct command *command, const char *word)
{
	char name[FT_NAME_SIZE], meant[FT_NAME_SIZE];

	snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
	for (char *letter = name; *letter != '\0'; letter++) {
		if (*letter == '_')
			*letter = '-';
	}
	return strcmp(meant_option(command, name, meant), name) == 0;
}

enum ctl_exit stray_word(const struct command *command, const char *word)
{
	char meant[FT_NAME_SIZE];

	if (word[0] != '-' || word[1] == '\0')
		return ctl_usage(command, "'%s' is one word too many: %s takes %s", word, command->name,
		        *command->words != '\0' ? command->words : "none");
	meant_option(command, word, meant);
	if (meant[0] != '\0' && strncmp(word + 2, meant, strlen(meant)) == 0 &&
	        word[2 + strlen(meant)] == '=')
		return ctl_usage(command, "--%s takes no value", meant);
	return ctl_usage(command, "%s has no option %.*s%s%s%s", command->name, (int)strcspn(word, "="), word,
	        meant[0] != '\0' ? "; did you mean --" : "", meant, meant[0] != '\0' ? "?" : "");
}

/* ---- numbers ---- */

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

enum ctl_exit refuse_number(const struct command *command, const char *what, const char *word)
{
	if (word[0] == '-' && word[1] == '-')
		return stray_word(command, word);
	return ctl_usage(
	        command, "%s is %s; it must be a whole number from 1", what, *word != '\0' ? word : "empty");
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
	const struct ft_kernel *known;  /* NULL: only the daemon may know it */
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

static enum ctl_exit refuse_option(
        const struct command *command, const struct axes *axes, const char *option, const char *field)
{
	struct flytune_error error = {.code = FLYTUNE_E_UNKNOWN_FIELD};
	size_t length = 0;

	snprintf(error.word, sizeof error.word, "%s", flytune_result_word(error.code));
	snprintf(error.field, sizeof error.field, "%s", field);
	for (uint32_t i = 0; i < axes->schema->field_count && length < sizeof error.bound; i++)
		length += (size_t)snprintf(error.bound + length, sizeof error.bound - length, "%s%s",
		        i > 0 ? ", " : "", axes->schema->field[i].name);
	snprintf(error.message, sizeof error.message,
	        "%s has no option %.60s, and %s no such field: it has %s", command->name, option,
	        axes->kernel, error.bound);
	return ctl_fail(NULL, &error);
}

static enum ctl_exit add_axis(const struct command *command, struct axes *axes, int count, char **words,
        int at, bool lists, int *used)
{
	const struct ft_schema_field_def *field;
	struct axis *axis = &axes->axis[axes->count];
	const char *option = words[at];
	size_t length = strncmp(option, "--", 2) == 0 ? strcspn(option + 2, "=") : 0;
	char meant[FT_NAME_SIZE];
	const char *value;

	if (!field_name(option + 2, length, axis->name))
		return stray_word(command, option);
	value = option[2 + length] == '=' ? option + 2 + length + 1 : next_value(count, words, at);
	*used = option[2 + length] == '=' ? 1 : 2;
	field = find_field(axes->schema, axis->name);
	if (field == NULL && (axes->schema != NULL || value == NULL) &&
	        *meant_option(command, option, meant) != '\0')
		return stray_word(command, option);
	if (field == NULL && axes->schema != NULL)
		return refuse_option(command, axes, option, axis->name);
	if (axes->count == FT_FIELDS_MAX)
		return ctl_usage(command, "there are more than %d fields", FT_FIELDS_MAX);
	for (size_t i = 0; i < axes->count; i++) {
		if (strcmp(axes->axis[i].name, axis->name) == 0)
			return ctl_usage(command, "--%.*s is given twice", (int)length, option + 2);
	}
	if (value == NULL)
		return ctl_usage(command, "%s needs a value", option);
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
		if (value == NULL || *value == '\0')
			return ctl_usage(command, "--device needs an id, as `devices` lists them");
		*own->device = value;
	} else if (own->config != NULL && is_option("config", count, words, at, &value, used)) {
		if (value == NULL || *value == '\0')
			return ctl_usage(command, "--config needs KNOB=VALUE[,KNOB=VALUE]...");
		*own->config = value;
	} else if (own->out != NULL &&
	        (is_option("out", count, words, at, &value, used) ||
	                is_short("-o", count, words, at, &value, used))) {
		if (value == NULL || *value == '\0')
			return ctl_usage(command, "%.5s needs the name of a file", words[at]);
		*own->out = value;
	} else if (own->priority != NULL && is_option("priority", count, words, at, &value, used)) {
		if (value == NULL || !read_integer(value, own->priority) || *own->priority < -100 ||
		        *own->priority > 100)
			return ctl_usage(command, "--priority is %s; it must be -100 to 100",
			        value == NULL            ? "missing"
			                : *value == '\0' ? "empty"
			                                 : value);
	} else if (own->budget_s != NULL && is_option("budget", count, words, at, &value, used)) {
		if (value == NULL || !read_integer(value, own->budget_s) || *own->budget_s <= 0 ||
		        *own->budget_s > 86400)
			return ctl_usage(command, "--budget is %s; it must be 1 to 86400 seconds",
			        value == NULL            ? "missing"
			                : *value == '\0' ? "empty"
			                                 : value);
	} else {
		*used = 0;
	}
	return CTL_DONE;
}

/* The place of the kernel: the first word that is neither an option nor an option's value. `count` if there is none. A
 * word # begins a remark, as `misses` makes them. */
static enum ctl_exit find_kernel(
        const struct command *command, const struct own_options *own, int *count, char **words, int *place)
{
	enum ctl_exit status = CTL_DONE;
	char meant[FT_NAME_SIZE];
	int used;

	for (int i = 0; i < *count; i++) {
		if (strcmp(words[i], "#") == 0)
			*count = i;
	}
	for (*place = 0; *place < *count && status == CTL_DONE; *place += used) {
		status = read_own(command, own, *count, words, *place, &used);
		if (used != 0)
			continue;
		if (words[*place][0] != '-')
			return status;
		used = strchr(words[*place], '=') != NULL || next_value(*count, words, *place) == NULL ? 1
		                                                                                       : 2;
	}
	/* One that is written wrong took the kernel for its value. */
	for (int i = 0; i < *count && status == CTL_DONE; i += used > 0 ? used : 1) {
		status = read_own(command, own, *count, words, i, &used);
		if (used == 0 && strncmp(words[i], "--", 2) == 0 &&
		        *meant_option(command, words[i], meant) != '\0')
			status = stray_word(command, words[i]);
	}
	*place = *count;
	return status;
}

static enum ctl_exit read_words(const struct command *command, struct axes *axes, int count, char **words,
        int kernel, const struct own_options *own, bool lists)
{
	int used;

	for (int i = 0; i < count; i += used) {
		enum ctl_exit status = read_own(command, own, count, words, i, &used);

		if (status == CTL_DONE && used == 0 && i == kernel)
			used = 1;
		else if (status == CTL_DONE && used == 0)
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
	struct ft_problem given = {0}, whole;
	struct flytune_field field;
	struct ft_error error;

	if (axes->known == NULL)
		return false;
	for (size_t i = 0; flytune_problem_field(problem, i, &field); i++) {
		if (field.text != NULL)
			ft_problem_set_text(&given, field.name, field.text, NULL);
		else
			ft_problem_set_number(&given, field.name, field.number, NULL);
	}
	if (ft_problem_admit(axes->known, axes->schema, &given, &whole, &error) == 0 ||
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
        const struct axes *axes, bool checks, struct problems *problems)
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
		if ((checks || total > 1) && refused(axes, problem, &error)) {
			problems->count++;
			return ctl_fail(ctl, &error);
		}
	}
	return CTL_DONE;
}

static const char *kernel_names(char text[KERNELS_SIZE])
{
	size_t length = 0;

	text[0] = '\0';
	for (const struct ft_kernel *const *kernel = ft_kernels; *kernel != NULL && length < KERNELS_SIZE;
	        kernel++)
		length += (size_t)snprintf(text + length, KERNELS_SIZE - length, "%s%s",
		        length > 0 ? ", " : "", (*kernel)->name);
	return text;
}

enum ctl_exit problems_read(const struct ctl *ctl, const struct command *command, int count, char **words,
        const struct own_options *own, bool lists, struct problems *problems)
{
	struct axes axes = {0};
	enum ctl_exit status;
	char names[KERNELS_SIZE];
	int place;

	*problems = (struct problems){0};
	status = find_kernel(command, own, &count, words, &place);
	if (status != CTL_DONE)
		return status;
	if (own->kernel != NULL)
		place = count;
	else if (place == count || words[place][0] == '\0')
		return ctl_usage(
		        command, "%s needs a kernel, such as %s", command->name, kernel_names(names));
	axes.kernel = own->kernel != NULL ? own->kernel->name : words[place];
	axes.known = own->kernel != NULL ? own->kernel : ft_kernel_find(axes.kernel);
	/* The fields are the same for every kind of device. */
	axes.schema = axes.known == NULL ? NULL : axes.known->schema(axes.known, "cpu");
	axes.axis = calloc(FT_FIELDS_MAX + 1, sizeof *axes.axis);
	if (axes.axis == NULL)
		return ctl_short();
	status = read_words(command, &axes, count, words, place, own, lists);
	if (status == CTL_DONE)
		status = make_problems(ctl, command, &axes, own->kernel != NULL, problems);
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
		/* The copy lasts as long as the program, which reads one config. */
		knobs[i].word = config.knob[i].word[0] != '\0' ? strdup(config.knob[i].word) : NULL;
		if (knobs[i].word == NULL && config.knob[i].word[0] != '\0')
			return ctl_short();
	}
	*count = config.count;
	return CTL_DONE;
}
