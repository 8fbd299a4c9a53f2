/* Batches: what is to be committed together, encoded here so that the writer has only to put it in place. */
#include <stdlib.h>
#include <string.h>

#include "daemon/store/internal.h"

static const uint8_t nil = 0xc0;

struct store_batch *store_batch_new(struct store *store)
{
	struct store_batch *batch = calloc(1, sizeof(*batch));

	if (batch != NULL) {
		batch->store = store;
		batch->end = &batch->first;
	}
	return batch;
}

void store_batch_free(struct store_batch *batch)
{
	while (batch->first != NULL) {
		struct op *op = batch->first;

		batch->first = op->next;
		free(op);
	}
	free(batch);
}

void store_batch_drop(struct store_batch *batch)
{
	if (batch != NULL)
		store_batch_free(batch);
}

static struct op *add_op(struct store_batch *batch, enum op_kind kind, const struct record_key *key,
        struct ft_view value, struct ft_view problem)
{
	size_t key_length = key != NULL ? key->length : 0;
	struct op *op = calloc(1, sizeof(*op) + key_length + value.length + problem.length);

	if (op == NULL)
		return NULL;
	op->kind = kind;
	op->key_length = key_length;
	op->value_length = value.length;
	op->problem_length = problem.length;
	if (key_length > 0)
		memcpy(op->bytes, key->data, key_length);
	if (value.length > 0)
		memcpy(op->bytes + key_length, value.data, value.length);
	if (problem.length > 0)
		memcpy(op->bytes + key_length + value.length, problem.data, problem.length);
	*batch->end = op;
	batch->end = &op->next;
	batch->count++;
	batch->grows = batch->grows || kind == OP_GROW || kind == OP_JOB;
	batch->answers = batch->answers || kind == OP_SLOT || kind == OP_FORGET || kind == OP_IDENTITY;
	return op;
}

static struct ft_view view_of(const struct ft_writer *writer)
{
	return (struct ft_view){.data = writer->data, .length = writer->length};
}

/* Where a generation stands that is known at the commit: as a number whose eight bytes are all set, behind its name. */
static size_t find_stamp(struct ft_view value)
{
	static const char open[] = "\xaageneration\xcf\xff\xff\xff\xff\xff\xff\xff\xff";
	const uint8_t *found = memmem(value.data, value.length, open, sizeof(open) - 1);

	return found != NULL ? (size_t)(found - value.data) + sizeof(open) - 1 - sizeof(uint64_t) : 0;
}

/* Seals what `value` holds, and adds an op that puts it; the writer's memory is freed. */
static int add_sealed(struct store_batch *batch, enum op_kind kind, const struct record_key *key,
        uint64_t number, struct ft_writer *value)
{
	struct op *op = NULL;

	record_seal(value, key->data, key->length);
	if (ft_writer_ok(value))
		op = add_op(batch, kind, key, view_of(value), (struct ft_view){NULL, 0});
	if (op != NULL) {
		op->number = number;
		op->stamp = kind == OP_JOB ? find_stamp(view_of(value)) : 0;
	}
	ft_writer_free(value);
	return op != NULL ? 0 : -1;
}

static void start_value(struct ft_writer *value)
{
	ft_writer_init_growing(value, RECORD_TRIALS_LIMIT);
	record_start(value);
}

int store_batch_trials(struct store_batch *batch, const struct store_key *key, uint32_t identity,
        const struct trials *trials)
{
	const uint32_t chunks = record_chunks(trials);
	struct record_key at;
	struct ft_writer value;

	for (uint32_t chunk = 0; chunk < chunks; chunk++) {
		record_key_trials(&at, key, identity, chunk);
		start_value(&value);
		if (chunk == 0)
			record_write_trials(&value, trials);
		else
			record_write_chunk(&value, trials, chunk);
		if (add_sealed(batch, OP_GROW, &at, 0, &value) != 0)
			return -1;
	}
	return 0;
}

int store_batch_job(struct store_batch *batch, const struct ft_job *job)
{
	struct record_key at;
	struct ft_writer value;

	record_key_job(&at, job->job);
	start_value(&value);
	ft_encode(&value, &ft_job_message, job);
	return add_sealed(batch, OP_JOB, &at, job->job, &value);
}

int store_batch_drop_job(struct store_batch *batch, uint64_t job)
{
	struct record_key at;

	record_key_job(&at, job);
	return add_op(batch, OP_DELETE, &at, (struct ft_view){NULL, 0}, (struct ft_view){NULL, 0}) != NULL
	        ? 0
	        : -1;
}

/* Adds an op that replaces a slot by what `value` holds; the writer's memory is freed. */
static int add_slot(struct store_batch *batch, const struct store_key *key, const struct ft_problem *problem,
        enum slot slot, struct ft_writer *value)
{
	struct record_key at;
	struct ft_writer whole;
	struct op *op = NULL;

	ft_writer_init_growing(&whole, RECORD_TRIALS_LIMIT);
	record_write_problem(&whole, problem);
	record_key_problem(&at, RECORD_ANSWER, key);
	if (ft_writer_ok(value) && ft_writer_ok(&whole))
		op = add_op(batch, OP_SLOT, &at, view_of(value), view_of(&whole));
	if (op != NULL)
		op->slot = slot;
	ft_writer_free(&whole);
	ft_writer_free(value);
	return op != NULL ? 0 : -1;
}

int store_batch_pin(struct store_batch *batch, const struct store_key *key, const struct ft_problem *problem,
        const struct store_pin *pin)
{
	struct ft_writer value;

	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_pin(&value, pin);
	return add_slot(batch, key, problem, SLOT_PIN, &value);
}

int store_batch_winner(struct store_batch *batch, const struct store_key *key,
        const struct ft_problem *problem, const struct store_winner *winner)
{
	struct ft_writer value;

	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_winner(&value, winner);
	return add_slot(batch, key, problem, SLOT_WINNER, &value);
}

int store_batch_import(struct store_batch *batch, const struct store_key *key,
        const struct ft_problem *problem, const struct store_import *import)
{
	struct ft_writer value;

	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_import(&value, import);
	return add_slot(batch, key, problem, SLOT_IMPORT, &value);
}

int store_batch_forget(struct store_batch *batch, const struct store_key *key)
{
	struct record_key at;

	record_key_problem(&at, RECORD_ANSWER, key);
	return add_op(batch, OP_FORGET, &at, (struct ft_view){&nil, 1}, (struct ft_view){NULL, 0}) != NULL
	        ? 0
	        : -1;
}

int store_batch_identity(struct store_batch *batch, uint32_t device, uint32_t identity)
{
	struct op *op =
	        add_op(batch, OP_IDENTITY, NULL, (struct ft_view){NULL, 0}, (struct ft_view){NULL, 0});

	if (op == NULL)
		return -1;
	op->device = device;
	op->identity = identity;
	return 0;
}

int store_batch_note(struct store_batch *batch, const char *name, const void *value, size_t length)
{
	struct record_key at;
	struct ft_writer sealed;

	if (record_key_note(&at, name) != 0)
		return -1;
	start_value(&sealed);
	ft_write_raw(&sealed, value, length);
	return add_sealed(batch, OP_PUT, &at, 0, &sealed);
}

int store_batch_reserve(struct store_batch *batch, uint64_t bound)
{
	struct op *op = add_op(batch, OP_RESERVE, NULL, (struct ft_view){NULL, 0}, (struct ft_view){NULL, 0});

	if (op == NULL)
		return -1;
	op->number = bound;
	return 0;
}

/* Called on the loop thread. Once the writer has stopped, a batch has missed its time. */
void store_submit(struct store_batch *batch, store_done done, void *data)
{
	struct store *store = batch->store;

	batch->done = done;
	batch->data = data;
	batch->next = NULL;
	pthread_mutex_lock(&store->lock);
	if (store->stopped) {
		batch->failed = true;
		ft_fail(&batch->error, FT_E_UNAVAILABLE, "the store is closed");
		*store->finished_end = batch;
		store->finished_end = &batch->next;
		uv_async_send(&store->async);
	} else {
		*store->waiting_end = batch;
		store->waiting_end = &batch->next;
	}
	pthread_mutex_unlock(&store->lock);
	/* Not before: the writer would only wake to wait for the lock. */
	pthread_cond_signal(&store->wake);
}
