#include "daemon/methods/context.h"

#include <inttypes.h>

int context_read(struct context *context, struct ft_error *error)
{
	if (context->reading)
		return 0;
	if (store_begin(context->store, error) != 0)
		return -1;
	context->reading = true;
	return 0;
}

bool context_allows(struct context *context, const struct session *session, const char *what,
        enum access_level needs, struct ft_error *error)
{
	if (access_check(context->access, session->level, needs, what, session->user, error) == 0)
		return true;
	context->denied++;
	log_limited(context->log, &context->denials, LOG_LEVEL_NOTICE,
	        "audit denied %s uid=%u gid=%u pid=%" PRId64, what, session->user, session->group,
	        session->process);
	return false;
}

void context_keeps(struct context *context, struct session *session)
{
	if (session->keeps)
		return;
	session->keeps = true;
	if (context->keepers++ == 0)
		devices_watch(context->devices, true);
}

void context_keeps_no_more(struct context *context, struct session *session)
{
	if (session->keeps && --context->keepers == 0)
		devices_watch(context->devices, false);
	session->keeps = false;
}
