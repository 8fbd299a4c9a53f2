/* The configuration file: any bytes are read, or refused with a line, and say the same when they are read again. */
#include "tests/fuzz/target.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/host/settings.h"

/* As operators see it: a terminal must not be steered by a file. */
static void must_be_plain(const char *text)
{
	for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
		MUST(*at >= 0x20 && *at != 0x7f);
}

static void must_be_in_bounds(const struct settings *settings)
{
	MUST(memchr(settings->socket, '\0', sizeof(settings->socket)) != NULL);
	MUST(memchr(settings->state_dir, '\0', sizeof(settings->state_dir)) != NULL);
	MUST(settings->clients_max >= 1 && settings->clients_max <= 1 << 20);
	MUST(settings->clients_per_user >= 1 && settings->clients_per_user <= 1 << 20);
	MUST(settings->jobs_per_user <= 1 << 20);
	MUST(settings->history_answers >= 1);
	MUST(settings->background_load <= 100);
	MUST(settings->device_count <= sizeof(settings->device) / sizeof(settings->device[0]));
	MUST(settings->budget_ns > 0 && settings->runner_idle_ns > 0);
	for (int stage = 0; stage < STAGES; stage++)
		MUST(settings->deadline_ns[stage] > 0);
}

/* Every byte is set, those between the members too. */
static bool same_bytes(const void *left, const void *right, size_t size)
{
	return memcmp(left, right, size) == 0;
}

static int read_file(struct settings *settings, const char *path, struct ft_error *error)
{
	memset(error, 0, sizeof(*error));
	settings_init(settings);
	return settings_read(settings, path, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct settings first, second;
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
	settings_reload(&first, &second, rest, sizeof(rest));
	MUST(rest[0] == '\0' && same_bytes(&first, &second, sizeof(first)));
	/* Of any other it names what must wait, and takes the rest. */
	settings_init(&second);
	settings_reload(&second, &first, rest, sizeof(rest));
	MUST(memchr(rest, '\0', sizeof(rest)) != NULL);
	must_be_in_bounds(&second);
	return 0;
}
