/* Puts results into a store that a daemon has used once and left, as if each had been tuned on its first device.
 *
 *   fill_store state=DIRECTORY count=NUMBER
 *
 * Problem i is rmsnorm of m = 1 + i % 1000 and n = 1024 + 8 * (i / 1000), bf16. */
#include <uv.h>

#include "daemon/store/store.h"
#include "kernels/host.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "tests/bench/bench.h"

enum { BATCH = 5000, WIDTH = 1000 };

struct filler {
	struct store *store;
	struct store_key key;
	uint32_t identity;
	struct ft_traits traits;
	uint64_t next, count;
};

static void fail(const struct ft_error *error)
{
	fprintf(stderr, "fill_store: %s\n", error->message);
	exit(1);
}

static void closed(void *data)
{
	(void)data;
}

static void add(struct filler *filler, struct store_batch *batch, uint64_t index)
{
	const struct ft_kernel *kernel = &ft_kernel_rmsnorm;
	const struct ft_schema *schema = kernel->schema(kernel, filler->traits.kind);
	struct ft_problem given = {0}, whole;
	struct store_winner winner = {
	        .set = true,
	        .identity = filler->identity,
	        .rule_revision = 1,
	        .time_ps = 81200000,
	        .default_time_ps = 95000000,
	        .tuned_at_ns = 1700000000000000000,
	        .conclusive = true,
	        .job = index + 1,
	};
	struct ft_error error;

	ft_problem_set_number(&given, "m", (int64_t)(1 + index % WIDTH), NULL);
	ft_problem_set_number(&given, "n", (int64_t)(1024 + 8 * (index / WIDTH)), NULL);
	ft_problem_set_text(&given, "dtype", "bf16", NULL);
	if (ft_problem_admit(kernel, schema, &given, &whole, &error) != 0)
		fail(&error);
	kernel->default_config(kernel, &whole, &filler->traits, &winner.config);
	ft_schema_key(schema, &whole, &filler->key.problem);
	if (store_batch_winner(batch, &filler->key, &whole, &winner) != 0)
		die("memory");
}

static void go_on(struct filler *filler);

static void committed(void *data, uint64_t generation, const struct ft_error *error)
{
	(void)generation;
	if (error != NULL)
		fail(error);
	go_on(data);
}

static void go_on(struct filler *filler)
{
	uint64_t end = filler->next + BATCH < filler->count ? filler->next + BATCH : filler->count;
	struct store_batch *batch;

	if (filler->next == end) {
		store_close(filler->store, closed, NULL);
		return;
	}
	batch = need(store_batch_new(filler->store));
	for (; filler->next < end; filler->next++)
		add(filler, batch, filler->next);
	store_submit(batch, committed, filler);
}

/* The ids of the first device that has the kernel: "rmsnorm@DEVICE" names the pair, and has its identity. */
static void find_device(struct filler *filler)
{
	struct ft_error error;
	const char *text;

	for (uint32_t id = 1; (text = store_name_text(filler->store, STORE_DEVICE, id)) != NULL; id++) {
		if (strncmp(text, "rmsnorm@", 8) != 0)
			continue;
		filler->identity = store_device_identity(filler->store, id, 0);
		if (store_intern(filler->store, STORE_KERNEL, "rmsnorm", &filler->key.kernel, &error) != 0 ||
		        store_intern(filler->store, STORE_DEVICE, text + 8, &filler->key.device, &error) != 0)
			fail(&error);
		return;
	}
	errno = ENOENT;
	die("a device in the store");
}

int main(int argc, char **argv)
{
	struct store_options options = {.directory = argument(argc, argv, "state", "")};
	struct filler filler = {.count = (uint64_t)number(argc, argv, "count", 1000)};
	struct ft_error error;
	uv_loop_t loop;

	uv_loop_init(&loop);
	if (store_open(&filler.store, &loop, &options, &error) != 0)
		fail(&error);
	if (store_begin(filler.store, &error) != 0)
		fail(&error);
	ft_traits_guess("cpu", &filler.traits);
	find_device(&filler);
	store_end(filler.store);
	go_on(&filler);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	return 0;
}
