/* What is built for a kind of device, and how it is launched. */
#include "kernels/folder/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The words for options, and what each kind's compiler takes; NULL: it has no such. */
static const struct {
	const char *word;
	const char *text[KINDS];
} options[] = {
        {"fast-math", {"-ffast-math", "-ffast-math", "--use_fast_math"}},
        {"no-fma", {"-ffp-contract=off", "-ffp-contract=off", "--fmad=false"}},
        {"flush-denormals", {NULL, "-fgpu-flush-denormals-to-zero", "--ftz=true"}},
        {"c++20", {NULL, "-std=c++20", "--std=c++20"}},
};
enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

static bool is_among(const char *name, const char *first, const char *others)
{
	return name[0] != '\0' && strchr(first, name[0]) != NULL && name[strspn(name, others)] == '\0';
}

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"

int symbol_read(const char **symbol, const struct place *in, const json_t *object, struct ft_error *error)
{
	if (read_sentence(in, object, "symbol", SYMBOL_MAX, symbol, error) < 0)
		return -1;
	if (is_among(*symbol, LETTERS, LETTERS "0123456789"))
		return 0;
	return place_refuse(&(struct place){in, "symbol", 0}, json_object_get(object, "symbol"),
	        "the name of a function: letters, digits and _, a letter or _ first", error);
}

int file_name_read(const char **file, const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place here = {in, "file", 0};

	if (read_sentence(in, object, "file", FT_KERNEL_SIZE - 1, file, error) < 0)
		return -1;
	if (strchr(*file, '/') != NULL)
		return place_refuse(&here, json_object_get(object, "file"),
		        "a file of the folder itself, without /", error);
	if (!is_among(*file, LETTERS "0123456789", LETTERS "0123456789.+-"))
		return place_refuse(&here, json_object_get(object, "file"),
		        "letters, digits and . _ + -, a letter, digit or _ first", error);
	return 0;
}

/* ---- what is read ---- */

static int read_options(struct ft_folder_source *source, enum kind kind, const struct place *in,
        const json_t *object, struct ft_error *error)
{
	const struct place array = {in, "options", 0};
	const char *word[OPTIONS];
	json_t *list;

	for (int i = 0; i < OPTIONS; i++)
		word[i] = options[i].word;
	if (read_array(in, object, "options", 0, FT_FOLDER_OPTIONS_MAX, &list, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const struct place here = {&array, NULL, i};
		int option = read_word(&here, json_array_get(list, i), word, OPTIONS, error);

		if (option < 0)
			return -1;
		if (options[option].text[kind] == NULL)
			return place_fail(
			        &here, error, "there is no %s on %s devices", word[option], kind_names[kind]);
		source->option[source->option_count++] = options[option].text[kind];
	}
	return 0;
}

static int read_defines(struct target *target, const struct ft_folder *folder, enum kind kind,
        const struct place *in, json_t *object, struct ft_error *error)
{
	const struct place array = {in, "defines", 0};
	json_t *defines = json_object_get(object, "defines"), *value;
	const char *name;

	if (defines == NULL)
		return 0;
	if (!json_is_object(defines) || json_object_size(defines) > FT_DEFINES_MAX)
		return place_refuse(&array, defines, "an object of 0 to 24", error);
	json_object_foreach(defines, name, value)
	{
		const struct place here = {&array, name, 0};
		struct define *define = &target->define[target->define_count];
		struct ft_error ignored;

		if (!ft_name_valid(name))
			return place_fail(&here, error,
			        "a macro's name is up to 31 letters, digits and _, a letter or _ first");
		ft_text_copy(define->name, sizeof(define->name), name);
		/* Which of the two it is, an expression tells by itself. */
		define->is_text = json_is_string(value) &&
		        formula_read(&define->formula, folder, REACH_ALL, &here, value, FT_EXPRESSION_TEXT,
		                &ignored) == 0;
		if (!define->is_text &&
		        formula_read(&define->formula, folder, REACH_ALL, &here, value, FT_EXPRESSION_NUMBER,
		                error) < 0)
			return -1;
		target->define_count++;
		if (formula_check_kind(&define->formula, folder, kind, error) < 0)
			return -1;
	}
	return 0;
}

static int read_axes(struct formula axis[AXES], const struct ft_folder *folder, enum kind kind,
        const struct place *in, const json_t *object, const char *name, struct ft_error *error)
{
	const struct place array = {in, name, 0};
	json_t *list;

	if (read_array(in, object, name, 1, AXES, &list, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (formula_read(&axis[i], folder, REACH_ALL, &(struct place){&array, NULL, i},
		            json_array_get(list, i), FT_EXPRESSION_NUMBER, error) < 0 ||
		        formula_check_kind(&axis[i], folder, kind, error) < 0)
			return -1;
	}
	return 0;
}

static void note_symbol(struct ft_folder_source *source, const char *symbol)
{
	for (uint32_t i = 0; i < source->symbol_count; i++) {
		if (strcmp(source->symbol[i], symbol) == 0)
			return;
	}
	source->symbol[source->symbol_count++] = symbol;
}

static int read_step(struct target *target, const struct ft_folder *folder, enum kind kind,
        const struct place *in, const json_t *object, struct ft_error *error)
{
	static const struct member of_gpu[] = {{"symbol", true}, {"grid", true}, {"arguments", true},
	        {"block", true}, {"shared", false}, {"cluster", false}};
	static const size_t members[] = {[KIND_CPU] = 3, [KIND_HIP] = 5, [KIND_CUDA] = 6};
	struct step *step = &target->step[target->step_count++];

	if (read_members(in, object, of_gpu, members[kind], error) < 0 ||
	        symbol_read(&step->symbol, in, object, error) < 0 ||
	        read_axes(step->grid, folder, kind, in, object, "grid", error) < 0 ||
	        read_axes(step->block, folder, kind, in, object, "block", error) < 0 ||
	        read_axes(step->cluster, folder, kind, in, object, "cluster", error) < 0 ||
	        formula_read_member(&step->shared, folder, REACH_ALL, in, object, "shared", error) < 0 ||
	        formula_check_kind(&step->shared, folder, kind, error) < 0 ||
	        arguments_read(&step->arguments, folder, REACH_ALL, in, object, error) < 0)
		return -1;
	for (uint32_t i = 0; i < step->arguments.count; i++) {
		if (formula_check_kind(&step->arguments.argument[i].formula, folder, kind, error) < 0)
			return -1;
	}
	note_symbol(&target->source, step->symbol);
	return 0;
}

/* What stands for a kind in "sources" or "launch": of another kind, if it says so. */
static int find_part(const struct place *part, const json_t *object, enum kind kind, enum kind *from,
        json_t **value, struct ft_error *error)
{
	const struct place here = {part, kind_names[kind], 0};
	int other;

	*from = kind;
	*value = json_object_get(object, kind_names[kind]);
	if (!json_is_string(*value))
		return 0;
	other = read_word(&here, *value, kind_names, KINDS, error);
	if (other < 0)
		return -1;
	if (!json_is_object(json_object_get(object, kind_names[other])) &&
	        !json_is_array(json_object_get(object, kind_names[other])))
		return place_refuse(&here, *value, "a kind that has its own", error);
	*from = (enum kind)other;
	*value = json_object_get(object, kind_names[other]);
	return 0;
}

static int read_target(struct ft_folder *folder, enum kind kind, const json_t *sources,
        const json_t *launches, struct ft_error *error)
{
	static const struct member members[] = {{"file", true}, {"defines", false}, {"options", false}};
	const struct place of_sources = {NULL, "sources", 0}, of_launches = {NULL, "launch", 0};
	struct target *target = &folder->target[kind];
	json_t *source, *launch;
	enum kind from;

	if (find_part(&of_sources, sources, kind, &from, &source, error) < 0)
		return -1;
	const struct place in = {&of_sources, kind_names[from], 0};

	if (find_part(&of_launches, launches, kind, &from, &launch, error) < 0)
		return -1;
	if (source == NULL && launch == NULL)
		return 0;
	const struct place array = {&of_launches, kind_names[from], 0};

	if (source == NULL || launch == NULL)
		return place_refuse(
		        &(struct place){source == NULL ? &of_sources : &of_launches, kind_names[kind], 0},
		        NULL, "given, as the kernel has the other for such devices", error);
	if (read_members(&in, source, members, 3, error) < 0 ||
	        file_name_read(&target->source.file, &in, source, error) < 0 ||
	        read_options(&target->source, kind, &in, source, error) < 0 ||
	        read_defines(target, folder, kind, &in, source, error) < 0)
		return -1;
	if (!json_is_array(launch) || json_array_size(launch) == 0 ||
	        json_array_size(launch) > FT_FOLDER_STEPS_MAX)
		return place_refuse(
		        &array, launch, "an array of 1 to 4 steps, or the name of another kind", error);
	for (size_t i = 0; i < json_array_size(launch); i++) {
		if (read_step(target, folder, kind, &(struct place){&array, NULL, i},
		            json_array_get(launch, i), error) < 0)
			return -1;
	}
	return 0;
}

int targets_read(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	const struct place of_sources = {NULL, "sources", 0}, of_launches = {NULL, "launch", 0};
	const json_t *sources = json_object_get(document, "sources"),
	             *launches = json_object_get(document, "launch");
	struct member kinds[KINDS];

	for (int i = 0; i < KINDS; i++)
		kinds[i] = (struct member){kind_names[i], false};
	if (read_members(&of_sources, sources, kinds, KINDS, error) < 0 ||
	        read_members(&of_launches, launches, kinds, KINDS, error) < 0)
		return -1;
	if (json_object_size(sources) == 0)
		return place_refuse(
		        &of_sources, sources, "an object with a source for a kind of device", error);
	for (int i = 0; i < KINDS; i++) {
		if (read_target(folder, (enum kind)i, sources, launches, error) < 0)
			return -1;
	}
	return 0;
}

/* ---- evaluation ---- */

static const struct target *target_of(
        const struct ft_folder *folder, const char *device_kind, struct ft_error *error)
{
	for (int i = 0; i < KINDS; i++) {
		if (strcmp(kind_names[i], device_kind) == 0 && folder->target[i].source.file != NULL)
			return &folder->target[i];
	}
	(void)ft_fail(error, FT_E_BAD_VALUE, "%s has no source for %s devices", folder->name, device_kind);
	return NULL;
}

const struct ft_folder_source *ft_folder_source(const struct ft_folder *folder, const char *device_kind)
{
	const struct target *target = target_of(folder, device_kind, NULL);

	return target != NULL ? &target->source : NULL;
}

static const struct target *evaluate(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct values *values,
        struct ft_error *error)
{
	values_of_problem(folder, problem, values);
	values_of_traits(folder, traits, values);
	values_of_config(folder, kind_named(traits->kind), config, values);
	return target_of(folder, traits->kind, error);
}

int ft_folder_defines(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_defines *defines,
        struct ft_error *error)
{
	struct values values;
	const struct target *target = evaluate(folder, problem, traits, config, &values, error);

	defines->count = 0;
	for (uint32_t i = 0; target != NULL && i < target->define_count; i++) {
		const struct define *define = &target->define[i];
		char *text = defines->text[defines->count++];
		const char *word;
		int64_t number;
		int length;

		if (define->is_text ? formula_text(&define->formula, &values, &word, error) < 0
		                    : formula_number(&define->formula, &values, INT64_MIN, INT64_MAX, &number,
		                              error) < 0)
			return -1;
		if (define->is_text)
			length = snprintf(text, FT_DEFINE_SIZE, "-D%s=%s", define->name, word);
		else
			length = snprintf(text, FT_DEFINE_SIZE, "-D%s=%" PRId64, define->name, number);
		if (length >= FT_DEFINE_SIZE) {
			(void)ft_fail(error, FT_E_BAD_VALUE, "%.60s is longer than %d bytes", text,
			        FT_DEFINE_SIZE - 1);
			return place_blame(define->formula.place, error);
		}
	}
	return target != NULL ? 0 : -1;
}

/* What every device of a kind can launch along an axis. */
static const int64_t grid_most[] = {INT32_MAX, 65535, 65535}, block_most[] = {1024, 1024, 64};
enum { CLUSTER_MOST = 16 };

static int evaluate_axes(const struct formula axis[AXES], const struct values *values, const int64_t *most,
        uint64_t *to, struct ft_error *error)
{
	for (int i = 0; i < AXES; i++) {
		if (formula_number_or(
		            &axis[i], values, 1, 1, most != NULL ? most[i] : INT32_MAX, &to[i], error) < 0)
			return -1;
	}
	return 0;
}

static int refuse_step(const struct formula *formula, struct ft_error *error, const char *what,
        uint64_t value, uint64_t bound)
{
	(void)ft_fail(error, FT_E_BAD_VALUE, "%s are %" PRIu64 "; there may be %" PRIu64 " at the most", what,
	        value, bound);
	return place_blame(formula->place, error);
}

static int check_grid(const struct step *step, const struct ft_folder_step *to, struct ft_error *error)
{
	uint64_t blocks;

	if (!__builtin_mul_overflow(to->grid[0] * to->grid[1], to->grid[2], &blocks) && blocks <= INT64_MAX)
		return 0;
	(void)ft_fail(error, FT_E_BAD_VALUE, "the blocks of the grid are more than can be counted");
	return place_blame(step->grid[0].place, error);
}

static int check_step(const struct step *step, const struct ft_folder_step *to, const struct values *values,
        const struct ft_folder *folder, struct ft_error *error)
{
	const union ft_expression_value *trait = &values->slot[folder->field_count];
	const uint64_t shared_block = (uint64_t)trait[TRAIT_SHARED_BLOCK].number;
	const uint64_t threads_block = (uint64_t)trait[TRAIT_THREADS_BLOCK].number;
	const uint64_t threads = to->block[0] * to->block[1] * to->block[2];
	const uint64_t blocks = to->cluster[0] * to->cluster[1] * to->cluster[2];

	if (threads > threads_block)
		return refuse_step(&step->block[0], error, "the threads of a block", threads, threads_block);
	if (to->shared > shared_block)
		return refuse_step(
		        &step->shared, error, "the bytes of shared memory", to->shared, shared_block);
	if (blocks > CLUSTER_MOST)
		return refuse_step(&step->cluster[0], error, "the blocks of a cluster", blocks, CLUSTER_MOST);
	/* The GPU's own count of the threads of a row of blocks has 32 bits with HIP. */
	if (strcmp(trait[TRAIT_KIND].text, "hip") == 0 && to->grid[0] * to->block[0] > UINT32_MAX)
		return refuse_step(
		        &step->grid[0], error, "the threads along x", to->grid[0] * to->block[0], UINT32_MAX);
	for (int i = 0; i < AXES; i++) {
		if (to->grid[i] % to->cluster[i] != 0) {
			(void)ft_fail(error, FT_E_BAD_VALUE,
			        "the grid has %" PRIu64 " blocks along axis %d, no multiple of it",
			        to->grid[i], i);
			return place_blame(step->cluster[i].place, error);
		}
	}
	return 0;
}

int ft_folder_launch(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_folder_launch *launch,
        struct ft_error *error)
{
	const bool is_gpu = kind_named(traits->kind) != KIND_CPU;
	struct values values;
	const struct target *target = evaluate(folder, problem, traits, config, &values, error);

	launch->count = target != NULL ? target->step_count : 0;
	for (uint32_t i = 0; i < launch->count; i++) {
		const struct step *step = &target->step[i];
		struct ft_folder_step *to = &launch->step[i];

		to->symbol = step->symbol;
		if (evaluate_axes(step->grid, &values, is_gpu ? grid_most : NULL, to->grid, error) < 0 ||
		        evaluate_axes(step->block, &values, block_most, to->block, error) < 0 ||
		        evaluate_axes(step->cluster, &values, block_most, to->cluster, error) < 0 ||
		        formula_number_or(&step->shared, &values, 0, 0, INT64_MAX, &to->shared, error) < 0 ||
		        arguments_evaluate(&step->arguments, &values, &to->arguments, error) < 0 ||
		        check_grid(step, to, error) < 0 ||
		        (is_gpu && check_step(step, to, &values, folder, error) < 0))
			return -1;
	}
	return target != NULL ? 0 : -1;
}
