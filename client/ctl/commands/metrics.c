/* flytunectl metrics */
#include <stdio.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/json.h"

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct flytune_error error;
	size_t length;
	char *page;
	struct document json = {0};

	if (count > 0)
		return stray_word(&command_metrics, words[0]);
	if (flytune_metrics(ctl->client, &page, &length, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json) {
		document_object(&json, NULL);
		document_bytes(&json, "page", page, length);
		document_end(&json);
		document_print(&json);
	} else {
		fwrite(page, 1, length, stdout);
	}
	flytune_text_free(page);
	return CTL_DONE;
}

const struct command command_metrics = {
        .name = "metrics",
        .words = "",
        .help = "Print figures in the Prometheus text format",
        .run = run,
};
