/* The configuration file: any bytes are read, or refused with a line, and say the same when they are read again. */
#include "tests/fuzz/target.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/host/options.h"

/* As operators see it: a terminal must not be steered by a file. */
static void must_be_plain(const char *text)
{
	for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
		MUST(*at >= 0x20 && *at != 0x7f);
}

static void must_be_in_bounds(const struct options *options)
{
	MUST(memchr(options->socket, '\0', sizeof(options->socket)) != NULL);
	MUST(memchr(options->state_dir, '\0', sizeof(options->state_dir)) != NULL);
	MUST(options->clients_max >= 1 && options->clients_max <= 1 << 20);
	MUST(options->clients_per_user >= 1 && options->clients_per_user <= 1 << 20);
	MUST(options->jobs_per_user <= 1 << 20);
	MUST(options->history_answers >= 1);
	MUST(options->background_load <= 100);
	MUST(options->device_count <= sizeof(options->device) / sizeof(options->device[0]));
	MUST(options->budget_ns > 0 && options->runner_idle_ns > 0);
	for (int stage = 0; stage < STAGES; stage++)
		MUST(options->deadline_ns[stage] > 0);
}

/* Every byte is set, those between the members too. */
static bool same_bytes(const void *left, const void *right, size_t size)
{
	return memcmp(left, right, size) == 0;
}

static int read_file(struct options *options, const char *path, struct ft_error *error)
{
	memset(error, 0, sizeof(*error));
	options_init(options);
	return options_read(options, path, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct options first, second;
	static struct ft_error error, again;
	char path[64], rest[512];
	int file = memfd_create("flytuned.conf", MFD_CLOEXEC);
	int status;

	MUST(file >= 0);
	for (size_t written = 0; written < size;) {
		ssize_t count = write(file, data + written, size - written);

		MUST(count > 0);
		written += (size_t)count;
	}
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	status = read_file(&first, path, &error);
	MUST(read_file(&second, path, &again) == status);
	(void)close(file);
	MUST(status != 0 || size == 0 || memchr(data, '\0', size) == NULL);
	if (status != 0) {
		MUST(strcmp(error.message, again.message) == 0 && error.code[0] != '\0');
		MUST(strncmp(error.message, path, strlen(path)) == 0 && error.message[strlen(path)] == ':');
		must_be_plain(error.message);
		return 0;
	}
	MUST(same_bytes(&first, &second, sizeof(first)));
	must_be_in_bounds(&first);
	/* A reload of the same file finds nothing to do. */
	options_reload(&first, &second, rest, sizeof(rest));
	MUST(rest[0] == '\0' && same_bytes(&first, &second, sizeof(first)));
	/* Of any other it names what must wait, and takes the rest. */
	options_init(&second);
	options_reload(&second, &first, rest, sizeof(rest));
	MUST(memchr(rest, '\0', sizeof(rest)) != NULL);
	must_be_in_bounds(&second);
	return 0;
}
