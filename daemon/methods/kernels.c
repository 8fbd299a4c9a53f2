/* The method `kernels`: what is served, from where, and of which folders it is not. */
#include <stdio.h>
#include <string.h>

#include "daemon/methods/status.h"

static const char by_runner[] = "runner";

struct kernel_list {
	const struct devices *devices;
	const char *only; /* of this name; "": all */
	struct ft_writer writer, fields, kinds, knobs;
	uint32_t count;
};

/* As that kind has it; NULL: it is not for such devices. */
static const struct ft_schema *schema_on(
        const struct devices *devices, const struct ft_kernel *kernel, const char *name, const char *kind)
{
	if (kernel != NULL)
		return kernels_is_for(&devices->kernels, kernel, kind) ? kernel->schema(kernel, kind) : NULL;
	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device_kernel *found = device_kernel_known(devices->device[i], name);

		if (found != NULL && strcmp(devices->device[i]->slot->kind, kind) == 0)
			return &found->schema;
	}
	return NULL;
}

static void add_kind(struct kernel_list *list, const char *kind, const struct ft_schema *schema)
{
	struct ft_kernel_kind message = {0};

	ft_writer_reset(&list->knobs);
	ft_schema_write_knobs(&list->knobs, schema);
	(void)snprintf(message.kind, sizeof(message.kind), "%s", kind);
	message.knobs = (struct ft_view){list->knobs.data, list->knobs.length};
	ft_encode(&list->kinds, &ft_kernel_kind_message, &message);
}

static void add_devices(const struct devices *devices, struct ft_kernel_state *state)
{
	size_t length = 0;

	for (uint32_t i = 0; i < devices->count && length < sizeof(state->devices); i++) {
		struct device *device = devices->device[i];

		if (device->state == DEVICE_READY && device_kernel_known(device, state->name) != NULL)
			length += (size_t)snprintf(state->devices + length, sizeof(state->devices) - length,
			        "%s%s", length > 0 ? " " : "", device->shown.id);
	}
}

/* `kernel` is NULL where only a runner has it, or nobody. */
static void add(struct kernel_list *list, struct ft_kernel_state *state, const struct ft_kernel *kernel)
{
	const struct ft_schema *schema[SETTINGS_KINDS], *any = NULL;
	uint32_t kinds = 0;

	if (list->only[0] != '\0' && strcmp(list->only, state->name) != 0)
		return;
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		schema[kind] = strcmp(state->state, "refused") == 0
		        ? NULL
		        : schema_on(list->devices, kernel, state->name, settings_kinds[kind]);
		any = schema[kind] != NULL ? schema[kind] : any;
		kinds += schema[kind] != NULL;
	}
	ft_writer_reset(&list->fields);
	ft_writer_reset(&list->kinds);
	ft_write_array(&list->kinds, kinds);
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		if (schema[kind] != NULL)
			add_kind(list, settings_kinds[kind], schema[kind]);
	}
	if (any == NULL) {
		ft_write_array(&list->fields, 0);
	} else {
		(void)snprintf(state->scale, sizeof(state->scale), "%s", any->scale);
		ft_schema_write_fields(&list->fields, any);
		add_devices(list->devices, state);
	}
	if (kernel != NULL && kernel->help != NULL)
		(void)snprintf(state->help, sizeof(state->help), "%s", kernel->help);
	state->fields = (struct ft_view){list->fields.data, list->fields.length};
	state->kinds = (struct ft_view){list->kinds.data, list->kinds.length};
	ft_encode(&list->writer, &ft_kernel_state_message, state);
	list->count++;
	if (!ft_writer_ok(&list->fields) || !ft_writer_ok(&list->kinds) || !ft_writer_ok(&list->knobs))
		list->writer.failed = true;
}

static struct ft_kernel_state state_of(
        const char *name, const char *state, const char *origin, const char *path)
{
	struct ft_kernel_state made = {0};

	(void)snprintf(made.name, sizeof(made.name), "%s", name);
	(void)snprintf(made.state, sizeof(made.state), "%s", state);
	(void)snprintf(made.origin, sizeof(made.origin), "%s", origin);
	(void)snprintf(made.path, sizeof(made.path), "%s", path);
	return made;
}

static void add_folder(
        struct kernel_list *list, const struct installed_kernel *folder, const struct ft_kernel *kernel)
{
	struct ft_kernel_state state = state_of(folder->name,
	        kernel == NULL           ? "refused"
	                : folder->broken ? "kept"
	                                 : "serving",
	        "folder", folder->path);

	memcpy(state.reason, folder->reason, sizeof(state.reason));
	add(list, &state, kernel);
}

/* Each once, by the first device that has it. */
static void add_runners_own(struct kernel_list *list)
{
	const struct devices *devices = list->devices;

	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = devices->device[i];

		for (uint32_t k = 0; k < device->kernel_count; k++) {
			const struct device_kernel *kernel = &device->kernel[k];
			bool was_added = kernel->known != NULL;

			for (uint32_t before = 0; before < i && !was_added; before++)
				was_added = device_kernel_known(
				                    devices->device[before], kernel->schema.kernel) != NULL;
			if (!was_added) {
				struct ft_kernel_state state = state_of(
				        kernel->schema.kernel, "serving", by_runner, device->slot->path);

				add(list, &state, NULL);
			}
		}
	}
}

void method_kernels(void *group, struct session *session, const struct ft_envelope *envelope)
{
	const struct reports *reports = group;
	const struct devices *devices = reports->context->devices;
	const struct kernels *kernels = &devices->kernels;
	struct kernel_list list = {.devices = devices};
	struct ft_kernels_request request;
	struct ft_kernels_reply reply;
	struct ft_error error;
	size_t count_at;

	if (ft_decode(&ft_kernels_request_message, envelope->body, &request, &error) != 0) {
		session_fail(session, envelope->id, &error);
		return;
	}
	list.only = request.kernel;
	ft_writer_init_growing(&list.writer, ft_bounds_large.bytes);
	ft_writer_init_growing(&list.fields, ft_bounds_large.bytes);
	ft_writer_init_growing(&list.kinds, ft_bounds_large.bytes);
	ft_writer_init_growing(&list.knobs, ft_bounds_large.bytes);
	count_at = ft_write_open_array(&list.writer);
	for (const struct ft_kernel *const *kernel = ft_kernels; *kernel != NULL; kernel++) {
		struct ft_kernel_state state = state_of((*kernel)->name, "serving", "built-in", "");

		add(&list, &state, *kernel);
	}
	for (uint32_t i = 0; i < kernels->count; i++)
		add_folder(&list, &kernels->installed[i], kernels_find(kernels, kernels->installed[i].name));
	for (uint32_t i = 0; i < kernels->refused_count; i++)
		add_folder(&list, &kernels->refused[i], NULL);
	add_runners_own(&list);
	ft_write_count(&list.writer, count_at, list.count);
	if (ft_writer_ok(&list.writer)) {
		reply.kernels = (struct ft_view){list.writer.data, list.writer.length};
		session_reply(session, envelope->id, &ft_kernels_reply_message, &reply);
	} else {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the list of kernels");
		session_fail(session, envelope->id, &error);
	}
	ft_writer_free(&list.knobs);
	ft_writer_free(&list.kinds);
	ft_writer_free(&list.fields);
	ft_writer_free(&list.writer);
}
