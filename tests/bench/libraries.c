/* Two client libraries that do the same: write a request, block, read, parse. flytune's, of whose memory nothing is
 * used, beside hiredis with GET of as many bytes, each over a Unix socket, alternating.
 *
 *   libraries flytune=PATH redis=PATH [problems=1000] [rounds=10] [seconds=0.2] [cpu=1]
 *
 * Problem i is rmsnorm of m = 1 + i, n = 1024, bf16; its key in Redis is "rmsnorm:bf16:M:1024". The library keeps
 * so few answers that none is there when its turn comes again; `kept` counts those that were, all the same. */
#include <hiredis/hiredis.h>

#include <flytune/rmsnorm.h>

#include "tests/bench/bench.h"

enum { ROUNDS_MAX = 100 };

static flytune_client *client;
static redisContext *redis;
static flytune_problem **problems;
static size_t problem_count, next;
static uint64_t kept;

static void ask_flytune(size_t index)
{
	struct flytune_answer answer;
	struct flytune_error error;

	flytune_answer_init(&answer);
	if (flytune_lookup(client, problems[index], NULL, &answer, &error) != FLYTUNE_OK) {
		fprintf(stderr, "libraries: %s\n", error.message);
		exit(1);
	}
	kept += (answer.flags & FLYTUNE_ANSWER_KEPT) != 0;
}

static void ask_redis(size_t index)
{
	redisReply *reply = redisCommand(redis, "GET rmsnorm:bf16:%lu:1024", (unsigned long)(1 + index));

	if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
		fprintf(stderr, "libraries: Redis has no such key\n");
		exit(1);
	}
	freeReplyObject(reply);
}

static void run_round(void (*ask)(size_t index), uint64_t length_ns, struct samples *samples)
{
	uint64_t now = now_ns(), until = now + length_ns;

	while (now < until) {
		uint64_t began = now;

		ask(next++ % problem_count);
		now = now_ns();
		samples_add(samples, now - began);
	}
}

static void prepare(const char *ours, const char *theirs)
{
	struct flytune_options options;
	struct flytune_error error;

	flytune_options_init(&options);
	options.socket = ours;
	options.generation = "";
	options.autotune = FLYTUNE_AUTOTUNE_USUAL;
	options.cache_entries = 1;
	client = flytune_open(&options, &error);
	redis = redisConnectUnix(theirs);
	if (client == NULL || redis == NULL || redis->err != 0)
		die("connecting");
	problems = need(calloc(problem_count, sizeof(flytune_problem *)));
	for (size_t i = 0; i < problem_count; i++) {
		struct flytune_rmsnorm shape;

		flytune_rmsnorm_init(&shape);
		shape.m = 1 + (int64_t)i;
		shape.n = 1024;
		shape.dtype = "bf16";
		problems[i] = need(flytune_problem_rmsnorm(&shape, &error));
		ask_flytune(i);
		ask_redis(i);
	}
	kept = 0;
}

int main(int argc, char **argv)
{
	uint64_t length_ns = (uint64_t)(strtod(argument(argc, argv, "seconds", "0.2"), NULL) * 1e9);
	int rounds = (int)number(argc, argv, "rounds", 10);
	static const char *const name[2] = {"flytune", "redis"};
	static void (*const ask[2])(size_t index) = {ask_flytune, ask_redis};
	struct samples samples[2];
	size_t end[2][ROUNDS_MAX];

	problem_count = (size_t)number(argc, argv, "problems", 1000);
	if (rounds < 1 || rounds > ROUNDS_MAX || problem_count < 1) {
		errno = EINVAL;
		die("rounds or problems");
	}
	stay_on(number(argc, argv, "cpu", 1));
	samples_init(&samples[0], 4 << 20);
	samples_init(&samples[1], 4 << 20);
	prepare(argument(argc, argv, "flytune", ""), argument(argc, argv, "redis", ""));
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < 2; i++) {
			int who = (round + i) % 2;

			run_round(ask[who], length_ns, &samples[who]);
			end[who][round] = samples[who].count;
		}
	}
	printf("{\"kept\":%llu", (unsigned long long)kept);
	for (int who = 0; who < 2; who++) {
		size_t from = 0;

		printf(",\"%s\":{\"rounds\":[", name[who]);
		for (int round = 0; round < rounds; from = end[who][round], round++) {
			samples_sort(samples[who].ns + from, end[who][round] - from);
			printf("%s{", round > 0 ? "," : "");
			samples_print(samples[who].ns + from, end[who][round] - from);
			printf("}");
		}
		samples_sort(samples[who].ns, samples[who].count);
		printf("],\"all\":{");
		samples_print(samples[who].ns, samples[who].count);
		printf("}}");
	}
	printf("}\n");
	flytune_close(client);
	redisFree(redis);
	return 0;
}
