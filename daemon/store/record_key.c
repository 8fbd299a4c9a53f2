/* The keys of records: integers big-endian, so that byte order is number order. */
#include <string.h>

#include "daemon/store/record.h"

static void add_byte(struct record_key *key, uint8_t value)
{
	key->data[key->length++] = value;
}

static void add_u32(struct record_key *key, uint32_t value)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		add_byte(key, (uint8_t)(value >> shift));
}

static void add_u64(struct record_key *key, uint64_t value)
{
	record_put_u64(key->data + key->length, value);
	key->length += 8;
}

static void start_key(struct record_key *key, enum record_kind kind)
{
	key->length = 0;
	add_byte(key, (uint8_t)kind);
}

uint32_t record_get_u32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

uint64_t record_get_u64(const uint8_t *at)
{
	return (uint64_t)record_get_u32(at) << 32 | record_get_u32(at + 4);
}

void record_put_u64(uint8_t *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(value >> (56 - 8 * i));
}

void record_key_meta(struct record_key *key, unsigned copy)
{
	start_key(key, RECORD_META);
	add_byte(key, (uint8_t)copy);
}

void record_key_name(struct record_key *key, enum store_name kind, uint32_t id)
{
	start_key(key, RECORD_NAME);
	add_byte(key, (uint8_t)kind);
	add_u32(key, id);
}

void record_key_problem(struct record_key *key, enum record_kind kind, const struct store_key *problem)
{
	start_key(key, kind);
	add_u32(key, problem->kernel);
	add_u32(key, problem->device);
	memcpy(key->data + key->length, problem->problem.hash, sizeof(problem->problem.hash));
	key->length += sizeof(problem->problem.hash);
	add_u64(key, problem->problem.scale);
}

bool record_key_read_problem(const uint8_t *data, size_t length, struct store_key *problem)
{
	enum { KIND = 1, IDS = 8, HASH = sizeof(problem->problem.hash), SCALE = 8 };

	if (length < KIND + IDS + HASH + SCALE)
		return false;
	problem->kernel = record_get_u32(data + KIND);
	problem->device = record_get_u32(data + KIND + 4);
	memcpy(problem->problem.hash, data + KIND + IDS, HASH);
	problem->problem.scale = record_get_u64(data + KIND + IDS + HASH);
	return true;
}

void record_key_history(struct record_key *key, const struct store_key *problem, uint64_t generation)
{
	record_key_problem(key, RECORD_HISTORY, problem);
	/* Inverted, so that the newest row of a problem comes first. */
	add_u64(key, ~generation);
}

void record_key_trials(
        struct record_key *key, const struct store_key *problem, uint32_t identity, uint32_t chunk)
{
	record_key_problem(key, RECORD_TRIALS, problem);
	add_u32(key, identity);
	if (chunk > 0)
		add_u32(key, chunk);
}

void record_key_identity(struct record_key *key, uint32_t device, uint64_t generation)
{
	start_key(key, RECORD_IDENTITY);
	add_u32(key, device);
	add_u64(key, ~generation);
}

void record_key_job(struct record_key *key, uint64_t job)
{
	start_key(key, RECORD_JOB);
	add_u64(key, job);
}

int record_key_note(struct record_key *key, const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length > RECORD_NOTE_NAME_MAX)
		return -1;
	start_key(key, RECORD_NOTE);
	memcpy(key->data + 1, name, length);
	key->length += length;
	return 0;
}
