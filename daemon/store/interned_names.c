/* Names: long texts, such as a device's identity, that keys hold as small numbers. All are in memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/store/internal.h"

enum { IDS_MAX = 1 << 20 };

static struct store_names *names_of(struct store *store, enum store_name kind)
{
	return &store->names[(unsigned)kind % STORE_NAME_KINDS];
}

/* Where the id of a text is, or is to be put. */
static uint32_t *place_of(const struct store_names *names, const char *text)
{
	size_t mask = (size_t)2 * names->capacity - 1;
	size_t at = XXH3_64bits(text, strlen(text)) & mask;

	while (names->index[at] != 0 && strcmp(names->text[names->index[at] - 1], text) != 0)
		at = (at + 1) & mask;
	return &names->index[at];
}

static void put_name(struct store_names *names, uint32_t id, char *text)
{
	names->text[id - 1] = text;
	if (id > names->count)
		names->count = id;
	if (text != NULL) {
		uint32_t *place = place_of(names, text);

		if (*place == 0)
			*place = id;
	}
}

/* Makes put_name possible for an id. */
static int make_room(struct store_names *names, uint32_t id)
{
	struct store_names grown = {.capacity = names->capacity == 0 ? 16 : names->capacity};

	if (id <= names->capacity)
		return 0;
	while (grown.capacity < id)
		grown.capacity *= 2;
	grown.text = calloc(grown.capacity, sizeof(*grown.text));
	grown.index = calloc(grown.capacity, 2 * sizeof(*grown.index));
	if (grown.text == NULL || grown.index == NULL) {
		free(grown.text);
		free(grown.index);
		return -1;
	}
	for (uint32_t i = 0; i < names->count; i++)
		put_name(&grown, i + 1, names->text[i]);
	free(names->text);
	free(names->index);
	*names = grown;
	return 0;
}

static int load_name(struct store *store, const MDB_val *key, const MDB_val *value)
{
	const uint8_t *bytes = key->mv_data;
	uint32_t id = record_get_u32(bytes + 2);
	struct ft_cursor cursor;
	struct ft_view body;
	const char *from;
	size_t length;
	char *text = NULL;

	if (bytes[1] >= STORE_NAME_KINDS || id == 0 ||
	        id > IDS_MAX) /* they are dense: one far beyond is none of ours */
		return 0;
	if (record_open(key->mv_data, key->mv_size, value->mv_data, value->mv_size, &body) &&
	        (cursor = ft_cursor_of(body.data, body.length), ft_read_text(&cursor, &from, &length))) {
		/* Not strndup: it may look for an end past the name, where the map has no page. */
		text = malloc(length + 1);
		if (text == NULL)
			return ENOMEM;
		memcpy(text, from, length);
		text[length] = '\0';
	} else {
		store_note_damage(store, key->mv_data, key->mv_size); /* its id stays taken */
	}
	if (make_room(&store->names[bytes[1]], id) != 0) {
		free(text);
		return ENOMEM;
	}
	put_name(&store->names[bytes[1]], id, text);
	return 0;
}

int store_load_names(struct store *store, struct ft_error *error)
{
	static const uint8_t start[1] = {RECORD_NAME};
	MDB_val key = store_value(start, sizeof(start));
	MDB_val value;
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(store->reader, store->dbi, &cursor);

	if (rc == 0) {
		rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
		while (rc == 0 && key.mv_size == 6 && *(const uint8_t *)key.mv_data == RECORD_NAME) {
			rc = load_name(store, &key, &value);
			if (rc == 0)
				rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
		}
		mdb_cursor_close(cursor);
	}
	if (rc != 0 && rc != MDB_NOTFOUND) {
		store_fault(&store->directory, rc, error);
		return -1;
	}
	return 0;
}

static void free_records(struct store_name_record *list)
{
	while (list != NULL) {
		struct store_name_record *next = list->next;

		free(list);
		list = next;
	}
}

void store_forget_names(struct store *store)
{
	for (int kind = 0; kind < STORE_NAME_KINDS; kind++) {
		for (uint32_t i = 0; i < store->names[kind].count; i++)
			free(store->names[kind].text[i]);
		free(store->names[kind].text);
		free(store->names[kind].index);
		memset(&store->names[kind], 0, sizeof(store->names[kind]));
	}
}

void store_free_names(struct store *store)
{
	store_forget_names(store);
	free_records(store->new_names);
	free_records(store->unwritten);
}

/* Leaves a name with the writer, which commits it before or with whatever is submitted next. */
static int leave_name(struct store *store, enum store_name kind, uint32_t id, const char *text)
{
	struct store_name_record *record = NULL;
	struct ft_writer value;
	struct record_key key;

	record_key_name(&key, kind, id);
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_start(&value);
	ft_write_text(&value, text);
	record_seal(&value, key.data, key.length);
	if (ft_writer_ok(&value))
		record = malloc(sizeof(*record) + value.length);
	if (record != NULL) {
		record->next = NULL;
		record->key = key;
		record->length = value.length;
		memcpy(record->value, value.data, value.length);
		pthread_mutex_lock(&store->lock);
		*store->new_names_end = record;
		store->new_names_end = &record->next;
		pthread_mutex_unlock(&store->lock);
	}
	ft_writer_free(&value);
	return record != NULL ? 0 : -1;
}

int store_intern(
        struct store *store, enum store_name kind, const char *text, uint32_t *id, struct ft_error *error)
{
	struct store_names *names = names_of(store, kind);
	char *copy;

	*id = names->count > 0 ? *place_of(names, text) : 0;
	if (*id != 0)
		return 0;
	if (names->count == IDS_MAX)
		return ft_fail(
		        error, FT_E_STORE, "the store has %d names of this kind, and takes no more", IDS_MAX);
	copy = strdup(text);
	if (copy == NULL || make_room(names, names->count + 1) != 0 ||
	        leave_name(store, kind, names->count + 1, text) != 0) {
		free(copy);
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory for a name");
	}
	put_name(names, names->count + 1, copy);
	*id = names->count;
	return 0;
}

const char *store_name_text(struct store *store, enum store_name kind, uint32_t id)
{
	const struct store_names *names = names_of(store, kind);

	return id >= 1 && id <= names->count ? names->text[id - 1] : NULL;
}
