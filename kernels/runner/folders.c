#include "kernels/runner/folders.h"

#include <stdio.h>

#include "kernels/folder/folder.h"
#include "kernels/runner/confine.h"

static void refuse(const struct ft_backend *backend, const char *what, const struct ft_error *error)
{
	fprintf(stderr, "flytune-runner-%s: %s: %s\n", backend->kind, what, error->message);
}

void folders_read(struct ft_backend *backend, const char *path)
{
	struct ft_error error = {0};
	struct ft_folder *folder = NULL;
	if (!backend->adopt)
		return; /* kinds of devices that run none such */
	if (backend->folder_count == FT_FOLDERS_MAX)
		ft_fail(&error, FT_E_BAD_VALUE, "there are %d kernels already", FT_FOLDERS_MAX);
	else
		folder = ft_folder_open(path, NULL, &error);
	if (!folder)
		refuse(backend, path, &error);
	else if (ft_folder_source(folder, backend->kind))
		backend->folder[backend->folder_count++] = folder;
	else
		ft_folder_free(folder); /* it is for other kinds of devices */
}

void folders_drop(struct ft_backend *backend)
{
	while (backend->folder_count > 0)
		ft_folder_free(backend->folder[--backend->folder_count]);
}

void folders_confine(struct ft_backend *backend, const char *code_dir)
{
	struct ft_error error = {0};
	if (!code_dir || backend->folder_count == 0 ||
	        confine(backend->kind, code_dir, backend->unconfined, sizeof(backend->unconfined), &error) ==
	                0)
		return;
	snprintf(backend->unconfined, sizeof(backend->unconfined),
	        "there are no kernels of folders, for their code could not be confined: %.300s",
	        error.message);
	folders_drop(backend);
}

void folders_adopt(struct ft_backend *backend)
{
	size_t kept = 0;
	for (size_t i = 0; i < backend->folder_count; i++) {
		struct ft_error error = {0};
		struct ft_folder *folder = backend->folder[i];
		if (backend->adopt(backend, folder, &error) == 0) {
			backend->folder[kept++] = folder;
			continue;
		}
		refuse(backend, ft_folder_kernel(folder)->name, &error);
		ft_folder_free(folder);
	}
	backend->folder_count = kept;
}
