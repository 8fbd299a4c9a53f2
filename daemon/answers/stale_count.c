#include "daemon/answers/stale_count.h"

#include <string.h>

#include "daemon/host/timer.h"

enum { STEP = 128, AT_ONCE = 2 };

static bool count_answer(void *data, const struct store_key *key, const struct store_answer *answer)
{
	struct census *census = data;
	const struct device *device;
	const struct device_kernel *kernel;

	if (!answer->winner.set)
		return true;
	kernel = devices_kernel(census->devices, key, &device);
	census->counted += kernel == NULL || kernel->identity != answer->winner.identity;
	return true;
}

/* One step; whether it was the last. */
static bool step(struct census *census)
{
	uint64_t hidden;
	int failed = -1;

	if (store_begin(census->store, NULL) == 0) {
		failed = store_each_answer(
		        census->store, 0, STEP, &census->place, count_answer, census, &hidden, NULL);
		store_end(census->store);
	}
	if (failed == 0 && census->place.length != 0)
		return false;
	census->running = false;
	if (failed == 0) {
		census->known = true;
		census->stale = census->counted;
		census->at_generation = census->generation;
	}
	return true;
}

static void go_on(uv_timer_t *timer)
{
	struct census *census = timer->data;

	if (step(census))
		(void)uv_timer_stop(timer);
}

bool census_stale(struct census *census, uint64_t *stale)
{
	/* Before all devices are known, today's identities are not. */
	if (devices_probing(census->devices))
		return false;
	if (!census->running &&
	        (!census->known || census->at_generation != store_generation(census->store))) {
		memset(&census->place, 0, sizeof(census->place));
		census->counted = 0;
		census->generation = store_generation(census->store);
		census->running = true;
		for (int i = 0; i < AT_ONCE && census->running; i++)
			(void)step(census);
		if (census->running)
			timer_repeat(&census->timer, go_on, 1, 1);
	}
	*stale = census->stale;
	return census->known;
}

int census_init(struct census *census, uv_loop_t *loop, struct store *store, const struct devices *devices,
        struct ft_error *error)
{
	int status;

	*census = (struct census){.store = store, .devices = devices};
	status = uv_timer_init(loop, &census->timer);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	census->timer.data = census;
	return 0;
}

void census_stop(struct census *census)
{
	uv_close((uv_handle_t *)&census->timer, NULL);
}
