#include <stdlib.h>
#include <string.h>

#include "client/lib/cancel.h"
#include "client/lib/handle.h"
#include "client/lib/outcome.h"

struct page {
	char *text;
	size_t length;
};

static int read_page(void *to, const struct client_reply *reply, struct ft_error *error)
{
	struct page *page = to;
	struct ft_metrics_reply metrics;

	if (ft_decode(&ft_metrics_reply_message, reply->body, &metrics, error) != 0)
		return -1;
	page->length = metrics.page.length;
	page->text = calloc(1, page->length + 1);
	if (page->text == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	memcpy(page->text, metrics.page.data, page->length);
	return 0;
}

enum flytune_result flytune_metrics(
        flytune_client *client, char **page, size_t *length, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};
	struct page read;
	enum flytune_result code;

	REQUIRE(page, out);
	code = client_ask(client, "metrics", &ft_empty_message, &request, read_page, &read, out);
	if (code != FLYTUNE_OK)
		return code;
	*page = read.text;
	if (length != NULL)
		*length = read.length;
	return FLYTUNE_OK;
}

void flytune_text_free(char *text)
{
	UNCANCELLED;

	free(text);
}
