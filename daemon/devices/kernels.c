#include "daemon/devices/kernels.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/folder/folder.h"

static const char from_packages[] = FLYTUNE_DATADIR "/kernels";

/* ---- copies ---- */

static void copies_path(const struct kernels *kernels, char *path, size_t size)
{
	(void)snprintf(path, size, "%s/kernels", kernels->settings->state_dir);
}

/* Whether what is at `path` is that very folder. */
static bool is_copy(const char *path, const struct ft_folder *folder)
{
	struct ft_folder *copy = ft_folder_open(path, NULL, NULL);
	bool same = copy != NULL && strcmp(ft_folder_hash(copy), ft_folder_hash(folder)) == 0;

	ft_folder_free(copy);
	return same;
}

/* Makes the copy, unless it is there. */
static int keep_copy(const struct kernels *kernels, struct installed_kernel *kernel, struct ft_error *error)
{
	char place[320], fresh[512];

	copies_path(kernels, place, sizeof(place));
	if (mkdir(place, 0700) != 0 && errno != EEXIST)
		return ft_fail_errno(error, errno, "cannot make %s", place);
	(void)snprintf(kernel->copy, sizeof(kernel->copy), "%s/%s-%s", place, kernel->name,
	        ft_folder_hash(kernel->folder));
	if (is_copy(kernel->copy, kernel->folder))
		return 0;
	/* One that is there and is not the same was cut short or spoilt. */
	ft_folder_remove(kernel->copy);
	(void)snprintf(fresh, sizeof(fresh), "%s/%s-new", place, kernel->name);
	ft_folder_remove(fresh);
	if (mkdir(fresh, 0700) != 0)
		return ft_fail_errno(error, errno, "cannot make %s", fresh);
	if (ft_folder_write(kernel->folder, fresh, error) != 0)
		return -1;
	if (rename(fresh, kernel->copy) != 0)
		return ft_fail_errno(error, errno, "cannot rename %s", fresh);
	return 0;
}

/* Whether a copy's name is one of that kernel: NAME-HASH. */
static bool is_of(const char *copy, const char *name)
{
	size_t length = strlen(name);

	return strncmp(copy, name, length) == 0 && copy[length] == '-' &&
	        strchr(copy + length + 1, '-') == NULL;
}

/* Of a kernel whose folder is broken: its copy, opened. */
static struct ft_folder *open_last_copy(const struct kernels *kernels, struct installed_kernel *kernel)
{
	char place[320];
	DIR *all;
	struct ft_folder *folder = NULL;

	copies_path(kernels, place, sizeof(place));
	all = opendir(place);
	for (struct dirent *one; all != NULL && folder == NULL && (one = readdir(all)) != NULL;) {
		if (!is_of(one->d_name, kernel->name))
			continue;
		(void)snprintf(kernel->copy, sizeof(kernel->copy), "%s/%.160s", place, one->d_name);
		folder = ft_folder_open(kernel->copy, NULL, NULL);
	}
	if (all != NULL)
		(void)closedir(all);
	return folder;
}

/* Removes what no kernel is built from any more. */
static void drop_copies(const struct kernels *kernels)
{
	char place[320], path[512];
	DIR *all;

	copies_path(kernels, place, sizeof(place));
	all = opendir(place);
	for (struct dirent *one; all != NULL && (one = readdir(all)) != NULL;) {
		bool used = one->d_name[0] == '.';

		(void)snprintf(path, sizeof(path), "%s/%.160s", place, one->d_name);
		for (uint32_t i = 0; i < kernels->count; i++)
			used = used || strcmp(kernels->installed[i].copy, path) == 0;
		if (!used)
			ft_folder_remove(path);
	}
	if (all != NULL)
		(void)closedir(all);
}

/* ---- reading ---- */

static struct installed_kernel *find(struct installed_kernel *list, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++) {
		if (strcmp(list[i].name, name) == 0)
			return &list[i];
	}
	return NULL;
}

/* One whose kernel has another name than it would be found under two. */
static struct ft_folder *open_folder(
        const char *path, const char *name, const struct ft_folder_trust *trust, struct ft_error *error)
{
	struct ft_folder *folder = ft_folder_open(path, trust, error);

	if (folder == NULL || strcmp(ft_folder_kernel(folder)->name, name) == 0)
		return folder;
	(void)ft_fail_field(
	        error, FT_E_BAD_VALUE, "name", ft_folder_kernel(folder)->name, "the name of the folder");
	ft_folder_free(folder);
	return NULL;
}

static void refuse(struct kernels *kernels, struct installed_kernel *kernel)
{
	log_line(kernels->log, LOG_LEVEL_WARNING, "kernel broken path=%s: %s", kernel->path, kernel->reason);
	if (kernels->refused_count < KERNELS_MAX)
		kernels->refused[kernels->refused_count++] = *kernel;
}

static void take_folder(struct kernels *kernels, const char *place, const char *name)
{
	const struct ft_folder_trust trust = {.wanted = true, .owner = geteuid()};
	struct installed_kernel kernel = {0};
	struct ft_error error = {0};

	(void)snprintf(kernel.name, sizeof(kernel.name), "%s", name);
	(void)snprintf(kernel.path, sizeof(kernel.path), "%s/%s", place, name);
	if (strlen(name) >= sizeof(kernel.name))
		(void)ft_fail(&error, FT_E_BAD_VALUE, "its name is too long");
	else if (kernels->count == KERNELS_MAX)
		(void)ft_fail(&error, FT_E_BAD_VALUE, "there are %d already", KERNELS_MAX);
	else
		kernel.folder = open_folder(kernel.path, name, &trust, &error);
	if (kernel.folder != NULL && keep_copy(kernels, &kernel, &error) != 0) {
		ft_folder_free(kernel.folder);
		kernel.folder = NULL;
	}
	if (kernel.folder == NULL) {
		kernel.broken = true;
		(void)snprintf(kernel.reason, sizeof(kernel.reason), "%s", error.message);
		if (kernels->count < KERNELS_MAX)
			kernel.folder = open_last_copy(kernels, &kernel);
		if (kernel.folder == NULL) {
			refuse(kernels, &kernel);
			return;
		}
		log_line(kernels->log, LOG_LEVEL_WARNING,
		        "kernel broken path=%s: %s; its last good copy serves on", kernel.path,
		        kernel.reason);
	}
	kernels->installed[kernels->count++] = kernel;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct installed_kernel *)a)->name, ((const struct installed_kernel *)b)->name);
}

/* What an earlier place had of a name stands. */
static void take_place(struct kernels *kernels, const char *place)
{
	DIR *all = opendir(place);
	struct stat about;

	if (all == NULL) {
		if (errno != ENOENT)
			log_line(kernels->log, LOG_LEVEL_WARNING, "kernels not read path=%s: %s", place,
			        strerror(errno));
		return;
	}
	/* Whoever may write there may install kernels. */
	if (fstat(dirfd(all), &about) != 0 || (about.st_uid != 0 && about.st_uid != geteuid()) ||
	        (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		log_line(kernels->log, LOG_LEVEL_WARNING,
		        "kernels not read path=%s: it must be root's or this user's, and nobody else's to "
		        "write",
		        place);
		(void)closedir(all);
		return;
	}
	for (struct dirent *one; (one = readdir(all)) != NULL;) {
		if (one->d_name[0] == '.' || find(kernels->installed, kernels->count, one->d_name) != NULL)
			continue;
		take_folder(kernels, place, one->d_name);
	}
	(void)closedir(all);
}

static void retire(struct kernels *kernels, struct ft_folder *folder)
{
	struct ft_folder **more =
	        realloc(kernels->retired, (kernels->retired_count + 1) * sizeof(struct ft_folder *));

	if (more == NULL)
		return; /* it stays in memory, which is all that matters */
	kernels->retired = more;
	more[kernels->retired_count++] = folder;
}

void kernels_read(struct kernels *kernels, const struct log *log, const struct settings *settings)
{
	struct installed_kernel *before = malloc(sizeof(kernels->installed));
	const uint32_t count = kernels->count;

	kernels->log = log;
	kernels->settings = settings;
	if (before == NULL) {
		log_line(log, LOG_LEVEL_WARNING, "kernels not read: no memory");
		return;
	}
	memcpy(before, kernels->installed, sizeof(kernels->installed));
	kernels->count = kernels->refused_count = 0;
	take_place(kernels, settings->kernels);
	take_place(kernels, from_packages);
	qsort(kernels->installed, kernels->count, sizeof(kernels->installed[0]), by_name);
	for (uint32_t i = 0; i < count; i++) {
		struct installed_kernel *now = find(kernels->installed, kernels->count, before[i].name);

		/* What did not change stays the object that devices know. */
		if (now != NULL && strcmp(now->copy, before[i].copy) == 0) {
			ft_folder_free(now->folder);
			now->folder = before[i].folder;
		} else {
			retire(kernels, before[i].folder);
		}
	}
	free(before);
	drop_copies(kernels);
	for (uint32_t i = 0; i < kernels->count; i++)
		log_line(log, LOG_LEVEL_INFO, "kernel installed name=%s hash=%s%s",
		        kernels->installed[i].name, ft_folder_hash(kernels->installed[i].folder),
		        kernels->installed[i].broken ? " broken=1" : "");
}

void kernels_free(struct kernels *kernels)
{
	for (uint32_t i = 0; i < kernels->count; i++)
		ft_folder_free(kernels->installed[i].folder);
	for (uint32_t i = 0; i < kernels->retired_count; i++)
		ft_folder_free(kernels->retired[i]);
	free(kernels->retired);
	*kernels = (struct kernels){0};
}

const struct ft_kernel *kernels_find(const struct kernels *kernels, const char *name)
{
	for (uint32_t i = 0; i < kernels->count; i++) {
		if (strcmp(kernels->installed[i].name, name) == 0)
			return ft_folder_kernel(kernels->installed[i].folder);
	}
	return ft_kernel_find(name);
}

bool kernels_is_for(const struct kernels *kernels, const struct ft_kernel *kernel, const char *device_kind)
{
	for (uint32_t i = 0; i < kernels->count; i++) {
		if (ft_folder_kernel(kernels->installed[i].folder) == kernel)
			return ft_folder_source(kernels->installed[i].folder, device_kind) != NULL;
	}
	return kernel->schema(kernel, device_kind) != NULL;
}

uint64_t kernels_hash(const struct kernels *kernels)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < kernels->count; i++)
		sum += XXH3_64bits(kernels->installed[i].copy, strlen(kernels->installed[i].copy));
	return sum;
}
