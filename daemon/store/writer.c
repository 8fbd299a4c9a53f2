/* The writer thread: takes all batches that wait, puts them into one transaction, commits, reports.
 *
 * A transaction begins and ends in one function, and the thread is never cancelled: LMDB's write lock belongs
 * to its thread, and one that ends holding it takes the process down with it. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/host/stack.h"
#include "daemon/store/internal.h"
#include "proto/clock.h"

enum { GROUP_OPS = 4096, REOPEN_FIRST_MS = 100, REOPEN_LAST_MS = 10000 };

/* ---- one transaction ---- */

static int put_names(struct change *change)
{
	int rc = 0;

	for (struct store_name_record *name = change->store->unwritten; name != NULL && rc == 0;
	        name = name->next) {
		MDB_val at = store_value(name->key.data, name->key.length);
		MDB_val value = store_value(name->value, name->length);

		rc = mdb_put(change->txn, change->store->dbi, &at, &value, 0);
	}
	return rc;
}

/* Makes the file as long as its header says, see pages_short. Growing it touches nothing that is there. */
static void extend_file(struct store *store)
{
	mdb_filehandle_t fd;
	MDB_envinfo info;
	MDB_stat stat;
	struct stat file;
	uint64_t needed;

	if (mdb_env_info(store->env, &info) != 0 || mdb_env_stat(store->env, &stat) != 0 ||
	        mdb_env_get_fd(store->env, &fd) != 0 || fstat(fd, &file) != 0)
		return;
	needed = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
	/* Failing costs a check at the next start, no more. */
	if ((uint64_t)file.st_size < needed && ftruncate(fd, (off_t)needed) != 0)
		return;
}

/* ---- publishing ---- */

void store_publish(struct store *store)
{
	struct publication *publication = &store->publication;
	const struct store_batch *batch = publication->first;

	if (publication->done)
		return;
	publication->done = true;
	/* Before all else: whoever sees any of it sees this. */
	atomic_fetch_add_explicit(&store->publications, 1, memory_order_release);
	for (; batch != publication->end; batch = batch->next)
		store_each_change(store, batch, store->publish);
	if (store->published != NULL)
		store->published(store->changed_data, publication->generation);
}

static int commit(struct change *change, const struct store_batch *first, const struct store_batch *end)
{
	struct store *store = change->store;
	int rc;

	pthread_mutex_lock(&store->lock);
	store->publication = (struct publication){
	        .txn = mdb_txn_id(change->txn),
	        .first = first,
	        .end = end,
	        .generation = change->meta.generation,
	};
	pthread_mutex_unlock(&store->lock);
	rc = mdb_txn_commit(change->txn);
	pthread_mutex_lock(&store->lock);
	if (rc == 0)
		store_publish(store);
	store->publication.txn = 0;
	store->commits += rc == 0;
	pthread_mutex_unlock(&store->lock);
	return rc;
}

/* LMDB takes nothing more where a commit failed in its last step, whatever the reason was: it says so only when asked anew. */
static bool has_panicked(const struct store *store)
{
	MDB_txn *txn = NULL;
	int rc = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &txn);

	if (rc == 0)
		mdb_txn_abort(txn);
	return rc == MDB_PANIC;
}

static enum fault fault_of(struct store *store, int rc, struct ft_error *error)
{
	enum fault fault = store_fault(&store->directory, rc, error);

	return fault != FAULT_NONE && fault != FAULT_GONE && has_panicked(store) ? FAULT_ENVIRONMENT : fault;
}

/* Tries to commit the list of batches up to `end`, all or nothing. */
static enum fault attempt(
        struct store *store, struct store_batch *first, const struct store_batch *end, struct ft_error *error)
{
	struct change change = {.store = store};
	struct record_meta before;
	enum fault fault;
	int rc;

	fault = store_stands(store, error);
	if (fault != FAULT_NONE)
		return fault;
	rc = mdb_txn_begin(store->env, NULL, 0, &change.txn);
	if (rc != 0)
		return store_fault(&store->directory, rc, error);
	rc = put_names(&change);
	if (rc == 0)
		rc = store_read_meta(change.txn, store->dbi, &change.meta);
	before = change.meta;
	for (struct store_batch *batch = first; batch != end && rc == 0; batch = batch->next)
		rc = store_apply_batch(&change, batch);
	if (rc == 0 && !record_same_meta(&before, &change.meta))
		rc = store_put_meta(change.txn, store->dbi, &change.meta);
	if (rc == 0 && before.generation != change.meta.generation)
		rc = store_put_clock(change.txn, store);
	if (rc != 0)
		mdb_txn_abort(change.txn);
	else
		rc = commit(&change, first, end);
	if (rc != 0)
		return fault_of(store, rc, error);

	extend_file(store);
	fault = store_stands(store, error);
	if (fault != FAULT_NONE)
		return fault;
	while (store->unwritten != NULL) {
		struct store_name_record *next = store->unwritten->next;

		free(store->unwritten);
		store->unwritten = next;
	}
	return FAULT_NONE;
}

/* ---- reports ---- */

static void report(struct store *store, struct store_batch *first)
{
	if (first == NULL)
		return;
	pthread_mutex_lock(&store->lock);
	*store->finished_end = first;
	while (first->next != NULL)
		first = first->next;
	store->finished_end = &first->next;
	pthread_mutex_unlock(&store->lock);
	uv_async_send(&store->async);
}

static void fail_from(struct store_batch *batch, const struct ft_error *error)
{
	for (; batch != NULL; batch = batch->next) {
		batch->failed = true;
		batch->error = *error;
	}
}

/* What a store that stays unwritable, or becomes so again and again, has to say: once, then at growing intervals, and once
 * when it is over. */
static bool may_say(struct trouble *trouble)
{
	enum { FIRST_S = 60, LAST_S = 3600 };
	uint64_t now = ft_monotonic_ns();

	if (trouble->ended_ns != 0 && now - trouble->ended_ns > trouble->pause_s * UINT64_C(1000000000))
		*trouble = (struct trouble){0};
	if (now < trouble->next_ns)
		return false;
	trouble->pause_s = trouble->pause_s == 0 ? FIRST_S : trouble->pause_s * 2;
	if (trouble->pause_s > LAST_S)
		trouble->pause_s = LAST_S;
	trouble->next_ns = now + trouble->pause_s * UINT64_C(1000000000);
	return true;
}

static void set_degraded(struct store *store, const char *why)
{
	struct trouble *trouble = &store->trouble;
	bool turned;

	pthread_mutex_lock(&store->lock);
	turned = (store->degraded[0] == '\0') != (why[0] == '\0');
	snprintf(store->degraded, sizeof(store->degraded), "%s", why);
	pthread_mutex_unlock(&store->lock);
	if (turned)
		uv_async_send(&store->async); /* whoever waits for the end of it is notified, logged or not */
	if (why[0] != '\0' && may_say(trouble)) {
		trouble->told = true;
		store_log_later(store, 3, "the store cannot be written: %s", why);
	} else if (why[0] == '\0' && trouble->told) {
		trouble->told = trouble->told_opened = false;
		store_log_later(store, 6, "the store can be written again");
	}
	trouble->ended_ns = why[0] != '\0' ? 0
	        : trouble->ended_ns != 0   ? trouble->ended_ns
	                                   : ft_monotonic_ns();
}

/* Small writes fit where a large one does not. So it is no end of the trouble when one of them goes through, or the
 * state would change to and fro for as long as the large one is tried. */
static void note_outcome(struct store *store, enum fault fault, uint64_t bytes, const struct ft_error *error)
{
	uint32_t pause = store->probe_pause_ms;
	char why[FT_REASON_SIZE];

	if (fault == FAULT_BATCH || (fault == FAULT_NONE && bytes < store->unfit))
		return;
	if (fault == FAULT_NONE) {
		store->unfit = 0;
		store->probe_pause_ms = 0;
		set_degraded(store, "");
		return;
	}
	if (fault == FAULT_ROOM && bytes > store->unfit)
		store->unfit = bytes;
	pause = pause == 0 ? store->limits.probe_ms : pause * 2;
	store->probe_pause_ms = pause < store->limits.probe_most_ms ? pause : store->limits.probe_most_ms;
	store->next_probe_ns = ft_monotonic_ns() + store->probe_pause_ms * UINT64_C(1000000);
	store->free_then = store_free_bytes(&store->directory);
	if (fault == FAULT_ROOM && store->unfit > 0)
		snprintf(why, sizeof(why), "%.180s; %" PRIu64 " bytes could not be written", error->message,
		        store->unfit);
	else
		snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, error->message);
	set_degraded(store, why);
}

/* ---- opening anew ---- */

static struct timespec after_ms(uint32_t milliseconds)
{
	struct timespec when;

	clock_gettime(CLOCK_MONOTONIC, &when);
	when.tv_sec += milliseconds / 1000;
	when.tv_nsec += (long)(milliseconds % 1000) * 1000000;
	if (when.tv_nsec >= 1000000000) {
		when.tv_nsec -= 1000000000;
		when.tv_sec++;
	}
	return when;
}

/* Waits until the loop thread has let go of the environment. */
static void park_reader(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	store->park = true;
	uv_async_send(&store->async);
	while (!atomic_load_explicit(&store->parked, memory_order_acquire))
		pthread_cond_wait(&store->wake, &store->lock);
	store->park = false;
	pthread_mutex_unlock(&store->lock);
}

static struct store_batch *take_all(struct store *store)
{
	struct store_batch *first = store->waiting;

	store->waiting = NULL;
	store->waiting_end = &store->waiting;
	return first;
}

/* A commit that failed may be found in the file all the same: whether it reached the disk is not known. */
static void publish_unknown(struct store *store)
{
	struct record_meta meta;
	MDB_txn *txn = NULL;
	bool known = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &txn) == 0 &&
	        store_read_meta(txn, store->dbi, &meta) == 0;

	if (txn != NULL)
		mdb_txn_abort(txn);
	pthread_mutex_lock(&store->lock);
	atomic_fetch_add_explicit(&store->publications, 1, memory_order_release);
	if (store->publish != NULL)
		store->publish(store->changed_data, NULL);
	if (store->published != NULL && known)
		store->published(store->changed_data, meta.generation);
	store->reopened = true;
	pthread_mutex_unlock(&store->lock);
}

/* After an error that says nothing about when it may end, or when the file has another name now. Lookups fail until it is
 * over, too: LMDB refuses reads after some of these errors, and the file may not be opened twice. Usually that takes
 * milliseconds. `found`, if not NULL, takes the directory's place. Those whose batches `failed` are notified once it is open,
 * so that what they ask next meets a store; or at once where that takes longer. False if the store is to be closed meanwhile. */
static bool open_anew(
        struct store *store, struct directory *found, const struct ft_error *why, struct store_batch *failed)
{
	uint32_t pause = REOPEN_FIRST_MS;
	struct ft_error error;
	MDB_env *env = NULL;
	MDB_dbi dbi;
	bool cleared;

	park_reader(store);
	mdb_env_close(store->env);
	store->env = NULL;
	if (found != NULL)
		directory_adopt(&store->directory, found);
	while (store_environment_open(&env, &dbi, &store->directory, store->directory.path, store->map_bytes,
	               &cleared, &error) != 0) {
		struct timespec until = after_ms(pause);
		struct store_batch *refused;
		bool stop;

		report(store, failed);
		failed = NULL;
		set_degraded(store, error.message);
		uv_async_send(&store->async); /* what it says may be damage */
		pthread_mutex_lock(&store->lock);
		while (!store->stop && pthread_cond_timedwait(&store->wake, &store->lock, &until) == 0)
			continue;
		refused = take_all(store);
		/* It waits for a disk, and would after a restart as well. */
		store->busy_since_ns = ft_monotonic_ns();
		stop = store->stop;
		pthread_mutex_unlock(&store->lock);
		fail_from(refused, why);
		report(store, refused);
		if (stop)
			return false;
		pause = pause * 2 < REOPEN_LAST_MS ? pause * 2 : REOPEN_LAST_MS;
	}
	store->env = env;
	store_know_file(store);
	publish_unknown(store);
	atomic_store_explicit(&store->parked, false, memory_order_release);
	if (store->trouble.told && !store->trouble.told_opened)
		store_log_later(store, 4, "the store was closed and opened again");
	store->trouble.told_opened = true;
	report(store, failed);
	uv_async_send(&store->async); /* any answer may have changed */
	return true;
}

/* At growing intervals where it fails, however many ask: each try may copy all. */
static bool put_back(struct store *store, bool last, struct ft_error *error)
{
	struct directory found;
	const struct ft_error why = *error;
	uint32_t pause = store->put_back_pause_ms;
	bool moved;

	if (!last && ft_monotonic_ns() < store->next_put_back_ns) {
		*error = store->put_back_failed;
		return false;
	}
	if (store_put_back(store, &found, &moved, error)) {
		store->put_back_pause_ms = 0;
		store->next_put_back_ns = 0;
		return open_anew(store, moved ? &found : NULL, &why, NULL);
	}
	pause = pause == 0 ? store->limits.probe_ms : pause * 2;
	store->put_back_pause_ms = pause < store->limits.probe_most_ms ? pause : store->limits.probe_most_ms;
	store->next_put_back_ns = ft_monotonic_ns() + store->put_back_pause_ms * UINT64_C(1000000);
	store->put_back_failed = *error;
	return false;
}

/* ---- groups ---- */

/* One of a group is at fault, or only some fit: each is tried by itself. */
static enum fault commit_singly(struct store *store, struct store_batch *first, struct ft_error *error)
{
	enum fault fault = FAULT_NONE;

	for (struct store_batch *batch = first; batch != NULL; batch = batch->next) {
		fault = attempt(store, batch, batch->next, error);
		if (fault == FAULT_ENVIRONMENT || fault == FAULT_GONE) {
			fail_from(batch, error);
			return fault; /* noted by the caller */
		}
		note_outcome(store, fault, store_bytes_of(batch, batch->next), error);
		if (fault != FAULT_NONE) {
			batch->failed = true;
			batch->error = *error;
		}
	}
	return fault;
}

static void commit_group(struct store *store, struct store_batch *first)
{
	struct ft_error error;
	enum fault fault;

	if (store->env == NULL) {
		ft_fail(&error, FT_E_STORE, "the store is being closed after an error");
		fail_from(first, &error);
		report(store, first);
		return;
	}
	fault = attempt(store, first, NULL, &error);
	if (fault == FAULT_GONE && put_back(store, false, &error))
		fault = attempt(store, first, NULL, &error);
	if ((fault == FAULT_BATCH || fault == FAULT_ROOM) && first->next != NULL) {
		fault = commit_singly(store, first, &error);
		if (fault == FAULT_ENVIRONMENT || fault == FAULT_GONE)
			note_outcome(store, fault, 0, &error);
	} else {
		note_outcome(store, fault, store_bytes_of(first, NULL), &error);
		if (fault != FAULT_NONE)
			fail_from(first, &error);
	}
	if (fault == FAULT_ENVIRONMENT) {
		(void)open_anew(store, NULL, &error, first);
		return;
	}
	report(store, first);
	if (fault == FAULT_NONE &&
	        ++store->since_collection >= (store->filling ? 1 : store->limits.collect_commits)) {
		store->since_collection = 0;
		store_collect(store);
	}
}

/* ---- probes ---- */

/* Writes something that changes nothing, to learn whether writing works again: as much as failed. It is taken away
 * again at once, and leaves its pages to what could not be written. */
static void try_writing(struct store *store)
{
	enum { ROOM_MADE = 64 * 1024 };
	uint64_t bytes = store->unfit;
	struct ft_error error;
	enum fault fault;
	int rc;

	/* Attempts come at growing intervals, unless someone has visibly made room. */
	if (ft_monotonic_ns() < store->next_probe_ns &&
	        store_free_bytes(&store->directory) < store->free_then + ROOM_MADE)
		return;
	rc = store_rehearse(store, bytes);
	fault = fault_of(store, rc, &error);
	note_outcome(store, fault, bytes, &error);
	if (fault == FAULT_ENVIRONMENT)
		(void)open_anew(store, NULL, &error, NULL);
}

/* Whether all is as it should be: because somebody asks, or because it was not; for the last time, at the end. */
static void probe(struct store *store, bool last)
{
	struct ft_error error;
	enum fault fault;
	bool degraded;

	if (store->env == NULL)
		return;
	fault = store_stands(store, &error);
	if (fault == FAULT_GONE && (last || ft_monotonic_ns() >= store->next_put_back_ns))
		note_outcome(store, put_back(store, last, &error) ? FAULT_NONE : FAULT_GONE, 0, &error);
	if (fault != FAULT_NONE)
		return;
	/* Without them the next start takes a crash for a clean end. Failing leaves it at that. */
	if (!directory_marked(&store->directory))
		(void)directory_renew(&store->directory, &store->directory, RECORD_FORMAT, &error);
	pthread_mutex_lock(&store->lock);
	degraded = store->degraded[0] != '\0';
	pthread_mutex_unlock(&store->lock);
	if (degraded)
		try_writing(store);
}

/* ---- the thread ---- */

enum work { WORK_GROUP, WORK_PROBE, WORK_LOOK, WORK_STOP };

static enum work wait_for_work(struct store *store, struct store_batch **group)
{
	enum work work = WORK_GROUP;
	struct timespec until = after_ms(store->limits.probe_ms);
	struct store_name_record **end = &store->unwritten;
	struct store_batch **cut;
	size_t ops = 0;

	pthread_mutex_lock(&store->lock);
	store->busy_since_ns = 0;
	while (store->waiting == NULL && !store->stop && work == WORK_GROUP) {
		if (store->look) {
			work = WORK_LOOK;
			break;
		}
		/* While all is well there is nothing to wake up for. */
		if (store->degraded[0] == '\0')
			pthread_cond_wait(&store->wake, &store->lock);
		else if (pthread_cond_timedwait(&store->wake, &store->lock, &until) == ETIMEDOUT)
			work = WORK_PROBE;
	}
	if (store->waiting == NULL && store->stop)
		work = WORK_STOP;
	while (*end != NULL)
		end = &(*end)->next;
	*end = store->new_names;
	store->new_names = NULL;
	store->new_names_end = &store->new_names;

	*group = store->waiting;
	for (cut = &store->waiting; *cut != NULL && (ops == 0 || ops + (*cut)->count <= GROUP_OPS);
	        cut = &(*cut)->next)
		ops += (*cut)->count > 0 ? (*cut)->count : 1;
	if (*group != NULL) {
		struct store_batch *rest = *cut;

		*cut = NULL;
		store->waiting = rest;
		if (rest == NULL)
			store->waiting_end = &store->waiting;
		work = WORK_GROUP;
	}
	if (work == WORK_LOOK)
		store->look = false;
	store->busy_since_ns = ft_monotonic_ns(); /* at the end, too: there may be much to put back */
	pthread_mutex_unlock(&store->lock);
	return work;
}

/* Says exactly which job ids were given out, so that the next run's go on without a gap. */
static void return_ids(struct store *store)
{
	struct record_meta meta;
	uint64_t next_job;
	MDB_txn *txn;

	pthread_mutex_lock(&store->lock);
	next_job = store->final_job;
	pthread_mutex_unlock(&store->lock);
	if (store->env == NULL || mdb_txn_begin(store->env, NULL, 0, &txn) != 0)
		return;
	if (store_read_meta(txn, store->dbi, &meta) == 0 && meta.next_job != next_job) {
		meta.next_job = next_job;
		if (store_put_meta(txn, store->dbi, &meta) == 0 && store_put_clock(txn, store) == 0) {
			mdb_txn_commit(txn);
			return;
		}
	}
	mdb_txn_abort(txn);
}

/* Nobody waits for a commit as shortly as for an answer: that there is one to make is no reason to interrupt whoever runs,
 * be it the loop or a client. */
static void take_turns_last(void)
{
	struct sched_param none = {.sched_priority = 0};

	(void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

static void *run_writer(void *data)
{
	struct store *store = data;
	struct store_batch *group;
	enum work work;

	take_turns_last();
	(void)store_clear_rehearsal(store); /* a fault is left for the first commit to meet */
	while ((work = wait_for_work(store, &group)) != WORK_STOP) {
		if (work == WORK_GROUP)
			commit_group(store, group);
		else
			probe(store, false);
	}
	probe(store, true);
	return_ids(store);
	for (;;) {
		/* What was submitted while the ids were given back still belongs to this run. */
		pthread_mutex_lock(&store->lock);
		store->stopped = store->waiting == NULL;
		store->sound = store->env != NULL && !has_panicked(store);
		if (store->stopped)
			uv_async_send(&store->async);
		bool ends = store->stopped;
		pthread_mutex_unlock(&store->lock);
		if (ends)
			return NULL;
		wait_for_work(store, &group);
		commit_group(store, group);
	}
}

int store_start_writer(struct store *store, struct ft_error *error)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int rc = pthread_attr_init(&attributes);

	if (rc != 0)
		return ft_fail_errno(error, rc, "the store's writer thread cannot be started");
	(void)pthread_attr_setstacksize(&attributes, stack_bytes);
	/* The thread inherits a mask that leaves every signal to the loop thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&store->thread, &attributes, run_writer, store);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	if (rc != 0)
		return ft_fail_errno(error, rc, "the store's writer thread cannot be started");
	pthread_setname_np(store->thread, "store-writer");
	return 0;
}
