/* Everything that a client may send: envelopes and the parameters of every method. */
#include "tests/fuzz/messages.h"

static void handle(const struct ft_envelope *envelope)
{
	static const struct {
		const char *method;
		const struct ft_message *params;
	} methods[] = {
	        {"hello", &ft_hello_request_message},
	        {"lookup", &ft_lookup_request_message},
	        {"lookup_many", &ft_lookup_many_request_message},
	        {"subscribe", &ft_subscribe_request_message},
	        {"tune", &ft_tune_request_message},
	        {"wait", &ft_job_request_message},
	        {"cancel", &ft_job_request_message},
	        {"jobs", &ft_job_request_message},
	        {"watch", &ft_job_request_message},
	        {"trials", &ft_trials_request_message},
	        {"status", &ft_empty_message},
	        {"devices", &ft_empty_message},
	};
	if (envelope->error.data != NULL) {
		struct ft_error failure;
		ft_read_failure(envelope->error, &failure);
		MUST(failure.code[0] != '\0' || failure.message[0] != '\0' || envelope->error.length > 1);
	}
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(methods[i].method, envelope->method) == 0)
			message_there_and_back(methods[i].params, envelope->body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		message_stream(data + 1, size - 1, 1 + data[0], &ft_bounds_request, handle);
	return 0;
}
