/* Runs a fuzz target over every file of the folders named, so that the corpus is a test without libFuzzer. */
#include "tests/fuzz/target.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

enum { LARGEST = 1 << 20 };

static int run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL) {
		perror(path);
		return -1;
	}
	uint8_t *buffer = malloc(LARGEST);
	MUST(buffer != NULL);
	size_t size = fread(buffer, 1, LARGEST, file);
	fclose(file);
	/* Exactly as large as the input, so that a sanitizer sees the first byte past it. */
	uint8_t *data = realloc(buffer, size > 0 ? size : 1);
	MUST(data != NULL);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 0;
}

int main(int count, char **argument)
{
	unsigned long ran = 0;
	for (int i = 1; i < count; i++) {
		DIR *folder = opendir(argument[i]);
		if (folder == NULL) {
			perror(argument[i]);
			return 1;
		}
		const struct dirent *entry = NULL;
		while ((entry = readdir(folder)) != NULL) {
			char path[PATH_MAX];
			struct stat about;
			snprintf(path, sizeof(path), "%s/%s", argument[i], entry->d_name);
			if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
				continue;
			if (run_file(path) != 0) {
				closedir(folder);
				return 1;
			}
			ran++;
		}
		closedir(folder);
	}
	printf("%lu inputs\n", ran);
	return ran > 0 ? 0 : 1;
}
