/* Everything that a runner or a daemon may answer: results and notices, with the lists inside them. */
#include "tests/fuzz/messages.h"

/* Each element of a list, as messages of one kind. */
static void list(struct ft_view view, const struct ft_message *message)
{
	struct ft_cursor cursor = ft_cursor_of(view.data, view.length);
	uint32_t count = 0;
	struct ft_view element;
	if (view.length == 0 || !ft_read_array(&cursor, &count))
		return;
	for (uint32_t i = 0; i < count && ft_read_view(&cursor, &element); i++)
		message_there_and_back(message, element);
}

static void hello(struct ft_view body)
{
	struct ft_runner_hello_reply reply;
	if (ft_decode(&ft_runner_hello_reply_message, body, &reply, NULL) != 0)
		return;
	list(reply.devices, &ft_runner_device_message);
	struct ft_cursor cursor = ft_cursor_of(reply.kernels.data, reply.kernels.length);
	uint32_t count = 0;
	struct ft_view element;
	if (!ft_read_array(&cursor, &count))
		return;
	for (uint32_t i = 0; i < count && ft_read_view(&cursor, &element); i++) {
		struct ft_runner_kernel kernel;
		message_there_and_back(&ft_runner_kernel_message, element);
		if (ft_decode(&ft_runner_kernel_message, element, &kernel, NULL) == 0) {
			list(kernel.fields, &ft_schema_field_message);
			list(kernel.knobs, &ft_schema_knob_message);
		}
	}
}

static void response(struct ft_view body)
{
	static const struct ft_message *const results[] = {&ft_runner_hello_reply_message,
	        &ft_space_reply_message, &ft_sweep_reply_message, &ft_hello_reply_message, &ft_answer_message,
	        &ft_tune_reply_message, &ft_job_message, &ft_jobs_reply_message, &ft_trials_reply_message,
	        &ft_devices_reply_message, &ft_status_reply_message};
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		message_there_and_back(results[i], body);
	hello(body);
	struct ft_space_reply space;
	if (ft_decode(&ft_space_reply_message, body, &space, NULL) == 0)
		list(space.members, &ft_space_member_message);
	struct ft_jobs_reply jobs;
	if (ft_decode(&ft_jobs_reply_message, body, &jobs, NULL) == 0)
		list(jobs.jobs, &ft_job_message);
	struct ft_trials_reply trials;
	if (ft_decode(&ft_trials_reply_message, body, &trials, NULL) == 0)
		list(trials.trials, &ft_trial_message);
	struct ft_devices_reply devices;
	if (ft_decode(&ft_devices_reply_message, body, &devices, NULL) == 0)
		list(devices.devices, &ft_device_state_message);
}

static void handle(const struct ft_envelope *envelope)
{
	static const struct {
		const char *method;
		const struct ft_message *params;
	} methods[] = {
	        {"event", &ft_runner_event_message},
	        {"event", &ft_event_message},
	        {"hello", &ft_runner_hello_request_message},
	        {"space", &ft_space_request_message},
	        {"sweep", &ft_sweep_request_message},
	        {"cancel", &ft_cancel_notice_message},
	};
	if (envelope->error.data != NULL) {
		struct ft_error failure;
		ft_read_failure(envelope->error, &failure);
	} else if (envelope->type == FT_RESPONSE) {
		response(envelope->body);
	}
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(methods[i].method, envelope->method) == 0)
			message_there_and_back(methods[i].params, envelope->body);
	struct ft_sweep_request sweep;
	if (strcmp(envelope->method, "sweep") == 0 &&
	        ft_decode(&ft_sweep_request_message, envelope->body, &sweep, NULL) == 0)
		list(sweep.members, &ft_sweep_member_message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		message_stream(data + 1, size - 1, 1 + data[0], &ft_bounds_large, handle);
	return 0;
}
