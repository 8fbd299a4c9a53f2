/* Buffers, how far off an output may be, and the work of a launch. */
#include "kernels/folder/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const role_names[] = {[FT_FOLDER_IN] = "in",
        [FT_FOLDER_OUT] = "out",
        [FT_FOLDER_INOUT] = "inout",
        [FT_FOLDER_SCRATCH] = "scratch"};
static const char *const fill_names[] = {[FT_FOLDER_NORMAL] = "normal",
        [FT_FOLDER_UNIFORM] = "uniform",
        [FT_FOLDER_ZEROS] = "zeros",
        [FT_FOLDER_INDEX] = "index",
        [FT_FOLDER_BITS] = "bits"};
enum {
	ROLES = sizeof(role_names) / sizeof(role_names[0]),
	FILLS = sizeof(fill_names) / sizeof(fill_names[0]),
};

/* ---- buffers ---- */

/* A buffer before `count`; that if there is none. */
uint32_t buffer_find(const struct ft_folder *folder, uint32_t count, const char *name)
{
	uint32_t at = 0;

	while (at < count && (name == NULL || strcmp(folder->buffer[at].name, name) != 0))
		at++;
	return at;
}

static int read_type(struct buffer *buffer, const struct ft_folder *folder, const struct place *in,
        const json_t *object, struct ft_error *error)
{
	const struct place here = {in, "type", 0};
	const json_t *value = json_object_get(object, "type");
	const char *name = json_string_value(value);
	const struct ft_schema *schema = &folder->schema[0];
	const char *types[FT_DTYPES];
	int type;

	buffer->type_field = FT_FIELDS_MAX;
	for (uint32_t i = 0; i < schema->field_count && name != NULL; i++) {
		const struct ft_schema_field_def *def = &schema->field[i];

		if (strcmp(def->name, name) != 0)
			continue;
		if (!def->is_text)
			return place_refuse(&here, value, "a field of words, or a type", error);
		for (uint32_t j = 0; j < FT_CHOICES_MAX && def->choice[j][0] != '\0'; j++) {
			if (!ft_dtype_find(def->choice[j], &buffer->type))
				return place_fail(&here, error, "%s may be %s, which is no type of elements",
				        name, def->choice[j]);
		}
		buffer->type_field = i;
		return 0;
	}
	for (int i = 0; i < FT_DTYPES; i++)
		types[i] = ft_dtype_name((enum ft_dtype)i);
	type = read_word(&here, value, types, FT_DTYPES, error);
	if (type < 0)
		return -1;
	buffer->type = (enum ft_dtype)type;
	return 0;
}

static int read_fill(
        struct buffer *buffer, const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place here = {in, "fill", 0};
	const json_t *value = json_object_get(object, "fill");
	int fill;

	buffer->fill = buffer->role == FT_FOLDER_IN || buffer->role == FT_FOLDER_INOUT ? FT_FOLDER_NORMAL
	                                                                               : FT_FOLDER_UNFILLED;
	if (value == NULL)
		return 0;
	if (buffer->role == FT_FOLDER_OUT)
		return place_refuse(&here, value, "left out of an output", error);
	fill = read_word(&here, value, fill_names, FILLS, error);
	if (fill < 0)
		return -1;
	buffer->fill = (enum ft_folder_fill)fill;
	return 0;
}

static int read_alias(struct buffer *buffer, const struct ft_folder *folder, const struct place *in,
        const json_t *object, struct ft_error *error)
{
	const struct place here = {in, "alias", 0};
	const json_t *value = json_object_get(object, "alias");

	buffer->has_alias = value != NULL;
	if (value == NULL)
		return 0;
	if (buffer->role != FT_FOLDER_OUT)
		return place_refuse(&here, value, "left out, but of an output", error);
	buffer->alias = buffer_find(folder, folder->buffer_count, json_string_value(value));
	if (buffer->alias == folder->buffer_count || folder->buffer[buffer->alias].role != FT_FOLDER_IN)
		return place_refuse(&here, value, "the name of an input before it", error);
	return 0;
}

static int read_buffer(
        struct ft_folder *folder, const struct place *in, const json_t *object, struct ft_error *error)
{
	static const struct member members[] = {{"name", true}, {"role", true}, {"type", true},
	        {"rows", false}, {"length", true}, {"stride", false}, {"fill", false}, {"alias", false}};
	struct buffer *buffer = &folder->buffer[folder->buffer_count];
	const json_t *name = json_object_get(object, "name");
	int role;

	if (read_members(in, object, members, sizeof(members) / sizeof(members[0]), error) < 0 ||
	        read_text(in, object, "name", buffer->name, sizeof(buffer->name), error) < 0)
		return -1;
	if (!ft_name_valid(buffer->name))
		return place_refuse(&(struct place){in, "name", 0}, name,
		        "letters, digits and _, a letter or _ first", error);
	if (buffer_find(folder, folder->buffer_count, buffer->name) < folder->buffer_count)
		return place_refuse(
		        &(struct place){in, "name", 0}, name, "another than those before it", error);
	role = read_word(
	        &(struct place){in, "role", 0}, json_object_get(object, "role"), role_names, ROLES, error);
	if (role < 0)
		return -1;
	buffer->role = (enum ft_folder_role)role;
	if (read_type(buffer, folder, in, object, error) < 0 || read_fill(buffer, in, object, error) < 0 ||
	        read_alias(buffer, folder, in, object, error) < 0)
		return -1;
	folder->buffer_count++; /* from here on it has something to free */
	return formula_read_member(&buffer->rows, folder, REACH_FIELDS, in, object, "rows", error) < 0 ||
	                formula_read_member(
	                        &buffer->length, folder, REACH_FIELDS, in, object, "length", error) < 0 ||
	                formula_read_member(
	                        &buffer->stride, folder, REACH_FIELDS, in, object, "stride", error) < 0
	        ? -1
	        : 0;
}

static int read_tolerance(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	static const struct member members[] = {{"relative", true}, {"absolute", false}};
	const struct place in = {NULL, "tolerance", 0};
	json_t *object = json_object_get(document, "tolerance"), *of_type;
	struct member types[FT_DTYPES];

	if (object == NULL)
		return 0;
	for (int i = 0; i < FT_DTYPES; i++)
		types[i] = (struct member){ft_dtype_name((enum ft_dtype)i), false};
	if (read_members(&in, object, types, FT_DTYPES, error) < 0)
		return -1;
	for (int i = 0; i < FT_DTYPES; i++) {
		const struct place here = {&in, types[i].name, 0};
		double value[2] = {0, 0};

		of_type = json_object_get(object, types[i].name);
		if (of_type == NULL)
			continue;
		if (read_members(&here, of_type, members, 2, error) < 0)
			return -1;
		for (int j = 0; j < 2; j++) {
			const json_t *number = json_object_get(of_type, members[j].name);

			if (number == NULL)
				continue;
			value[j] = json_number_value(number);
			if (!json_is_number(number) || !(value[j] >= 0) || (j == 0 && value[j] >= 1) ||
			        !isfinite(value[j]))
				return place_refuse(&(struct place){&here, members[j].name, 0}, number,
				        j == 0 ? "a number from 0 to below 1" : "a number from 0 up", error);
		}
		folder->tolerance[i] = (struct tolerance){true, value[0], value[1]};
	}
	return 0;
}

int buffers_read(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	const struct place array = {NULL, "buffers", 0};
	bool has_output = false;
	json_t *buffers;

	if (read_array(NULL, document, "buffers", 1, FT_TENSORS_MAX, &buffers, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(buffers); i++) {
		if (read_buffer(folder, &(struct place){&array, NULL, i}, json_array_get(buffers, i), error) <
		        0)
			return -1;
		has_output = has_output || folder->buffer[i].role == FT_FOLDER_OUT ||
		        folder->buffer[i].role == FT_FOLDER_INOUT;
	}
	if (!has_output)
		return place_fail(&array, error, "none is out or inout");
	if (read_tolerance(folder, document, error) < 0)
		return -1;
	return formula_read_member(&folder->bytes, folder, REACH_FIELDS, NULL, document, "bytes", error) <
	                        0 ||
	                formula_read_member(
	                        &folder->flops, folder, REACH_FIELDS, NULL, document, "flops", error) < 0
	        ? -1
	        : 0;
}

static int evaluate_buffer(const struct ft_folder *folder, const struct buffer *buffer,
        const struct values *values, struct ft_folder_buffer *to, struct ft_error *error)
{
	const int64_t most = INT64_C(1) << FT_FOLDER_SPAN_LOG2;
	enum ft_dtype type = buffer->type;
	const struct tolerance *tolerance;

	if (buffer->type_field < FT_FIELDS_MAX)
		(void)ft_dtype_find(values->slot[buffer->type_field].text, &type);
	tolerance = &folder->tolerance[type];
	*to = (struct ft_folder_buffer){.name = buffer->name,
	        .role = buffer->role,
	        .type = type,
	        .fill = buffer->fill,
	        .has_alias = buffer->has_alias,
	        .alias = buffer->alias,
	        .relative = tolerance->is_given ? tolerance->relative : ft_dtype_error(type),
	        .absolute = tolerance->absolute};
	if (formula_number_or(&buffer->rows, values, 1, 1, most, &to->rows, error) < 0 ||
	        formula_number_or(&buffer->length, values, 0, 1, most, &to->length, error) < 0)
		return -1;
	return formula_number_or(
	        &buffer->stride, values, (int64_t)to->length, (int64_t)to->length, most, &to->stride, error);
}

int ft_folder_buffers(const struct ft_folder *folder, const struct ft_problem *problem,
        struct ft_folder_buffers *buffers, struct ft_error *error)
{
	struct ft_tensors tensors;
	struct values values;

	values_of_problem(folder, problem, &values);
	buffers->span = 0;
	buffers->count = folder->buffer_count;
	for (uint32_t i = 0; i < buffers->count; i++) {
		struct ft_folder_buffer *buffer = &buffers->buffer[i], *alias = &buffers->buffer[0];

		if (evaluate_buffer(folder, &folder->buffer[i], &values, buffer, error) < 0)
			return -1;
		alias += buffer->alias;
		if (buffer->has_alias &&
		        (buffer->type != alias->type || buffer->rows != alias->rows ||
		                buffer->length != alias->length || buffer->stride != alias->stride))
			return ft_fail(error, FT_E_BAD_VALUE,
			        "kernel.json: buffers[%u].alias: %s has another type or shape than %s for "
			        "this problem",
			        i, buffer->name, alias->name);
	}
	buffers_tensors(buffers, &tensors);
	buffers->span = ft_tensors_span(&tensors);
	if (buffers->span > UINT64_C(1) << FT_FOLDER_SPAN_LOG2)
		return ft_fail(error, FT_E_BAD_VALUE,
		        "kernel.json: buffers: they are more than 2^%d bytes for this problem",
		        FT_FOLDER_SPAN_LOG2);
	return 0;
}

static uint64_t buffer_bytes(const struct ft_folder_buffer *buffer)
{
	return buffer->rows * buffer->length * ft_dtype_size(buffer->type);
}

/* An input counts as small beside an output of this many times its size: it stays in the caches from launch to launch. */
enum { SMALL = 16 };

void buffers_tensors(const struct ft_folder_buffers *buffers, struct ft_tensors *tensors)
{
	static const enum ft_role roles[] = {[FT_FOLDER_IN] = FT_INPUT,
	        [FT_FOLDER_OUT] = FT_OUTPUT,
	        [FT_FOLDER_INOUT] = FT_INOUT,
	        [FT_FOLDER_SCRATCH] = FT_SCRATCH};
	static const enum ft_fill fills[] = {[FT_FOLDER_NORMAL] = FT_FILL_NORMAL,
	        [FT_FOLDER_UNIFORM] = FT_FILL_UNIFORM,
	        [FT_FOLDER_ZEROS] = FT_FILL_ZEROS,
	        [FT_FOLDER_INDEX] = FT_FILL_INDEX,
	        [FT_FOLDER_BITS] = FT_FILL_BITS,
	        [FT_FOLDER_UNFILLED] = FT_FILL_ZEROS};
	uint64_t output = 0;

	*tensors = (struct ft_tensors){.count = buffers->count};
	for (uint32_t i = 0; i < buffers->count; i++) {
		const struct ft_folder_buffer *buffer = &buffers->buffer[i];

		if ((buffer->role == FT_FOLDER_OUT || buffer->role == FT_FOLDER_INOUT) &&
		        buffer_bytes(buffer) > output)
			output = buffer_bytes(buffer);
	}
	for (uint32_t i = 0; i < buffers->count; i++) {
		const struct ft_folder_buffer *buffer = &buffers->buffer[i];
		const bool is_small = buffer->role == FT_FOLDER_IN && buffer_bytes(buffer) <= output / SMALL;

		tensors->tensor[i] = (struct ft_tensor){.name = buffer->name,
		        .role = is_small ? FT_INPUT_SHARED : roles[buffer->role],
		        .type = buffer->type,
		        .fill = fills[buffer->fill],
		        .rows = buffer->rows,
		        .length = buffer->length,
		        .stride = buffer->stride,
		        .relative = buffer->relative,
		        .absolute = buffer->absolute,
		        .in_place = buffer->has_alias,
		        .alias = buffer->alias,
		        .is_filled = buffer->role == FT_FOLDER_SCRATCH && buffer->fill != FT_FOLDER_UNFILLED};
	}
}

/* ---- work ---- */

uint64_t ft_folder_flops(const struct ft_folder *folder, const struct ft_problem *problem)
{
	struct values values;
	uint64_t flops;

	values_of_problem(folder, problem, &values);
	return formula_number_or(&folder->flops, &values, 0, 0, INT64_MAX, &flops, NULL) < 0 ? 0 : flops;
}

/* What a row of a buffer moves; what is worked in place is read and written. */
static uint64_t moved(const struct ft_folder_buffers *buffers)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < buffers->count; i++) {
		const struct ft_folder_buffer *buffer = &buffers->buffer[i];
		uint64_t times = buffer->role == FT_FOLDER_INOUT ? 2 : buffer->role != FT_FOLDER_SCRATCH;

		bytes += times * buffer_bytes(buffer);
	}
	return bytes;
}

int buffers_bytes(const struct ft_folder *folder, const struct ft_problem *problem, uint64_t *bytes,
        struct ft_error *error)
{
	struct ft_folder_buffers buffers;
	struct values values;

	values_of_problem(folder, problem, &values);
	if (folder->bytes.expression != NULL)
		return formula_number_or(&folder->bytes, &values, 0, 0, INT64_MAX, bytes, error);
	if (ft_folder_buffers(folder, problem, &buffers, error) < 0)
		return -1;
	*bytes = moved(&buffers);
	return 0;
}
