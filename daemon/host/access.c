#include "daemon/host/access.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUPS_USUAL = 64, GROUPS_MAX = 65536 };

static void find_group(struct access_group *group, const char *name)
{
	const struct group *found = getgrnam(name);

	(void)snprintf(group->name, sizeof(group->name), "%s", name);
	group->known = found != NULL;
	group->id = found != NULL ? found->gr_gid : (gid_t)-1;
}

void access_init(struct access *access, const struct settings *settings)
{
	find_group(&access->members, settings->group);
	find_group(&access->admins, settings->admin_group);
	endgrent();
}

static enum access_level level_of_group(const struct access *access, gid_t group)
{
	if (access->admins.known && group == access->admins.id)
		return ACCESS_ADMIN;
	return access->members.known && group == access->members.id ? ACCESS_MEMBER : ACCESS_ANYONE;
}

static enum access_level level_of_groups(const struct access *access, const gid_t *groups, size_t count)
{
	enum access_level best = ACCESS_ANYONE;

	for (size_t i = 0; i < count && best != ACCESS_ADMIN; i++) {
		enum access_level level = level_of_group(access, groups[i]);

		if (level > best)
			best = level;
	}
	return best;
}

/* The groups that the peer had when it connected. */
static enum access_level level_of_peer(const struct access *access, int descriptor)
{
	gid_t usual[GROUPS_USUAL];
	socklen_t size = sizeof(usual);
	enum access_level level = ACCESS_ANYONE;
	gid_t *more;

	if (getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, usual, &size) == 0)
		return level_of_groups(access, usual, size / sizeof(usual[0]));
	if (errno != ERANGE || size > GROUPS_MAX * sizeof(gid_t))
		return ACCESS_ANYONE;
	more = malloc(size);
	if (more != NULL && getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, more, &size) == 0)
		level = level_of_groups(access, more, size / sizeof(gid_t));
	free(more);
	return level;
}

enum access_level access_of(const struct access *access, int descriptor, uint32_t user, uint32_t group)
{
	enum access_level level = access->members.known ? ACCESS_ANYONE : ACCESS_MEMBER;
	enum access_level own;

	if (user == 0 || user == geteuid())
		return ACCESS_ADMIN;
	own = level_of_group(access, group);
	if (own < ACCESS_ADMIN && (access->admins.known || access->members.known)) {
		enum access_level other = level_of_peer(access, descriptor);

		if (other > own)
			own = other;
	}
	return own > level ? own : level;
}

int access_check(const struct access *access, enum access_level has, enum access_level needs,
        const char *method, uint32_t user, struct ft_error *error)
{
	const struct access_group *group = needs == ACCESS_ADMIN ? &access->admins : &access->members;

	if (has >= needs)
		return 0;
	return ft_fail(error, FT_E_DENIED, "%s is for members of group %s%s; user %u is not one of them",
	        method, group->name, group->known ? "" : ", which this host does not have, and for root",
	        user);
}

static void explain_socket(const struct access *access, const char *socket, char *text, size_t size)
{
	struct stat file;

	if (stat(socket, &file) == 0)
		(void)snprintf(text, size,
		        "everybody who can open the socket, which is of user %u and group %u, mode %04o "
		        "(there is no group %s)",
		        (unsigned)file.st_uid, (unsigned)file.st_gid, (unsigned)file.st_mode & 07777,
		        access->members.name);
	else
		(void)snprintf(text, size, "everybody who can open the socket (there is no group %s)",
		        access->members.name);
}

void access_explain(const struct access *access, const char *socket, char *text, size_t size)
{
	const char *group = access->admins.name;
	char members[160], admins[160], own[32] = "";

	if (geteuid() != 0)
		(void)snprintf(own, sizeof(own), " and user %u", (unsigned)geteuid());
	if (access->members.known)
		(void)snprintf(members, sizeof(members), "members of %s", access->members.name);
	else
		explain_socket(access, socket, members, sizeof(members));
	if (access->admins.known)
		(void)snprintf(admins, sizeof(admins), "members of %s, root%s", group, own);
	else
		(void)snprintf(admins, sizeof(admins), "root%s (there is no group %s)", own, group);
	(void)snprintf(text, size, "lookup and tune: %s; all else: %s", members, admins);
}
