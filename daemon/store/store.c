/* Opening and closing, facts, and what the loop thread does when the writer reports. */
#include "daemon/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/store/internal.h"
#include "daemon/store/repair/startup_check.h"
#include "proto/clock.h"

const struct store_limits store_limits_usual = {
        .history_ns = UINT64_C(90) * 24 * 3600 * 1000000000,
        .history_rows = 64,
        .collect_commits = 16,
        .collect_rows = 256,
        .stale_percent = 80,
        .refuse_percent = 95,
        .probe_ms = 2000,
        .probe_most_ms = 60000,
        .always_bytes = UINT64_C(8) << 20,
        .check_bytes = UINT64_C(64) << 20,
};

enum { REPORT_NS = 100000 /* of handing over what the writer has done, before the loop goes on */ };

/* ---- small things ---- */

void store_log_later(struct store *store, int level, const char *format, ...)
{
	char text[512];
	struct store_line *line;
	size_t size;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	size = strlen(text) + 1;
	line = malloc(sizeof(*line) + size);
	if (line == NULL)
		return;
	line->next = NULL;
	line->level = level;
	memcpy(line->text, text, size);
	pthread_mutex_lock(&store->lock);
	*store->lines_end = line;
	store->lines_end = &line->next;
	pthread_mutex_unlock(&store->lock);
	uv_async_send(&store->async);
}

/* ---- opening: the first transaction ---- */

static int begin_life(MDB_txn *txn, MDB_dbi dbi, struct record_meta *meta, struct ft_error *error)
{
	int rc = store_read_meta(txn, dbi, meta);

	if (rc == MDB_NOTFOUND) {
		memset(meta, 0, sizeof(*meta));
		meta->format = RECORD_FORMAT;
		meta->generation = 1;
		meta->floor = 1;
		meta->next_job = 1;
		if (store_new_uuid(meta->uuid, error) != 0)
			return EAGAIN; /* no damage, which MDB_PANIC would be */
		rc = 0;
	}
	return rc;
}

/* Makes what a new store starts with, and reserves job ids: none that a run gives out is given out again. */
static int first_transaction(struct store *store, bool fresh, struct ft_error *error)
{
	struct record_meta meta;
	MDB_txn *txn = NULL;
	uint64_t next_job = 0;
	int rc = mdb_txn_begin(store->env, NULL, 0, &txn);

	if (rc == 0)
		rc = begin_life(txn, store->dbi, &meta, error);
	if (rc == 0) {
		next_job = meta.next_job;
		meta.next_job += STORE_JOB_IDS;
		rc = store_put_meta(txn, store->dbi, &meta);
	}
	if (rc == 0) {
		rc = mdb_txn_commit(txn);
		txn = NULL;
	}
	if (txn != NULL)
		mdb_txn_abort(txn);
	if (rc == 0) {
		store->next_job = next_job;
		store->job_bound = meta.next_job;
		return 0;
	}
	/* A full disk is no reason not to answer from what is there. */
	if (store_fault(&store->directory, rc, error) == FAULT_ROOM && !fresh) {
		if (error != NULL)
			snprintf(store->degraded, sizeof(store->degraded), "%.*s",
			        (int)sizeof(store->degraded) - 1, error->message);
		store_log(&store->log, 3, "the store cannot be written: %s", store->degraded);
		return 0;
	}
	return -1;
}

static int first_read(struct store *store, struct ft_error *error)
{
	int outcome;

	if (store_begin(store, error) != 0)
		return -1;
	outcome = store_load_names(store, error);
	if (outcome == 0) {
		int rc = store_read_clock(store->reader, store);

		if (rc != 0) {
			store_fault(&store->directory, rc, error);
			outcome = -1;
		}
	}
	store_end(store);
	if (store->job_bound == 0)
		store->next_job = store->job_bound = store->seen.next_job;
	return outcome;
}

/* ---- reports of the writer ---- */

static void free_store(struct store *store)
{
	store_free_names(store);
	while (store->lines != NULL) {
		struct store_line *next = store->lines->next;

		free(store->lines);
		store->lines = next;
	}
	free(store->identity);
	pthread_cond_destroy(&store->wake);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct store *store = handle->data;
	void (*closed)(void *data) = store->closed;
	void *data = store->closed_data;

	free_store(store);
	if (closed != NULL)
		closed(data);
}

static void finish_closing(struct store *store)
{
	bool clean;

	pthread_join(store->thread, NULL);
	store->thread_runs = false;
	/* Else the next start must look for itself, and a file that others put there is not sealed for ours. */
	clean = store->sound && !atomic_load(&store->directory.doubt) &&
	        store_stands(store, NULL) == FAULT_NONE;
	store_drop_reader(store);
	if (store->env != NULL)
		mdb_env_close(store->env);
	store->env = NULL;
	if (clean)
		seal_write(&store->directory);
	atomic_store(&store->parked, true);
	directory_close(&store->directory, clean);
	uv_close((uv_handle_t *)&store->async, on_handle_closed);
}

static void report_lines(struct store *store, struct store_line *line)
{
	while (line != NULL) {
		struct store_line *next = line->next;

		store_log(&store->log, line->level, "%s", line->text);
		free(line);
		line = next;
	}
}

void store_each_change(const struct store *store, const struct store_batch *batch,
        void (*call)(void *data, const struct store_key *key))
{
	if (call == NULL || batch->failed || batch->generation == 0)
		return;
	for (const struct op *op = batch->first; op != NULL; op = op->next) {
		struct store_key key;

		if (op->kind == OP_IDENTITY)
			call(store->changed_data, NULL);
		else if ((op->kind == OP_SLOT || op->kind == OP_FORGET) &&
		        record_key_read_problem(op->bytes, op->key_length, &key))
			call(store->changed_data, &key);
	}
}

/* Hands over some of the batches that are done: a thousand of them are not to keep the loop at once. */
static void report_batches(struct store *store)
{
	uint64_t end_ns = ft_monotonic_ns() + REPORT_NS;

	while (store->reported != NULL) {
		struct store_batch *batch = store->reported;

		store->reported = batch->next;
		if (batch->done != NULL)
			batch->done(batch->data, batch->told, batch->failed ? &batch->error : NULL);
		store_batch_free(batch);
		if (ft_monotonic_ns() >= end_ns)
			break;
	}
}

/* All of a commit's changes before any report of it: whoever is notified of one sees the others, too. */
static void take_finished(struct store *store, struct store_batch *finished)
{
	struct store_batch **end = &store->reported;

	for (struct store_batch *each = finished; each != NULL; each = each->next) {
		if (each->generation != 0)
			each->told = each->generation;
		else if (each->told == 0)
			each->told = store->seen.generation;
		store_each_change(store, each, store->changed);
	}
	while (*end != NULL)
		end = &(*end)->next;
	*end = finished;
}

static void on_report(uv_async_t *async)
{
	struct store *store = async->data;
	struct store_batch *finished;
	struct store_line *lines;
	bool stopped, reopened, degraded;

	pthread_mutex_lock(&store->lock);
	finished = store->finished;
	store->finished = NULL;
	store->finished_end = &store->finished;
	lines = store->lines;
	store->lines = NULL;
	store->lines_end = &store->lines;
	if (store->park && !atomic_load(&store->parked)) {
		store_drop_reader(store);
		atomic_store_explicit(&store->parked, true, memory_order_release);
		pthread_cond_signal(&store->wake);
	}
	stopped = store->stopped;
	reopened = store->reopened;
	store->reopened = false;
	degraded = store->degraded[0] != '\0';
	pthread_mutex_unlock(&store->lock);

	report_lines(store, lines);
	/* Reads see what is reported before anybody is notified. While that cannot be, they fail anyway. */
	if (finished != NULL || reopened)
		store_refresh(store, NULL);
	if (reopened && store->changed != NULL)
		store->changed(store->changed_data, NULL);
	take_finished(store, finished);
	report_batches(store);
	if (store->was_degraded && !degraded && store->mended != NULL)
		store->mended(store->changed_data);
	store->was_degraded = degraded;
	if (atomic_load(&store->directory.doubt) && !store->told_broken && store->broken != NULL) {
		store->told_broken = true;
		store->broken(store->changed_data);
	}
	if (store->reported != NULL) {
		uv_async_send(async);
		return;
	}
	if (!stopped || !store->thread_runs)
		return;
	/* What `done` submitted since comes back at once, refused; only then is there nothing left to report.
	 */
	pthread_mutex_lock(&store->lock);
	bool more = store->finished != NULL;
	pthread_mutex_unlock(&store->lock);
	if (more)
		uv_async_send(async);
	else
		finish_closing(store);
}

/* ---- opening and closing ---- */

static void close_environment(struct store *store)
{
	store_drop_reader(store);
	if (store->env != NULL)
		mdb_env_close(store->env);
	store->env = NULL;
}

/* Opens what stands in the directory and reads what the store must know of itself. */
static int open_environment(struct store *store, bool fresh, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	bool cleared;

	if (store_environment_open(&store->env, &store->dbi, directory, directory->path, store->map_bytes,
	            &cleared, error) != 0)
		return -1;
	store_know_file(store);
	if (cleared)
		store_log(&store->log, 6, "readers that a dead process had left in the store were cleared");
	if (first_transaction(store, fresh, error) != 0)
		return -1;
	return first_read(store, error);
}

static int open_parts(struct store *store, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	enum found found;
	char reason[256] = "";
	const struct startup startup = {
	        .directory = directory,
	        .map_bytes = store->map_bytes,
	        .always_bytes = store->limits.always_bytes,
	        .check_bytes = store->limits.check_bytes,
	        .waits = store->waits,
	        .log = store->log,
	};

	if (directory->exposed)
		store_log(&store->log, 4, "the state directory %s can be written by others than its owner",
		        directory->path);
	if (directory->overlay)
		store_log(&store->log, 4,
		        "the state directory %s is on an overlay file system: what is kept there goes with "
		        "its container",
		        directory->path);
	if (startup_check(&startup, &found, reason, sizeof(reason), error) != 0)
		return -1;
	if (found == FOUND_DAMAGE) {
		if (startup_rebuild(&startup, reason, error) != 0)
			return -1;
		directory->unclean = 0;
	}
	/* Before anything reads it: should that be a process's death, the next one knows. */
	if (directory_mark_open(directory, directory->unclean, error) != 0)
		return -1;
	if (open_environment(store, found == FOUND_NOTHING, error) != 0) {
		if (!atomic_load(&directory->doubt))
			return -1;
		/* Damage that LMDB itself came upon, where nothing gave reason to look for it before. */
		snprintf(reason, sizeof(reason), "%s", error->message);
		close_environment(store);
		store_forget_names(store);
		if (startup_rebuild(&startup, reason, error) != 0)
			return -1;
		atomic_store(&directory->doubt, false);
		if (open_environment(store, false, error) != 0)
			return -1;
	}
	if (!directory->initialised && directory_initialise(directory, RECORD_FORMAT, error) != 0)
		return -1;
	return 0;
}

static int make_lock(struct store *store, struct ft_error *error)
{
	pthread_condattr_t attributes;

	if (pthread_condattr_init(&attributes) != 0)
		return ft_fail(error, FT_E_SYSTEM, "the store's lock cannot be made");
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (pthread_cond_init(&store->wake, &attributes) != 0) {
		pthread_condattr_destroy(&attributes);
		return ft_fail(error, FT_E_SYSTEM, "the store's lock cannot be made");
	}
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&store->lock, NULL);
	return 0;
}

int store_open(
        struct store **opened, uv_loop_t *loop, const struct store_options *options, struct ft_error *error)
{
	struct store *store = calloc(1, sizeof(*store));
	struct ft_error local;
	bool handle = false;

	*opened = NULL;
	if (error == NULL)
		error = &local;
	if (store == NULL)
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory for the store");
	store->loop = loop;
	store->log = (struct store_log){options->log, options->log_data};
	store->publish = options->publish;
	store->published = options->published;
	store->changed = options->changed;
	store->broken = options->broken;
	store->mended = options->mended;
	store->changed_data = options->changed_data;
	store->waits = (struct repair_waits){options->waits, options->changed_data};
	store->limits = options->limits != NULL ? *options->limits : store_limits_usual;
	store->map_bytes = options->map_bytes != 0 ? options->map_bytes : UINT64_C(16) << 30;
	store->reader_at = SIZE_MAX;
	store->waiting_end = &store->waiting;
	store->finished_end = &store->finished;
	store->new_names_end = &store->new_names;
	store->lines_end = &store->lines;
	if (make_lock(store, error) != 0) {
		free(store);
		return -1;
	}
	if (directory_open(&store->directory, options->directory, error) != 0) {
		free_store(store);
		return -1;
	}
	if (open_parts(store, error) != 0)
		goto failed;
	int rc = uv_async_init(loop, &store->async, on_report);
	if (rc != 0) {
		ft_fail(error, FT_E_SYSTEM, "the event loop is not usable: %s", uv_strerror(rc));
		goto failed;
	}
	store->async.data = store;
	handle = true;
	if (store_start_writer(store, error) != 0)
		goto failed;
	store->thread_runs = true;
	*opened = store;
	return 0;
failed:
	close_environment(store);
	/* A run before this one that ended badly is still to be looked into by the next. */
	directory_close(&store->directory, store->directory.unclean == 0);
	if (handle)
		uv_close((uv_handle_t *)&store->async, on_handle_closed);
	else
		free_store(store);
	return -1;
}

void store_close(struct store *store, void (*closed)(void *data), void *data)
{
	store->closed = closed;
	store->closed_data = data;
	pthread_mutex_lock(&store->lock);
	store->stop = true;
	store->final_job = store->next_job;
	pthread_cond_signal(&store->wake);
	pthread_mutex_unlock(&store->lock);
}

void store_look(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	store->look = true;
	pthread_cond_signal(&store->wake);
	pthread_mutex_unlock(&store->lock);
}

void store_mark_signal(const struct store *store, int signal)
{
	directory_mark_signal(&store->directory, signal);
}

/* ---- facts ---- */

const char *store_uuid(const struct store *store)
{
	return store->seen.uuid;
}

uint64_t store_generation(const struct store *store)
{
	return store->seen.generation;
}

uint64_t store_history_floor(const struct store *store)
{
	return store->seen.floor;
}

void store_facts(struct store *store, struct store_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	facts->bytes = store->bytes;
	facts->limit = store->map_bytes;
	facts->answers = store->seen.answers;
	facts->damaged = store->damaged;
	pthread_mutex_lock(&store->lock);
	facts->commits = store->commits;
	if (store->busy_since_ns != 0)
		facts->stuck_ns = ft_monotonic_ns() - store->busy_since_ns;
	memcpy(facts->degraded, store->degraded, sizeof(facts->degraded));
	pthread_mutex_unlock(&store->lock);
	if (facts->degraded[0] == '\0' &&
	        facts->bytes / 100 >= facts->limit / 10000 * store->limits.refuse_percent)
		snprintf(facts->degraded, sizeof(facts->degraded),
		        "the store is nearly full (%" PRIu64 " of %" PRIu64
		        " bytes): new jobs and imports are refused",
		        facts->bytes, facts->limit);
}

/* ---- job ids ---- */

static void on_reserved(void *data, uint64_t generation, const struct ft_error *error)
{
	struct store *store = data;

	(void)generation;
	store->reserving = false;
	if (error == NULL)
		store->job_bound += STORE_JOB_IDS;
}

/* An id past the bound is durable with its job, not before; the bound moves on long before it is reached
 * unless writing fails, and then the job fails too. */
uint64_t store_next_job(struct store *store)
{
	if (!store->reserving && store->next_job + STORE_JOB_IDS / 2 >= store->job_bound) {
		struct store_batch *batch = store_batch_new(store);

		if (store->job_bound < store->next_job)
			store->job_bound = store->next_job;
		if (batch != NULL && store_batch_reserve(batch, store->job_bound + STORE_JOB_IDS) == 0) {
			store->reserving = true;
			store_submit(batch, on_reserved, store);
		} else {
			store_batch_drop(batch);
		}
	}
	return store->next_job++;
}
