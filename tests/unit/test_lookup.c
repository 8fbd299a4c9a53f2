/* What a lookup answers of a neighbour's winner: what is remembered of one device is not taken for another's. */
#include "tests/unit/store_help.h"

#include "daemon/answers/lookup.h"
#include "kernels/rmsnorm/rmsnorm.h"

/* Targets are made here, not asked for by name. */
struct device *devices_find(struct devices *devices, const char *id, struct ft_error *error)
{
	(void)devices;
	(void)id;
	(void)error;
	fail();
	return NULL;
}

struct device_kernel *device_kernel_find(struct device *device, const char *name, struct ft_error *error)
{
	(void)device;
	(void)name;
	(void)error;
	fail();
	return NULL;
}

enum { SMALL = 8, LARGE = 16 };

/* A device as its runner's hello made it, with the first ids of a store. */
static struct device *device_of(uint64_t units)
{
	struct device *device = calloc(1, sizeof(*device));
	struct device_kernel *kernel;

	assert_non_null(device);
	device->state = DEVICE_READY;
	device->traits = (struct ft_traits){.kind = "cpu", .units = units, .cache = 1 << 20};
	device->key = 1;
	kernel = &device->kernel[device->kernel_count++];
	kernel->known = &ft_kernel_rmsnorm;
	kernel->schema = *kernel->known->schema(kernel->known, "cpu");
	kernel->id = kernel->identity = 1;
	return device;
}

static struct target target_of(struct device *device, int64_t m)
{
	struct target target = {.device = device, .kernel = &device->kernel[0]};
	struct ft_problem given = {0};
	struct ft_error error = {0};

	assert_int_equal(ft_problem_set_number(&given, "m", m, NULL), 0);
	assert_int_equal(ft_problem_set_number(&given, "n", 1024, NULL), 0);
	assert_int_equal(ft_problem_set_text(&given, "dtype", "f32", NULL), 0);
	if (ft_problem_admit(target.kernel->known, &target.kernel->schema, &given, &target.problem, &error) !=
	        0)
		fail_msg("%s", error.message);
	target.key = (struct store_key){.kernel = 1, .device = 1};
	ft_schema_key(&target.kernel->schema, &target.problem, &target.key.problem);
	return target;
}

/* One that both may be given and only one would try. */
static struct ft_config only_tried_by(const struct target *one, const struct target *other)
{
	static struct ft_space space;

	assert_int_equal(one->kernel->known->space(
	                         one->kernel->known, &one->problem, &one->device->traits, &space, NULL),
	        0);
	for (uint32_t i = 0; i < space.count; i++) {
		struct ft_config config = space.config[i];

		if (space.pruned[i][0] == '\0' && target_takes(other, &config, NULL) &&
		        !target_tries(other, &config))
			return config;
	}
	fail_msg("every config is tried on both");
	return (struct ft_config){0};
}

/* A store that is rescued gives small ids anew: the same ones mean another device then, in the same process. */
static void what_is_remembered_of_a_device_goes_with_it(void **state)
{
	struct place *place = place_new();
	struct device *before = device_of(4), *after = device_of(64);
	struct target asked_before = target_of(before, SMALL), asked_after = target_of(after, SMALL);
	struct target tuned = target_of(before, LARGE);
	struct store_winner winner = {.set = true, .identity = 1, .time_ps = 1000000, .conclusive = true};
	struct ft_answer *answer = calloc(1, sizeof(*answer));
	struct store_batch *batch;
	struct lookup_basis basis;

	(void)state;
	assert_non_null(answer);
	winner.config = only_tried_by(&asked_before, &asked_after);
	place_open(place);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_winner(batch, &tuned.key, &tuned.problem, &winner), 0);
	assert_false(place_commit(place, batch).failed);
	for (int turn = 0; turn < 2; turn++) {
		assert_int_equal(store_begin(place->store, NULL), 0);
		assert_int_equal(lookup_answer(place->store, &asked_before, 0, answer, &basis, NULL), 0);
		assert_int_equal(basis.source, LOOKUP_NEAREST);
		assert_true(ft_config_equal(&answer->config, &winner.config));
		assert_int_equal(answer->tuned_scale, LARGE);
		assert_int_equal(lookup_answer(place->store, &asked_after, 0, answer, &basis, NULL), 0);
		assert_int_equal(basis.source, LOOKUP_DEFAULT);
		store_end(place->store);
	}
	place_close(place);
	place_free(place);
	free(answer);
	free(before);
	free(after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_is_remembered_of_a_device_goes_with_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
