/* Preloaded into a daemon: the user database answers about groups only once it has read a byte from the FIFO that GROUPS_GATE
 * names, if that is there. */
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct group *groups_call(const char *name);

struct group *getgrnam(const char *name)
{
	union {
		void *object;
		groups_call *call;
	} real = {.object = dlsym(RTLD_NEXT, "getgrnam")};
	const char *path = getenv("GROUPS_GATE");
	int gate = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char byte;

	if (gate >= 0) {
		(void)!read(gate, &byte, 1);
		(void)close(gate);
	}
	return real.call(name);
}
