/* The walk through stored answers for those that are stale: they are candidates for background work. */
#include <string.h>

#include "daemon/answers/staleness.h"
#include "daemon/jobs/background.h"
#include "daemon/jobs/internal.h"

enum { SCAN_STEP = 64 };

static const char scan_note[] = "background-scan";

/* What the last whole walk was made under: while that stands, no answer can have become stale. */
static uint64_t scan_mark(const struct background *background)
{
	uint64_t mark = 1469598103934665603ULL;

	for (uint32_t i = 0; i < background->devices->count; i++) {
		const struct device *device = background->devices->device[i];

		for (uint32_t k = 0; device->state == DEVICE_READY && k < device->kernel_count; k++) {
			const struct device_kernel *kernel = &device->kernel[k];
			const uint64_t part[] = {device->key, kernel->id, kernel->identity,
			        kernel->schema.revision, FT_RULE_REVISION};

			for (size_t p = 0; p < sizeof(part) / sizeof(part[0]); p++)
				mark = (mark ^ part[p]) * 1099511628211ULL;
		}
	}
	return mark;
}

static bool scan_is_due(struct background *background)
{
	struct ft_writer value;
	struct ft_cursor cursor;
	uint8_t buffer[16];
	uint64_t mark = 0;
	int found;

	if (store_begin(background->store, NULL) != 0)
		return false;
	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	found = store_get_note(background->store, scan_note, &value, NULL);
	store_end(background->store);
	cursor = ft_cursor_of(value.data, value.length);
	return found != 1 || !ft_read_uint(&cursor, &mark) || mark != scan_mark(background);
}

static void note_scan(struct background *background)
{
	struct store_batch *batch = store_batch_new(background->store);
	struct ft_writer value;
	uint8_t buffer[16];

	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	ft_write_uint(&value, scan_mark(background));
	if (batch != NULL && store_batch_note(batch, scan_note, value.data, value.length) == 0)
		store_submit(batch, NULL, NULL);
	else
		store_batch_drop(batch);
}

static bool look_at(void *data, const struct store_key *key, const struct store_answer *answer)
{
	struct background *background = data;
	const struct device *device;
	const struct device_kernel *kernel = devices_kernel(background->devices, key, &device);
	struct target target;
	struct store_winner winner = answer->winner;
	enum candidate_cause cause;

	if (kernel == NULL || device->state != DEVICE_READY || !answer->winner.set || answer->pin.set)
		return true;
	if (target_admit(&target, background->devices, kernel->schema.kernel, device->shown.id,
	            &answer->problem, NULL) != 0)
		return true;
	if (winner_is_settled(&target, &winner))
		return true;
	cause = winner_is_current(kernel, &winner) ? CANDIDATE_GROWN : CANDIDATE_UPGRADE;
	background_want(background, &target, cause, 0);
	return true;
}

static void scan_step(uv_idle_t *idle)
{
	struct background *background = idle->data;
	uint64_t room = background->settings->background_queue - background->count;
	uint64_t hidden = 0;
	int walked = -1;

	if (room > 0 && store_begin(background->store, NULL) == 0) {
		walked =
		        store_each_answer(background->store, 0, room < SCAN_STEP ? (unsigned)room : SCAN_STEP,
		                &background->scan, look_at, background, &hidden, NULL);
		store_end(background->store);
	}
	if (walked == 0 && background->scan.length > 0 &&
	        background->count < background->settings->background_queue)
		return;
	/* Full: it goes on when there is room. At the end, or where the store fails: it is over. */
	(void)uv_idle_stop(&background->scanner);
	background->scanning = room == 0 || (walked == 0 && background->scan.length > 0);
	if (walked == 0 && !background->scanning)
		note_scan(background);
}

void background_scan_on(struct background *background)
{
	if (background->scanning && background->count < background->settings->background_queue &&
	        !uv_is_active((uv_handle_t *)&background->scanner))
		(void)uv_idle_start(&background->scanner, scan_step);
}

void background_scan_begin(struct background *background)
{
	if (background->scanning || !scan_is_due(background))
		return;
	background->scanning = true;
	memset(&background->scan, 0, sizeof(background->scan));
	(void)uv_idle_start(&background->scanner, scan_step);
}
