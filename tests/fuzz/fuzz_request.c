/* Everything that a client may send: envelopes and the parameters of every method. */
#include "tests/fuzz/messages.h"

/* Each row of an import is a message of its own. */
static void import_rows(struct ft_view body)
{
	struct ft_import_request request;
	struct ft_cursor cursor;
	struct ft_view element;
	uint32_t count = 0;
	if (ft_decode(&ft_import_request_message, body, &request, NULL) != 0)
		return;
	cursor = ft_cursor_of(request.rows.data, request.rows.length);
	if (!ft_read_array(&cursor, &count))
		return;
	for (uint32_t i = 0; i < count && ft_read_view(&cursor, &element); i++)
		message_there_and_back(&ft_row_message, element);
}

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
	        {"pin", &ft_change_request_message},
	        {"forget", &ft_change_request_message},
	        {"misses", &ft_misses_request_message},
	        {"export", &ft_export_request_message},
	        {"import_rows", &ft_import_request_message},
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
	if (strcmp(envelope->method, "import_rows") == 0)
		import_rows(envelope->body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		message_stream(data + 1, size - 1, 1 + data[0], &ft_bounds_request, handle);
	return 0;
}
