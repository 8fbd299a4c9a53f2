/* flytunectl metrics */
#include <stdio.h>

#include "client/ctl/ctl.h"
#include "client/ctl/json.h"

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct flytune_error error;
	size_t length;
	char *page;
	int failed = 0;

	if (count > 0)
		return ctl_usage(&command_metrics, "'%s' is not understood", words[0]);
	if (flytune_metrics(ctl->client, &page, &length, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		failed = json_print(json_pack("{s:s%}", "page", page, length));
	else
		fwrite(page, 1, length, stdout);
	flytune_text_free(page);
	return failed != 0 ? CTL_FAILED : CTL_DONE;
}

const struct command command_metrics = {
        .name = "metrics",
        .words = "",
        .help = "Print figures in the Prometheus text format",
        .run = run,
};
