#include "daemon/store/repair/lmdb_file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/repair/internal.h"

/* ---- pages and nodes ---- */

struct node {
	const uint8_t *key;
	size_t key_length;
	uint64_t child; /* of a branch */
	bool big;
	size_t length;        /* of a leaf's value */
	const uint8_t *value; /* in the page; of a big one, its first page's number */
};

static bool load_page(const struct pages *pages, uint64_t number, uint8_t *page)
{
	uint32_t lower, upper, flags;

	if (number < 2 || number >= pages->size / pages->page_size ||
	        read_at(pages->fd, number * pages->page_size, page, pages->page_size) != pages->page_size)
		return false;
	flags = load_u16(page + 10);
	lower = load_u16(page + 12);
	upper = load_u16(page + 14);
	return load_u64(page) == number && (flags == FLAG_BRANCH || flags == FLAG_LEAF) &&
	        lower >= PAGE_HEADER && lower <= upper && upper <= pages->page_size && lower % 2 == 0;
}

static bool is_leaf(const uint8_t *page)
{
	return load_u16(page + 10) == FLAG_LEAF;
}

static uint32_t count_nodes(const uint8_t *page)
{
	return (load_u16(page + 12) - (uint32_t)PAGE_HEADER) / 2;
}

static bool load_node(const struct pages *pages, const uint8_t *page, uint32_t index, struct node *node)
{
	uint32_t offset = load_u16(page + PAGE_HEADER + 2 * (size_t)index);
	uint32_t upper = load_u16(page + 14);
	uint32_t flags;
	size_t room;

	if (offset < upper || offset + NODE_HEADER > pages->page_size)
		return false;
	room = pages->page_size - offset - NODE_HEADER;
	node->key_length = load_u16(page + offset + 6);
	node->key = page + offset + NODE_HEADER;
	flags = load_u16(page + offset + 4);
	if (node->key_length > KEY_MAX || node->key_length > room)
		return false;
	room -= node->key_length;
	if (!is_leaf(page)) {
		node->child = load_u32(page + offset) | (uint64_t)flags << 32;
		return true;
	}
	node->length = load_u32(page + offset);
	node->value = node->key + node->key_length;
	node->big = flags == NODE_BIG;
	if (flags != 0 && flags != NODE_BIG)
		return false;
	return node->key_length > 0 && (node->big ? (size_t)8 : node->length) <= room;
}

/* The pages that a big value takes, or 0 if they are not what they should be. */
static uint64_t examine_big(const struct pages *pages, const struct node *node, uint64_t *first)
{
	uint8_t head[PAGE_HEADER];
	uint64_t whole = pages->size / pages->page_size;
	uint64_t count;

	*first = load_u64(node->value);
	if (*first < 2 || *first >= whole ||
	        read_at(pages->fd, *first * pages->page_size, head, sizeof(head)) != sizeof(head))
		return 0;
	count = load_u32(head + 12);
	if (load_u64(head) != *first || load_u16(head + 10) != FLAG_OVERFLOW || count == 0 ||
	        count > whole - *first || node->length > count * pages->page_size - PAGE_HEADER)
		return 0;
	return count;
}

static int compare(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length)
{
	int order = memcmp(a, b, a_length < b_length ? a_length : b_length);

	if (order != 0)
		return order;
	return (a_length > b_length) - (a_length < b_length);
}

/* ---- one value ---- */

static int find_in_leaf(
        const struct pages *pages, const uint8_t *page, const void *key, size_t key_length, struct node *node)
{
	for (uint32_t i = 0; i < count_nodes(page); i++) {
		if (!load_node(pages, page, i, node))
			return -1;
		if (compare(node->key, node->key_length, key, key_length) == 0)
			return 1;
	}
	return 0;
}

static int find_child(
        const struct pages *pages, const uint8_t *page, const void *key, size_t key_length, uint64_t *child)
{
	struct node node = {0};

	for (uint32_t i = 0; i < count_nodes(page); i++) {
		if (!load_node(pages, page, i, &node))
			return -1;
		/* The first branch node stands for everything below the second; its key means nothing. */
		if (i > 0 && compare(node.key, node.key_length, key, key_length) > 0)
			break;
		*child = node.child;
	}
	return count_nodes(page) > 0 ? 1 : -1;
}

static int get_into(const struct pages *pages, uint8_t *page, const void *key, size_t key_length, void *value,
        size_t size, size_t *length)
{
	uint64_t number = pages->main.root;
	struct node node = {0};

	if (number == no_page)
		return 0;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		if (!load_page(pages, number, page))
			return -1;
		if (!is_leaf(page)) {
			if (find_child(pages, page, key, key_length, &number) < 0)
				return -1;
			continue;
		}
		int found = find_in_leaf(pages, page, key, key_length, &node);
		if (found != 1)
			return found;
		*length = node.length < size ? node.length : size;
		if (!node.big) {
			memcpy(value, node.value, *length);
			return 1;
		}
		uint64_t first;
		if (examine_big(pages, &node, &first) == 0 ||
		        read_at(pages->fd, first * pages->page_size + PAGE_HEADER, value, *length) != *length)
			return -1;
		return 1;
	}
	return -1;
}

int pages_get(const struct pages *pages, const void *key, size_t key_length, void *value, size_t size,
        size_t *length)
{
	/* Up to 64 KB: too large for a stack. */
	uint8_t *page = malloc(pages->page_size);
	int found = page != NULL ? get_into(pages, page, key, key_length, value, size, length) : -1;

	free(page);
	return found;
}

/* ---- the walk ---- */

struct walk {
	const struct pages *pages;
	pages_visit visit;
	void *data;
	struct pages_report *report;
	uint8_t *reached; /* a bit a page */
	uint8_t *stack;   /* a page a level */
	uint8_t *value;   /* of a big record */
	size_t value_capacity;
	bool ordered; /* keys are compared: the free list has integers for keys, in the machine's order */
	uint8_t last[KEY_MAX]; /* key */
	size_t last_length;
	bool last_counts; /* a separator: the next key may equal it */
	bool stop, no_memory;
	uint64_t records;
	uint64_t branch, leaf, overflow; /* pages */
	uint64_t unwritten;              /* free pages behind the end of the file */
};

__attribute__((format(printf, 2, 3))) static void lose(struct walk *walk, const char *format, ...)
{
	if (walk->report->lost++ == 0) {
		va_list arguments;

		va_start(arguments, format);
		vsnprintf(walk->report->first, sizeof(walk->report->first), format, arguments);
		va_end(arguments);
	}
}

static bool was_reached(const struct walk *walk, uint64_t page)
{
	return (walk->reached[page / 8] & 1u << page % 8) != 0;
}

/* False if one of the pages was reached on another way. */
static bool reach(struct walk *walk, uint64_t page, uint64_t count)
{
	bool fresh = true;

	for (uint64_t end = page + count; page < end; page++) {
		fresh = fresh && !was_reached(walk, page);
		walk->reached[page / 8] = (uint8_t)(walk->reached[page / 8] | 1u << page % 8);
		walk->report->pages++;
	}
	return fresh;
}

static void check_order(struct walk *walk, uint64_t page, const struct node *node, bool separator)
{
	int order;

	if (!walk->ordered)
		return;
	order = compare(walk->last, walk->last_length, node->key, node->key_length);
	if (walk->last_length > 0 && (order > 0 || (order == 0 && !walk->last_counts)))
		lose(walk, "a key on page %" PRIu64 " is out of order", page);
	memcpy(walk->last, node->key, node->key_length);
	walk->last_length = node->key_length;
	walk->last_counts = separator;
}

static void check_last(struct walk *walk, uint64_t page)
{
	if (page > walk->pages->last_page)
		lose(walk, "page %" PRIu64 " is behind the last one", page);
}

/* NULL if it cannot be read. */
static const uint8_t *fetch_value(struct walk *walk, uint64_t page, const struct node *node)
{
	const struct pages *pages = walk->pages;
	uint64_t first;
	uint64_t count;

	if (!node->big)
		return node->value;
	count = examine_big(pages, node, &first);
	if (count == 0) {
		lose(walk, "a large value of page %" PRIu64 " cannot be read", page);
		return NULL;
	}
	check_last(walk, first + count - 1);
	walk->overflow += count;
	if (!reach(walk, first, count)) {
		lose(walk, "page %" PRIu64 " is used twice", first);
		return NULL;
	}
	if (node->length > walk->value_capacity) {
		uint8_t *value = realloc(walk->value, node->length);

		if (value == NULL) {
			walk->no_memory = true;
			return NULL;
		}
		walk->value = value;
		walk->value_capacity = node->length;
	}
	if (read_at(pages->fd, first * pages->page_size + PAGE_HEADER, walk->value, node->length) !=
	        node->length) {
		lose(walk, "page %" PRIu64 " cannot be read", first);
		return NULL;
	}
	return walk->value;
}

static void walk_leaf(struct walk *walk, uint64_t number, const uint8_t *page)
{
	uint32_t count = count_nodes(page);

	for (uint32_t i = 0; i < count && !walk->stop && !walk->no_memory; i++) {
		struct node node = {0};

		if (!load_node(walk->pages, page, i, &node)) {
			lose(walk, "entry %" PRIu32 " of page %" PRIu64 " is damaged", i, number);
			continue;
		}
		walk->records++;
		check_order(walk, number, &node, false);
		const uint8_t *value = fetch_value(walk, number, &node);
		if (value != NULL && walk->visit != NULL)
			walk->stop = !walk->visit(walk->data, node.key, node.key_length, value, node.length);
	}
}

/* Loads the page into the level's slot of the stack; false (and counted) if it cannot be used. */
static uint8_t *enter_page(struct walk *walk, uint64_t number, uint32_t level, uint32_t depth)
{
	uint8_t *page = walk->stack + (size_t)level * walk->pages->page_size;

	if (!load_page(walk->pages, number, page)) {
		lose(walk, "page %" PRIu64 " is damaged or missing", number);
		return NULL;
	}
	check_last(walk, number);
	if (is_leaf(page) != (level + 1 == depth))
		lose(walk, "page %" PRIu64 " is not at its depth", number);
	walk->leaf += is_leaf(page);
	walk->branch += !is_leaf(page);
	if (!reach(walk, number, 1)) {
		lose(walk, "page %" PRIu64 " is used twice", number);
		return NULL;
	}
	return page;
}

/* Depth first, by hand: `next` is the node to visit in each open page. */
static void walk_tree(struct walk *walk, const struct pages_tree *tree)
{
	uint64_t number[DEPTH_MAX] = {tree->root};
	uint32_t next[DEPTH_MAX] = {0};
	uint8_t *page[DEPTH_MAX] = {NULL};
	uint32_t level = 0;

	if (tree->root == no_page)
		return;
	page[0] = enter_page(walk, tree->root, 0, tree->depth);
	if (page[0] == NULL)
		return;
	while (!walk->stop && !walk->no_memory) {
		struct node node = {0};
		uint32_t index = next[level]++;

		if (is_leaf(page[level]))
			walk_leaf(walk, number[level], page[level]);
		if (is_leaf(page[level]) || index >= count_nodes(page[level])) {
			if (level == 0)
				break;
			level--;
			continue;
		}
		if (!load_node(walk->pages, page[level], index, &node)) {
			lose(walk, "entry %" PRIu32 " of page %" PRIu64 " is damaged", index, number[level]);
			continue;
		}
		if (index > 0)
			check_order(walk, number[level], &node, true);
		if (level + 1 >= tree->depth || level + 1 >= DEPTH_MAX) {
			lose(walk, "page %" PRIu64 " is deeper than the tree", number[level]);
			continue;
		}
		uint8_t *child = enter_page(walk, node.child, level + 1, tree->depth);
		if (child != NULL) {
			level++;
			page[level] = child;
			number[level] = node.child;
			next[level] = 0;
		}
	}
}

/* A record of the free list: a count, then that many page numbers. */
static bool check_freed(void *data, const void *key, size_t key_length, const void *value, size_t length)
{
	struct walk *walk = data;
	const uint8_t *list = value;
	uint64_t whole = walk->pages->size / walk->pages->page_size;
	uint64_t count;

	(void)key;
	if (key_length != 8 || length < 8 || load_u64(list) > length / 8 - 1) {
		lose(walk, "a record of the list of free pages is damaged");
		return true;
	}
	count = load_u64(list);
	for (uint64_t i = 1; i <= count; i++) {
		uint64_t page = load_u64(list + 8 * i);

		if (page < 2 || page > walk->pages->last_page)
			lose(walk, "the list of free pages names page %" PRIu64 ", which there is not", page);
		else if (page >= whole)
			walk->unwritten++;
		else if (!reach(walk, page, 1))
			lose(walk, "page %" PRIu64 " is both free and in use", page);
	}
	return true;
}

/* What the header counts must be what was found, where nothing was lost on the way. */
static void check_counts(struct walk *walk, const struct pages_tree *tree, const char *what)
{
	if (walk->stop || walk->no_memory || walk->report->lost > 0)
		return;
	if (walk->records != tree->entries)
		lose(walk, "%" PRIu64 " %s were found where there should be %" PRIu64, walk->records, what,
		        tree->entries);
	else if (walk->branch != tree->branch || walk->leaf != tree->leaf || walk->overflow != tree->overflow)
		lose(walk, "the pages of the %s are not as many as there should be", what);
}

int pages_walk(const struct pages *pages, bool freed, pages_visit visit, void *data,
        struct pages_report *report, struct ft_error *error)
{
	uint64_t whole = pages->size / pages->page_size;
	struct walk walk = {.pages = pages, .visit = visit, .data = data, .report = report, .ordered = true};
	struct walk lists = {.pages = pages, .visit = check_freed, .report = report};

	memset(report, 0, sizeof(*report));
	walk.reached = calloc(1, whole / 8 + 1);
	walk.stack = malloc((size_t)DEPTH_MAX * pages->page_size);
	if (walk.reached == NULL || walk.stack == NULL) {
		walk.no_memory = true;
		goto done;
	}
	walk_tree(&walk, &pages->main);
	report->records = walk.records;
	check_counts(&walk, &pages->main, "records");
	if (!freed || walk.stop || walk.no_memory)
		goto done;
	lists.reached = walk.reached;
	lists.stack = walk.stack;
	lists.data = &lists;
	walk_tree(&lists, &pages->freed);
	check_counts(&lists, &pages->freed, "lists of free pages");
	/* A page that a transaction took and gave back may never have been written, but it is free then. */
	if (report->lost == 0 && pages->last_page >= whole && lists.unwritten != pages->last_page + 1 - whole)
		lose(&lists, "the file ends before page %" PRIu64 ", which is not free", pages->last_page);
	free(lists.value);
	walk.no_memory = lists.no_memory;
done:
	free(walk.reached);
	free(walk.stack);
	free(walk.value);
	if (walk.no_memory)
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory to walk the store");
	return 0;
}
