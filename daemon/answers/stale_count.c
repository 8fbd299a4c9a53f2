#include "daemon/answers/stale_count.h"

#include <string.h>

#include "daemon/answers/staleness.h"
#include "daemon/host/timer.h"

enum { STEP = 128, AT_ONCE = 2 };

static bool count_answer(void *data, const struct store_key *key, const struct store_answer *answer)
{
	struct stale_count *stale_count = data;
	const struct device *device;
	const struct device_kernel *kernel;

	if (!answer->winner.set)
		return true;
	kernel = devices_kernel(stale_count->devices, key, &device);
	stale_count->counted += !winner_is_current(kernel, &answer->winner);
	return true;
}

/* One step; whether it was the last. */
static bool step(struct stale_count *stale_count)
{
	uint64_t hidden;
	int failed = -1;

	if (store_begin(stale_count->store, NULL) == 0) {
		failed = store_each_answer(stale_count->store, 0, STEP, &stale_count->place, count_answer,
		        stale_count, &hidden, NULL);
		store_end(stale_count->store);
	}
	if (failed == 0 && stale_count->place.length != 0)
		return false;
	stale_count->running = false;
	if (failed == 0) {
		stale_count->known = true;
		stale_count->stale = stale_count->counted;
		stale_count->at_generation = stale_count->generation;
	}
	return true;
}

static void go_on(uv_timer_t *timer)
{
	struct stale_count *stale_count = timer->data;

	if (step(stale_count))
		(void)uv_timer_stop(timer);
}

bool stale_count_get(struct stale_count *stale_count, uint64_t *stale)
{
	/* Before all devices are known, today's identities are not. */
	if (devices_probing(stale_count->devices))
		return false;
	if (!stale_count->running &&
	        (!stale_count->known || stale_count->at_generation != store_generation(stale_count->store))) {
		memset(&stale_count->place, 0, sizeof(stale_count->place));
		stale_count->counted = 0;
		stale_count->generation = store_generation(stale_count->store);
		stale_count->running = true;
		for (int i = 0; i < AT_ONCE && stale_count->running; i++)
			(void)step(stale_count);
		if (stale_count->running)
			timer_repeat(&stale_count->timer, go_on, 1, 1);
	}
	*stale = stale_count->stale;
	return stale_count->known;
}

int stale_count_init(struct stale_count *stale_count, uv_loop_t *loop, struct store *store,
        const struct devices *devices, struct ft_error *error)
{
	int status;

	*stale_count = (struct stale_count){.store = store, .devices = devices};
	status = uv_timer_init(loop, &stale_count->timer);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	stale_count->timer.data = stale_count;
	return 0;
}

void stale_count_stop(struct stale_count *stale_count)
{
	uv_close((uv_handle_t *)&stale_count->timer, NULL);
}
