/* The header of LMDB's file: two meta pages, of which nothing is believed that does not hold. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/repair/internal.h"

struct meta {
	uint32_t page_size;
	uint64_t last_page, transaction;
	struct pages_tree freed, main;
};

static void load_tree(const uint8_t *at, struct pages_tree *tree)
{
	tree->flags = load_u16(at + 4);
	tree->branch = load_u64(at + 8);
	tree->leaf = load_u64(at + 16);
	tree->overflow = load_u64(at + 24);
	tree->depth = load_u16(at + 6);
	tree->entries = load_u64(at + 32);
	tree->root = load_u64(at + 40);
}

/* Whether it is a meta page of this LMDB's; what it says is not judged. */
static enum pages_state load_meta(const uint8_t *page, struct meta *meta, uint32_t *version)
{
	const uint8_t *at = page + PAGE_HEADER;

	if (load_u32(at) == __builtin_bswap32(lmdb_magic))
		return PAGES_FOREIGN;
	if (load_u32(at) != lmdb_magic)
		return PAGES_BAD;
	*version = load_u32(at + LMDB_MAGIC_SIZE);
	if (*version != LMDB_VERSION)
		return PAGES_FOREIGN;
	if (load_u16(page + 10) != FLAG_META || load_u64(page) > 1)
		return PAGES_BAD;
	meta->page_size = load_u32(at + 24);
	load_tree(at + 24, &meta->freed);
	load_tree(at + 72, &meta->main);
	meta->last_page = load_u64(at + 120);
	meta->transaction = load_u64(at + 128);
	if (meta->page_size < PAGE_MIN || meta->page_size > PAGE_MAX ||
	        (meta->page_size & (meta->page_size - 1)) != 0)
		return PAGES_BAD;
	return PAGES_OPEN;
}

static bool judge_tree(const struct pages_tree *tree, uint64_t last_page)
{
	if (tree->depth == 0)
		return tree->root == no_page && tree->entries == 0;
	return tree->depth <= DEPTH_MAX && tree->root >= 2 && tree->root <= last_page && tree->entries > 0 &&
	        tree->leaf > 0 && tree->branch < last_page && tree->leaf < last_page &&
	        tree->overflow < last_page &&
	        (tree->depth == 1 ? tree->branch == 0 && tree->leaf == 1 : tree->branch > 0);
}

/* Whether LMDB may act upon it. */
static bool judge_meta(const struct meta *meta, uint64_t size)
{
	const struct pages_tree *main = &meta->main, *freed = &meta->freed;

	return meta->last_page >= 1 && meta->last_page <= size / meta->page_size + SHORT_MAX &&
	        main->flags == 0 && (freed->flags & ~(uint32_t)FREED_ANY) == FREED_FLAGS &&
	        judge_tree(main, meta->last_page) && judge_tree(freed, meta->last_page) &&
	        main->branch + main->leaf + main->overflow + freed->branch + freed->leaf + freed->overflow <=
	        meta->last_page - 1;
}

/* Each commit writes the page that its number's last bit names, and leaves the other as the commit before wrote it. */
static bool judge_numbers(uint64_t first, uint64_t second)
{
	if (first == 0 && second == 0)
		return true; /* nothing was committed yet */
	return first % 2 == 0 && second % 2 == 1 && (first + 1 == second || second + 1 == first);
}

static void use_meta(struct pages *pages, const struct meta *meta)
{
	pages->page_size = meta->page_size;
	pages->last_page = meta->last_page;
	pages->transaction = meta->transaction;
	pages->freed = meta->freed;
	pages->main = meta->main;
}

static int examine_file(struct pages *pages, int fd, struct ft_error *error)
{
	struct stat info;

	memset(pages, 0, sizeof(*pages));
	pages->fd = fd;
	if (fstat(fd, &info) != 0)
		return ft_fail_errno(error, errno, "the store's data file cannot be examined");
	pages->size = (uint64_t)info.st_size;
	return 0;
}

bool pages_copy_header(int fd, uint32_t page_size, uint8_t header[PAGES_HEADER_SIZE], uint32_t *found_size)
{
	if (read_at(fd, 0, header, PAGES_META_SIZE) != PAGES_META_SIZE)
		return false;
	if (page_size == 0)
		page_size = load_u32(header + PAGE_HEADER + 24);
	*found_size = page_size;
	return page_size >= PAGE_MIN && page_size <= PAGE_MAX &&
	        read_at(fd, page_size, header + PAGES_META_SIZE, PAGES_META_SIZE) == PAGES_META_SIZE;
}

int pages_put_header(
        int fd, uint32_t page_size, const uint8_t header[PAGES_HEADER_SIZE], struct ft_error *error)
{
	for (uint32_t i = 0; i < 2; i++) {
		if (pwrite(fd, header + (size_t)i * PAGES_META_SIZE, PAGES_META_SIZE, (off_t)i * page_size) !=
		        PAGES_META_SIZE)
			return ft_fail_errno(error, errno, "the header of the store cannot be written");
	}
	return fsync(fd) == 0 ? 0 : ft_fail_errno(error, errno, "the header of the store cannot be written");
}

static void open_header(struct pages *pages, const uint8_t *header, enum pages_state *state)
{
	struct meta first = {0}, second = {0};
	uint32_t version = 0;
	enum pages_state one = load_meta(header, &first, &version);
	enum pages_state other;

	pages->version = version;
	other = load_meta(header + PAGES_META_SIZE, &second, &version);
	/* A number that one of the two alone has is damage: nobody writes a store whose halves are of two kinds. */
	*state = one == PAGES_FOREIGN && other != PAGES_OPEN ? PAGES_FOREIGN : PAGES_BAD;
	if (one != PAGES_OPEN || other != PAGES_OPEN || load_u64(header) != 0 ||
	        load_u64(header + PAGES_META_SIZE) != 1 || first.page_size != second.page_size ||
	        !judge_numbers(first.transaction, second.transaction))
		return;
	use_meta(pages, second.transaction > first.transaction ? &second : &first);
	if (judge_meta(second.transaction > first.transaction ? &second : &first, pages->size))
		*state = PAGES_OPEN;
}

int pages_open(struct pages *pages, int fd, enum pages_state *state, struct ft_error *error)
{
	uint8_t header[PAGES_HEADER_SIZE] = {0};
	uint32_t page_size;

	if (examine_file(pages, fd, error) != 0)
		return -1;
	*state = pages->size == 0 ? PAGES_EMPTY : PAGES_BAD;
	if (pages->size < PAGES_META_SIZE)
		return 0;
	/* Where the second page stands a damaged first one does not say. */
	if (!pages_copy_header(fd, 0, header, &page_size)) {
		struct pages each[2];

		if (pages_open_each(each, fd, NULL) == 1)
			return 0;
	}
	open_header(pages, header, state);
	return 0;
}

int pages_open_with(struct pages *pages, int fd, uint32_t page_size, const uint8_t header[PAGES_HEADER_SIZE],
        enum pages_state *state, struct ft_error *error)
{
	if (examine_file(pages, fd, error) != 0)
		return -1;
	open_header(pages, header, state);
	if (*state == PAGES_OPEN && pages->page_size != page_size)
		*state = PAGES_BAD;
	return 0;
}

int pages_open_each(struct pages pages[2], int fd, struct ft_error *error)
{
	uint8_t page[PAGES_META_SIZE];
	struct meta meta;
	int count = 0;
	uint32_t version;

	/* Where the second one stands depends on the page size, which a damaged first one does not say. */
	for (uint64_t at = 0; at <= PAGE_MAX && count < 2; at = at == 0 ? PAGE_MIN : 2 * at) {
		if (examine_file(&pages[count], fd, error) != 0)
			return -1;
		if (read_at(fd, at, page, sizeof(page)) == sizeof(page) &&
		        load_meta(page, &meta, &version) == PAGES_OPEN && (at == 0 || meta.page_size == at))
			use_meta(&pages[count++], &meta);
	}
	if (count == 2 && pages[0].transaction > pages[1].transaction) {
		struct pages newer = pages[0];

		pages[0] = pages[1];
		pages[1] = newer;
	}
	return count;
}

bool pages_short(const struct pages *pages)
{
	return pages->size / pages->page_size <= pages->last_page;
}
