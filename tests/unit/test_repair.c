/* Damage: every kind of it costs what it hit and nothing more, and never the process. */
#include "tests/unit/store_help.h"

#include <inttypes.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/vfs.h>

#include "daemon/store/repair/lmdb_file.h"
#include "daemon/store/record.h"
#include "daemon/store/repair/repair.h"
#include "daemon/store/repair/startup_check.h"

/* ---- files ---- */

static uint8_t *load_file(const char *path, size_t *length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;
	uint8_t *data;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &info), 0);
	*length = (size_t)info.st_size;
	data = malloc(*length + 1);
	assert_non_null(data);
	assert_int_equal(read(fd, data, *length), *length);
	close(fd);
	return data;
}

static void save_file(const char *path, const void *data, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, length), length);
	close(fd);
}

static uint8_t *find_bytes(uint8_t *data, size_t length, const void *what, size_t size)
{
	return memmem(data, length, what, size);
}

/* Answers for some_key(1, 0 to count - 1) with winners 1000 + scale field, in a closed store. */
static struct place *place_with_answers(uint64_t count)
{
	struct place *place = place_new();
	struct store_batch *batch;
	struct ft_job job = {.job = 1, .problems = some_problem(1, 1)};
	uint32_t id;

	place_open(place);
	assert_int_equal(store_intern(place->store, STORE_KERNEL, "rmsnorm", &id, NULL), 0);
	for (uint64_t scale = 0; scale < count;) {
		batch = store_batch_new(place->store);
		for (int i = 0; i < 100 && scale < count; i++, scale++) {
			struct store_key key = some_key(1, scale);
			struct ft_problem problem = some_problem(1, scale);
			struct store_winner winner = some_winner((int64_t)(1000 + scale));

			assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
		}
		assert_false(place_commit(place, batch).failed);
	}
	batch = store_batch_new(place->store);
	job.job = store_next_job(place->store);
	strcpy(job.kernel, "rmsnorm");
	strcpy(job.device, "cpu:0");
	strcpy(job.state, "queued");
	assert_int_equal(store_batch_job(batch, &job), 0);
	assert_int_equal(store_batch_identity(batch, 2, 3), 0);
	assert_false(place_commit(place, batch).failed);
	place_close(place);
	return place;
}

/* How many of the answers are there; each that is must be right. */
static uint64_t count_answers(struct place *place, uint64_t count)
{
	uint64_t there = 0;

	for (uint64_t scale = 0; scale < count; scale++) {
		int64_t block = get_winner(place, 1, scale, 0);

		if (block == 0)
			continue;
		assert_int_equal(block, 1000 + scale);
		there++;
	}
	return there;
}

static void pretend_a_crash(struct place *place)
{
	char path[512];

	place_file(place, "open", path, sizeof(path));
	save_file(path, "signal 07\nunclean 0\n", 20);
}

/* ---- single values ---- */

static void a_flipped_byte_in_a_value_costs_that_record(void **state)
{
	struct place *place = place_with_answers(100);
	struct store_key key = some_key(1, 42);
	struct record_key at;
	struct store_facts facts;
	char path[512], report[512];
	size_t length;
	uint8_t *data, *found;
	uint64_t generation;

	(void)state;
	record_key_problem(&at, RECORD_ANSWER, &key);
	place_file(place, "data.mdb", path, sizeof(path));
	data = load_file(path, &length);
	/* The page may stand in the file in several versions, of which one counts: all are hit. */
	for (found = data;
	        (found = find_bytes(found, length - (size_t)(found - data), at.data, at.length)) != NULL;
	        found += at.length)
		found[at.length + 20] ^= 0x10;
	save_file(path, data, length);
	free(data);

	assert_int_equal(store_check(place->path, report, sizeof(report), &place->error), -1);
	assert_non_null(strstr(report, "1 damaged"));
	assert_non_null(strstr(report, "structure is sound"));

	place_open(place);
	generation = store_generation(place->store);
	assert_int_equal(get_winner(place, 1, 42, 0), 0);
	assert_int_equal(get_winner(place, 1, 42, 0), 0);
	assert_int_equal(get_winner(place, 1, 42, generation), -1);
	assert_string_equal(place->error.code, FT_E_GENERATION);
	assert_int_equal(count_answers(place, 100), 99);
	store_facts(place->store, &facts);
	assert_int_equal(facts.damaged, 1);
	/* One line, however often it is read. */
	char *line = strstr(place->log, "damaged record");
	assert_non_null(line);
	assert_null(strstr(line + 1, "damaged record"));
	/* A new winner heals it. */
	put_winner(place, 1, 42, 1042);
	assert_int_equal(count_answers(place, 100), 100);
	store_facts(place->store, &facts);
	assert_int_equal(facts.answers, 100);
	/* What stood there before is not known: it is said so, not guessed. */
	assert_int_equal(get_winner(place, 1, 42, generation), 0);
	place_close(place);
	assert_int_equal(store_check(place->path, report, sizeof(report), &place->error), 0);
	assert_int_equal(place_count(place, "data.mdb.damaged", NULL, 0), 0);
	place_free(place);
}

static void one_damaged_copy_of_the_stores_own_record_is_made_up_for(void **state)
{
	struct place *place = place_with_answers(10);
	char path[512];
	size_t length;
	uint8_t *data, *found;
	char uuid[FT_UUID_SIZE];

	(void)state;
	place_open(place);
	snprintf(uuid, sizeof(uuid), "%s", store_uuid(place->store));
	place_close(place);
	place_file(place, "data.mdb", path, sizeof(path));
	data = load_file(path, &length);
	for (found = data;
	        (found = find_bytes(found, length - (size_t)(found - data), "M\0\1\230\1\331$", 7)) != NULL;
	        found += 7)
		found[12] ^= 1;
	save_file(path, data, length);
	free(data);
	place_open(place);
	assert_string_equal(store_uuid(place->store), uuid);
	assert_int_equal(count_answers(place, 10), 10);
	place_close(place);
	place_free(place);
}

/* ---- files that are cut ---- */

static void a_cut_file_is_moved_aside_and_a_new_store_started(void **state)
{
	enum { COUNT = 2000 };
	static const long cut[] = {0, 100, 4096, 8192, 40960, -1}; /* -1: half of it */

	(void)state;
	for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
		struct place *place = place_with_answers(COUNT);
		char path[512], aside[256] = "";
		off_t size, left;
		uint64_t kept;

		place_file(place, "data.mdb", path, sizeof(path));
		size = file_size(path);
		left = cut[i] >= 0 ? cut[i] : size / 2;
		assert_int_equal(truncate(path, left), 0);
		place_open(place);
		kept = count_answers(place, COUNT);
		assert_non_null(strstr(place->log, "is damaged"));
		assert_non_null(strstr(place->log, "a new store was started with"));
		assert_int_equal(place_count(place, "data.mdb.damaged-", aside, sizeof(aside)), 1);
		place_file(place, aside, path, sizeof(path));
		assert_int_equal(file_size(path), left);
		if (left <= 8192)
			assert_int_equal(kept, 0);
		put_winner(place, 1, 1, 1001);
		assert_int_equal(get_winner(place, 1, 1, 0), 1001);
		place_close(place);
		/* The next start finds nothing to complain about. */
		place->log[0] = '\0';
		place_open(place);
		assert_string_equal(place->log, "");
		place_close(place);
		place_free(place);
	}
}

static void a_missing_data_file_is_damage_and_a_new_directory_is_not(void **state)
{
	struct place *place = place_with_answers(10);
	char path[512];

	(void)state;
	place_file(place, "data.mdb", path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	place_open(place);
	assert_non_null(strstr(place->log, "missing"));
	assert_int_equal(count_answers(place, 10), 0);
	place_close(place);
	place_free(place);

	place = place_new();
	place_file(place, "data.mdb", path, sizeof(path));
	save_file(path, "", 0);
	place_open(place);
	assert_string_equal(place->log, "");
	place_close(place);
	place_free(place);
}

/* As LMDB leaves it where a transaction gives back what it took: pages are counted and listed as free, and never written;
 * the writer makes the file longer after its commits, unless it is killed before. */
static void a_short_file_whose_pages_are_all_there_is_sound(void **state)
{
	struct place *place = place_with_answers(10);
	uint8_t value[100000] = {0};
	char name[] = "Xlong";
	MDB_val key = {5, name}, data = {sizeof(value), value};
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
	char path[512];
	off_t length;

	(void)state;
	place_file(place, "data.mdb", path, sizeof(path));
	length = file_size(path);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_mapsize(env, place->map_bytes), 0);
	assert_int_equal(mdb_env_open(env, place->path, 0, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(mdb_put(txn, dbi, &key, &data, 0), 0);
	assert_int_equal(mdb_del(txn, dbi, &key, NULL), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
	assert_true(file_size(path) < length + 100000);
	place_open(place);
	assert_string_equal(place->log, "");
	assert_int_equal(count_answers(place, 10), 10);
	assert_true(file_size(path) >= length + 100000);
	place_close(place);
	place_free(place);
}

/* The same without their being listed: then it is the header that is wrong. */
static void a_header_that_counts_pages_which_are_not_there_is_damage(void **state)
{
	static const uint64_t more[] = {1, 3, 1000, 100000, UINT64_C(1) << 40};

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		struct place *place = place_with_answers(10);
		char path[512];
		uint8_t *data;
		size_t length;

		place_file(place, "data.mdb", path, sizeof(path));
		data = load_file(path, &length);
		for (int meta = 0; meta < 2; meta++) {
			uint64_t last;

			memcpy(&last, data + (size_t)meta * 4096 + 16 + 120, sizeof(last));
			last += more[i];
			memcpy(data + (size_t)meta * 4096 + 16 + 120, &last, sizeof(last));
		}
		save_file(path, data, length);
		free(data);
		pretend_a_crash(place);
		place_open(place);
		assert_non_null(strstr(place->log, "is damaged"));
		assert_int_equal(count_answers(place, 10), 10);
		assert_true((size_t)file_size(path) <= 2 * length);
		place_close(place);
		place_free(place);
	}
}

/* ---- rescue ---- */

static void everything_but_the_damaged_page_is_rescued(void **state)
{
	enum { COUNT = 2000 };
	struct place *place = place_with_answers(COUNT);
	struct store_key key = some_key(1, 1000);
	struct record_key at;
	struct store_facts facts;
	char path[512], uuid[FT_UUID_SIZE];
	size_t length;
	uint8_t *data, *found;
	uint64_t generation, kept, next_job;
	uint32_t id;

	(void)state;
	place_open(place);
	snprintf(uuid, sizeof(uuid), "%s", store_uuid(place->store));
	generation = store_generation(place->store);
	next_job = store_next_job(place->store);
	place_close(place);
	record_key_problem(&at, RECORD_ANSWER, &key);
	place_file(place, "data.mdb", path, sizeof(path));
	data = load_file(path, &length);
	for (found = data;
	        (found = find_bytes(found, length - (size_t)(found - data), at.data, at.length)) != NULL;) {
		size_t page = (size_t)(found - data) / 4096 * 4096;

		memset(data + page, 0xff, 64);
		found = data + page + 4096;
	}
	save_file(path, data, length);
	free(data);
	pretend_a_crash(place);
	place_open(place);
	assert_non_null(strstr(place->log, "is damaged: page"));
	kept = count_answers(place, COUNT);
	assert_true(kept < COUNT);
	assert_true(kept > COUNT - 100);
	store_facts(place->store, &facts);
	assert_int_equal(facts.answers, kept);
	assert_int_equal(facts.damaged, 0);
	/* Another store, so that no token of the old one is honoured, but numbers go on. */
	assert_string_not_equal(store_uuid(place->store), uuid);
	assert_true(store_generation(place->store) > generation);
	assert_int_equal(store_history_floor(place->store), store_generation(place->store));
	assert_true(store_next_job(place->store) > next_job);
	assert_int_equal(store_intern(place->store, STORE_KERNEL, "rmsnorm", &id, NULL), 0);
	assert_int_equal(id, 1);
	assert_int_equal(store_device_identity(place->store, 2, 0), 3);
	place_close(place);
	place_free(place);
}

static void one_meta_page_is_enough_to_rescue_by(void **state)
{
	for (int which = 0; which < 2; which++) {
		struct place *place = place_with_answers(300);
		char path[512];
		int fd;

		place_file(place, "data.mdb", path, sizeof(path));
		fd = open(path, O_WRONLY | O_CLOEXEC);
		assert_int_equal(pwrite(fd, "rubbish rubbish rubbish", 23, which * 4096 + 4), 23);
		close(fd);
		place_open(place);
		assert_int_equal(count_answers(place, 300), 300);
		assert_non_null(strstr(place->log, "was mended"));
		place_close(place);
		place_free(place);
	}
	(void)state;
}

/* ---- single bits ---- */

enum { META_BYTES = 152, BIT_ANSWERS = 120 };

/* What a start made of a file in which one bit was changed. */
struct bits {
	unsigned tried, unseen, mended, rescued, refused;
};

static void remove_asides(struct place *place)
{
	char aside[256];

	while (place_count(place, "data.mdb.damaged-", aside, sizeof(aside)) > 0) {
		char file[768];

		snprintf(file, sizeof(file), "%s/%s", place->path, aside);
		assert_int_equal(unlink(file), 0);
	}
}

/* Every answer that is there is right, what was before is answered as it was or refused, and the file is as large as it
 * was. Gives how many there are. */
static uint64_t look_at_all(struct place *place, const char *path, size_t length, uint64_t early)
{
	uint64_t there = count_answers(place, BIT_ANSWERS);
	int64_t then = get_winner(place, 1, 1, early);

	assert_true(then == 1001 || (then == -1 && strcmp(place->error.code, FT_E_GENERATION) == 0));
	assert_true((size_t)file_size(path) <= 2 * length + (64 << 10));
	put_winner(place, 1, 7, 1007);
	put_winner(place, 9, 7, 7);
	assert_int_equal(get_winner(place, 9, 7, 0), 7);
	return there;
}

static struct bits flip_bits(bool clean, size_t from, size_t to, size_t step, uint64_t at_least)
{
	struct place *place = place_with_answers(BIT_ANSWERS);
	char path[512], seal[512], uuid[FT_UUID_SIZE];
	size_t length, seal_length;
	struct bits bits = {0};
	uint64_t early;

	place_open(place);
	early = store_generation(place->store);
	snprintf(uuid, sizeof(uuid), "%s", store_uuid(place->store));
	place_close(place);
	place_file(place, "data.mdb", path, sizeof(path));
	place_file(place, "sealed", seal, sizeof(seal));
	uint8_t *whole = load_file(path, &length);
	uint8_t *sealed = load_file(seal, &seal_length);
	if (to == 0)
		to = 8 * length;
	for (size_t bit = from; bit < to; bit += step) {
		/* Bits of the header come first: of one meta page, then of the other. */
		size_t at = bit / 8 < META_BYTES                     ? bit / 8
		        : from == 0 && bit < (size_t)16 * META_BYTES ? 4096 + bit / 8 - META_BYTES
		                                                     : bit / 8;

		whole[at] ^= (uint8_t)(1 << bit % 8);
		save_file(path, whole, length);
		whole[at] ^= (uint8_t)(1 << bit % 8);
		save_file(seal, sealed, seal_length);
		if (!clean)
			pretend_a_crash(place);
		place->log[0] = '\0';
		bits.tried++;
		if (place_try_open(place) != 0) {
			bits.refused++;
			assert_non_null(strstr(place->error.message, place->path));
			continue;
		}
		bits.mended += strstr(place->log, "was mended") != NULL;
		bits.rescued += strstr(place->log, "is damaged") != NULL;
		bits.unseen += place->log[0] == '\0';
		/* It is the store that it was, or says that it is another. */
		if (strstr(place->log, "is damaged") == NULL)
			assert_string_equal(store_uuid(place->store), uuid);
		uint64_t there = look_at_all(place, path, length, early);
		if (there < at_least)
			fail_msg("bit %zu: %" PRIu64 " answers; %s", bit, there, place->log);
		place_close(place);
		remove_asides(place);
	}
	print_message("%u bits changed %s: %u unseen, %u mended, %u rescued, %u refused\n", bits.tried,
	        clean ? "at rest" : "after a crash", bits.unseen, bits.mended, bits.rescued, bits.refused);
	free(whole);
	free(sealed);
	place_free(place);
	return bits;
}

static size_t one_in(size_t few)
{
	return getenv("FLYTUNE_LONG") != NULL ? 1 : few;
}

static void every_bit_of_the_header_is_mended_after_a_clean_end(void **state)
{
	struct bits bits = flip_bits(true, 0, (size_t)2 * 8 * META_BYTES, one_in(31), BIT_ANSWERS);

	(void)state;
	assert_int_equal(bits.mended, bits.tried);
}

/* Nothing is told apart from a commit then; but no answer is wrong, and at most the last commit's are gone. */
static void every_bit_of_the_header_is_survived_after_a_crash(void **state)
{
	struct bits bits = flip_bits(false, 0, (size_t)2 * 8 * META_BYTES, one_in(31), BIT_ANSWERS - 20);

	(void)state;
	assert_int_equal(bits.refused, 0);
	assert_true(bits.unseen > 0);
}

static void a_bit_anywhere_costs_no_more_than_its_page(void **state)
{
	struct bits bits = flip_bits(
	        true, (size_t)8 * 8192, 0, getenv("FLYTUNE_LONG") != NULL ? 97 : 7919, BIT_ANSWERS / 4);

	(void)state;
	assert_int_equal(bits.refused, 0);
	assert_true(bits.rescued > 0);
}

static void random_damage_after_a_crash_never_kills_and_never_lies(void **state)
{
	enum { COUNT = 600, ROUNDS = 150 };
	struct place *place = place_with_answers(COUNT);
	char path[512], aside[256];
	size_t length;
	uint8_t *whole, *data;
	int moved = 0;

	(void)state;
	place_file(place, "data.mdb", path, sizeof(path));
	whole = load_file(path, &length);
	data = malloc(length);
	assert_non_null(data);
	srand(5);
	for (int round = 0; round < ROUNDS; round++) {
		memcpy(data, whole, length);
		for (int i = 0; i < 8; i++) {
			size_t page = (size_t)rand() % (length / 4096);
			size_t at = page * 4096 + (size_t)rand() % (i % 2 == 0 ? 64 : 4096);

			data[at] = (uint8_t)rand();
		}
		save_file(path, data, length);
		pretend_a_crash(place);
		place->log[0] = '\0';
		/* A damaged version number looks like another LMDB's: refused, and left alone. */
		if (place_try_open(place) != 0) {
			assert_non_null(strstr(place->error.message, "another LMDB"));
			continue;
		}
		count_answers(place, COUNT);
		put_winner(place, 1, 7, 1007);
		assert_int_equal(get_winner(place, 1, 7, 0), 1007);
		place_close(place);
		moved += place_count(place, "data.mdb.damaged-", aside, sizeof(aside));
		while (place_count(place, "data.mdb.damaged-", aside, sizeof(aside)) > 0) {
			char file[768];

			snprintf(file, sizeof(file), "%s/%s", place->path, aside);
			unlink(file);
		}
	}
	assert_true(moved > ROUNDS / 4);
	free(data);
	free(whole);
	place_free(place);
}

static void the_check_reads_the_list_of_free_pages_too(void **state)
{
	struct place *place = place_with_answers(500);
	struct repair_check check;
	struct pages pages;
	enum pages_state page_state;
	char path[512];
	uint8_t *data;
	size_t length;
	int fd;

	(void)state;
	place_file(place, "data.mdb", path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(repair_check(fd, NULL, &check, NULL), 0);
	assert_true(check.sound);
	assert_int_equal(check.damaged, 0);
	assert_int_equal(check.kind[0], 500);
	assert_int_equal(pages_open(&pages, fd, &page_state, NULL), 0);
	assert_int_equal(page_state, PAGES_OPEN);
	assert_true(pages.freed.root != UINT64_MAX);
	/* The first free page of the first record becomes the root of the answers. */
	data = load_file(path, &length);
	uint8_t *leaf = data + pages.freed.root * 4096;
	assert_int_equal(leaf[10], 2);
	uint16_t node;
	memcpy(&node, leaf + 16, 2);
	memcpy(leaf + node + 8 + 8 + 8, &pages.main.root, 8);
	save_file(path, data, length);
	free(data);
	assert_int_equal(repair_check_in_child(fd, NULL, &(struct repair_waits){0}, &check, NULL), 0);
	assert_false(check.sound);
	assert_non_null(strstr(check.reason, "both free and in use"));
	close(fd);
	place_free(place);
}

static void a_crash_by_a_signal_is_remembered(void **state)
{
	struct place *place = place_with_answers(1);
	char path[512];
	uint8_t *data;
	size_t length;

	(void)state;
	place_open(place);
	store_mark_signal(place->store, SIGBUS);
	place_file(place, "open", path, sizeof(path));
	data = load_file(path, &length);
	data[length] = '\0';
	assert_string_equal((char *)data, "signal 07\nunclean 0\n");
	free(data);
	place_close(place);
	assert_int_equal(access(path, F_OK), -1);
	place_free(place);
}

/* ---- what is refused, and left as it was ---- */

struct image {
	uint8_t *data;
	size_t length;
};

static struct image take_image(const struct place *place, const char *name)
{
	struct image image;
	char path[512];

	place_file(place, name, path, sizeof(path));
	image.data = load_file(path, &image.length);
	return image;
}

static void check_image(const struct place *place, const char *name, struct image *before)
{
	struct image now = take_image(place, name);

	assert_int_equal(now.length, before->length);
	assert_memory_equal(now.data, before->data, now.length);
	free(now.data);
	free(before->data);
}

static void refuse_untouched(struct place *place, const char *word)
{
	static const char *const name[] = {"data.mdb", "lock.mdb", "initialised"};
	struct image image[3];
	int files = place_count(place, "", NULL, 0);

	for (int i = 0; i < 3; i++)
		image[i] = take_image(place, name[i]);
	assert_int_equal(place_try_open(place), -1);
	assert_non_null(strstr(place->error.message, word));
	assert_string_equal(place->error.code, FT_E_STORE);
	for (int i = 0; i < 3; i++)
		check_image(place, name[i], &image[i]);
	assert_int_equal(place_count(place, "", NULL, 0), files);
}

static void a_newer_store_is_refused_and_left_byte_for_byte(void **state)
{
	struct place *place = place_with_answers(10);
	char path[512], report[256];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	(void)state;
	place_file(place, "initialised", path, sizeof(path));
	save_file(path, "flytune store, format 3\n", 24);
	refuse_untouched(place, "newer flytune");
	assert_int_equal(store_check(place->path, report, sizeof(report), &place->error), -1);
	assert_non_null(strstr(place->error.message, "newer flytune"));
	save_file(path, "flytune store, format 2\n", 24);

	/* The same said by the store itself. */
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, place->path, 0, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	for (unsigned copy = 0; copy < 2; copy++) {
		struct record_key key;
		struct ft_writer value;

		record_key_meta(&key, copy);
		ft_writer_init_growing(&value, 4096);
		record_start(&value);
		ft_write_array(&value, 2);
		ft_write_uint(&value, RECORD_FORMAT + 1);
		ft_write_text(&value, "unheard of");
		record_seal(&value, key.data, key.length);
		MDB_val at = {key.length, key.data}, data = {value.length, value.data};
		assert_int_equal(mdb_put(txn, dbi, &at, &data, 0), 0);
		ft_writer_free(&value);
	}
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
	refuse_untouched(place, "newer flytune");
	place_free(place);
}

static void a_file_of_another_lmdb_is_refused_and_left_byte_for_byte(void **state)
{
	struct place *place = place_with_answers(10);
	char path[512];
	int fd;
	uint32_t version = 2;

	(void)state;
	place_file(place, "data.mdb", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, &version, 4, 20), 4);
	assert_int_equal(pwrite(fd, &version, 4, 4096 + 20), 4);
	close(fd);
	refuse_untouched(place, "another LMDB");
	place_free(place);
}

static void a_second_opener_is_refused_with_the_holders_number(void **state)
{
	struct place *place = place_with_answers(1);
	struct store_options options = {.directory = place->path};
	struct store *second;
	char report[256], number[32], path[512];

	(void)state;
	place_open(place);
	assert_int_equal(store_open(&second, &place->loop, &options, &place->error), -1);
	snprintf(number, sizeof(number), "process %ld", (long)getpid());
	assert_non_null(strstr(place->error.message, number));
	assert_int_equal(store_check(place->path, report, sizeof(report), &place->error), -1);
	assert_non_null(strstr(place->error.message, number));
	/* Nor does it help to take the file with the number away. */
	place_file(place, "lock", path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(store_open(&second, &place->loop, &options, &place->error), -1);
	assert_non_null(strstr(place->error.message, "in use by another process"));
	/* And the first one is none the worse for it. */
	put_winner(place, 1, 5, 6);
	assert_int_equal(get_winner(place, 1, 5, 0), 6);
	place_close(place);
	place_free(place);
}

/* ---- file systems ---- */

static unsigned long pretended; /* 0: what it is */

/* The name that fstatfs has where file offsets are 64 bits wide. */
int __real_fstatfs64(int fd, struct statfs *info);
int __wrap_fstatfs64(int fd, struct statfs *info);
int __wrap_fstatfs64(int fd, struct statfs *info)
{
	int rc = __real_fstatfs64(fd, info);

	if (pretended != 0)
		info->f_type = (long)pretended;
	return rc;
}

static void a_network_file_system_is_refused(void **state)
{
	static const unsigned long magic[] = {0x6969, 0xFF534D42, 0x01021997, 0x65735546};
	struct place *place = place_new();

	(void)state;
	for (size_t i = 0; i < sizeof(magic) / sizeof(magic[0]); i++) {
		pretended = magic[i];
		assert_int_equal(place_try_open(place), -1);
		assert_non_null(strstr(place->error.message, "local file system"));
		assert_int_equal(place_count(place, "data.mdb", NULL, 0), 0);
	}
	pretended = 0x794c7630;
	place_open(place);
	assert_non_null(strstr(place->log, "overlay"));
	pretended = 0;
	place_close(place);
	place_free(place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_flipped_byte_in_a_value_costs_that_record),
	        cmocka_unit_test(one_damaged_copy_of_the_stores_own_record_is_made_up_for),
	        cmocka_unit_test(a_cut_file_is_moved_aside_and_a_new_store_started),
	        cmocka_unit_test(a_missing_data_file_is_damage_and_a_new_directory_is_not),
	        cmocka_unit_test(a_short_file_whose_pages_are_all_there_is_sound),
	        cmocka_unit_test(a_header_that_counts_pages_which_are_not_there_is_damage),
	        cmocka_unit_test(everything_but_the_damaged_page_is_rescued),
	        cmocka_unit_test(one_meta_page_is_enough_to_rescue_by),
	        cmocka_unit_test(every_bit_of_the_header_is_mended_after_a_clean_end),
	        cmocka_unit_test(every_bit_of_the_header_is_survived_after_a_crash),
	        cmocka_unit_test(a_bit_anywhere_costs_no_more_than_its_page),
	        cmocka_unit_test(random_damage_after_a_crash_never_kills_and_never_lies),
	        cmocka_unit_test(the_check_reads_the_list_of_free_pages_too),
	        cmocka_unit_test(a_crash_by_a_signal_is_remembered),
	        cmocka_unit_test(a_newer_store_is_refused_and_left_byte_for_byte),
	        cmocka_unit_test(a_file_of_another_lmdb_is_refused_and_left_byte_for_byte),
	        cmocka_unit_test(a_second_opener_is_refused_with_the_holders_number),
	        cmocka_unit_test(a_network_file_system_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
