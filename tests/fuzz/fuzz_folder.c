/* A kernel.json: any bytes are a kernel that keeps its promises for whatever problem it takes, or refused by a sentence. */
#include "tests/fuzz/target.h"

#include <string.h>

#include "kernels/folder/folder.h"

enum { WORK = 1 << 12, PROBLEMS = 6 };

static const struct ft_traits traits[] = {{.kind = "cpu", .arch = "x86_64", .units = 2, .cache = 1 << 20},
        {.kind = "hip", .arch = "gfx942", .units = 304, .wave = 64, .cache = 1 << 28},
        {.kind = "cuda",
                .arch = "sm_90",
                .units = 132,
                .wave = 32,
                .cache = 50 << 20,
                .shared_block = 232448,
                .threads_block = 1024,
                .registers = 65536,
                .memory = UINT64_MAX}};

static void must_be_an_error(const struct ft_error *error)
{
	MUST(memchr(error->message, '\0', sizeof(error->message)) != NULL && error->message[0] != '\0');
	MUST(error->code[0] != '\0');
	for (const unsigned char *at = (const unsigned char *)error->message; *at != '\0'; at++)
		MUST(*at >= 0x20 && *at != 0x7f);
}

/* Each field at its least, at its greatest, at what it is where it may be left out, and at small numbers. */
static void make_problem(const struct ft_schema *schema, int which, struct ft_problem *given)
{
	given->count = 0;
	for (uint32_t i = 0; i < schema->field_count; i++) {
		const struct ft_schema_field_def *def = &schema->field[i];
		struct ft_field *field = &given->field[given->count];
		uint32_t choices = 0;

		if (which == 2 && (def->has_default || def->same_as[0] != '\0'))
			continue;
		while (choices < FT_CHOICES_MAX && def->choice[choices][0] != '\0')
			choices++;
		memset(field, 0, sizeof(*field));
		memcpy(field->name, def->name, sizeof(field->name));
		field->is_text = def->is_text;
		MUST(def->is_text == (choices > 0));
		if (choices > 0)
			memcpy(field->text, def->choice[(uint32_t)which % choices], sizeof(field->text));
		field->number = which == 1 ? def->max : def->min;
		if (!def->is_text && which > 2 && def->max > which && def->min < which)
			field->number = which == 3 ? 3 : which == 4 ? 1 : def->max < 4096 ? def->max : 4096;
		if (field->number < def->min)
			field->number = def->min;
		given->count++;
	}
}

static struct ft_space space;

static void launch_all(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *of, const struct ft_config *config)
{
	struct ft_folder_launch launch;
	struct ft_defines defines;
	struct ft_error error = {.code = ""};

	if (ft_folder_launch(folder, problem, of, config, &launch, &error) < 0)
		must_be_an_error(&error);
	else
		MUST(launch.count > 0 && launch.step[0].grid[0] > 0 && launch.step[0].block[2] > 0);
	if (ft_folder_defines(folder, problem, of, config, &defines, &error) < 0)
		must_be_an_error(&error);
	for (uint32_t i = 0; i < defines.count; i++)
		MUST(memchr(defines.text[i], '\0', FT_DEFINE_SIZE) != NULL);
}

static void make_space(
        const struct ft_folder *folder, const struct ft_problem *problem, const struct ft_traits *of)
{
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_folder_count count;
	struct ft_config config, reference;
	struct ft_error error = {.code = ""};

	kernel->default_config(kernel, problem, of, &config);
	MUST(config.count == kernel->schema(kernel, of->kind)->knob_count);
	launch_all(folder, problem, of, &config);
	if (ft_folder_reference_config(folder, problem, of, &reference, &error) < 0)
		must_be_an_error(&error);
	else
		MUST(kernel->check_config(kernel, problem, of, &reference, &error) == 0);
	if (ft_folder_count(folder, problem, of, WORK, &count, &error) < 0) {
		must_be_an_error(&error);
		return;
	}
	if (kernel->space(kernel, problem, of, &space, &error) < 0) {
		must_be_an_error(&error);
		return;
	}
	MUST(space.count > 0 && space.default_index < space.count);
	if (space.unlisted == 0)
		MUST(space.count == count.members);
	else
		MUST(space.count == 1 && count.members > FT_SPACE_MAX && space.unlisted <= count.members);
	MUST(ft_config_equal(&space.config[space.default_index], &config));
	MUST(space.pruned[space.default_index][0] == '\0');
	for (uint32_t i = 0; i < space.count; i++) {
		MUST(kernel->check_config(kernel, problem, of, &space.config[i], &error) == 0);
		MUST(i == 0 || !ft_config_equal(&space.config[i], &space.config[i - 1]));
	}
	launch_all(folder, problem, of, &space.config[space.count - 1]);
}

static void take_problem(const struct ft_folder *folder, const struct ft_problem *given)
{
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_folder_reference reference;
	struct ft_folder_buffers buffers;
	struct ft_tensors tensors;
	struct ft_problem whole;
	struct ft_error error = {.code = ""};

	if (ft_problem_admit(kernel, kernel->schema(kernel, "cpu"), given, &whole, &error) < 0) {
		must_be_an_error(&error);
		return;
	}
	/* What was admitted does not fail any more. */
	MUST(ft_folder_buffers(folder, &whole, &buffers, &error) == 0);
	MUST(ft_folder_reference(folder, &whole, &reference, &error) == 0 && reference.rows > 0);
	kernel->tensors(kernel, &whole, &tensors);
	MUST(tensors.count == buffers.count && tensors.count > 0);
	MUST(ft_tensors_span(&tensors) <= UINT64_C(1) << FT_FOLDER_SPAN_LOG2);
	(void)kernel->bytes(kernel, &whole);
	(void)ft_folder_flops(folder, &whole);
	for (size_t i = 0; i < sizeof(traits) / sizeof(traits[0]); i++) {
		if (ft_folder_source(folder, traits[i].kind) != NULL)
			make_space(folder, &whole, &traits[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ft_error error = {.code = ""};
	struct ft_folder *folder = ft_folder_parse((const char *)data, size, &error);

	if (folder == NULL) {
		must_be_an_error(&error);
		return 0;
	}
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	static struct ft_problem given;

	MUST(ft_name_valid(kernel->name) && ft_kernel_find(kernel->name) == NULL);
	for (int which = 0; which < PROBLEMS; which++) {
		make_problem(kernel->schema(kernel, "cpu"), which, &given);
		take_problem(folder, &given);
	}
	ft_folder_free(folder);
	return 0;
}
