/* Tests kernels/folder/: how a folder is read, whom it is believed, and what its hashes are made of. */
#include "tests/unit/folder_help.h"
#include "tests/unit/kernel_json.h"

#include <fcntl.h>
#include <unistd.h>

enum { STRANGER = 12345 };

static char root[] = "/tmp/test_folder.XXXXXX";

static int make(void **state)
{
	(void)state;
	snprintf(strstr(root, "folder."), sizeof("folder.XXXXXX"), "folder.XXXXXX");
	if (mkdtemp(root) == NULL)
		return -1;
	folder_put(root, good, "kernel.json");
	folder_put(root, "#include <math.h>\n  # include \"scale.h\"\n#include \"scale.h\" // again\n",
	        "scale.c");
	folder_put(root, "#include \"scale.h\"\n", "scale.cu");
	folder_put(root, "#include \"deep.h\"\nint text[] = {1}; char *no = \"#include\";\n", "scale.h");
	folder_put(root, "#include \"scale.h\"", "deep.h");
	folder_put(root, "void scale_reference(void);\n", "reference.c");
	folder_put(root, "not read\n", "README");
	return 0;
}

static int take_away(void **state)
{
	(void)state;
	return folder_remove(root);
}

static char *path_of(const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", root, name);
	return path;
}

static struct ft_folder *open_root(void)
{
	struct ft_error error;
	struct ft_folder *folder = ft_folder_open(root, NULL, &error);

	if (folder == NULL)
		fail_msg("%s", error.message);
	return folder;
}

static void refuses(const struct ft_folder_trust *trust, const char *code, const char *message)
{
	struct ft_error error;

	assert_null(ft_folder_open(root, trust, &error));
	if (strstr(error.message, message) == NULL)
		fail_msg("not \"%s\", but \"%s\"", message, error.message);
	assert_string_equal(error.code, code);
}

static void test_files(void **state)
{
	static const char *const names[] = {
	        "kernel.json", "scale.c", "scale.cu", "reference.c", "scale.h", "deep.h"};
	struct ft_folder *folder = open_root();
	const struct ft_folder_file *file;
	uint32_t count;

	(void)state;
	file = ft_folder_files(folder, &count);
	assert_int_equal(count, sizeof(names) / sizeof(names[0]));
	for (uint32_t i = 0; i < count; i++)
		assert_string_equal(file[i].name, names[i]);
	assert_string_equal(file[0].text, good);
	assert_int_equal(file[5].length, strlen("#include \"scale.h\""));
	ft_folder_free(folder);
}

/* What a change of a file changes. */
static void test_hashes(void **state)
{
	static const struct {
		const char *name, *text;
		bool whole, cpu, cuda;
	} row[] = {
	        {"README", "something else\n", false, false, false},
	        {"scale.c", "#include \"scale.h\"\n", true, true, false},
	        {"scale.cu", "#include \"scale.h\"\n\n", true, false, true},
	        {"deep.h", "\n", true, true, true},
	        {"reference.c", "\n", true, true, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct ft_folder *before = open_root(), *after;

		folder_put(root, row[i].text, "%s", row[i].name);
		after = open_root();
		assert_int_equal(strlen(ft_folder_hash(after)), FT_HASH_SIZE - 1);
		assert_int_equal(strcmp(ft_folder_hash(before), ft_folder_hash(after)) != 0, row[i].whole);
		assert_int_equal(strcmp(ft_folder_source(before, "cpu")->hash,
		                         ft_folder_source(after, "cpu")->hash) != 0,
		        row[i].cpu);
		assert_int_equal(strcmp(ft_folder_source(before, "cuda")->hash,
		                         ft_folder_source(after, "cuda")->hash) != 0,
		        row[i].cuda);
		assert_int_equal(ft_folder_kernel(before)->schema(ft_folder_kernel(before), "cpu")->revision,
		        ft_folder_kernel(after)->schema(ft_folder_kernel(after), "cpu")->revision);
		ft_folder_free(before);
		ft_folder_free(after);
	}
}

static void test_absent(void **state)
{
	struct ft_error error;
	char path[128];

	(void)state;
	assert_int_equal(unlink(path_of("deep.h", path)), 0);
	refuses(NULL, FT_E_BAD_VALUE, "scale.h:1: deep.h is not in the folder");
	assert_int_equal(unlink(path_of("scale.cu", path)), 0);
	refuses(NULL, FT_E_BAD_VALUE, "kernel.json: sources.hip.file: scale.cu is not in the folder");
	assert_int_equal(unlink(path_of("kernel.json", path)), 0);
	refuses(NULL, FT_E_BAD_VALUE, "no kernel folder: kernel.json is not in the folder");
	assert_null(ft_folder_open(path_of("nowhere", path), NULL, &error));
	assert_string_equal(error.code, FT_E_SYSTEM);
	assert_null(ft_folder_open(path_of("README", path), NULL, &error));
	assert_string_equal(error.code, FT_E_SYSTEM);
}

/* Nothing leads out of the folder. */
static void test_outside(void **state)
{
	char path[128], name[FT_KERNEL_SIZE + 32] = "#include \"";

	(void)state;
	folder_put(root, "\n\n#include \"/etc/shadow\"\n", "scale.c");
	refuses(NULL, FT_E_DENIED, "scale.c:3: \"/etc/shadow\" is no file of the folder");
	folder_put(root, "#include \"../secret.h\"\n", "scale.c");
	refuses(NULL, FT_E_DENIED, "scale.c:1: \"../secret.h\" is no file of the folder");
	memset(name + 10, 'a', FT_KERNEL_SIZE);
	memcpy(name + 10 + FT_KERNEL_SIZE, "\"", 2);
	folder_put(root, name, "scale.c");
	refuses(NULL, FT_E_DENIED, "scale.c:1: \"aaaa");
	folder_put(root, "#include \"..\"\n", "scale.c");
	refuses(NULL, FT_E_DENIED, ".. is no regular file");
	folder_put(root, "#include \"\"\n", "scale.c");
	refuses(NULL, FT_E_DENIED, "scale.c:1: \"\" is no file of the folder");
	folder_put(root, "\n", "scale.c");
	assert_int_equal(unlink(path_of("scale.h", path)), 0);
	assert_int_equal(symlink("README", path), 0);
	refuses(NULL, FT_E_DENIED, "scale.h is a link; it must be a file of the folder itself");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	refuses(NULL, FT_E_DENIED, "scale.h is no regular file");
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	refuses(NULL, FT_E_DENIED, "scale.h is no regular file");
	assert_int_equal(unlink(path_of("kernel.json", path)), 0);
	assert_int_equal(symlink("README", path), 0);
	refuses(NULL, FT_E_DENIED, "kernel.json is a link; it must be a file of the folder itself");
}

static void test_sizes(void **state)
{
	char path[128], list[1024] = "";

	(void)state;
	assert_int_equal(truncate(path_of("scale.c", path), FT_FOLDER_FILE_MAX), 0);
	ft_folder_free(open_root());
	assert_int_equal(truncate(path, FT_FOLDER_FILE_MAX + 1), 0);
	refuses(NULL, FT_E_BAD_VALUE, "scale.c has 4194305 bytes; it may have 4194304 at the most");
	/* As large as they may be, but too many. */
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "large%d.h", i);
		append(list, sizeof(list), "#include \"%s\"\n", name);
		folder_put(root, "", "%s", name);
		assert_int_equal(truncate(path_of(name, path), FT_FOLDER_FILE_MAX), 0);
	}
	folder_put(root, list, "scale.c");
	refuses(NULL, FT_E_BAD_VALUE, "large3.h: a folder has 32 files of 16777216 bytes in all at the most");
	list[0] = '\0';
	for (int i = 0; i < FT_FOLDER_FILES_MAX; i++) {
		append(list, sizeof(list), "#include \"part%d.h\"\n", i);
		folder_put(root, "", "part%d.h", i);
	}
	folder_put(root, list, "scale.c");
	refuses(NULL, FT_E_BAD_VALUE, "part28.h: a folder has 32 files of 16777216 bytes in all at the most");
	assert_int_equal(truncate(path_of("kernel.json", path), FT_FOLDER_JSON_MAX + 1), 0);
	refuses(NULL, FT_E_BAD_VALUE, "kernel.json has 1048577 bytes; it may have 1048576 at the most");
}

/* A folder that others could change is not believed where it matters. */
static void test_trust(void **state)
{
	const struct ft_folder_trust trust = {.wanted = true, .owner = geteuid()};
	static const struct {
		const char *name;
		mode_t mode;
		const char *message;
	} row[] = {
	        {"", 0770, " has mode 0770: its group or others may write to it; only its owner may"},
	        {"", 0702, " has mode 0702: its group or others may write to it; only its owner may"},
	        {"kernel.json", 0646,
	                "kernel.json has mode 0646: its group or others may write to it; only its owner may"},
	        {"scale.h", 0664,
	                "scale.h has mode 0664: its group or others may write to it; only its owner may"},
	};
	struct ft_error error;
	char path[128], link[128];

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct stat before;

		path_of(row[i].name, path);
		assert_int_equal(stat(path, &before), 0);
		assert_int_equal(chmod(path, row[i].mode), 0);
		refuses(&trust, FT_E_DENIED, row[i].message);
		ft_folder_free(open_root()); /* where nobody asks */
		assert_int_equal(chmod(path, before.st_mode & 07755), 0);
	}
	for (const char *const *name = (const char *const[]){"", "kernel.json", "deep.h", NULL};
	        *name != NULL; name++) {
		const struct ft_folder_trust another = {
		        .wanted = true, .owner = geteuid() == 0 ? geteuid() : geteuid() + 1};
		char message[64];

		path_of(*name, path);
		if (geteuid() == 0)
			assert_int_equal(chown(path, STRANGER, (gid_t)-1), 0);
		snprintf(message, sizeof(message), " belongs to user %u; it must belong to root or user %u",
		        geteuid() == 0 ? STRANGER : geteuid(), another.owner);
		refuses(&another, FT_E_DENIED, message);
		if (geteuid() == 0)
			assert_int_equal(chown(path, 0, (gid_t)-1), 0);
	}
	assert_int_equal(symlink(root, path_of("link", link)), 0);
	assert_null(ft_folder_open(link, &trust, &error));
	assert_non_null(strstr(error.message, "link is a link; it must be the folder itself"));
	struct ft_folder *folder = ft_folder_open(root, &trust, &error);

	assert_non_null(folder);
	ft_folder_free(folder);
}

/* Its default is in its space, whatever the problem. */
static void test_softmax(void **state)
{
	static const int64_t rows[] = {1, 2, 3, 15, 16, 17, 1000, 1 << 20},
	                     lengths[] = {1, 3, 4, 8, 16, 31, 4096, 1 << 18};
	struct ft_space *space = malloc(sizeof(*space));
	struct ft_error error;
	char path[512];

	(void)state;
	assert_non_null(space);
	snprintf(path, sizeof(path), "%s/tests/kernels/softmax", getenv("FLYTUNE_SOURCE"));
	struct ft_folder *folder = ft_folder_open(path, NULL, &error);

	if (folder == NULL)
		fail_msg("%s", error.message);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);

	for (size_t i = 0; i < (size_t)2 * 2 * 8 * 8; i++) {
		const struct ft_traits traits = {.kind = "cpu", .units = i % 2 == 0 ? 1 : 64};
		struct ft_problem given = {.count = 0}, whole;
		struct ft_folder_launch launch;
		struct ft_defines defines;

		assert_int_equal(ft_problem_set_number(&given, "m", rows[i / 4 % 8], &error), 0);
		assert_int_equal(ft_problem_set_number(&given, "n", lengths[i / 32], &error), 0);
		assert_int_equal(
		        ft_problem_set_text(&given, "dtype", i / 2 % 2 == 0 ? "f32" : "bf16", &error), 0);
		if (ft_problem_admit(kernel, kernel->schema(kernel, "cpu"), &given, &whole, &error) < 0 ||
		        kernel->space(kernel, &whole, &traits, space, &error) < 0)
			fail_msg("%s", error.message);
		for (uint32_t j = 0; j < space->count; j++) {
			assert_int_equal(
			        ft_folder_launch(folder, &whole, &traits, &space->config[j], &launch, &error),
			        0);
			assert_int_equal(ft_folder_defines(folder, &whole, &traits, &space->config[j],
			                         &defines, &error),
			        0);
		}
		assert_string_equal(space->pruned[space->default_index], "");
	}
	ft_folder_free(folder);
	free(space);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_files, make, take_away),
	        cmocka_unit_test_setup_teardown(test_hashes, make, take_away),
	        cmocka_unit_test_setup_teardown(test_absent, make, take_away),
	        cmocka_unit_test_setup_teardown(test_outside, make, take_away),
	        cmocka_unit_test_setup_teardown(test_sizes, make, take_away),
	        cmocka_unit_test_setup_teardown(test_trust, make, take_away),
	        cmocka_unit_test(test_softmax),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
