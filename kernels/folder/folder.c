#include "kernels/folder/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the kernel ---- */

static const struct ft_folder *folder_of(const struct ft_kernel *kernel)
{
	return kernel->own;
}

static const struct ft_schema *kernel_schema(const struct ft_kernel *kernel, const char *device_kind)
{
	return &folder_of(kernel)->schema[kind_named(device_kind)];
}

/* All that the other functions will need of the problem, too. */
static int kernel_check(
        const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_error *error)
{
	struct ft_folder_reference reference;
	struct ft_folder_buffers buffers;
	uint64_t bytes;

	return ft_folder_takes(folder_of(kernel), problem, error) <= 0 ||
	                ft_folder_buffers(folder_of(kernel), problem, &buffers, error) < 0 ||
	                buffers_bytes(folder_of(kernel), problem, &bytes, error) < 0 ||
	                ft_folder_reference(folder_of(kernel), problem, &reference, error) < 0
	        ? -1
	        : 0;
}

static uint64_t kernel_bytes(const struct ft_kernel *kernel, const struct ft_problem *problem)
{
	uint64_t bytes;

	return buffers_bytes(folder_of(kernel), problem, &bytes, NULL) < 0 ? 0 : bytes;
}

static void kernel_default(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_config *config)
{
	(void)ft_folder_default(folder_of(kernel), problem, traits, config, NULL);
}

static int kernel_space(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error)
{
	return space_make(folder_of(kernel), problem, traits, space, error);
}

static bool kernel_tries(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config)
{
	return space_tries(folder_of(kernel), problem, traits, config);
}

static int kernel_members(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_members *rows, struct ft_error *error)
{
	return space_members(folder_of(kernel), problem, traits, rows, error);
}

static int kernel_check_config(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_error *error)
{
	return config_check(folder_of(kernel), problem, traits, config, error);
}

static void kernel_tensors(
        const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_tensors *tensors)
{
	struct ft_folder_buffers buffers;

	if (ft_folder_buffers(folder_of(kernel), problem, &buffers, NULL) < 0)
		buffers.count = 0; /* the problem was not checked */
	buffers_tensors(&buffers, tensors);
}

const struct ft_kernel *ft_folder_kernel(const struct ft_folder *folder)
{
	return &folder->kernel;
}

/* ---- reading ---- */

static int read_name(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	const struct place here = {NULL, "name", 0};
	const json_t *value = json_object_get(document, "name");

	if (read_text(NULL, document, "name", folder->name, sizeof(folder->name), error) < 0 ||
	        read_text(NULL, document, "help", folder->help, sizeof(folder->help), error) < 0)
		return -1;
	if (!ft_name_valid(folder->name))
		return place_refuse(&here, value, "letters, digits and _, a letter or _ first", error);
	if (ft_kernel_find(folder->name) != NULL)
		return place_fail(&here, error, "%s is a built-in kernel", folder->name);
	return 0;
}

static int read_document(struct ft_folder *folder, struct ft_error *error)
{
	static const struct member members[] = {{"name", true}, {"help", false}, {"fields", true},
	        {"checks", false}, {"knobs", true}, {"space", false}, {"default", true}, {"order", false},
	        {"buffers", true}, {"sources", true}, {"launch", true}, {"reference", true},
	        {"tolerance", false}, {"bytes", false}, {"flops", false}};
	const struct ft_folder_file *file = &folder->file[0];
	json_error_t fault;
	const json_t *document;

	folder->document = json_loadb(file->text, file->length, JSON_REJECT_DUPLICATES, &fault);
	if (folder->document == NULL)
		return ft_fail(error, FT_E_BAD_VALUE, "kernel.json:%d:%d: %.200s", fault.line, fault.column,
		        fault.text);
	document = folder->document;
	if (read_members(NULL, document, members, sizeof(members) / sizeof(members[0]), error) < 0 ||
	        read_name(folder, document, error) < 0 || fields_read(folder, document, error) < 0 ||
	        knobs_read(folder, document, error) < 0)
		return -1;
	schemas_make(folder);
	return rules_read(folder, document, error) < 0 || buffers_read(folder, document, error) < 0 ||
	                reference_read(folder, document, error) < 0 ||
	                targets_read(folder, document, error) < 0
	        ? -1
	        : 0;
}

static struct ft_folder *folder_new(struct ft_error *error)
{
	struct ft_folder *folder = calloc(1, sizeof(*folder));

	if (folder == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a kernel folder");
		return NULL;
	}
	folder->kernel = (struct ft_kernel){.name = folder->name,
	        .help = folder->help,
	        .own = folder,
	        .schema = kernel_schema,
	        .check = kernel_check,
	        .bytes = kernel_bytes,
	        .default_config = kernel_default,
	        .space = kernel_space,
	        .check_config = kernel_check_config,
	        .space_text = ft_folder_hash(folder),
	        .tries = kernel_tries,
	        .members = kernel_members,
	        .tensors = kernel_tensors};
	return folder;
}

struct ft_folder *ft_folder_open(
        const char *path, const struct ft_folder_trust *trust, struct ft_error *error)
{
	struct ft_folder *folder = folder_new(error);
	int directory;

	if (folder == NULL)
		return NULL;
	directory = files_open(path, trust, error);
	if (directory < 0 || files_read_document(folder, directory, trust, error) < 0 ||
	        read_document(folder, error) < 0 || files_read_sources(folder, directory, trust, error) < 0) {
		ft_folder_free(folder);
		folder = NULL;
	} else {
		files_hash(folder);
	}
	if (directory >= 0)
		(void)close(directory);
	return folder;
}

struct ft_folder *ft_folder_parse(const char *text, size_t length, struct ft_error *error)
{
	struct ft_folder *folder = folder_new(error);

	if (folder == NULL)
		return NULL;
	if (files_add_document(folder, text, length, error) < 0 || read_document(folder, error) < 0) {
		ft_folder_free(folder);
		return NULL;
	}
	files_hash(folder);
	return folder;
}

static void free_rules(struct rule *rule, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		formula_free(&rule[i].formula);
}

static void free_target(struct target *target)
{
	for (uint32_t i = 0; i < target->define_count; i++)
		formula_free(&target->define[i].formula);
	for (uint32_t i = 0; i < target->step_count; i++) {
		struct step *step = &target->step[i];

		for (int axis = 0; axis < AXES; axis++) {
			formula_free(&step->grid[axis]);
			formula_free(&step->block[axis]);
			formula_free(&step->cluster[axis]);
		}
		formula_free(&step->shared);
		arguments_free(&step->arguments);
	}
}

void ft_folder_free(struct ft_folder *folder)
{
	if (folder == NULL)
		return;
	for (uint32_t i = 0; i < FT_KNOBS_MAX; i++) {
		formula_free(&folder->knob[i].usual);
		formula_free(&folder->knob[i].reference);
	}
	free_rules(folder->check, folder->check_count);
	free_rules(folder->rule, folder->rule_count);
	for (uint32_t i = 0; i < folder->order_count; i++)
		formula_free(&folder->order[i]);
	for (uint32_t i = 0; i < folder->buffer_count; i++) {
		formula_free(&folder->buffer[i].rows);
		formula_free(&folder->buffer[i].length);
		formula_free(&folder->buffer[i].stride);
	}
	formula_free(&folder->bytes);
	formula_free(&folder->flops);
	arguments_free(&folder->reference_arguments);
	for (int i = 0; i < KINDS; i++)
		free_target(&folder->target[i]);
	files_free(folder);
	json_decref(folder->document);
	free(folder);
}
