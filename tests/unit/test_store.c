/* The store as its users see it: what is committed is there, now and as it was. */
#include "tests/unit/store_help.h"

static void a_new_store_is_empty(void **state)
{
	struct place *place = place_new();
	struct store_facts facts;
	char path[512];
	struct stat info;

	(void)state;
	place->map_bytes = UINT64_C(16) << 30; /* the usual one: every tool must stand it */
	place_open(place);
	assert_int_equal(store_generation(place->store), 1);
	assert_int_equal(store_history_floor(place->store), 1);
	assert_int_equal(strlen(store_uuid(place->store)), 36);
	store_facts(place->store, &facts);
	assert_int_equal(facts.answers, 0);
	assert_int_equal(facts.limit, place->map_bytes);
	assert_string_equal(facts.degraded, "");
	assert_int_equal(get_winner(place, 1, 64, 0), 0);
	place_file(place, "data.mdb", path, sizeof(path));
	assert_int_equal(stat(path, &info), 0);
	assert_int_equal(info.st_mode & 0777, 0600);
	place_close(place);
	place_free(place);
}

static void an_answer_survives_a_restart_whole(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, 64);
	struct ft_problem problem = some_problem(1, 64);
	struct store_winner winner = some_winner(256);
	struct store_pin pin = {.set = true, .config = some_config(512), .user = 1000, .at_ns = 5};
	struct store_import import = {
	        .set = true,
	        .config = some_config(1024),
	        .origin = "file.json",
	        .identity = "hip 5.2.3",
	        .time_ps = 1,
	        .default_time_ps = 2,
	        .at_ns = 3,
	};
	struct store_answer answer;
	struct store_batch *batch;
	char uuid[FT_UUID_SIZE];

	(void)state;
	winner.busy = true;
	place_open(place);
	snprintf(uuid, sizeof(uuid), "%s", store_uuid(place->store));
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
	assert_int_equal(store_batch_pin(batch, &key, &problem, &pin), 0);
	assert_int_equal(store_batch_import(batch, &key, &problem, &import), 0);
	struct outcome outcome = place_commit(place, batch);
	assert_false(outcome.failed);
	assert_int_equal(outcome.generation, 2);
	place_close(place);

	place_open(place);
	assert_string_equal(store_uuid(place->store), uuid);
	assert_int_equal(store_generation(place->store), 2);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_answer(place->store, &key, &answer, NULL), 1);
	store_end(place->store);
	assert_true(ft_problem_equal(&answer.problem, &problem));
	assert_int_equal(answer.generation, 2);
	assert_true(answer.winner.set);
	assert_true(ft_config_equal(&answer.winner.config, &winner.config));
	assert_int_equal(answer.winner.identity, 3);
	assert_int_equal(answer.winner.rule_revision, 1);
	assert_int_equal(answer.winner.space_hash, winner.space_hash);
	assert_int_equal(answer.winner.time_ps, winner.time_ps);
	assert_int_equal(answer.winner.default_time_ps, winner.default_time_ps);
	assert_int_equal(answer.winner.tuned_at_ns, winner.tuned_at_ns);
	assert_true(answer.winner.conclusive);
	assert_true(answer.winner.busy);
	assert_int_equal(answer.winner.job, 7);
	assert_true(answer.pin.set);
	assert_true(ft_config_equal(&answer.pin.config, &pin.config));
	assert_int_equal(answer.pin.user, 1000);
	assert_int_equal(answer.pin.at_ns, 5);
	assert_true(answer.import.set);
	assert_string_equal(answer.import.origin, "file.json");
	assert_string_equal(answer.import.identity, "hip 5.2.3");
	assert_int_equal(answer.import.at_ns, 3);
	place_close(place);
	place_free(place);
}

static void each_generation_keeps_its_answer(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, 64);
	struct store_batch *batch;
	uint64_t first, second, forgotten, third;
	struct store_facts facts;

	(void)state;
	place_open(place);
	first = put_winner(place, 1, 64, 128);
	put_winner(place, 2, 64, 999);
	second = put_winner(place, 1, 64, 256);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_forget(batch, &key), 0);
	forgotten = place_commit(place, batch).generation;
	store_facts(place->store, &facts);
	assert_int_equal(facts.answers, 1);
	third = put_winner(place, 1, 64, 512);
	place_close(place);

	place_open(place);
	assert_int_equal(get_winner(place, 1, 64, 0), 512);
	assert_int_equal(get_winner(place, 1, 64, 1), 0);
	for (uint64_t generation = first; generation < second; generation++)
		assert_int_equal(get_winner(place, 1, 64, generation), 128);
	for (uint64_t generation = second; generation < forgotten; generation++)
		assert_int_equal(get_winner(place, 1, 64, generation), 256);
	for (uint64_t generation = forgotten; generation < third; generation++)
		assert_int_equal(get_winner(place, 1, 64, generation), 0);
	assert_int_equal(get_winner(place, 1, 64, third), 512);
	assert_int_equal(get_winner(place, 1, 64, third + 1), -1);
	assert_string_equal(place->error.code, FT_E_GENERATION);
	store_facts(place->store, &facts);
	assert_int_equal(facts.answers, 2);
	place_close(place);
	place_free(place);
}

static void a_batch_that_changes_nothing_takes_no_generation(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, 64);
	struct ft_problem problem = some_problem(1, 64);
	struct store_pin none = {0};
	struct store_batch *batch;
	uint64_t before;

	(void)state;
	place_open(place);
	before = put_winner(place, 1, 64, 128);
	assert_int_equal(put_winner(place, 1, 64, 128), before);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_pin(batch, &key, &problem, &none), 0);
	assert_int_equal(place_commit(place, batch).generation, before);
	key = some_key(9, 9);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_forget(batch, &key), 0);
	assert_int_equal(place_commit(place, batch).generation, before);
	place_close(place);
	place_free(place);
}

static void a_device_has_one_identity_a_generation(void **state)
{
	struct place *place = place_new();
	struct store_batch *batch;
	uint64_t first, second;

	(void)state;
	place_open(place);
	assert_int_equal(store_device_identity(place->store, 5, 0), 0);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_identity(batch, 5, 70), 0);
	first = place_commit(place, batch).generation;
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_identity(batch, 5, 70), 0);
	assert_int_equal(store_batch_identity(batch, 6, 71), 0);
	second = place_commit(place, batch).generation;
	assert_int_equal(second, first + 1);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_identity(batch, 5, 72), 0);
	place_commit(place, batch);
	assert_int_equal(store_device_identity(place->store, 5, 0), 72);
	place_close(place);

	place_open(place);
	assert_int_equal(store_device_identity(place->store, 5, 0), 72);
	assert_int_equal(store_device_identity(place->store, 5, first - 1), 70);
	assert_int_equal(store_device_identity(place->store, 5, first), 70);
	assert_int_equal(store_device_identity(place->store, 5, second), 70);
	assert_int_equal(store_device_identity(place->store, 6, second), 71);
	assert_int_equal(store_device_identity(place->store, 6, first), 71);
	assert_int_equal(store_device_identity(place->store, 7, 0), 0);
	place_close(place);
	place_free(place);
}

static void names_keep_their_ids(void **state)
{
	struct place *place = place_new();
	uint32_t a, b, again, other;

	(void)state;
	place_open(place);
	assert_int_equal(store_intern(place->store, STORE_DEVICE, "gfx90a:sramecc+", &a, NULL), 0);
	assert_int_equal(store_intern(place->store, STORE_DEVICE, "sm_90", &b, NULL), 0);
	assert_int_equal(store_intern(place->store, STORE_DEVICE, "gfx90a:sramecc+", &again, NULL), 0);
	assert_int_equal(store_intern(place->store, STORE_KERNEL, "rmsnorm", &other, NULL), 0);
	assert_int_equal(a, 1);
	assert_int_equal(b, 2);
	assert_int_equal(again, 1);
	assert_int_equal(other, 1);
	assert_string_equal(store_name_text(place->store, STORE_DEVICE, 2), "sm_90");
	assert_null(store_name_text(place->store, STORE_DEVICE, 3));
	assert_null(store_name_text(place->store, STORE_DEVICE, 0));
	put_winner(place, 1, 64, 128);
	place_close(place);

	place_open(place);
	assert_int_equal(store_intern(place->store, STORE_DEVICE, "sm_100", &other, NULL), 0);
	assert_int_equal(other, 3);
	assert_int_equal(store_intern(place->store, STORE_DEVICE, "sm_90", &again, NULL), 0);
	assert_int_equal(again, 2);
	place_close(place);
	place_free(place);
}

static struct trials *some_trials(void)
{
	struct trials *trials = trials_new(3);

	assert_non_null(trials);
	strcpy(trials->kernel, "rmsnorm");
	trials->problem = some_problem(1, 64);
	trials->seed = 42;
	trials->rounds = 9;
	trials->default_index = 1;
	trials->winner = 2;
	for (uint32_t i = 0; i < 3; i++)
		trials->trial[i].config = some_config(128 << i);
	for (uint32_t round = 0; round < 9; round++)
		trials_samples(trials, 2)[round] = round == 4 ? 0 : 81000000 + round;
	trials->trial[0].status = TRIAL_WRONG;
	strcpy(trials->trial[0].reason, "row 3 is off by 0.5");
	return trials;
}

/* What is new of many is stored, and all of it goes with the answer. */
static void trials_of_a_large_space_grow_and_are_forgotten(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, 64);
	struct trials *trials = some_trials();
	struct trials *back;
	struct store_batch *batch;
	struct outcome outcome;

	(void)state;
	trials->unlisted = 5000;
	place_open(place);
	while (trials->count < 1000) {
		for (uint32_t i = 0; i < 333 && trials->count < 1000; i++) {
			struct ft_config config = trials->trial[0].config;

			config.knob[0].value = (int64_t)trials->count;
			assert_non_null(trials_add(trials, &config, trials->count));
		}
		batch = store_batch_new(place->store);
		assert_int_equal(store_batch_trials(batch, &key, 3, trials), 0);
		outcome = place_commit(place, batch);
		assert_false(outcome.failed);
	}
	place_close(place);
	place_open(place);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_trials(place->store, &key, 3, &back, NULL), 0);
	assert_non_null(back);
	assert_int_equal(back->count, 1000);
	assert_int_equal(back->unlisted, 5000);
	for (uint32_t i = 3; i < 1000; i++) {
		assert_int_equal(back->trial[i].place, i);
		assert_int_equal(back->trial[i].config.knob[0].value, i);
	}
	trials_free(back);
	store_end(place->store);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_forget(batch, &key), 0);
	outcome = place_commit(place, batch);
	assert_false(outcome.failed);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_trials(place->store, &key, 3, &back, NULL), 0);
	assert_null(back);
	/* Nor is a chunk of them left for others to come upon. */
	trials->count = 300;
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_trials(batch, &key, 3, trials), 0);
	store_end(place->store);
	outcome = place_commit(place, batch);
	assert_false(outcome.failed);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_trials(place->store, &key, 3, &back, NULL), 0);
	assert_non_null(back);
	assert_int_equal(back->count, 300);
	store_end(place->store);
	trials_free(back);
	trials_free(trials);
	place_close(place);
	place_free(place);
}

static void trials_are_kept_under_their_identity(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, 64);
	struct trials *trials = some_trials();
	struct trials *back;
	struct store_batch *batch;

	(void)state;
	place_open(place);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_trials(batch, &key, 3, trials), 0);
	struct outcome outcome = place_commit(place, batch);
	assert_false(outcome.failed);
	assert_int_equal(outcome.generation, 1);
	trials_free(trials);
	place_close(place);

	place_open(place);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_trials(place->store, &key, 4, &back, NULL), 0);
	assert_null(back);
	assert_int_equal(store_get_trials(place->store, &key, 3, &back, NULL), 0);
	store_end(place->store);
	assert_non_null(back);
	assert_int_equal(back->count, 3);
	assert_int_equal(back->winner, 2);
	assert_int_equal(back->trial[0].status, TRIAL_WRONG);
	assert_string_equal(back->trial[0].reason, "row 3 is off by 0.5");
	assert_null(back->trial[0].sample_ps);
	assert_int_equal(back->trial[2].sample_ps[3], 81000003);
	assert_int_equal(back->trial[2].sample_ps[4], 0);
	trials_free(back);

	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_forget(batch, &key), 0);
	place_commit(place, batch);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_trials(place->store, &key, 3, &back, NULL), 0);
	store_end(place->store);
	assert_null(back);
	place_close(place);
	place_free(place);
}

struct jobs_seen {
	int count;
	uint64_t id[8];
	char state[8][16];
};

static bool see_job(void *data, const struct ft_job *job)
{
	struct jobs_seen *seen = data;

	seen->id[seen->count] = job->job;
	snprintf(seen->state[seen->count], sizeof(seen->state[0]), "%s", job->state);
	return ++seen->count < 8;
}

static struct ft_job some_job(uint64_t id, const char *state)
{
	struct ft_job job = {.job = id, .problems = some_problem(1, 64), .priority = -3};

	strcpy(job.kernel, "rmsnorm");
	strcpy(job.device, "cpu:0");
	snprintf(job.state, sizeof(job.state), "%s", state);
	return job;
}

static void jobs_come_back_in_order_and_ids_never_twice(void **state)
{
	struct place *place = place_new();
	struct jobs_seen seen = {0};
	struct store_batch *batch;
	uint64_t last = 0;

	(void)state;
	place_open(place);
	batch = store_batch_new(place->store);
	for (int i = 0; i < 200; i++) {
		uint64_t id = store_next_job(place->store);

		assert_int_equal(id, last + 1);
		last = id;
		if (i == 150 || i == 0 || i == 1) {
			struct ft_job job = some_job(id, i == 0 ? "done" : "queued");

			assert_int_equal(store_batch_job(batch, &job), 0);
		}
	}
	place_commit(place, batch);
	batch = store_batch_new(place->store);
	struct ft_job job = some_job(2, "running");
	assert_int_equal(store_batch_job(batch, &job), 0);
	assert_int_equal(store_batch_drop_job(batch, 1), 0);
	assert_int_equal(store_batch_drop_job(batch, 1000), 0);
	assert_false(place_commit(place, batch).failed);
	place_close(place);

	place_open(place);
	assert_int_equal(store_next_job(place->store), last + 1);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_each_job(place->store, see_job, &seen, NULL), 0);
	store_end(place->store);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.id[0], 2);
	assert_string_equal(seen.state[0], "running");
	assert_int_equal(seen.id[1], 151);
	place_close(place);
	place_free(place);
}

static void notes_are_kept_byte_for_byte(void **state)
{
	struct place *place = place_new();
	struct store_batch *batch;
	struct ft_writer value;
	uint8_t *big = malloc(100000);

	(void)state;
	memset(big, 0x5a, 100000);
	place_open(place);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_note(batch, "hello cpu", big, 100000), 0);
	assert_int_equal(store_batch_note(batch, "empty", "", 0), 0);
	assert_int_equal(store_batch_note(batch, "", "x", 1), -1);
	place_commit(place, batch);
	ft_writer_init_growing(&value, 1 << 20);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_note(place->store, "hello cpu", &value, NULL), 1);
	assert_int_equal(value.length, 100000);
	assert_memory_equal(value.data, big, 100000);
	ft_writer_reset(&value);
	assert_int_equal(store_get_note(place->store, "empty", &value, NULL), 1);
	assert_int_equal(value.length, 0);
	assert_int_equal(store_get_note(place->store, "none", &value, NULL), 0);
	store_end(place->store);
	ft_writer_free(&value);
	free(big);
	place_close(place);
	place_free(place);
}

/* ---- nearest ---- */

struct near_seen {
	unsigned count, stop_after;
	uint64_t scale[64];
	int64_t block[64];
};

static bool see_near(void *data, uint64_t scale, const struct store_answer *answer)
{
	struct near_seen *seen = data;

	seen->scale[seen->count] = scale;
	seen->block[seen->count] = ft_config_find(&answer->winner.config, "BLOCK_THREADS")->value;
	return ++seen->count < seen->stop_after;
}

struct near_entry {
	uint64_t scale;
	int64_t block;
};

static uint64_t near_to; /* qsort has no room for it */

static int nearer(const void *left, const void *right)
{
	__extension__ typedef unsigned __int128 wide;
	uint64_t a = ((const struct near_entry *)left)->scale;
	uint64_t b = ((const struct near_entry *)right)->scale;
	/* |log(a/L)| < |log(b/L)|: larger over smaller, crosswise */
	uint64_t a_high = a > near_to ? a : near_to, a_low = a > near_to ? near_to : a;
	uint64_t b_high = b > near_to ? b : near_to, b_low = b > near_to ? near_to : b;
	wide x = (wide)a_high * b_low, y = (wide)b_high * a_low;

	if (x != y)
		return x < y ? -1 : 1;
	return (a > b) - (a < b);
}

static void check_near(struct place *place, const struct near_entry *entry, size_t count, uint64_t generation)
{
	for (int i = 0; i < 300; i++) {
		struct store_key key = some_key(1, (uint64_t)(rand() % 70));
		uint64_t low = (uint64_t)(rand() % 50);
		uint64_t high = low + (uint64_t)(rand() % 60);
		unsigned most = 1 + (unsigned)(rand() % 20);
		struct near_seen seen = {.stop_after = 64};
		struct near_entry expected[64];
		size_t wanted = 0;

		if (i % 3 == 0) {
			low = (key.problem.scale + 1) / 2;
			high = key.problem.scale * 2;
		}
		for (size_t k = 0; k < count; k++) {
			if (entry[k].scale >= low && entry[k].scale <= high &&
			        entry[k].scale != key.problem.scale)
				expected[wanted++] = entry[k];
		}
		near_to = key.problem.scale;
		qsort(expected, wanted, sizeof(expected[0]), nearer);
		if (wanted > most)
			wanted = most;
		assert_int_equal(store_begin(place->store, NULL), 0);
		assert_int_equal(store_near_answers(place->store, &key, low, high, most, generation, see_near,
		                         &seen, NULL),
		        0);
		store_end(place->store);
		assert_int_equal(seen.count, wanted);
		for (size_t k = 0; k < wanted; k++) {
			assert_int_equal(seen.scale[k], expected[k].scale);
			assert_int_equal(seen.block[k], expected[k].block);
		}
	}
}

static void near_answers_come_in_the_right_order_at_every_generation(void **state)
{
	struct place *place = place_new();
	struct near_entry then[64], now[64];
	size_t then_count = 0, now_count = 0;
	uint64_t generation;

	(void)state;
	srand(11);
	place_open(place);
	put_winner(place, 0, 5, 1);
	put_winner(place, 2, 5, 1);
	for (uint64_t scale = 0; scale < 64; scale++) {
		if (rand() % 2 == 0) {
			put_winner(place, 1, scale, (int64_t)(100 + scale));
			then[then_count++] = (struct near_entry){scale, (int64_t)(100 + scale)};
		}
	}
	generation = store_generation(place->store);
	check_near(place, then, then_count, 0);
	for (uint64_t scale = 0; scale < 64; scale++) {
		bool there = false;

		for (size_t k = 0; k < then_count; k++)
			there = there || then[k].scale == scale;
		if (rand() % 3 == 0) {
			put_winner(place, 1, scale, (int64_t)(1000 + scale));
			now[now_count++] = (struct near_entry){scale, (int64_t)(1000 + scale)};
		} else if (there && rand() % 2 == 0) {
			struct store_key key = some_key(1, scale);
			struct store_batch *batch = store_batch_new(place->store);

			assert_int_equal(store_batch_forget(batch, &key), 0);
			place_commit(place, batch);
		} else if (there) {
			now[now_count++] = (struct near_entry){scale, (int64_t)(100 + scale)};
		}
	}
	check_near(place, now, now_count, 0);
	check_near(place, now, now_count, store_generation(place->store));
	check_near(place, then, then_count, generation);
	place_close(place);
	place_free(place);
}

static void near_answers_end_where_the_visitor_says(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, UINT64_MAX);
	struct near_seen seen = {.stop_after = 1};

	(void)state;
	place_open(place);
	put_winner(place, 1, 0, 1);
	put_winner(place, 1, UINT64_MAX - 1, 2);
	put_winner(place, 1, UINT64_MAX, 3);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(
	        store_near_answers(place->store, &key, 0, UINT64_MAX, 16, 0, see_near, &seen, NULL), 0);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.scale[0], UINT64_MAX - 1);
	seen = (struct near_seen){.stop_after = 64};
	key.problem.scale = 0;
	assert_int_equal(
	        store_near_answers(place->store, &key, 0, UINT64_MAX, 16, 0, see_near, &seen, NULL), 0);
	store_end(place->store);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.scale[1], UINT64_MAX);
	place_close(place);
	place_free(place);
}

/* ---- the writer ---- */

struct order {
	int next;
	uint64_t commits_at_end;
	struct place *place;
};

struct order_step {
	struct order *order;
	int number;
	bool done;
};

static void in_order(void *data, uint64_t generation, const struct ft_error *error)
{
	struct order_step *step = data;

	assert_null(error);
	assert_int_equal(step->order->next, step->number);
	/* Its own, though others that came after it are in the same commit: this one is what a pin's token names. */
	assert_int_equal(generation, 2 + step->number);
	/* What a batch brought can be read when it is acknowledged. */
	assert_int_equal(get_winner(step->order->place, 1, (uint64_t)step->number, 0), step->number + 1);
	step->order->next++;
	step->done = true;
}

static void batches_that_wait_share_a_commit_and_are_acknowledged_in_order(void **state)
{
	enum { BATCHES = 500 };
	struct place *place = place_new();
	struct order order = {.place = place};
	struct order_step *step = calloc(BATCHES, sizeof(*step));
	struct store_facts before, after;

	(void)state;
	place_open(place);
	store_facts(place->store, &before);
	for (int i = 0; i < BATCHES; i++) {
		struct store_key key = some_key(1, (uint64_t)i);
		struct ft_problem problem = some_problem(1, (uint64_t)i);
		struct store_winner winner = some_winner(i + 1);
		struct store_batch *batch = store_batch_new(place->store);

		step[i] = (struct order_step){&order, i, false};
		assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
		store_submit(batch, in_order, &step[i]);
	}
	while (order.next < BATCHES)
		uv_run(&place->loop, UV_RUN_ONCE);
	store_facts(place->store, &after);
	assert_true(after.commits - before.commits < BATCHES / 2);
	assert_int_equal(after.answers, BATCHES);
	assert_int_equal(store_generation(place->store), 1 + BATCHES);
	place_close(place);
	free(step);
	place_free(place);
}

static void closing_commits_what_was_submitted(void **state)
{
	struct place *place = place_new();
	struct outcome outcome[20] = {{0}};

	(void)state;
	place_open(place);
	for (int i = 0; i < 20; i++) {
		struct store_key key = some_key(1, (uint64_t)i);
		struct ft_problem problem = some_problem(1, (uint64_t)i);
		struct store_winner winner = some_winner(i + 1);
		struct store_batch *batch = store_batch_new(place->store);

		assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
		store_submit(batch, outcome_done, &outcome[i]);
	}
	place_close(place);
	for (int i = 0; i < 20; i++) {
		assert_true(outcome[i].done);
		assert_false(outcome[i].failed);
	}
	place_open(place);
	assert_int_equal(get_winner(place, 1, 19, 0), 20);
	place_close(place);
	place_free(place);
}

static void reads_do_not_make_the_file_grow(void **state)
{
	struct place *place = place_new();
	char path[512];
	off_t early;

	(void)state;
	place_open(place);
	place->limits.history_ns = 0;
	place_file(place, "data.mdb", path, sizeof(path));
	for (int i = 0; i < 500; i++) {
		struct store_batch *batch = store_batch_new(place->store);

		assert_int_equal(store_batch_note(batch, "n", &i, sizeof(i)), 0);
		place_commit(place, batch);
		get_winner(place, 1, 1, 0);
	}
	early = file_size(path);
	for (int i = 0; i < 3000; i++) {
		struct store_batch *batch = store_batch_new(place->store);

		assert_int_equal(store_batch_note(batch, "n", &i, sizeof(i)), 0);
		place_commit(place, batch);
		get_winner(place, 1, 1, 0);
	}
	assert_int_equal(file_size(path), early);
	place_close(place);
	place_free(place);
}

static void old_history_goes_and_the_floor_says_so(void **state)
{
	struct place *place = place_new();
	struct store_key gone = some_key(3, 1);
	struct store_batch *batch;
	uint64_t newest, floor;

	(void)state;
	place->limits.history_ns = 0;
	place->limits.history_rows = 4;
	place->limits.collect_commits = 1;
	place->limits.collect_rows = 3;
	place_open(place);
	put_winner(place, 3, 1, 1);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_forget(batch, &gone), 0);
	place_commit(place, batch);
	put_winner(place, 2, 1, 77);
	for (int64_t i = 1; i <= 50; i++)
		put_winner(place, 1, 1, i);
	/* Steps go round while other things are committed. */
	for (int i = 0; i < 60; i++) {
		batch = store_batch_new(place->store);
		assert_int_equal(store_batch_note(batch, "n", &i, sizeof(i)), 0);
		place_commit(place, batch);
	}
	newest = store_generation(place->store);
	floor = store_history_floor(place->store);
	assert_int_equal(newest - floor, 4);
	for (uint64_t generation = floor; generation <= newest; generation++) {
		assert_int_equal(get_winner(place, 1, 1, generation), (int64_t)(50 - (newest - generation)));
		assert_int_equal(get_winner(place, 2, 1, generation), 77);
		assert_int_equal(get_winner(place, 3, 1, generation), 0);
	}
	assert_int_equal(get_winner(place, 1, 1, floor - 1), -1);
	assert_string_equal(place->error.code, FT_E_GENERATION);
	place_close(place);

	place_open(place);
	assert_int_equal(store_history_floor(place->store), floor);
	place_close(place);
	place_free(place);
}

/* ---- the clock ---- */

static _Atomic int64_t ahead_s[2]; /* of the real one: the time of day, the monotonic clock */

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	int rc = __real_clock_gettime(clock, now);

	if (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC)
		now->tv_sec += ahead_s[clock == CLOCK_MONOTONIC];
	return rc;
}

static const int64_t day_s = INT64_C(24) * 3600;

static void many_steps_of_collection(struct place *place)
{
	for (int i = 0; i < 10; i++) {
		struct store_batch *batch = store_batch_new(place->store);

		assert_int_equal(store_batch_note(batch, "n", &i, sizeof(i)), 0);
		assert_false(place_commit(place, batch).failed);
	}
}

/* Keeps one former answer of a problem, if it is old, where there are ten; `early` is the generation of the first. */
static struct place *place_with_history(uint64_t *early)
{
	struct place *place = place_new();

	place->limits.history_rows = 1;
	place->limits.collect_commits = 1;
	place_open(place);
	*early = put_winner(place, 1, 1, 1);
	for (int64_t i = 2; i <= 10; i++)
		put_winner(place, 1, 1, i);
	return place;
}

static void a_clock_that_jumps_makes_no_history_old(void **state)
{
	uint64_t early;
	struct place *place = place_with_history(&early);

	(void)state;
	for (int life = 0; life < 3; life++) {
		/* A year ahead for a while, and with a start in it; then two years back. */
		ahead_s[0] = life < 2 ? 365 * day_s : -365 * day_s;
		put_winner(place, 1, 1, 20 + life);
		many_steps_of_collection(place);
		ahead_s[0] = life == 1 ? 365 * day_s : 0;
		many_steps_of_collection(place);
		assert_int_equal(store_history_floor(place->store), 1);
		assert_int_equal(get_winner(place, 1, 1, early), 1);
		place_close(place);
		place_open(place);
	}
	ahead_s[0] = 0;
	place_close(place);
	place_free(place);
}

static void history_grows_old_while_daemons_run_and_over_restarts(void **state)
{
	uint64_t early;
	struct place *place = place_with_history(&early);

	(void)state;
	ahead_s[1] = 50 * day_s;
	many_steps_of_collection(place);
	assert_int_equal(get_winner(place, 1, 1, early), 1);
	place_close(place);
	ahead_s[1] = 0; /* as after a boot */
	place_open(place);
	ahead_s[1] = 39 * day_s;
	many_steps_of_collection(place);
	assert_int_equal(get_winner(place, 1, 1, early), 1);
	ahead_s[1] = 41 * day_s;
	many_steps_of_collection(place);
	assert_int_equal(get_winner(place, 1, 1, early), -1);
	assert_string_equal(place->error.code, FT_E_GENERATION);
	ahead_s[1] = 0;
	place_close(place);
	place_free(place);
}

static void young_history_stays_however_long_it_is(void **state)
{
	struct place *place = place_new();

	(void)state;
	place->limits.history_rows = 2;
	place->limits.collect_commits = 1;
	place_open(place);
	for (int64_t i = 1; i <= 30; i++)
		put_winner(place, 1, 1, i);
	assert_int_equal(store_history_floor(place->store), 1);
	assert_int_equal(get_winner(place, 1, 1, 2), 1);
	place_close(place);
	place_free(place);
}

static struct outcome put_bulk(struct place *place, uint64_t scale, uint32_t identity, bool with_winner)
{
	struct store_key key = some_key(7, scale);
	struct trials *trials = trials_new(64);
	struct store_batch *batch = store_batch_new(place->store);
	struct outcome outcome;

	trials->rounds = 60;
	for (uint32_t i = 0; i < 64; i++) {
		trials->trial[i].config = some_config(i);
		for (uint32_t round = 0; round < 60; round++)
			trials_samples(trials, i)[round] = UINT64_C(81000000000) + round;
	}
	assert_int_equal(store_batch_trials(batch, &key, identity, trials), 0);
	if (with_winner) {
		struct ft_problem problem = some_problem(7, scale);
		struct store_winner winner = some_winner(5);

		assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
	}
	trials_free(trials);
	outcome = place_commit(place, batch);
	return outcome;
}

static void a_nearly_full_store_refuses_jobs_and_takes_answers(void **state)
{
	struct place *place = place_new();
	struct outcome outcome = {0};
	struct store_facts facts;
	struct store_batch *batch;
	struct ft_job job;
	uint64_t scale = 0;

	(void)state;
	place->map_bytes = UINT64_C(4) << 20;
	place->limits.refuse_percent = 60;
	place->limits.stale_percent = 100;
	place_open(place);
	batch = store_batch_new(place->store);
	job = some_job(1, "queued");
	assert_int_equal(store_batch_job(batch, &job), 0);
	place_commit(place, batch);
	while (!outcome.failed && scale < 1000)
		outcome = put_bulk(place, scale++, 3, false);
	assert_true(outcome.failed);
	assert_non_null(strstr(outcome.error.message, "full"));
	store_facts(place->store, &facts);
	assert_non_null(strstr(facts.degraded, "nearly full"));
	assert_true(facts.bytes >= facts.limit / 100 * 60);
	put_winner(place, 1, 1, 8);
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	assert_false(put_bulk(place, scale, 3, true).failed);

	batch = store_batch_new(place->store);
	job = some_job(1, "done");
	assert_int_equal(store_batch_job(batch, &job), 0);
	assert_false(place_commit(place, batch).failed);
	batch = store_batch_new(place->store);
	job = some_job(2, "queued");
	assert_int_equal(store_batch_job(batch, &job), 0);
	assert_true(place_commit(place, batch).failed);

	for (uint64_t i = 0; i < scale; i++) {
		struct store_key key = some_key(7, i);

		batch = store_batch_new(place->store);
		assert_int_equal(store_batch_forget(batch, &key), 0);
		assert_false(place_commit(place, batch).failed);
	}
	assert_false(put_bulk(place, 1, 3, false).failed);
	place_close(place);
	place_free(place);
}

static void stale_trials_make_room_when_the_store_fills_up(void **state)
{
	struct place *place = place_new();
	struct store_batch *batch;
	struct trials *trials;
	struct store_key key = some_key(7, 0);

	(void)state;
	place->map_bytes = UINT64_C(4) << 20;
	place->limits.stale_percent = 40;
	place->limits.collect_commits = 1;
	place->limits.collect_rows = 8;
	place_open(place);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_identity(batch, 2, 4), 0);
	place_commit(place, batch);
	for (uint64_t scale = 0; scale < 400; scale++)
		assert_false(put_bulk(place, scale, scale % 40 == 39 ? 4 : 3, false).failed);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_trials(place->store, &key, 3, &trials, NULL), 0);
	assert_null(trials);
	for (uint64_t scale = 39; scale < 400; scale += 40) {
		key.problem.scale = scale;
		assert_int_equal(store_get_trials(place->store, &key, 4, &trials, NULL), 0);
		assert_non_null(trials);
		trials_free(trials);
	}
	store_end(place->store);
	place_close(place);
	place_free(place);
}

static void a_full_map_fails_the_batch_and_nothing_else(void **state)
{
	struct place *place = place_new();
	uint8_t *big = calloc(1, 3 << 20);
	struct store_batch *batch;
	struct outcome outcome;
	struct outcome after = {0};
	struct store_facts facts;
	struct store_key key = some_key(1, 2);
	struct ft_problem problem = some_problem(1, 2);
	struct store_winner winner = some_winner(9);

	(void)state;
	place->map_bytes = UINT64_C(2) << 20;
	place->limits.probe_ms = 10;
	place_open(place);
	put_winner(place, 1, 1, 8);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_note(batch, "big", big, 3 << 20), 0);
	outcome = (struct outcome){0};
	store_submit(batch, outcome_done, &outcome);
	batch = store_batch_new(place->store);
	assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
	store_submit(batch, outcome_done, &after);
	place_wait(place, &after);
	assert_true(outcome.done && outcome.failed);
	assert_non_null(strstr(outcome.error.message, "full"));
	assert_false(after.failed);
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	assert_int_equal(get_winner(place, 1, 2, 0), 9);
	/* It is told of until as much could be written. */
	store_facts(place->store, &facts);
	assert_non_null(strstr(facts.degraded, "full"));
	assert_non_null(strstr(facts.degraded, "3145"));
	place_close(place);
	free(big);
	place_free(place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_new_store_is_empty),
	        cmocka_unit_test(an_answer_survives_a_restart_whole),
	        cmocka_unit_test(each_generation_keeps_its_answer),
	        cmocka_unit_test(a_batch_that_changes_nothing_takes_no_generation),
	        cmocka_unit_test(a_device_has_one_identity_a_generation),
	        cmocka_unit_test(names_keep_their_ids),
	        cmocka_unit_test(trials_are_kept_under_their_identity),
	        cmocka_unit_test(trials_of_a_large_space_grow_and_are_forgotten),
	        cmocka_unit_test(jobs_come_back_in_order_and_ids_never_twice),
	        cmocka_unit_test(notes_are_kept_byte_for_byte),
	        cmocka_unit_test(near_answers_come_in_the_right_order_at_every_generation),
	        cmocka_unit_test(near_answers_end_where_the_visitor_says),
	        cmocka_unit_test(batches_that_wait_share_a_commit_and_are_acknowledged_in_order),
	        cmocka_unit_test(closing_commits_what_was_submitted),
	        cmocka_unit_test(reads_do_not_make_the_file_grow),
	        cmocka_unit_test(old_history_goes_and_the_floor_says_so),
	        cmocka_unit_test(a_clock_that_jumps_makes_no_history_old),
	        cmocka_unit_test(history_grows_old_while_daemons_run_and_over_restarts),
	        cmocka_unit_test(young_history_stays_however_long_it_is),
	        cmocka_unit_test(a_nearly_full_store_refuses_jobs_and_takes_answers),
	        cmocka_unit_test(stale_trials_make_room_when_the_store_fills_up),
	        cmocka_unit_test(a_full_map_fails_the_batch_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
