#include "kernels/runner/gpu/hip.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

void *hip_open_library(const char *const *names, char *path, size_t size)
{
	for (; *names; names++) {
		/* Global, as a run-time compiler that is a library of its own looks for the runtime so. */
		void *library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
		struct link_map *map = NULL;

		if (!library)
			continue;
		if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0])
			snprintf(path, size, "%s", map->l_name);
		else
			snprintf(path, size, "%s", *names);
		return library;
	}
	return NULL;
}

int hip_find_symbols(void *const *library, size_t libraries, const char *path,
        const struct hip_symbol *symbol, size_t count, void *table, struct ft_error *error)
{
	for (size_t i = 0; i < count; i++) {
		void *found = NULL;

		for (size_t l = 0; l < libraries && !found; l++)
			if (library[l])
				found = dlsym(library[l], symbol[i].name);
		if (!found)
			return ft_fail(error, FT_E_UNAVAILABLE, "%s does not have %s", path, symbol[i].name);
		memcpy((char *)table + symbol[i].offset, &found, sizeof found);
	}
	return 0;
}

int hip_fill(struct hip *hip, const struct hip_loader *loader, struct ft_error *error)
{
	void *library;

	memset(hip, 0, sizeof *hip);
	hip->kind = hip_kind;
	memcpy(hip->attribute, loader->attribute, sizeof hip->attribute);
	memcpy(hip->function_attribute, loader->function_attribute, sizeof hip->function_attribute);
	hip->SetDevice = loader->set_device;
	hip->GraphInstantiate = loader->instantiate;
	hip->AllowShared = loader->allow_shared;
	hip->GetErrorString = loader->error_string;
	library = hip_open_library(loader->names, hip->library, sizeof hip->library);
	if (!library)
		return ft_fail(error, FT_E_UNAVAILABLE, "%s", loader->absent);
	return hip_find_symbols(&library, 1, hip->library, loader->symbol, loader->symbols, hip, error);
}
