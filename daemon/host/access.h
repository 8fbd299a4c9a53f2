/* Who may do what: by the user, group and supplementary groups that the kernel says of a peer.
 *
 * Members of one group look up and tune; members of the other, root and the daemon's own user may do all.
 * Where the host has no such group, everybody who can open the socket may look up and tune. */
#ifndef FLYTUNE_DAEMON_ACCESS_H
#define FLYTUNE_DAEMON_ACCESS_H

#include <sys/types.h>

#include "daemon/host/settings.h"

enum access_level { ACCESS_ANYONE, ACCESS_MEMBER, ACCESS_ADMIN };

struct access_group {
	char name[32];
	bool known; /* to this host */
	gid_t id;
};

struct access {
	struct access_group members, admins;
};

/* Asks the host's user database for the groups, so it may wait: not for a loop that serves. By one thread at a time. */
void access_init(struct access *access, const struct settings *settings);
/* What the peer of a socket may. */
enum access_level access_of(const struct access *access, int descriptor, uint32_t user, uint32_t group);
/* Fails, with what is missing, unless `has` is enough for `needs`. */
int access_check(const struct access *access, enum access_level has, enum access_level needs,
        const char *method, uint32_t user, struct ft_error *error);
/* For the status: who may do what on this host, in words. Without the members' group, who can open the socket is what its
 * file says. */
void access_explain(const struct access *access, const char *socket, char *text, size_t size);

#endif
