/* Preloaded into a daemon: the time of day is as many seconds ahead as the file says that CLOCK_AHEAD names. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int clock_call(clockid_t clock, struct timespec *now);

int clock_gettime(clockid_t clock, struct timespec *now)
{
	union {
		void *object;
		clock_call *call;
	} real = {.object = dlsym(RTLD_NEXT, "clock_gettime")};
	const char *path = getenv("CLOCK_AHEAD");
	FILE *file = clock == CLOCK_REALTIME && path != NULL ? fopen(path, "re") : NULL;
	char text[32] = "";
	int rc = real.call(clock, now);

	if (file != NULL) {
		if (fgets(text, sizeof(text), file) != NULL)
			now->tv_sec += strtol(text, NULL, 10);
		(void)fclose(file);
	}
	return rc;
}
