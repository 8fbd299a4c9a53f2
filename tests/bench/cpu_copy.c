/* How near a kernel comes to a copy on the CPU: every config of a problem beside memcpy and a streaming-store copy of
 * the same bytes, on the same cores, in interleaved rounds of one run.
 *
 *     cpu_copy [M N DTYPE [ROUNDS [KERNEL]]]        4096 8192 f32 21 rmsnorm unless given
 *
 * GB/s counts what the problem reads and writes, once each. "of copy" is the better copy's time over the config's. */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/host.h"
#include "kernels/isa.h"
#include "kernels/pool.h"
#include "kernels/rows/rows.h"

enum { LINE = 64, COPIES = 2, CORES_MAX = 1024, ROUNDS_MOST = 1001, SAMPLE_US = 2000 };

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* ---- copies ---- */

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void stream_512(char *to, const char *from, size_t size)
{
	for (size_t at = 0; at < size; at += LINE)
		_mm512_stream_si512((__m512i *)(void *)(to + at), _mm512_loadu_si512(from + at));
}

__attribute__((target("avx"))) static void stream_256(char *to, const char *from, size_t size)
{
	for (size_t at = 0; at < size; at += 32)
		_mm256_stream_si256((__m256i *)(void *)(to + at),
		        _mm256_loadu_si256((const __m256i *)(const void *)(from + at)));
}

static void stream_128(char *to, const char *from, size_t size)
{
	for (size_t at = 0; at < size; at += 16)
		_mm_stream_si128((__m128i *)(void *)(to + at),
		        _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
}

static void copy_stream(char *to, const char *from, size_t size)
{
	size_t whole = size / LINE * LINE;
	if (__builtin_cpu_supports("avx512f"))
		stream_512(to, from, whole);
	else if (__builtin_cpu_supports("avx"))
		stream_256(to, from, whole);
	else
		stream_128(to, from, whole);
	memcpy(to + whole, from + whole, size - whole);
	_mm_sfence();
}
#else
static void copy_stream(char *to, const char *from, size_t size)
{
	memcpy(to, from, size);
}
#endif

struct copy {
	char *to;
	const char *from;
	size_t size;
	uint32_t threads;
	bool streams;
};

static void copy_part(void *context, uint32_t worker)
{
	const struct copy *copy = context;
	size_t part = (copy->size / copy->threads + LINE - 1) / LINE * LINE;
	size_t first = part * worker < copy->size ? part * worker : copy->size;
	size_t size = copy->size - first < part ? copy->size - first : part;
	if (copy->streams)
		copy_stream(copy->to + first, copy->from + first, size);
	else
		memcpy(copy->to + first, copy->from + first, size);
}

/* ---- rows of the table ---- */

struct entry {
	char name[FT_CONFIG_TEXT_SIZE];
	bool is_copy;
	bool streams;
	void *plan;
	uint64_t time_ps[ROUNDS_MOST];
	uint64_t median, least;
};

struct bench {
	const struct ft_kernel_cpu *code;
	struct ft_problem whole;
	struct ft_rows problem;
	struct ft_pool *pool;
	uint32_t cores;
	char *memory;
	size_t bytes; /* of one array, up to a whole line */
	size_t sets;
	size_t at;
	char *weight;
	uint64_t launches; /* a sample */
};

static void launch(struct bench *bench, const struct entry *entry)
{
	char *in = bench->memory + bench->at * 2 * bench->bytes;
	char *out = in + bench->bytes;
	bench->at = bench->at + 1 < bench->sets ? bench->at + 1 : 0;
	if (entry->is_copy) {
		struct copy copy = {.to = out,
		        .from = in,
		        .size = bench->bytes,
		        .threads = bench->cores,
		        .streams = entry->streams};
		ft_pool_run(bench->pool, bench->cores, copy_part, &copy);
		return;
	}
	void *data[FT_TENSORS_MAX] = {[FT_ROWS_OUTPUT] = out, [FT_ROWS_INPUT] = in};
	for (size_t i = FT_ROWS_WEIGHT; i < FT_TENSORS_MAX; i++)
		data[i] = bench->weight;
	bench->code->run(bench->pool, entry->plan, data, bench->problem.m);
}

static uint64_t sample_ps(struct bench *bench, const struct entry *entry)
{
	uint64_t begin = now_ns();
	for (uint64_t i = 0; i < bench->launches; i++)
		launch(bench, entry);
	return (now_ns() - begin) * 1000 / (bench->launches > 0 ? bench->launches : 1);
}

static int compare_times(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;
	return (*x > *y) - (*x < *y);
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a;
	const struct entry *y = b;
	return (x->median > y->median) - (x->median < y->median);
}

static int find_cores(struct bench *bench, const struct ft_traits *traits, int cpu[CORES_MAX])
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return -1;
	for (int i = 0; i < CPU_SETSIZE && bench->cores < traits->units && bench->cores < CORES_MAX; i++) {
		if (CPU_ISSET(i, &set))
			cpu[bench->cores++] = i;
	}
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu[0], &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

static int prepare(struct bench *bench, const struct ft_traits *traits)
{
	static const uint16_t one[] = {0, 0x3c00, 0x3f80};
	const size_t size = ft_dtype_size(bench->problem.dtype);
	int cpu[CORES_MAX] = {0};
	if (find_cores(bench, traits, cpu) != 0)
		return -1;
	bench->pool = ft_pool_new(bench->cores, cpu);
	bench->bytes = (bench->problem.m * bench->problem.n * size + LINE - 1) / LINE * LINE;
	bench->sets = traits->cache * 5 / 4 / (2 * bench->bytes + 1) + 1;
	if (bench->sets < 2) /* never the pair of the launch before */
		bench->sets = 2;
	bench->memory = mmap(NULL, bench->sets * 2 * bench->bytes, PROT_READ | PROT_WRITE,
	        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bench->weight = aligned_alloc(LINE, (bench->problem.n * size + LINE - 1) / LINE * LINE);
	if (!bench->pool || bench->memory == MAP_FAILED || !bench->weight)
		return -1;
	(void)madvise(bench->memory, bench->sets * 2 * bench->bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bench->sets * 2 * bench->bytes / size; i++) {
		if (size == 4)
			((float *)(void *)bench->memory)[i] = (float)(i % 1000) / 500 - 1;
		else
			((uint16_t *)(void *)bench->memory)[i] =
			        (uint16_t)(one[bench->problem.dtype] + i % 100);
	}
	for (size_t i = 0; i < bench->problem.n; i++) {
		if (size == 4)
			((float *)(void *)bench->weight)[i] = 1;
		else
			((uint16_t *)(void *)bench->weight)[i] = one[bench->problem.dtype];
	}
	return 0;
}

static size_t fill_entries(struct bench *bench, const struct ft_space *space, struct entry *entry)
{
	size_t count = 0;
	for (int streams = 0; streams < COPIES; streams++) {
		entry[count] = (struct entry){.is_copy = true, .streams = streams};
		snprintf(entry[count++].name, sizeof(entry->name), "%s, %u threads",
		        streams ? "copy, streaming stores" : "memcpy", bench->cores);
	}
	for (uint32_t i = 0; i < space->count; i++) {
		if (space->pruned[i][0])
			continue;
		ft_config_format(&space->config[i], ' ', entry[count].name, sizeof(entry->name));
		entry[count].plan = calloc(1, bench->code->plan_size);
		if (!entry[count].plan)
			return 0;
		bench->code->resolve(bench->code, &bench->whole, &space->config[i],
		        &(struct ft_traits){.units = bench->cores}, entry[count].plan);
		count++;
	}
	return count;
}

static void race(struct bench *bench, struct entry *entry, size_t count, size_t rounds)
{
	bench->launches = 1;
	launch(bench, &entry[1]);
	uint64_t once = sample_ps(bench, &entry[1]);
	bench->launches = (uint64_t)SAMPLE_US * 1000000 / (once + 1) + 1;
	for (size_t round = 0; round < rounds; round++) {
		for (size_t i = 0; i < count; i++)
			entry[i].time_ps[round] = sample_ps(bench, &entry[i]);
	}
	for (size_t i = 0; i < count; i++) {
		qsort(entry[i].time_ps, rounds, sizeof(entry[i].time_ps[0]), compare_times);
		entry[i].median = entry[i].time_ps[rounds / 2];
		entry[i].least = entry[i].time_ps[0];
	}
}

static void print(const struct bench *bench, const struct ft_kernel *kernel, struct entry *entry,
        size_t count, size_t rounds)
{
	double bytes = (double)kernel->bytes(kernel, &bench->whole);
	double copy = (double)(entry[0].median < entry[1].median ? entry[0].median : entry[1].median);
	enum ft_isa isa[FT_ISAS];
	double least = (double)(entry[0].least < entry[1].least ? entry[0].least : entry[1].least);
	ft_isa_usable(isa);
	qsort(entry, count, sizeof(*entry), compare_entries);
	printf("%s m=%" PRIu64 " n=%" PRIu64 " %s, %s, %u cores, %zu rounds of %" PRIu64
	       " launches, %zu arrays of %.1f MiB\n\n",
	        kernel->name, bench->problem.m, bench->problem.n, ft_dtype_name(bench->problem.dtype),
	        ft_isa_name(isa[0]), bench->cores, rounds, bench->launches, 2 * bench->sets,
	        (double)bench->bytes / (1 << 20));
	printf("%-64s %12s %12s %9s %9s %9s\n", "", "median µs", "least µs", "GB/s", "of copy", "by least");
	for (size_t i = 0; i < count; i++)
		printf("%-64s %12.2f %12.2f %9.1f %9.3f %9.3f\n", entry[i].name,
		        (double)entry[i].median / 1e6, (double)entry[i].least / 1e6,
		        bytes * 1e3 / (double)entry[i].median, copy / (double)entry[i].median,
		        least / (double)entry[i].least);
}

int main(int argc, char **argv)
{
	const char *name = argc > 5 ? argv[5] : "rmsnorm";
	const struct ft_kernel *kernel = ft_kernel_find(name);
	static struct ft_problem given; /* large for a stack */
	struct ft_traits traits;
	struct ft_error error = {0};
	struct bench bench = {0};
	struct ft_space *space = calloc(1, sizeof(*space));
	struct entry *entry = calloc(FT_SPACE_MAX + COPIES, sizeof(*entry));
	size_t rounds = argc > 4 ? strtoul(argv[4], NULL, 10) : 21;
	int status = EXIT_FAILURE;
	if (!space || !entry)
		goto out;
	ft_problem_set_number(&given, "m", argc > 3 ? strtol(argv[1], NULL, 10) : 4096, NULL);
	ft_problem_set_number(&given, "n", argc > 3 ? strtol(argv[2], NULL, 10) : 8192, NULL);
	ft_problem_set_text(&given, "dtype", argc > 3 ? argv[3] : "f32", NULL);
	ft_traits_guess("cpu", &traits);
	if (rounds < 1 || rounds > ROUNDS_MOST) {
		fprintf(stderr, "cpu_copy: 1 to %d rounds\n", ROUNDS_MOST);
		goto out;
	}
	for (size_t i = 0; ft_kernels_cpu[i]; i++) {
		if (strcmp(ft_kernels_cpu[i]->name, name) == 0)
			bench.code = ft_kernels_cpu[i];
	}
	if (!kernel || !bench.code) {
		fprintf(stderr, "cpu_copy: there is no kernel %s\n", name);
		goto out;
	}
	if (ft_problem_admit(kernel, kernel->schema(kernel, "cpu"), &given, &bench.whole, &error) < 0 ||
	        kernel->space(kernel, &bench.whole, &traits, space, &error) < 0) {
		fprintf(stderr, "cpu_copy: %s\n", error.message);
		goto out;
	}
	bench.problem = ft_rows_unpack(&bench.whole);
	if (prepare(&bench, &traits) != 0) {
		fprintf(stderr, "cpu_copy: not enough memory or threads\n");
		goto out;
	}
	size_t count = fill_entries(&bench, space, entry);
	if (count == 0)
		goto out;
	race(&bench, entry, count, rounds);
	print(&bench, kernel, entry, count, rounds);
	status = EXIT_SUCCESS;
out:
	ft_pool_free(bench.pool);
	free(bench.weight);
	free(space);
	free(entry);
	return status;
}
