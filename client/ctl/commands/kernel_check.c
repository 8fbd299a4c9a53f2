/* flytunectl kernel check: everything wrong with a folder that shows before it is run. */
#include "client/ctl/commands/kernel.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/host.h"

enum { WORK_MOST = 1 << 25 /* rules evaluated for a kind of device: some seconds */ };

/* ---- findings ---- */

static void find(struct report *report, enum finding_level level, const char *device,
        const struct ft_problem *problem, const char *subject, const char *format, ...)
        __attribute__((format(printf, 6, 7)));

static void find(struct report *report, enum finding_level level, const char *device,
        const struct ft_problem *problem, const char *subject, const char *format, ...)
{
	struct finding *finding;
	va_list arguments;

	for (uint32_t i = 0; i < report->findings; i++) {
		finding = &report->finding[i];
		if (finding->level != level || finding->device != device ||
		        strncmp(finding->subject, subject, SUBJECT_SIZE - 1) != 0)
			continue;
		finding->problems += problem != NULL;
		return;
	}
	report->level[level]++;
	if (report->findings == FINDINGS_MAX) {
		report->left++;
		return;
	}
	finding = &report->finding[report->findings++];
	*finding = (struct finding){
	        .level = level, .device = device, .problem = problem, .problems = problem != NULL};
	snprintf(finding->subject, sizeof(finding->subject), "%s", subject);
	va_start(arguments, format);
	vsnprintf(finding->message, sizeof(finding->message), format, arguments);
	va_end(arguments);
	ft_make_plain(finding->message);
}

/* `before` the message stands what the error does not know: a config. */
static void find_failure(struct report *report, enum finding_level level, const char *device,
        const struct ft_problem *problem, const char *before, const struct ft_error *error)
{
	char subject[SUBJECT_SIZE];

	/* Where it is, and what would do: the values differ from problem to problem. */
	if (error->field[0] != '\0')
		snprintf(subject, sizeof(subject), "%s: %s", error->field, error->bound);
	else
		snprintf(subject, sizeof(subject), "%.120s", error->message);
	find(report, level, device, problem, subject, "%s%s", before, error->message);
}

/* ---- what stands in the sources ---- */

static bool is_of_word(char c)
{
	return isalnum((unsigned char)c) != 0 || c == '_';
}

static bool has_word(const char *text, const char *word)
{
	const size_t length = strlen(word);

	for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
		if ((at == text || !is_of_word(at[-1])) && !is_of_word(at[length]))
			return true;
	}
	return false;
}

/* Whether a file has the word that may be part of what is built for a kind: of the files that sources name, that one alone. */
static bool source_has_word(const struct ft_folder *folder, const char *kind, const char *word)
{
	static const char *const kinds[] = {"cpu", "hip", "cuda"};
	const char *own = ft_folder_source(folder, kind)->file;
	const struct ft_folder_file *file;
	uint32_t count;

	file = ft_folder_files(folder, &count);
	for (uint32_t i = 1; i < count; i++) {
		bool is_others = false;

		for (int k = 0; k < 3; k++) {
			const struct ft_folder_source *source = ft_folder_source(folder, kinds[k]);

			is_others = is_others || (source != NULL && strcmp(source->file, file[i].name) == 0);
		}
		if ((!is_others || strcmp(file[i].name, own) == 0) && has_word(file[i].text, word))
			return true;
	}
	return false;
}

static void check_macros(struct report *report, const char *kind, const struct ft_defines *defines)
{
	char name[FT_DEFINE_SIZE];

	for (uint32_t i = 0; i < defines->count; i++) {
		snprintf(name, sizeof(name), "%s", defines->text[i] + strlen("-D"));
		name[strcspn(name, "=")] = '\0';
		if (!source_has_word(report->folder, kind, name))
			find(report, FINDING_WARNING, kind, NULL, name,
			        "kernel.json: sources.%s.defines.%s: no file of the source has this word",
			        kind, name);
	}
}

static void check_symbols(struct report *report, const char *kind)
{
	const struct ft_folder_source *source = ft_folder_source(report->folder, kind);

	for (uint32_t i = 0; i < source->symbol_count; i++) {
		if (!source_has_word(report->folder, kind, source->symbol[i]))
			find(report, FINDING_WARNING, kind, NULL, source->symbol[i],
			        "kernel.json: launch.%s: no file of the source has a function %s", kind,
			        source->symbol[i]);
	}
}

/* ---- who uses what ---- */

static void check_knobs(struct report *report, const char *kind, const struct ft_folder_uses *uses)
{
	const struct ft_kernel *kernel = ft_folder_kernel(report->folder);
	const struct ft_schema *schema = kernel->schema(kernel, kind);

	for (uint32_t i = 0; i < schema->knob_count; i++) {
		const char *name = schema->knob[i].name;

		if ((uses->knobs_of_code >> i & 1) != 0)
			continue;
		if ((uses->knobs_of_rules >> i & 1) == 0)
			find(report, FINDING_ERROR, kind, NULL, name,
			        "kernel.json: knobs: no rule, define or launch uses %s: trying its values "
			        "tries the same code",
			        name);
		else
			find(report, FINDING_WARNING, kind, NULL, name,
			        "kernel.json: knobs: only rules use %s, no define or launch: its values make "
			        "the "
			        "same code",
			        name);
	}
}

/* Names and roles of the buffers are the same for each problem. */
static void check_buffers(struct report *report, const char *kind, const struct ft_folder_uses *uses,
        const struct ft_folder_buffers *buffers)
{
	for (uint32_t i = 0; i < buffers->count; i++) {
		const struct ft_folder_buffer *buffer = &buffers->buffer[i];
		const bool is_written = buffer->role == FT_FOLDER_OUT || buffer->role == FT_FOLDER_INOUT;

		if ((uses->buffers >> i & 1) != 0)
			continue;
		find(report, is_written ? FINDING_ERROR : FINDING_WARNING, kind, NULL, buffer->name,
		        "kernel.json: launch.%s: nobody %s %s: it is no argument of a step", kind,
		        is_written ? "writes" : "uses", buffer->name);
	}
}

/* Of the reference's arguments, which need no device. */
static void check_reference(
        struct report *report, const struct ft_problem *problem, const struct ft_folder_buffers *buffers)
{
	struct ft_folder_reference reference;
	uint32_t named = 0;

	if (ft_folder_reference(report->folder, problem, &reference, NULL) < 0 || reference.file == NULL)
		return;
	for (uint32_t i = 0; i < reference.arguments.count; i++) {
		if (reference.arguments.argument[i].is_buffer)
			named |= UINT32_C(1) << reference.arguments.argument[i].buffer;
	}
	for (uint32_t i = 0; i < buffers->count; i++) {
		const struct ft_folder_buffer *buffer = &buffers->buffer[i];

		if ((named >> i & 1) == 0 &&
		        (buffer->role == FT_FOLDER_OUT || buffer->role == FT_FOLDER_INOUT))
			find(report, FINDING_ERROR, NULL, NULL, buffer->name,
			        "kernel.json: reference.arguments: the reference does not compute %s: it is "
			        "no "
			        "argument of it",
			        buffer->name);
	}
}

static void check_fields(struct report *report, uint32_t used)
{
	const struct ft_kernel *kernel = ft_folder_kernel(report->folder);
	const struct ft_schema *schema = kernel->schema(kernel, "cpu");

	for (uint32_t i = 0; i < schema->field_count; i++) {
		if ((used >> i & 1) == 0)
			find(report, FINDING_WARNING, NULL, NULL, schema->field[i].name,
			        "kernel.json: fields: nothing uses %s", schema->field[i].name);
	}
}

/* ---- one problem on one kind of device ---- */

struct trial {
	struct report *report;
	const struct ft_kernel *kernel;
	struct ft_traits traits;
	struct checked_device *device;
	struct ft_space *space;
	uint64_t work;
	bool macros_checked;
};

static void check_default(struct trial *trial, const struct ft_problem *problem)
{
	struct ft_folder *folder = trial->report->folder;
	const char *kind = trial->device->kind;
	struct ft_folder_reference reference;
	struct ft_config config;
	struct ft_error error;

	if (ft_folder_default(folder, problem, &trial->traits, &config, &error) < 0)
		find_failure(trial->report, FINDING_ERROR, kind, problem, "", &error);
	else if (trial->kernel->check_config(trial->kernel, problem, &trial->traits, &config, &error) < 0)
		find_failure(trial->report, FINDING_ERROR, kind, problem, "kernel.json: default: ", &error);
	if (ft_folder_reference(folder, problem, &reference, &error) == 0 && reference.file == NULL &&
	        ft_folder_reference_config(folder, problem, &trial->traits, &config, &error) < 0)
		find_failure(trial->report, FINDING_ERROR, kind, problem, "", &error);
}

/* What does not fit a device can still be a member of the space, and then it is a trial that fails; the default has to fit. */
static void check_config(struct trial *trial, const struct ft_problem *problem, uint32_t index)
{
	struct ft_folder *folder = trial->report->folder;
	const struct ft_config *config = &trial->space->config[index];
	const bool is_default = index == trial->space->default_index;
	struct ft_folder_launch launch;
	struct ft_defines defines;
	struct ft_error error;
	char before[128], text[96];

	if (ft_folder_launch(folder, problem, &trial->traits, config, &launch, &error) == 0 &&
	        ft_folder_defines(folder, problem, &trial->traits, config, &defines, &error) == 0) {
		if (!trial->macros_checked)
			check_macros(trial->report, trial->device->kind, &defines);
		trial->macros_checked = true;
		return;
	}
	ft_config_format(config, ' ', text, sizeof(text));
	snprintf(before, sizeof(before), "%s %s: ", is_default ? "the default" : "config", text);
	find_failure(trial->report, is_default ? FINDING_ERROR : FINDING_WARNING, trial->device->kind,
	        problem, before, &error);
}

static void add_count(
        struct checked_device *device, const struct ft_folder_count *count, const struct ft_problem *problem)
{
	if (device->problems == 0 || count->members < device->least) {
		device->least = count->members;
		device->of[0] = problem;
	}
	if (device->problems == 0 || count->members > device->most) {
		device->most = count->members;
		device->of[1] = problem;
	}
	device->problems++;
	for (uint32_t i = 0; i < count->rule_count; i++) {
		uint64_t *sum = &device->count.excluded[i];

		if (__builtin_add_overflow(*sum, count->excluded[i], sum))
			*sum = UINT64_MAX;
	}
}

/* Of a space too large to be listed, some that lie all over it. */
static void list_some(struct trial *trial, const struct ft_problem *problem)
{
	const struct ft_kernel *kernel = trial->kernel;
	struct ft_members rows;

	if (kernel->members(kernel, problem, &trial->traits, &rows, NULL) < 0)
		return;
	for (uint32_t i = 0; i < rows.count; i += rows.count / (FT_SPACE_MAX - 1) + 1) {
		const uint32_t at = trial->space->count++;

		ft_schema_member(kernel->schema(kernel, trial->device->kind),
		        rows.row + (size_t)i * rows.knobs, &trial->space->config[at]);
		trial->space->pruned[at][0] = '\0';
	}
	free(rows.row);
}

static void check_space(struct trial *trial, const struct ft_problem *problem)
{
	struct report *report = trial->report;
	const char *kind = trial->device->kind;
	struct ft_folder_count count;
	struct ft_error error;
	int result = ft_folder_count(report->folder, problem, &trial->traits, FT_FOLDER_WORK, &count, &error);

	trial->work += 2 * count.work; /* and again to have the members */
	for (uint32_t i = 0; i < count.rule_count; i++) {
		trial->device->count.rule[i] = count.rule[i];
		trial->device->count.why[i] = count.why[i];
		trial->device->count.prunes[i] = count.prunes[i];
	}
	trial->device->count.rule_count = count.rule_count;
	if (result < 0) {
		find_failure(report, FINDING_ERROR, kind, problem, "", &error);
		return;
	}
	add_count(trial->device, &count, problem);
	if (count.members > FT_MEMBERS_MAX) {
		find(report, FINDING_ERROR, kind, problem, "space",
		        "kernel.json: space: this problem has %" PRIu64
		        " configs; there may be %d at the most",
		        count.members, FT_MEMBERS_MAX);
		return;
	}
	if (trial->kernel->space(trial->kernel, problem, &trial->traits, trial->space, &error) < 0) {
		/* That the default is not in it was said of the default. */
		if (count.members == 0 || strncmp(error.field, "default", strlen("default")) != 0)
			find_failure(report, FINDING_ERROR, kind, problem, "", &error);
		return;
	}
	if (trial->space->unlisted > 0) {
		trial->work += count.work;
		list_some(trial, problem);
	}
	for (uint32_t i = 0; i < trial->space->count; i++)
		check_config(trial, problem, i);
}

/* ---- the whole ---- */

static void check_rules(struct report *report)
{
	const struct ft_folder_count *count = &report->device[0].count;

	for (uint32_t i = 0; i < count->rule_count; i++) {
		uint64_t excluded = 0;
		uint32_t problems = 0;

		for (uint32_t k = 0; k < report->devices; k++) {
			excluded |= report->device[k].count.excluded[i];
			problems += report->device[k].problems;
		}
		if (excluded == 0 && problems > 0)
			find(report, FINDING_NOTE, NULL, NULL, count->rule[i],
			        "kernel.json: space[%u]: of the problems that were tried the rule leaves out "
			        "nothing, or nothing that another has left: %.100s",
			        i, count->rule[i]);
	}
}

/* Whether the sizes of a problem can be computed, and are not too large. */
static bool check_sizes(struct report *report, const struct ft_problem *problem)
{
	const struct ft_kernel *kernel = ft_folder_kernel(report->folder);
	struct ft_folder_buffers buffers;
	struct ft_error error;

	if (kernel->check(kernel, problem, &error) == 0)
		return true;
	if (ft_folder_buffers(report->folder, problem, &buffers, NULL) < 0 && buffers.span > 0)
		find(report, FINDING_NOTE, NULL, problem, "span",
		        "%s, which is refused; a check can say so in words of yours", error.message);
	else
		find_failure(report, FINDING_ERROR, NULL, problem, "", &error);
	return false;
}

static void check_device(struct report *report, const char *kind, const bool *fits, struct ft_space *space,
        uint32_t *fields_used)
{
	const struct spread *spread = &report->spread;
	struct checked_device *device = &report->device[report->devices++];
	struct trial trial = {.report = report,
	        .kernel = ft_folder_kernel(report->folder),
	        .device = device,
	        .space = space};
	struct ft_folder_buffers buffers;
	struct ft_folder_uses uses;

	device->kind = kind;
	ft_traits_guess(kind, &trial.traits);
	ft_folder_uses(report->folder, kind, &uses);
	*fields_used |= uses.fields;
	check_knobs(report, kind, &uses);
	check_symbols(report, kind);
	for (uint32_t i = 0; i < spread->count; i++) {
		if (!fits[i])
			continue;
		if (ft_folder_buffers(report->folder, &spread->problem[i], &buffers, NULL) == 0) {
			check_buffers(report, kind, &uses, &buffers);
			check_reference(report, &spread->problem[i], &buffers);
			break;
		}
	}
	for (uint32_t i = 0; i < spread->count; i++) {
		if (!fits[i])
			continue;
		check_default(&trial, &spread->problem[i]);
		if (trial.work < WORK_MOST)
			check_space(&trial, &spread->problem[i]);
	}
}

static void say_compiler(void *data, const char *before, const struct ft_error *error)
{
	find_failure(data, FINDING_ERROR, "cpu", NULL, before, error);
}

/* Of the smallest problem that fits. What somebody else may have written is not given to a compiler. */
static void check_sources(struct report *report, const bool *fits)
{
	const struct spread *spread = &report->spread;
	const struct ft_problem *least = NULL;
	struct ft_folder_buffers buffers;
	uint64_t span = UINT64_MAX;
	struct ft_error error;

	for (uint32_t i = 0; i < spread->count; i++) {
		if (!fits[i] || ft_folder_buffers(report->folder, &spread->problem[i], &buffers, NULL) < 0 ||
		        buffers.span >= span)
			continue;
		least = &spread->problem[i];
		span = buffers.span;
	}
	if (least == NULL || !report->is_trusted || ft_folder_source(report->folder, "cpu") == NULL)
		return;
	report->is_compiled = kernel_compile(report->folder, least, say_compiler, report, &error) == 0;
	if (!report->is_compiled)
		find(report, FINDING_NOTE, "cpu", NULL, "cc", "the sources were not compiled: %s",
		        error.message);
}

static int check_folder(struct report *report)
{
	static const char *const kinds[] = {"cpu", "cuda", "hip"};
	struct spread *spread = &report->spread;
	struct ft_space *space = malloc(sizeof(*space));
	bool fits[SPREAD_MAX] = {false};
	uint32_t fields = 0;
	struct ft_error error;

	if (space == NULL)
		return -1;
	if (spread_make(spread, report->folder, &report->culprit, &error) < 0) {
		find_failure(report, FINDING_ERROR, NULL, &report->culprit, "", &error);
		free(space);
		return spread->problem == NULL ? -1 : 0;
	}
	if (spread->count == 0)
		find(report, FINDING_ERROR, NULL, NULL, "checks",
		        "kernel.json: checks: they take none of %u problems that were tried",
		        spread->refused);
	for (uint32_t i = 0; i < spread->count; i++)
		fits[i] = check_sizes(report, &spread->problem[i]);
	for (int k = 0; k < DEVICES_MAX; k++) {
		if (ft_folder_source(report->folder, kinds[k]) != NULL)
			check_device(report, kinds[k], fits, space, &fields);
	}
	check_fields(report, fields);
	check_rules(report);
	check_sources(report, fits);
	free(space);
	return 0;
}

/* A daemon knows a kernel by its folder's name. */
static void check_name(struct report *report, const char *path)
{
	const char *name = ft_folder_kernel(report->folder)->name;

	if (strcmp(strrchr(path, '/') + 1, name) != 0)
		find(report, FINDING_NOTE, NULL, NULL, "name",
		        "kernel.json: name: the folder has to be called %s, too, where it is installed",
		        name);
}

/* Reads it as the daemon would that runs as this user; what only whoever else may write to it bars is said, and the rest looked
 * at all the same. */
static void open_folder(struct report *report)
{
	const struct ft_folder_trust trust = {true, geteuid()};
	char *path = realpath(report->path, NULL);
	struct ft_error error;

	report->folder = ft_folder_open(path != NULL ? path : report->path, &trust, &error);
	report->is_trusted = report->folder != NULL;
	if (!report->is_trusted) {
		find_failure(report, FINDING_ERROR, NULL, NULL, "", &error);
		report->folder = ft_folder_open(path != NULL ? path : report->path, NULL, &error);
		if (report->folder == NULL)
			find_failure(report, FINDING_ERROR, NULL, NULL, "", &error);
	}
	if (report->folder != NULL && path != NULL)
		check_name(report, path);
	free(path);
}

struct report *report_make(const char *path)
{
	struct report *report = calloc(1, sizeof(*report));

	if (report == NULL)
		return NULL;
	report->path = path;
	open_folder(report);
	if (report->folder != NULL && check_folder(report) < 0) {
		report_free(report);
		return NULL;
	}
	return report;
}

void report_free(struct report *report)
{
	if (report != NULL) {
		ft_folder_free(report->folder);
		spread_free(&report->spread);
	}
	free(report);
}

enum ctl_exit report_tell(const struct ctl *ctl, const struct report *report)
{
	if (ctl->json)
		report_print_json(report);
	else
		report_print(report);
	return report->level[FINDING_ERROR] > 0 ? CTL_FAILED : CTL_DONE;
}

enum ctl_exit kernel_check(struct ctl *ctl, int count, char **words)
{
	struct report *report = report_make(words[0]);
	enum ctl_exit status;

	(void)count;
	if (report == NULL)
		return ctl_short();
	status = report_tell(ctl, report);
	report_free(report);
	return status;
}
