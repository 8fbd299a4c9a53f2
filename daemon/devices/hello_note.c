/* The note of a hello: what a runner said, with all that it depends on, so that nothing need be asked while that stands. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <dirent.h>

#include "daemon/devices/internal.h"
#include "kernels/host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PSEUDO_FILE_BYTES = 16384 };

/* ---- stamps: has a file changed since a runner said hello? ---- */

static bool is_pseudo(const char *path)
{
	return strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

/* Names in a folder, whatever their order. */
static void stamp_folder(const char *path, char stamp[STAMP_SIZE])
{
	DIR *folder = opendir(path);
	const struct dirent *entry;
	unsigned long long sum = 0;

	while (folder != NULL && (entry = readdir(folder)) != NULL)
		sum += XXH3_64bits(entry->d_name, strlen(entry->d_name));
	if (folder != NULL)
		(void)closedir(folder);
	(void)snprintf(stamp, STAMP_SIZE, "folder %016llx", sum);
}

void hello_stamp_file(const char *path, char stamp[STAMP_SIZE])
{
	struct stat facts;

	if (stat(path, &facts) != 0) {
		(void)snprintf(stamp, STAMP_SIZE, "absent");
	} else if (is_pseudo(path) && S_ISREG(facts.st_mode)) {
		static char
		        content[PSEUDO_FILE_BYTES]; /* of the loop's thread alone; too large for a stack */
		int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		ssize_t length = descriptor < 0 ? -1 : read(descriptor, content, sizeof(content));

		if (descriptor >= 0)
			(void)close(descriptor);
		if (length < 0)
			(void)snprintf(stamp, STAMP_SIZE, "unreadable");
		else
			(void)snprintf(stamp, STAMP_SIZE, "content %016llx",
			        (unsigned long long)XXH3_64bits(content, (size_t)length));
	} else if (S_ISDIR(facts.st_mode)) {
		stamp_folder(path, stamp);
	} else if (S_ISREG(facts.st_mode)) {
		(void)snprintf(stamp, STAMP_SIZE, "%lld %lld.%09ld", (long long)facts.st_size,
		        (long long)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
	} else {
		(void)snprintf(stamp, STAMP_SIZE, "node %o %llx", (unsigned)(facts.st_mode & S_IFMT),
		        (unsigned long long)facts.st_rdev);
	}
}

/* ---- what a hello depends on ---- */

void hello_facts(const struct runner_slot *slot, char stamp[STAMP_SIZE])
{
	struct ft_allowance allowance;
	char text[128] = "";

	if (strcmp(slot->kind, "cpu") == 0) {
		ft_allowance_read("", &allowance);
		ft_allowance_print(&allowance, text, sizeof(text));
	}
	(void)snprintf(stamp, STAMP_SIZE, "facts %016llx",
	        (unsigned long long)XXH3_64bits_withSeed(text, strlen(text), slot->devices->fixed));
}

uint64_t hello_fixed_facts(void)
{
	struct ft_traits traits = {.kind = "cpu"};
	struct ft_runner_device *shown = calloc(1, sizeof(*shown));
	struct ft_allowance allowance = {.cores = 1, .quota = UINT64_MAX, .memory = UINT64_MAX};
	uint64_t sum = runner_environment();

	if (shown != NULL) {
		ft_host_traits(&allowance, &traits);
		ft_host_describe("", &allowance, &traits, shown);
		sum += XXH3_64bits(shown->identity, strlen(shown->identity)) + shown->memory;
	}
	free(shown);
	return sum;
}

void hello_note_begins(void *data)
{
	struct worker *worker = data;

	hello_facts(worker->slot, worker->under);
}

void hello_note_name(const struct runner_slot *slot, char name[64])
{
	(void)snprintf(name, 64, "hello:%s", slot->kind);
}

static void write_stamp(struct ft_writer *note, const char *path)
{
	char stamp[STAMP_SIZE];

	hello_stamp_file(path, stamp);
	ft_write_array(note, 2);
	ft_write_text(note, path);
	ft_write_text(note, stamp);
}

void hello_write_note(const struct worker *worker, struct ft_view reply,
        const struct ft_runner_hello_reply *hello, struct ft_writer *note)
{
	struct ft_cursor files = ft_cursor_of(hello->files.data, hello->files.length);
	char path[FILE_PATH_SIZE];
	uint32_t count = 0;

	if (hello->files.data != NULL)
		(void)ft_read_array(&files, &count);
	ft_writer_init_growing(note, ft_bounds_large.bytes);
	ft_write_array(note, 3);
	ft_write_bytes(note, reply.data, reply.length);
	ft_write_text(note, worker->under);
	ft_write_array(note, count + 1);
	write_stamp(note, worker->slot->path);
	for (uint32_t i = 0; i < count; i++) {
		(void)ft_read_text_into(&files, path, sizeof(path));
		write_stamp(note, path);
	}
	if (!ft_writer_ok(note))
		ft_writer_reset(note);
}

struct ft_view hello_of_note(const struct ft_writer *note)
{
	struct ft_cursor cursor = ft_cursor_of(note->data, note->length);
	struct ft_view hello = {0};
	uint32_t count = 0;

	if (!ft_read_array(&cursor, &count) || count != 3 ||
	        !ft_read_bytes(&cursor, &hello.data, &hello.length))
		return (struct ft_view){0};
	return hello;
}

/* What a driver answers by itself: it may keep whoever reads it waiting, as long as its device is in trouble. */
static bool is_drivers(const char *path)
{
	return strncmp(path, "/sys/bus/", 9) == 0 || strncmp(path, "/sys/class/", 11) == 0;
}

bool hello_note_holds(const struct runner_slot *slot, const struct ft_writer *note, bool serving)
{
	struct ft_cursor cursor = ft_cursor_of(note->data, note->length);
	struct ft_view hello;
	char path[FILE_PATH_SIZE];
	char kept[STAMP_SIZE];
	char now[STAMP_SIZE];
	uint32_t count = 0;

	hello_facts(slot, now);
	if (!ft_read_array(&cursor, &count) || count != 3 ||
	        !ft_read_bytes(&cursor, &hello.data, &hello.length) ||
	        !ft_read_text_into(&cursor, kept, sizeof(kept)) || strcmp(kept, now) != 0 ||
	        !ft_read_array(&cursor, &count))
		return false;
	if (serving && slot_runs(slot))
		return true;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t two = 0;

		if (!ft_read_array(&cursor, &two) || two != 2 ||
		        !ft_read_text_into(&cursor, path, sizeof(path)) ||
		        !ft_read_text_into(&cursor, kept, sizeof(kept)))
			return false;
		if (i == 0 && strcmp(path, slot->path) != 0)
			return false;
		if (serving && is_drivers(path))
			continue;
		hello_stamp_file(path, now);
		if (strcmp(kept, now) != 0)
			return false;
	}
	return true;
}
