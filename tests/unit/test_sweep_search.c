/* A sweep of a space that is too large to be tried whole, with a backend and a clock that are made up: what is looked at, who races, and
 * how long that takes. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/runner/sweep.h"
#include "tests/unit/sweep_clock.h"

enum { KNOBS = 4, VALUES = 7, MEMBERS = VALUES * VALUES * VALUES * VALUES, DEFAULT_PLACE = 1000 };

static const uint64_t build_ns = 50000000, verify_ns = 2000000;
/* ---- a kernel: times fall towards one corner, but for a valley ---- */

static struct ft_schema schema;

static const struct ft_schema *kernel_schema(const struct ft_kernel *kernel, const char *kind)
{
	(void)kernel;
	(void)kind;
	return &schema;
}

static uint64_t kernel_bytes(const struct ft_kernel *kernel, const struct ft_problem *problem)
{
	(void)kernel;
	(void)problem;
	return 1 << 20;
}

static int kernel_members(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_members *members, struct ft_error *error)
{
	(void)kernel;
	(void)problem;
	(void)traits;
	(void)error;
	*members = (struct ft_members){.count = MEMBERS,
	        .knobs = KNOBS,
	        .default_index = DEFAULT_PLACE,
	        .row = calloc(MEMBERS, KNOBS)};
	assert_non_null(members->row);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		for (uint32_t j = 0, rest = i; j < KNOBS; j++, rest /= VALUES)
			members->row[i * KNOBS + j] = (uint8_t)(rest % VALUES);
	}
	return 0;
}

static const struct ft_kernel kernel = {
        .name = "grid", .schema = kernel_schema, .bytes = kernel_bytes, .members = kernel_members};

static uint64_t time_of(const struct ft_config *config)
{
	uint64_t time = 100000000;

	for (uint32_t i = 0; i < KNOBS; i++) {
		const int64_t off = config->knob[i].value - 2 - i % 3;

		time += (uint64_t)(off * off) * 7000000;
	}
	return config->knob[0].value == config->knob[1].value ? time * 5 / 4 : time;
}

/* Fast for what it leaves out. */
static bool is_wrong(const struct ft_config *config)
{
	return config->knob[3].value == 6;
}

/* ---- a backend ---- */

struct fake {
	struct ft_backend backend;
	struct ft_backend_device device;
	struct ft_backend_sweep sweep;
	size_t started[FT_TRIES_MAX], pending;
	bool sampled[FT_TRIES_MAX], verified[FT_TRIES_MAX];
	size_t builds, members, looks, racers;
	size_t die_at; /* it is cancelled after so many looks; 0: never */
	uint64_t place[FT_TRIES_MAX], race_ns, begin_ns;
};

static struct fake *self_of(struct ft_backend *backend)
{
	return (struct fake *)backend;
}

static int prepare(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	(void)error;
	self_of(self)->sweep = *sweep;
	return 0;
}

static int build_start(struct ft_backend *self, size_t index, struct ft_error *error)
{
	struct fake *fake = self_of(self);

	(void)error;
	assert_true(index < fake->sweep.room);
	fake->started[fake->pending++] = index;
	return 0;
}

static int build_wait(struct ft_backend *self, struct ft_built *built, struct ft_error *error)
{
	struct fake *fake = self_of(self);
	char text[FT_CONFIG_TEXT_SIZE];

	(void)error;
	if (fake->pending == 0)
		return 0;
	*built = (struct ft_built){.index = fake->started[0]};
	memmove(fake->started, fake->started + 1, --fake->pending * sizeof(fake->started[0]));
	(void)ft_config_format(&fake->sweep.config[built->index], ' ', text, sizeof(text));
	snprintf(built->code, sizeof(built->code), "%s", text);
	clock_ns += build_ns;
	fake->builds++;
	return 1;
}

static int verify(struct ft_backend *self, size_t index, double *largest, struct ft_error *error)
{
	*largest = 1e-3;
	clock_ns += verify_ns;
	if (is_wrong(&self_of(self)->sweep.config[index])) {
		ft_fail(error, FT_E_BAD_VALUE, "it left something out");
		return 1;
	}
	self_of(self)->verified[index] = true;
	return 0;
}

static int warm(struct ft_backend *self, struct ft_error *error)
{
	(void)self;
	(void)error;
	return 0;
}

static int measure(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	static uint64_t random = 1;
	struct fake *fake = self_of(self);
	const uint64_t time = time_of(&fake->sweep.config[index]);

	(void)error;
	assert_true(fake->verified[index]);
	fake->sampled[index] = true;
	clock_ns += 1000000;
	*sample_ps = time + check_random(&random) % (time / 200);
	return 0;
}

static void finish(struct ft_backend *self)
{
	(void)self;
}

static void hear(void *context, const struct ft_runner_event *event)
{
	struct fake *fake = context;
	struct ft_cursor cursor = ft_cursor_of(event->samples.data, event->samples.length);
	uint32_t count;

	if (strcmp(event->event, "member") == 0) {
		assert_int_equal(event->trial, ++fake->members);
		assert_true(event->place < MEMBERS && event->place != DEFAULT_PLACE);
		for (size_t i = 1; i < fake->members; i++)
			assert_int_not_equal(fake->place[i], event->place);
		fake->place[fake->members] = event->place;
	} else if (strcmp(event->event, "looked") == 0) {
		assert_true(event->look_ps > 0 && event->trial <= fake->members);
		fake->looks++;
	} else if (strcmp(event->event, "race") == 0) {
		assert_true(ft_read_array(&cursor, &count));
		fake->racers = count;
		fake->race_ns = clock_ns;
	}
}

static bool cancelled(void *context)
{
	const struct fake *fake = context;

	return fake->die_at > 0 && fake->looks >= fake->die_at;
}

static void begins(void *context, size_t trial)
{
	(void)context;
	(void)trial;
}

static void ends(void *context)
{
	(void)context;
}

static struct fake *fake_new(void)
{
	struct fake *fake = calloc(1, sizeof(*fake));

	assert_non_null(fake);
	fake->backend = (struct ft_backend){.kind = "cpu",
	        .takes_late = true,
	        .device_count = 1,
	        .device = &fake->device,
	        .prepare = prepare,
	        .build_start = build_start,
	        .build_wait = build_wait,
	        .verify = verify,
	        .warm = warm,
	        .measure = measure,
	        .finish = finish};
	schema.knob_count = KNOBS;
	for (uint32_t i = 0; i < KNOBS; i++) {
		snprintf(schema.knob[i].name, sizeof(schema.knob[i].name), "k%u", i);
		schema.knob[i].count = VALUES;
		for (uint32_t j = 0; j < VALUES; j++)
			schema.knob[i].value[j] = VALUES - 1 - j;
	}
	return fake;
}

/* The default first, and room for what is found. */
static void sweep_begin(struct ft_sweep *sweep, uint64_t budget_ns, size_t count)
{
	struct ft_members members;
	struct ft_error error;

	*sweep = (struct ft_sweep){.kernel = &kernel,
	        .seed = 7,
	        .budget_ns = budget_ns,
	        .rule = ft_rule_usual,
	        .unlisted = MEMBERS,
	        .search = true,
	        .room = FT_TRIES_MAX};
	assert_int_equal(ft_sweep_init(sweep, count, &error), 0);
	assert_int_equal(kernel_members(&kernel, NULL, NULL, &members, NULL), 0);
	ft_schema_member(&schema, members.row + (size_t)DEFAULT_PLACE * KNOBS, &sweep->trial[0].config);
	sweep->trial[0].place = UINT32_MAX;
	free(members.row);
}

static void sweep_run(struct fake *fake, struct ft_sweep *sweep, struct ft_sweep_reply *reply)
{
	struct ft_sweep_listener listener = {.context = fake,
	        .event = hear,
	        .cancelled = cancelled,
	        .measure_begins = begins,
	        .measure_ends = ends};
	struct ft_error error = {0};

	fake->begin_ns = clock_ns;
	if (ft_sweep_run(sweep, &fake->backend, &listener, reply, &error) != 0)
		fail_msg("%s", error.message);
}

static void a_search_finds_a_good_config_in_its_budget(void **state)
{
	static const uint64_t budget_ns = 12000000000U;
	struct fake *fake = fake_new();
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;

	(void)state;
	sweep_begin(&sweep, budget_ns, 1);
	sweep_run(fake, &sweep, &reply);
	assert_string_equal(reply.outcome, "decided");
	assert_true(clock_ns - fake->begin_ns <= budget_ns + budget_ns / 10);
	/* Three quarters go by with looks, and one more batch does not fit. */
	assert_in_range(fake->race_ns - fake->begin_ns, budget_ns / 2, budget_ns * 4 / 5);
	assert_int_equal(sweep.count, fake->members + 1);
	assert_int_equal(fake->builds, sweep.count); /* each once */
	assert_in_range(fake->racers, 2, 34);
	assert_true(fake->looks < MEMBERS / 8);
	/* Of 2,401 members the best takes 100 µs. */
	assert_true(time_of(&sweep.trial[reply.winner].config) < 112000000);
	for (size_t i = 0; i < sweep.count; i++) {
		assert_int_equal(
		        is_wrong(&sweep.trial[i].config), strcmp(sweep.trial[i].status, "wrong") == 0);
		assert_true(sweep.trial[i].out || sweep.trial[i].look_ps > 0);
	}
	ft_sweep_free(&sweep);
	free(fake);
}

/* What was looked at before is not built again, but for who races. */
static void a_search_goes_on_from_what_is_known(void **state)
{
	static const uint64_t budget_ns = 8000000000U;
	struct fake *fake = fake_new(), *again = fake_new();
	struct ft_sweep first, second;
	struct ft_sweep_reply reply;

	(void)state;
	fake->die_at = 30;
	sweep_begin(&first, budget_ns, 1);
	sweep_run(fake, &first, &reply);
	assert_string_equal(reply.outcome, "cancelled");
	assert_int_equal(fake->racers, 0);
	sweep_begin(&second, budget_ns, first.count);
	for (size_t i = 0; i < first.count; i++) {
		struct ft_sweep_trial *trial = &second.trial[i];

		*trial = (struct ft_sweep_trial){.config = first.trial[i].config,
		        .place = first.trial[i].place,
		        .look_ps = first.trial[i].look_ps,
		        .out = first.trial[i].out};
		again->place[i] = trial->place;
	}
	again->members = first.count - 1;
	sweep_run(again, &second, &reply);
	assert_string_equal(reply.outcome, "decided");
	assert_true(second.count > first.count);
	assert_true(again->builds <= second.count - first.count + 1 + again->racers);
	assert_true(time_of(&second.trial[reply.winner].config) < 125000000);
	ft_sweep_free(&first);
	ft_sweep_free(&second);
	free(fake);
	free(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_search_finds_a_good_config_in_its_budget),
	        cmocka_unit_test(a_search_goes_on_from_what_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
