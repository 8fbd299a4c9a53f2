/* What functions are called with: buffers by name, and numbers of stated types. The reference is such a function, too. */
#include "kernels/folder/internal.h"

#include <string.h>

static const char *const scalar_names[] = {[FT_SCALAR_I32] = "i32",
        [FT_SCALAR_U32] = "u32",
        [FT_SCALAR_I64] = "i64",
        [FT_SCALAR_U64] = "u64",
        [FT_SCALAR_F32] = "f32",
        [FT_SCALAR_F64] = "f64"};
enum { SCALARS = sizeof(scalar_names) / sizeof(scalar_names[0]) };

const char *ft_scalar_name(enum ft_scalar type)
{
	return scalar_names[type];
}

static int read_scalar(struct argument *argument, const struct ft_folder *folder, enum reach reach,
        const struct place *in, const json_t *object, struct ft_error *error)
{
	struct member types[SCALARS];
	const char *name = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)object));
	const json_t *value;

	for (int i = 0; i < SCALARS; i++)
		types[i] = (struct member){scalar_names[i], false};
	if (json_object_size(object) != 1)
		return place_refuse(in, object, "the name of a buffer, or {TYPE: EXPRESSION}", error);
	if (read_members(in, object, types, SCALARS, error) < 0)
		return -1;
	while (strcmp(scalar_names[argument->type], name) != 0)
		argument->type++;
	value = json_object_get(object, name);
	argument->is_real = json_is_real(value) && argument->type >= FT_SCALAR_F32;
	argument->real = json_real_value(value);
	if (argument->is_real)
		return 0;
	return formula_read(&argument->formula, folder, reach, &(struct place){in, name, 0}, value,
	        FT_EXPRESSION_NUMBER, error);
}

void arguments_free(struct arguments *arguments)
{
	for (uint32_t i = 0; i < arguments->count; i++)
		formula_free(&arguments->argument[i].formula);
}

int arguments_read(struct arguments *arguments, const struct ft_folder *folder, enum reach reach,
        const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place array = {in, "arguments", 0};
	json_t *list;

	if (read_array(in, object, "arguments", 0, FT_FOLDER_ARGUMENTS_MAX, &list, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct argument *argument = &arguments->argument[arguments->count++];
		const struct place here = {&array, NULL, i};
		const json_t *value = json_array_get(list, i);

		argument->is_buffer = json_is_string(value);
		if (!argument->is_buffer) {
			if (read_scalar(argument, folder, reach, &here, value, error) < 0)
				return -1;
			continue;
		}
		argument->buffer = buffer_find(folder, folder->buffer_count, json_string_value(value));
		if (argument->buffer == folder->buffer_count)
			return place_refuse(&here, value,
			        "the name of a buffer; a number is written {\"i64\": ...}", error);
	}
	return 0;
}

int reference_read(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	static const struct member of_code[] = {{"file", true}, {"symbol", true}, {"arguments", true}};
	static const struct member of_config[] = {{"config", true}};
	const struct place in = {NULL, "reference", 0}, config = {&in, "config", 0};
	const json_t *object = json_object_get(document, "reference");

	if (json_object_get(object, "config") != NULL)
		return read_members(&in, object, of_config, 1, error) < 0 ||
		                knob_values_read(
		                        folder, &config, json_object_get(object, "config"), true, error) < 0
		        ? -1
		        : 0;
	if (read_members(&in, object, of_code, 3, error) < 0 ||
	        file_name_read(&folder->reference_file, &in, object, error) < 0 ||
	        symbol_read(&folder->reference_symbol, &in, object, error) < 0)
		return -1;
	return arguments_read(&folder->reference_arguments, folder, REACH_FIELDS, &in, object, error);
}

int arguments_evaluate(const struct arguments *arguments, const struct values *values,
        struct ft_folder_arguments *evaluated, struct ft_error *error)
{
	static const int64_t least[] = {[FT_SCALAR_I32] = INT32_MIN, 0, INT64_MIN, 0, INT64_MIN, INT64_MIN};
	static const int64_t most[] = {
	        [FT_SCALAR_I32] = INT32_MAX, UINT32_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};

	evaluated->count = arguments->count;
	for (uint32_t i = 0; i < arguments->count; i++) {
		const struct argument *argument = &arguments->argument[i];
		struct ft_folder_argument *to = &evaluated->argument[i];

		*to = (struct ft_folder_argument){.is_buffer = argument->is_buffer,
		        .buffer = argument->buffer,
		        .type = argument->type,
		        .real = argument->real};
		if (argument->formula.expression == NULL)
			continue;
		if (formula_number(&argument->formula, values, least[to->type], most[to->type], &to->number,
		            error) < 0)
			return -1;
		to->real = (double)to->number;
	}
	return 0;
}

int ft_folder_reference(const struct ft_folder *folder, const struct ft_problem *problem,
        struct ft_folder_reference *reference, struct ft_error *error)
{
	struct values values;
	uint32_t output = 0;

	memset(reference, 0, sizeof(*reference));
	reference->file = folder->reference_file;
	reference->symbol = folder->reference_symbol;
	values_of_problem(folder, problem, &values);
	while (folder->buffer[output].role != FT_FOLDER_OUT && folder->buffer[output].role != FT_FOLDER_INOUT)
		output++;
	if (formula_number_or(
	            &folder->buffer[output].rows, &values, 1, 1, INT64_MAX, &reference->rows, error) < 0)
		return -1;
	return arguments_evaluate(&folder->reference_arguments, &values, &reference->arguments, error);
}
