/* A sweep's race with a backend whose times, load and interference are made up, by a clock that is: what its budget bounds, how
 * samples lie beside each other, and what becomes of a device that others use. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/runner/sweep.h"
#include "tests/unit/sweep_clock.h"

enum { CONFIGS = 5, DEFAULT_INDEX = 3, CALLS_MOST = 65536 };

struct fake {
	struct ft_backend backend;
	uint64_t (*time_ps)(const struct fake *fake, size_t index);
	unsigned parts; /* of a sample */
	unsigned more;  /* of the default's */
	unsigned done[CONFIGS];
	size_t round; /* at hand */
	size_t samples[CONFIGS];
	size_t calls;
	uint8_t call[CALLS_MOST];      /* which config was measured */
	uint64_t begun[FT_ROUNDS_MAX]; /* when the first of a round was */
	uint64_t random;
	/* Measuring waits for the budget to be over in this call, counted from 1; 0: never. */
	size_t ends_budget;
	uint64_t budget_ns, deadline_ns;
	uint64_t verify_ns; /* that verifying takes, unless the deadline comes first */
	size_t stuck;       /* this verification, counted from 1, goes on until the deadline; 0: none */
	bool backward;      /* builds come in last first, but for the default's */
	size_t like_last; /* this one's code is that of the last, and the last's that of its own; 0: no such */
	size_t verified[4 * CONFIGS], verifications;
	bool sign; /* the sample that is thrown away is no time */
	bool hasty;
	/* Of each, the launches whose outputs were looked at, and from which on it is wrong; 0: never. */
	uint64_t audits[CONFIGS], wrong_from[CONFIGS];
	size_t served;           /* 1 + which one is stored */
	uint64_t audit_takes_ns; /* a launch */
	uint64_t audit_longest_ns;
	size_t audit_calls, cancel_after; /* so many of them; 0: never */
	/* What others do. */
	size_t disturbed_rounds;
	unsigned load[8];
	size_t loads;
	bool first_round_disturbed;
	unsigned warmed;
	/* What is heard. */
	size_t rounds, partial, waits;
	double told_verified[CONFIGS]; /* before the race, with which error; -1: not told */
	bool told_confirmed[CONFIGS];
	uint64_t disturbed;
};

static uint64_t now_ns(void)
{
	return clock_ns;
}

static struct fake *self_of(struct ft_backend *backend)
{
	return (struct fake *)backend;
}

static int prepare(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	/* The sweep's own deadline lies before it. */
	self_of(self)->deadline_ns = now_ns() + self_of(self)->budget_ns;
	(void)sweep;
	(void)error;
	return 0;
}

static int build_start(struct ft_backend *self, size_t index, struct ft_error *error)
{
	(void)error;
	self_of(self)->done[index] = 1;
	return 0;
}

static int build_wait(struct ft_backend *self, struct ft_built *built, struct ft_error *error)
{
	struct fake *fake = self_of(self);
	(void)error;
	for (size_t k = 0; k <= CONFIGS; k++) {
		size_t i = k == 0 ? DEFAULT_INDEX : fake->backward ? CONFIGS - k : k - 1;
		if (!fake->done[i] || (k == 0 && !fake->backward))
			continue;
		fake->done[i] = 0;
		*built = (struct ft_built){.index = i};
		snprintf(built->code, sizeof(built->code), "%032zx",
		        i + 1 == fake->like_last ? (size_t)CONFIGS : i + 1);
		return 1;
	}
	return 0;
}

static int verify(struct ft_backend *self, size_t index, double *largest, struct ft_error *error)
{
	struct fake *fake = self_of(self);
	(void)error;
	*largest = 1e-3;
	if (fake->verifications < sizeof(fake->verified) / sizeof(fake->verified[0]))
		fake->verified[fake->verifications++] = index;
	const bool stuck = fake->verifications == fake->stuck;
	assert_true(!stuck || self->deadline_ns != 0);
	if (stuck || (self->deadline_ns != 0 && now_ns() + fake->verify_ns >= self->deadline_ns)) {
		clock_ns = self->deadline_ns > clock_ns ? self->deadline_ns : clock_ns;
		return FT_BACKEND_ENDED;
	}
	clock_ns += fake->verify_ns;
	return 0;
}

static int audit(
        struct ft_backend *self, size_t index, uint64_t launches, uint64_t *checked, struct ft_error *error)
{
	struct fake *fake = self_of(self);
	const uint64_t takes = launches * fake->audit_takes_ns;
	clock_ns += takes;
	fake->audit_calls++;
	fake->audit_longest_ns = takes > fake->audit_longest_ns ? takes : fake->audit_longest_ns;
	fake->audits[index] += launches;
	*checked = launches;
	if (fake->wrong_from[index] == 0 || fake->audits[index] < fake->wrong_from[index])
		return 0;
	ft_fail(error, FT_E_BAD_VALUE, "wrong in one launch");
	return 1;
}

static int warm(struct ft_backend *self, struct ft_error *error)
{
	(void)error;
	self_of(self)->warmed++;
	return 0;
}

static int measure(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	struct fake *fake = self_of(self);
	uint64_t time = fake->time_ps(fake, index);
	(void)error;
	assert_true(fake->calls < CALLS_MOST);
	if (!fake->begun[fake->round])
		fake->begun[fake->round] = now_ns();
	fake->call[fake->calls++] = (uint8_t)index;
	if (fake->calls == fake->ends_budget && now_ns() < fake->deadline_ns)
		clock_ns = fake->deadline_ns;
	*sample_ps = 0;
	if (++fake->done[index] < fake->parts + (index == DEFAULT_INDEX ? fake->more : 0))
		return 0;
	fake->done[index] = 0;
	if (fake->sign && fake->samples[index]++ == 0) {
		*sample_ps = 1;
		return 0;
	}
	if (!fake->sign)
		fake->samples[index]++;
	if (fake->round < fake->disturbed_rounds)
		self->disturbed++;
	*sample_ps = time + check_random(&fake->random) % (time / 500 + 1);
	return 0;
}

static bool load(struct ft_backend *self, size_t device, unsigned *percent)
{
	struct fake *fake = self_of(self);
	(void)device;
	*percent = fake->load[fake->loads];
	if (fake->loads + 1 < sizeof(fake->load) / sizeof(fake->load[0]) && fake->load[fake->loads + 1])
		fake->loads++;
	return true;
}

static void interference(struct ft_backend *self, struct ft_interference *interference)
{
	struct fake *fake = self_of(self);
	interference->disturbed = fake->first_round_disturbed && fake->round == 0;
	if (interference->disturbed)
		snprintf(interference->reason, sizeof(interference->reason), "hail");
}

static void finish(struct ft_backend *self)
{
	(void)self;
}

/* ---- who listens ---- */

static void hear(void *context, const struct ft_runner_event *event)
{
	struct fake *fake = context;
	struct ft_cursor cursor = ft_cursor_of(event->samples.data, event->samples.length);
	uint32_t count;
	if (strcmp(event->event, "stage") == 0 && strcmp(event->stage, "wait") == 0)
		fake->waits++;
	if (strcmp(event->event, "verified") == 0 && fake->rounds == 0)
		fake->told_verified[event->trial] = event->error;
	if (strcmp(event->event, "confirmed") == 0)
		fake->told_confirmed[event->trial] = true;
	if (strcmp(event->event, "round") != 0)
		return;
	assert_true(ft_read_array(&cursor, &count));
	fake->partial += count < CONFIGS;
	fake->disturbed += event->disturbed;
	fake->rounds++;
	fake->round++;
	memset(fake->done, 0, sizeof(fake->done));
}

static bool cancelled(void *context)
{
	const struct fake *fake = context;
	return fake->cancel_after > 0 && fake->audit_calls >= fake->cancel_after;
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

/* Five configs, each a tenth slower than the one before; the fourth is the default. */
static uint64_t plain(const struct fake *fake, size_t index)
{
	(void)fake;
	return 100000000 + 10000000 * index;
}

static void fake_init(struct fake *fake)
{
	*fake = (struct fake){
	        .backend =
	                {
	                        .kind = "cpu",
	                        .prepare = prepare,
	                        .build_start = build_start,
	                        .build_wait = build_wait,
	                        .verify = verify,
	                        .audit = audit,
	                        .warm = warm,
	                        .measure = measure,
	                        .finish = finish,
	                },
	        .time_ps = plain,
	        .parts = 1,
	        .random = 1,
	};
	for (size_t i = 0; i < CONFIGS; i++)
		fake->told_verified[i] = -1;
}

static void run_any(
        struct fake *fake, uint64_t budget_ns, struct ft_sweep *sweep, struct ft_sweep_reply *reply)
{
	struct ft_sweep_listener listener = {.context = fake,
	        .event = hear,
	        .cancelled = cancelled,
	        .measure_begins = begins,
	        .measure_ends = ends};
	struct ft_error error = {0};
	*sweep = (struct ft_sweep){
	        .kernel = &ft_kernel_rmsnorm, .seed = 7, .budget_ns = budget_ns, .rule = ft_rule_usual};
	assert_int_equal(ft_sweep_init(sweep, CONFIGS, &error), 0);
	sweep->hasty = fake->hasty;
	sweep->default_index = DEFAULT_INDEX;
	if (fake->served > 0)
		sweep->trial[fake->served - 1].served = true;
	fake->budget_ns = budget_ns;
	if (ft_sweep_run(sweep, &fake->backend, &listener, reply, &error) != 0)
		fail_msg("%s", error.message);
	for (size_t i = 0; i < CONFIGS; i++) {
		for (size_t r = 0; sweep->trial[i].sample_ps && r < sweep->rounds; r++)
			assert_true(sweep->trial[i].sample_ps[r] == 0 ||
			        sweep->trial[i].sample_ps[r] >= FT_SAMPLE_LEAST_PS);
	}
}

static void run(struct fake *fake, uint64_t budget_ns, struct ft_sweep *sweep, struct ft_sweep_reply *reply)
{
	run_any(fake, budget_ns, sweep, reply);
	assert_string_equal(reply->outcome, "decided");
}

static const uint64_t hour_ns = 3600000000000U;

static void a_budget_that_does_not_suffice_for_the_default_says_what_it_needs(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.verify_ns = 100000000;
	run_any(&fake, 50000000, &sweep, &reply);
	assert_string_equal(reply.outcome, "no_time");
	assert_true(reply.needs_ns > 100000000);
	assert_non_null(strstr(reply.reason, "needs about"));
	assert_int_equal(fake.verifications, 1);
	assert_int_equal(fake.calls, 0);
	ft_sweep_free(&sweep);
}

/* Five verifications and one more of the winner take as long as all of it. */
static void a_budget_that_verifying_would_eat_goes_to_the_default_first_and_is_kept(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	size_t reached = 0;
	(void)state;
	fake_init(&fake);
	fake.sign = true;
	fake.verify_ns = 100000000;
	uint64_t begin = now_ns();
	run(&fake, 600000000, &sweep, &reply);
	assert_true(now_ns() - begin <= 660000000);
	assert_int_equal(fake.verified[0], DEFAULT_INDEX);
	for (size_t i = 0; i < CONFIGS; i++)
		reached += sweep.trial[i].verified;
	assert_in_range(reached, 1, CONFIGS - 1);
	assert_true(sweep.trial[DEFAULT_INDEX].verified);
	assert_true(sweep.standing[DEFAULT_INDEX].median_ps >= 100000000);
	/* Whoever won was verified once more, after the race. */
	assert_true(sweep.trial[reply.winner].confirmed);
	assert_true(fake.verifications > reached);
	ft_sweep_free(&sweep);
}

/* As the first one of some backends is, which is no time. */
static uint64_t absurd(const struct fake *fake, size_t index)
{
	return index == 1 ? 1 : plain(fake, index);
}

static void a_time_that_no_launch_takes_is_none(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.time_ps = absurd;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	assert_string_equal(sweep.trial[1].status, "failed");
	ft_sweep_free(&sweep);
}

static void a_budget_ends_the_first_round_within_a_sample(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	/* All are sampled once before the first round; it ends after two of its five. */
	fake.ends_budget = CONFIGS + 2;
	run(&fake, 50000000, &sweep, &reply);
	assert_true(fake.calls <= fake.ends_budget);
	assert_int_equal(reply.winner, DEFAULT_INDEX);
	assert_int_equal(fake.rounds, 1);
	assert_int_equal(fake.partial, 1);
	assert_non_null(sweep.trial[DEFAULT_INDEX].sample_ps);
	ft_sweep_free(&sweep);
}

static void the_default_has_a_time_however_many_parts_its_sample_takes(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.more = 3;
	/* All are sampled once, the default in four parts; its first and all of another's are there when it ends. */
	fake.ends_budget = CONFIGS + 3 + 2;
	run(&fake, 50000000, &sweep, &reply);
	assert_int_equal(fake.rounds, 1);
	assert_non_null(sweep.trial[DEFAULT_INDEX].sample_ps);
	assert_int_equal(fake.calls, fake.ends_budget + 3);
	ft_sweep_free(&sweep);
}

static void a_budget_ends_a_later_round_within_a_sample_and_without_its_samples(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.ends_budget = CONFIGS + 2 * CONFIGS + 3;
	run(&fake, 50000000, &sweep, &reply);
	assert_true(fake.calls <= fake.ends_budget);
	assert_int_equal(fake.partial, fake.calls < fake.ends_budget && fake.rounds == 1);
	assert_true(fake.rounds <= 2);
	assert_false(reply.conclusive);
	ft_sweep_free(&sweep);
}

static void the_parts_of_a_sample_lie_between_those_of_others(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.parts = 4;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	/* Behind the samples that are thrown away: each pass of a round has every config once. */
	const uint8_t *call = fake.call + (size_t)4 * CONFIGS;
	for (size_t pass = 0; pass < 4; pass++) {
		unsigned seen = 0;
		for (size_t i = 0; i < CONFIGS; i++)
			seen |= 1U << call[pass * CONFIGS + i];
		assert_int_equal(seen, (1U << CONFIGS) - 1);
	}
	ft_sweep_free(&sweep);
}

static void the_first_rounds_are_spread_out(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.backend.spread_ns = 140000000;
	/* Against the start, since a round that was late does not put off the next. */
	uint64_t start = now_ns();
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	assert_true(fake.rounds >= 7);
	for (size_t r = 1; r < 7; r++)
		assert_true(fake.begun[r] >= start + r * 20000000 - 5000000);
	assert_true(fake.warmed > 1);
	ft_sweep_free(&sweep);
}

static void one_that_is_in_haste_is_not_spread_out(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.backend.spread_ns = hour_ns;
	fake.hasty = true;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	assert_true(reply.conclusive);
	assert_int_equal(fake.warmed, 1);
	ft_sweep_free(&sweep);
}

static void a_disturbed_round_is_followed_by_a_wait_until_the_device_is_quiet(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.backend.load = load;
	fake.disturbed_rounds = 1;
	memcpy(fake.load, (unsigned[]){90, 80, 5}, 3 * sizeof(unsigned));
	fake.backend.vain = 1;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	assert_int_equal(fake.waits, 1);
	assert_int_equal(fake.loads, 2);
	assert_int_equal(fake.disturbed, CONFIGS);
	assert_int_equal(fake.warmed, 2);
	assert_non_null(strstr(reply.interference, "waited"));
	assert_int_equal(fake.backend.vain, 0);
	ft_sweep_free(&sweep);
}

static void a_device_that_never_is_quiet_is_waited_for_no_longer_than_a_part_of_the_budget(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.backend.load = load;
	fake.disturbed_rounds = FT_ROUNDS_MAX;
	fake.load[0] = 90;
	run(&fake, 2000000000, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	assert_int_equal(fake.waits, 1);
	assert_true(fake.rounds >= 7);
	assert_true(fake.disturbed >= CONFIGS + 6);
	assert_int_equal(fake.backend.vain, 1); /* the next one's patience is half of it */
	ft_sweep_free(&sweep);
}

static void interference_disturbs_all_of_a_round_and_is_reported(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.backend.interference = interference;
	fake.first_round_disturbed = true;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(fake.disturbed, CONFIGS);
	assert_non_null(strstr(reply.interference, "hail"));
	/* Nobody can say how busy the device is: one short wait, and on. */
	assert_int_equal(fake.waits, 1);
	ft_sweep_free(&sweep);
}

/* A neighbour is there for ten rounds, and slows the best most of all. Two others are at the band's edge to each other, so
 * that the race outlasts him. */
static uint64_t with_neighbour(const struct fake *fake, size_t index)
{
	static const uint64_t alone[CONFIGS] = {100000, 110550, 110000, 120000, 140000};
	static const uint64_t beside[CONFIGS] = {140000, 122610, 122000, 132000, 154000};
	return 1000 * (fake->round < 10 ? beside[index] : alone[index]);
}

static void what_was_dropped_in_slow_rounds_races_again(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.time_ps = with_neighbour;
	run(&fake, hour_ns, &sweep, &reply);
	assert_true(fake.rounds > 14);
	assert_int_equal(reply.winner, 0);
	assert_true(sweep.trial[0].sample_ps[0] > 0 && sweep.trial[0].sample_ps[9] == 0);
	assert_true(sweep.standing[0].median_ps < 101000000);
	ft_sweep_free(&sweep);
}

static void many_launches_of_the_winner_are_looked_at_and_the_next_one_wins_if_one_is_wrong(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.wrong_from[0] = 700;
	fake.wrong_from[1] = 1;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 2);
	assert_string_equal(sweep.trial[0].status, "wrong");
	assert_string_equal(sweep.trial[1].status, "wrong");
	assert_true(fake.audits[0] >= 700 && fake.audits[0] <= 1000);
	assert_true(fake.audits[1] <= 63);
	assert_true(fake.audits[2] >= 1000);
	assert_int_equal(fake.audits[DEFAULT_INDEX], 0);
	for (size_t i = 0; i < CONFIGS; i++)
		assert_int_equal(fake.told_confirmed[i], i == 2);
	assert_non_null(strstr(reply.method, "of the winner's launches checked"));
	ft_sweep_free(&sweep);
}

/* All alike, so that all are tied. */
static uint64_t alike(const struct fake *fake, size_t index)
{
	(void)fake;
	(void)index;
	return 100000000;
}

/* What is stored stays where it is tied: it is looked at as the winner is, and those that nobody will be given are not. */
static void so_are_those_of_the_stored_one_that_a_tie_leaves_in_its_place(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.time_ps = alike;
	fake.served = 2;
	fake.wrong_from[1] = 750;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, DEFAULT_INDEX);
	assert_true(fake.audits[DEFAULT_INDEX] >= 1000);
	assert_string_equal(sweep.trial[1].status, "wrong");
	assert_int_equal(fake.audits[0] + fake.audits[2] + fake.audits[4], 0);
	ft_sweep_free(&sweep);
}

static void the_budget_bounds_what_is_looked_at(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.audit_takes_ns = 2000000;
	uint64_t begin = now_ns();
	run(&fake, 300000000, &sweep, &reply);
	/* 1,000 would take 2 s. */
	assert_true(now_ns() - begin <= 330000000);
	assert_in_range(fake.audits[reply.winner], 30, 999);
	assert_true(fake.told_confirmed[reply.winner]);
	ft_sweep_free(&sweep);
}

/* A launch takes much longer than its time in the race said, as outputs do that are compared on a slow machine. */
static void looking_at_launches_can_be_cancelled_all_the_while(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.audit_takes_ns = 20000000;
	fake.cancel_after = 8;
	run_any(&fake, hour_ns, &sweep, &reply);
	assert_string_equal(reply.outcome, "cancelled");
	assert_int_equal(fake.audit_calls, 8);
	assert_in_range(fake.audit_longest_ns, 20000000, 300000000);
	ft_sweep_free(&sweep);
}

static void the_budget_bounds_the_look_at_the_next_winner_too(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.wrong_from[0] = 1;
	fake.stuck = CONFIGS + 2; /* all, the first winner, and the next */
	uint64_t begin = now_ns();
	run_any(&fake, 300000000, &sweep, &reply);
	assert_string_equal(reply.outcome, "no_time");
	assert_non_null(strstr(reply.reason, "found wrong after the race"));
	assert_string_equal(sweep.trial[0].status, "wrong");
	assert_string_equal(sweep.trial[1].status, "");
	assert_true(now_ns() - begin <= 331000000);
	ft_sweep_free(&sweep);
}

/* A tie leaves the stored one in its place only if it was looked at. */
static void a_stored_one_that_there_was_no_time_to_look_at_is_not_confirmed(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	for (int i = 0; i < 2; i++) {
		fake_init(&fake);
		fake.time_ps = alike;
		fake.served = 2;
		fake.audit_takes_ns = i == 0 ? 2000000 : 1000;
		run(&fake, 300000000, &sweep, &reply);
		assert_int_equal(reply.winner, DEFAULT_INDEX);
		assert_true(fake.told_confirmed[DEFAULT_INDEX]);
		assert_int_equal(fake.told_confirmed[1], i == 1);
		assert_int_equal(fake.told_confirmed[1], fake.audits[1] > 0);
		ft_sweep_free(&sweep);
	}
	(void)state;
}

/* The last was verified when the first came in, whose code is the same and which is to stand for both. */
static void who_inherits_a_verification_is_told_to_be_verified(void **state)
{
	static struct fake fake;
	struct ft_sweep sweep;
	struct ft_sweep_reply reply;
	(void)state;
	fake_init(&fake);
	fake.backward = true;
	fake.like_last = 1;
	run(&fake, hour_ns, &sweep, &reply);
	assert_int_equal(reply.winner, 0);
	assert_string_equal(sweep.trial[CONFIGS - 1].status, "same_code_as");
	for (size_t i = 0; i < fake.verifications - 1; i++)
		assert_true(fake.verified[i] != 0); /* but for the last, which confirms it */
	for (size_t i = 0; i < CONFIGS; i++)
		assert_true(fake.told_verified[i] > 0);
	ft_sweep_free(&sweep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_budget_that_does_not_suffice_for_the_default_says_what_it_needs),
	        cmocka_unit_test(a_budget_that_verifying_would_eat_goes_to_the_default_first_and_is_kept),
	        cmocka_unit_test(a_time_that_no_launch_takes_is_none),
	        cmocka_unit_test(a_budget_ends_the_first_round_within_a_sample),
	        cmocka_unit_test(the_default_has_a_time_however_many_parts_its_sample_takes),
	        cmocka_unit_test(a_budget_ends_a_later_round_within_a_sample_and_without_its_samples),
	        cmocka_unit_test(the_parts_of_a_sample_lie_between_those_of_others),
	        cmocka_unit_test(the_first_rounds_are_spread_out),
	        cmocka_unit_test(one_that_is_in_haste_is_not_spread_out),
	        cmocka_unit_test(a_disturbed_round_is_followed_by_a_wait_until_the_device_is_quiet),
	        cmocka_unit_test(
	                a_device_that_never_is_quiet_is_waited_for_no_longer_than_a_part_of_the_budget),
	        cmocka_unit_test(interference_disturbs_all_of_a_round_and_is_reported),
	        cmocka_unit_test(what_was_dropped_in_slow_rounds_races_again),
	        cmocka_unit_test(
	                many_launches_of_the_winner_are_looked_at_and_the_next_one_wins_if_one_is_wrong),
	        cmocka_unit_test(so_are_those_of_the_stored_one_that_a_tie_leaves_in_its_place),
	        cmocka_unit_test(the_budget_bounds_what_is_looked_at),
	        cmocka_unit_test(looking_at_launches_can_be_cancelled_all_the_while),
	        cmocka_unit_test(the_budget_bounds_the_look_at_the_next_winner_too),
	        cmocka_unit_test(a_stored_one_that_there_was_no_time_to_look_at_is_not_confirmed),
	        cmocka_unit_test(who_inherits_a_verification_is_told_to_be_verified),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
