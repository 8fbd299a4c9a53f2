/* Kernels of folders on the CPU: compiled for real, verified against the reference of the folder, and timed. */
#include "tests/unit/check.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/folder/folder.h"
#include "kernels/runner/cpu/internal.h"

const struct ft_kernel_cpu *const ft_kernels_cpu[] = {NULL};

static char place[] = "/tmp/flytune-test-XXXXXX"; /* of what a test writes, and of what is compiled */

/* A folder that is made of these texts; a text replaces one of `base`, which is copied first. */
static const char *folder_of(const char *kernel_json, const char *source, const char *reference)
{
	static char path[128];
	static int count;
	const struct {
		const char *name, *text;
	} file[] = {{"kernel.json", kernel_json}, {"kernel.c", source}, {"reference.c", reference}};
	snprintf(path, sizeof(path), "%s/folder%d", place, count++);
	assert_int_equal(mkdir(path, 0700), 0);
	for (size_t i = 0; i < 3; i++) {
		char name[160];
		snprintf(name, sizeof(name), "%s/%s", path, file[i].name);
		FILE *to = fopen(name, "w");
		assert_non_null(to);
		fputs(file[i].text, to);
		assert_int_equal(fclose(to), 0);
	}
	return path;
}

struct sweep {
	struct ft_folder *folder;
	struct ft_backend *backend;
	const struct ft_kernel *kernel;
	struct ft_problem problem;
	struct ft_space *space;
	struct ft_error error;
};

/* The folder's kernel, prepared for a problem; gives what prepare gave. */
static int begin(struct sweep *sweep, const char *path, const char *problem)
{
	struct ft_problem given = {0};
	char text[256], *rest = text;
	memset(sweep, 0, sizeof(*sweep));
	sweep->folder = ft_folder_open(path, NULL, &sweep->error);
	if (!sweep->folder)
		fail_msg("%s: %s", path, sweep->error.message);
	sweep->kernel = ft_folder_kernel(sweep->folder);
	snprintf(text, sizeof(text), "%s", problem);
	for (char *word; (word = strsep(&rest, " "));) {
		char *value = strchr(word, '=');
		*value++ = '\0';
		if (value[0] >= '0' && value[0] <= '9')
			ft_problem_set_number(&given, word, strtoll(value, NULL, 10), NULL);
		else
			ft_problem_set_text(&given, word, value, NULL);
	}
	if (ft_problem_admit(sweep->kernel, sweep->kernel->schema(sweep->kernel, "cpu"), &given,
	            &sweep->problem, &sweep->error) < 0)
		fail_msg("%s: %s", problem, sweep->error.message);
	sweep->backend = ft_backend_cpu_new();
	assert_int_equal(sweep->backend->open(sweep->backend, &sweep->error), 0);
	assert_int_equal(sweep->backend->adopt(sweep->backend, sweep->folder, &sweep->error), 0);
	sweep->space = calloc(1, sizeof(*sweep->space));
	if (sweep->kernel->space(sweep->kernel, &sweep->problem, &sweep->backend->device[0].traits,
	            sweep->space, &sweep->error) < 0)
		fail_msg("space: %s", sweep->error.message);
	const struct ft_backend_sweep all = {.kernel = sweep->kernel,
	        .problem = &sweep->problem,
	        .seed = 7,
	        .memory_cap = (uint64_t)64 << 20,
	        .count = sweep->space->count,
	        .config = sweep->space->config,
	        .default_index = sweep->space->default_index};
	return sweep->backend->prepare(sweep->backend, &all, &sweep->error);
}

static void end(struct sweep *sweep)
{
	sweep->backend->finish(sweep->backend);
	sweep->backend->close(sweep->backend);
	ft_backend_cpu_free(sweep->backend);
	ft_folder_free(sweep->folder);
	free(sweep->space);
}

/* Builds one; gives what the build gave. */
static struct ft_built build(struct sweep *sweep, size_t index)
{
	struct ft_built built = {0};
	assert_int_equal(sweep->backend->build_start(sweep->backend, index, &sweep->error), 0);
	if (sweep->backend->build_wait(sweep->backend, &built, &sweep->error) != 1)
		fail_msg("build: %s", sweep->error.message);
	assert_int_equal(built.index, index);
	return built;
}

static void a_folder_is_built_verified_audited_and_timed(void **state)
{
	static const char *const problems[] = {
	        "m=37 n=100 dtype=f32 stride=128", "m=5 n=1000 dtype=bf16", "m=1 n=1 dtype=f32"};
	(void)state;
	for (size_t p = 0; p < sizeof(problems) / sizeof(problems[0]); p++) {
		struct sweep sweep;
		double largest = 0;
		uint64_t checked = 0, sample = 0;
		if (begin(&sweep, SOURCE_FOLDER "/tests/kernels/softmax", problems[p]) != 0)
			fail_msg("%s: %s", problems[p], sweep.error.message);
		for (size_t i = 0; i < sweep.space->count; i++) {
			struct ft_built built = build(&sweep, i);
			if (built.failed)
				fail_msg("config %zu: %s", i, built.error.message);
			assert_int_equal(strlen(built.code), FT_HASH_SIZE - 1);
			if (sweep.backend->verify(sweep.backend, i, &largest, &sweep.error) != 0)
				fail_msg("%s, config %zu: %s", problems[p], i, sweep.error.message);
		}
		assert_true(largest > 0 || p == 2);
		assert_int_equal(sweep.backend->warm(sweep.backend, &sweep.error), 0);
		for (int samples = 0; samples<2; samples += sample> 0)
			assert_int_equal(sweep.backend->measure(sweep.backend, sweep.space->default_index,
			                         &sample, &sweep.error),
			        0);
		if (sweep.backend->audit(sweep.backend, 0, 20, &checked, &sweep.error) != 0)
			fail_msg("%s: %s", problems[p], sweep.error.message);
		assert_int_equal(checked, 20);
		end(&sweep);
	}
}

/* ---- folders that are wrong ---- */

/* y = x + BIAS, for all rows; KNOB is what a source does with it. */
static const char add_json[] =
        "{\"name\": \"add\", \"help\": \"adds one\","
        " \"fields\": [{\"name\": \"m\", \"help\": \"rows\", \"min\": 1, \"max\": 1000, \"scale\": true}],"
        " \"knobs\": [{\"name\": \"KNOB\", \"help\": \"how\", \"values\": [0, 1]}],"
        " \"default\": {\"KNOB\": 0},"
        " \"buffers\": [{\"name\": \"x\", \"role\": \"%s\", \"type\": \"%s\", \"rows\": \"m\", \"length\": "
        "10, "
        "\"fill\": \"index\"}%s],"
        " \"sources\": {\"cpu\": {\"file\": \"kernel.c\", \"defines\": {\"KNOB\": \"KNOB\"}}},"
        " \"launch\": {\"cpu\": [{\"symbol\": \"add\", \"grid\": [\"m\"], \"arguments\": [\"x\"%s]}]},"
        " \"reference\": {\"file\": \"reference.c\", \"symbol\": \"wanted\", \"arguments\": [\"x\"%s]}}";
#define OUT ", {\"name\": \"y\", \"role\": \"out\", \"type\": \"f32\", \"rows\": \"m\", \"length\": 10}"
static const char add_reference[] =
        "#include <stdint.h>\n"
        "void wanted(int64_t first, int64_t last, const double *x, double *y) {\n"
        "  for (int64_t i = first * 10; i < last * 10; i++) y[i] = x[i] + 1;\n}\n";

static const char *add_folder(const char *source, const char *reference)
{
	char json[2048];
	snprintf(json, sizeof(json), add_json, "in", "f32", OUT, ", \"y\"", ", \"y\"");
	return folder_of(json, source, reference);
}

#define ADD                                                      \
	"#include <stdint.h>\n"                                  \
	"void add(const int64_t *block, float *x, float *y) {\n" \
	"  for (int i = 0; i < 10; i++) y[block[0] * 10 + i] = x[block[0] * 10 + i] + 1;\n"

static void what_a_config_does_wrong_is_said_and_is_no_others_fault(void **state)
{
	static const struct {
		const char *source, *says;
	} wrong[] = {
	        {ADD "  if (KNOB && block[0] == 3) y[35] += 1;\n}\n", "row 3, column 5 is 7 where"},
	        {ADD "  if (KNOB) y[-1] = 0;\n}\n", "it wrote before the first row"},
	        {ADD "  if (KNOB) y[70] = 0;\n}\n", "it wrote after the last row"},
	        {ADD "  if (KNOB) x[3] = 50;\n}\n", "it changed its x"},
	        {ADD "  if (KNOB) y[block[0] * 10] = 0.0f / 0.0f;\n}\n", "nan where"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct sweep sweep;
		double largest = 0;
		if (begin(&sweep, add_folder(wrong[i].source, add_reference), "m=7") != 0)
			fail_msg("%s", sweep.error.message);
		for (size_t j = 0; j < 2; j++) {
			struct ft_built built = build(&sweep, j);
			if (built.failed)
				fail_msg("%s", built.error.message);
		}
		const size_t bad = sweep.space->config[0].knob[0].value == 1 ? 0 : 1;
		if (sweep.backend->verify(sweep.backend, 1 - bad, &largest, &sweep.error) != 0)
			fail_msg("%zu: %s", i, sweep.error.message);
		assert_int_equal(sweep.backend->verify(sweep.backend, bad, &largest, &sweep.error), 1);
		if (!strstr(sweep.error.message, wrong[i].says))
			fail_msg("%zu: \"%s\" does not say \"%s\"", i, sweep.error.message, wrong[i].says);
		if (sweep.backend->verify(sweep.backend, 1 - bad, &largest, &sweep.error) != 0)
			fail_msg("%zu, after the other: %s", i, sweep.error.message);
		end(&sweep);
	}
}

/* Every so-many-th launch, whatever number that is. */
static void what_is_wrong_now_and_then_is_found_among_many_launches(void **state)
{
	static const int every[] = {2, 3, 4, 7, 8, 50, 64, 100};
	(void)state;
	for (size_t i = 0; i < sizeof(every) / sizeof(every[0]); i++) {
		char source[512];
		struct sweep sweep;
		double largest = 0;
		uint64_t checked = 0;
		snprintf(source, sizeof(source),
		        ADD "  static int launches;\n  if (block[0] == 0 && ++launches > 3 && launches %% %d "
		            "== 0) y[0] "
		            "+= 1;\n}\n",
		        every[i]);
		if (begin(&sweep, add_folder(source, add_reference), "m=7") != 0)
			fail_msg("%s", sweep.error.message);
		struct ft_built built = build(&sweep, 0);
		if (built.failed)
			fail_msg("%s", built.error.message);
		if (sweep.backend->verify(sweep.backend, 0, &largest, &sweep.error) != 0)
			fail_msg("%s", sweep.error.message);
		if (sweep.backend->audit(sweep.backend, 0, 1000, &checked, &sweep.error) != 1)
			fail_msg("wrong in every %dth launch, and %d were found right", every[i],
			        (int)checked);
		assert_non_null(strstr(sweep.error.message, "right at first, wrong in launch"));
		end(&sweep);
	}
}

static void one_that_does_not_compile_fails_with_file_and_line(void **state)
{
	struct sweep sweep;
	(void)state;
	if (begin(&sweep, add_folder(ADD "  if (KNOB) {}\n#if KNOB\n  nonsense;\n#endif\n}\n", add_reference),
	            "m=7") != 0)
		fail_msg("%s", sweep.error.message);
	for (size_t i = 0; i < 2; i++) {
		struct ft_built built = build(&sweep, i);
		assert_int_equal(built.failed, sweep.space->config[i].knob[0].value);
		if (built.failed && !strstr(built.error.message, "it does not compile: kernel.c:6:"))
			fail_msg("%s", built.error.message);
	}
	end(&sweep);
}

static void two_of_the_same_code_have_one_hash(void **state)
{
	struct sweep sweep;
	(void)state;
	if (begin(&sweep, add_folder(ADD "  int unused = KNOB; (void)unused;\n}\n", add_reference), "m=7") !=
	        0)
		fail_msg("%s", sweep.error.message);
	struct ft_built first = build(&sweep, 0), second = build(&sweep, 1);
	assert_string_equal(first.code, second.code);
	end(&sweep);
	if (begin(&sweep, add_folder(ADD "  if (KNOB) y[block[0] * 10] *= 1.5f;\n}\n", add_reference),
	            "m=7") != 0)
		fail_msg("%s", sweep.error.message);
	first = build(&sweep, 0);
	second = build(&sweep, 1);
	assert_string_not_equal(first.code, second.code);
	end(&sweep);
}

static void a_reference_that_does_not_compile_fails_the_sweep(void **state)
{
	struct sweep sweep;
	(void)state;
	assert_int_equal(begin(&sweep, add_folder(ADD "}\n", "#include <stdint.h>\nnonsense\n"), "m=7"), -1);
	assert_non_null(strstr(sweep.error.message, "the reference: it does not compile: reference.c:"));
	end(&sweep);
}

/* Integers, in place: what a launch left there is no input of the next one. */
static void what_a_launch_changes_is_restored_before_the_next(void **state)
{
	struct sweep sweep;
	char json[2048];
	double largest = 0;
	uint64_t sample = 0, checked = 0;
	(void)state;
	snprintf(json, sizeof(json), add_json, "inout", "i32", "", "", "");
	const char *path = folder_of(json,
	        "#include <stdint.h>\n"
	        "void add(const int64_t *block, int32_t *x) {\n"
	        "  for (int i = 0; i < 10; i++) x[block[0] * 10 + i] += 1;\n}\n",
	        "#include <stdint.h>\n"
	        "void wanted(int64_t first, int64_t last, int64_t *x) {\n"
	        "  for (int64_t i = first * 10; i < last * 10; i++) x[i] += 1;\n}\n");
	if (begin(&sweep, path, "m=100") != 0)
		fail_msg("%s", sweep.error.message);
	const struct cpu *cpu = cpu_of(sweep.backend);
	assert_false(build(&sweep, 0).failed);
	for (int i = 0; i < 3; i++) {
		if (sweep.backend->verify(sweep.backend, 0, &largest, &sweep.error) != 0)
			fail_msg("%s", sweep.error.message);
	}
	assert_int_equal(sweep.backend->warm(sweep.backend, &sweep.error), 0);
	for (int samples = 0; samples<3; samples += sample> 0)
		assert_int_equal(sweep.backend->measure(sweep.backend, 0, &sample, &sweep.error), 0);
	/* After a window all sets are again as they were filled. */
	for (size_t set = 0; set < cpu->sets; set++)
		assert_memory_equal(
		        cpu->arena.memory + set * cpu->slot, cpu->array[0].kept, cpu->array[0].data);
	if (sweep.backend->audit(sweep.backend, 0, 10, &checked, &sweep.error) != 0)
		fail_msg("%s", sweep.error.message);
	end(&sweep);
}

static bool is_empty(const char *path, const char *but)
{
	DIR *all = opendir(path);
	bool empty = true;
	for (struct dirent *one; (one = readdir(all));)
		empty = empty && (one->d_name[0] == '.' || strncmp(one->d_name, but, strlen(but)) == 0);
	closedir(all);
	return empty;
}

static void nothing_is_left_where_it_was_compiled(void **state)
{
	(void)state;
	assert_true(is_empty(place, "folder"));
}

static int make_place(void **state)
{
	(void)state;
	return mkdtemp(place) && setenv("TMPDIR", place, 1) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	(void)about;
	(void)kind;
	(void)at;
	return remove(path);
}

static int remove_place(void **state)
{
	(void)state;
	return nftw(place, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_folder_is_built_verified_audited_and_timed),
	        cmocka_unit_test(what_a_config_does_wrong_is_said_and_is_no_others_fault),
	        cmocka_unit_test(what_is_wrong_now_and_then_is_found_among_many_launches),
	        cmocka_unit_test(one_that_does_not_compile_fails_with_file_and_line),
	        cmocka_unit_test(two_of_the_same_code_have_one_hash),
	        cmocka_unit_test(a_reference_that_does_not_compile_fails_the_sweep),
	        cmocka_unit_test(what_a_launch_changes_is_restored_before_the_next),
	        cmocka_unit_test(nothing_is_left_where_it_was_compiled),
	};
	return cmocka_run_group_tests(tests, make_place, remove_place);
}
