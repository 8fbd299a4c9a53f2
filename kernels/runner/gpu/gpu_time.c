#include "kernels/runner/gpu/internal.h"
#include "proto/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

enum {
	WARM_MAX_NS = 60000000,
	/* What tells that someone else was on the device: see is_crowded. */
	CROWDED_NS = 300000,   /* that the host waits longer than it has to */
	JITTER_NS = 20000,     /* that a sample or a probe may take longer, whatever it takes */
	PATIENCE_NS = 8000000, /* spent on a sample that is disturbed, at the most */
	RETAKES = 4,
	COLD_TIMES =
	        3, /* that a sample is taken of each, to see whether the caches were cleared; the least counts */
	COLD_RISE = 2,       /* percent that a launch may take longer where far more was read before it */
	LOOK_NS = 100000000, /* between two questions to the system, which take a part of a millisecond */
};

int gpu_capture(struct gpu *gpu, unsigned launches,
        int (*launch)(struct gpu *gpu, void *context, unsigned number, struct ft_error *error), void *context,
        hip_graph_exec *exec, struct ft_error *error)
{
	hip_graph graph = NULL;
	hip_error ended;
	int code = gpu_failed(gpu, gpu->hip.StreamBeginCapture(gpu->stream, HIP_CAPTURE_THREAD_LOCAL),
	        "cannot capture a graph", error);

	if (code)
		return code;
	for (unsigned i = 0; i < launches && !code; i++)
		code = launch(gpu, context, i, error);
	ended = gpu->hip.StreamEndCapture(gpu->stream, &graph);
	if (!code)
		code = gpu_failed(gpu, ended, "cannot capture a graph", error);
	if (!code)
		code = gpu_failed(
		        gpu, gpu->hip.GraphInstantiate(&gpu->hip, exec, graph), "cannot make a graph", error);
	if (graph)
		gpu->hip.GraphDestroy(graph);
	return code;
}

struct timed {
	const struct member *member; /* NULL: the floor's */
	unsigned place;
	uint64_t first; /* set */
};

static int timed_launch(struct gpu *gpu, void *context, unsigned number, struct ft_error *error)
{
	const struct timed *timed = context;
	uint64_t set = (timed->first + number) % gpu->sets;
	void *unused = gpu->result;
	void *nothing[] = {&unused}, *data[FT_TENSORS_MAX];

	if (!timed->member)
		return gpu_launch(gpu, gpu->kernel[NOTHING], 1, CHECK_BLOCK, nothing, error);
	gpu_data_of(gpu, set, set, data);
	return gpu_launch_member(gpu, timed->member, timed->place, data, error);
}

/* A graph of many launches, each on the next set of buffers; another place begins with another. No more launches than sets
 * are in a sample, and its parts go on where the one before ended: so none comes back in it. */
static int capture(struct gpu *gpu, const struct member *member, unsigned place, unsigned launches,
        hip_graph_exec *exec, struct ft_error *error)
{
	struct timed timed = {.member = member,
	        .place = place,
	        .first = (uint64_t)place * launches + place / PARTS * gpu->sets / (PLACES / PARTS)};

	return gpu_capture(gpu, launches, timed_launch, &timed, exec, error);
}

/* What a run of a graph took, and what happened around it. */
struct timing {
	uint64_t elapsed_ns;
	uint64_t probe_ns;  /* of the reading that clears the caches before it, always the same work */
	uint64_t waited_ns; /* by the host, beyond both */
	bool preempted;     /* so was the host's thread: its wait says nothing */
};

static uint64_t interruptions(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

/* Clears the caches by reading other memory, which also keeps the device busy until the graphs are on their way;
 * then times them from the first kernel to the last. */
static int time_graphs(struct gpu *gpu, const hip_graph_exec *exec, unsigned count, struct timing *timing,
        struct ft_error *error)
{
	int64_t quads = (int64_t)(gpu->flush_bytes / 16);
	void *data = gpu->flush, *never = gpu->result + 128;
	void *arguments[] = {&data, &quads, &never};
	float probe = 0, graph = 0;
	uint64_t begin = ft_monotonic_ns(), calm = interruptions(), wall;
	int code;

	gpu->launched = true;
	gpu->audited = 0;
	if ((code = gpu_restore(gpu, gpu->sets, error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventRecord(gpu->before, gpu->stream),
	                 "cannot record an event", error)) ||
	        (code = gpu_launch(
	                 gpu, gpu->kernel[READ_ALL], gpu->traits.units * 8, CHECK_BLOCK, arguments, error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventRecord(gpu->start, gpu->stream),
	                 "cannot record an event", error)))
		return code;
	for (unsigned i = 0; i < count; i++)
		if ((code = gpu_failed(gpu, gpu->hip.GraphLaunch(exec[i], gpu->stream),
		             "cannot launch a graph", error)))
			return code;
	if ((code = gpu_failed(
	             gpu, gpu->hip.EventRecord(gpu->stop, gpu->stream), "cannot record an event", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventSynchronize(gpu->stop), "a kernel failed", error)))
		return code;
	wall = ft_monotonic_ns() - begin;
	timing->preempted = interruptions() != calm;
	if ((code = gpu_failed(gpu, gpu->hip.EventElapsedTime(&probe, gpu->before, gpu->start),
	             "cannot read an event", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventElapsedTime(&graph, gpu->start, gpu->stop),
	                 "cannot read an event", error)))
		return code;
	timing->probe_ns = (uint64_t)((double)probe * 1e6);
	timing->elapsed_ns = (uint64_t)((double)graph * 1e6);
	timing->waited_ns = wall - at_most(wall, timing->probe_ns + timing->elapsed_ns);
	gpu->probes++;
	gpu->probe_sum_ns += timing->probe_ns;
	if (gpu->probes == 1 || timing->probe_ns < gpu->probe_least_ns)
		gpu->probe_least_ns = timing->probe_ns;
	if (gpu->probes == 1 || timing->waited_ns < gpu->wait_least_ns)
		gpu->wait_least_ns = timing->waited_ns;
	return 0;
}

/* Whether a time is beyond what the same work takes on a device that does nothing else. */
static bool is_long(uint64_t took_ns, uint64_t least_ns)
{
	return took_ns > least_ns + least_ns / 2 + JITTER_NS;
}

/* Another process's kernels run in slices of time between ours: the host waits for its turn, or a slice falls into the
 * probe. */
static bool is_crowded(const struct gpu *gpu, const struct timing *timing)
{
	return is_long(timing->probe_ns, gpu->probe_least_ns) ||
	        (!timing->preempted && timing->waited_ns > gpu->wait_least_ns + CROWDED_NS);
}

void gpu_drop_graphs(const struct gpu *gpu, struct member *member)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (member->place[i].graph) {
			gpu->hip.GraphExecDestroy(member->place[i].graph);
			member->place[i].graph = NULL;
		}
}

unsigned gpu_launches_for(uint64_t launch_ns)
{
	/* What an event costs is in every sample, and shared by its launches: so a few, if they do not take twice as long. */
	enum { FEW = 6 };
	uint64_t count = TARGET_NS / at_least(launch_ns, 1) + 1;

	return launch_ns < UINT64_C(10) * TARGET_NS ? (unsigned)at_least(count, at_most(FEW, 2 * count)) : 1;
}

static int measure_floor(struct gpu *gpu, struct ft_error *error)
{
	enum { TIMES = 3 };
	hip_graph_exec exec = NULL;
	struct timing timing;
	uint64_t best = UINT64_MAX;
	int code = capture(gpu, NULL, 0, gpu->launches, &exec, error);

	for (int i = 0; i < TIMES && !code; i++) {
		code = time_graphs(
		        gpu, (const hip_graph_exec[PARTS]){exec, exec}, gpu->parts, &timing, error);
		if (!code && timing.elapsed_ns < best)
			best = timing.elapsed_ns;
	}
	if (exec)
		gpu->hip.GraphExecDestroy(exec);
	if (!code)
		gpu->floor_ps = best * 1000 / gpu->launches / gpu->parts;
	return code;
}

static bool is_cold(const struct gpu *gpu)
{
	return gpu->near_ps > 0 && gpu->far_ps * 100 <= gpu->near_ps * (100 + COLD_RISE);
}

static void say_method(struct gpu *gpu)
{
	double mean = gpu->probes > 0 ? (double)gpu->probe_sum_ns / (double)gpu->probes : 0;
	char looked[80] = "";

	if (gpu->near_ps > 0)
		snprintf(looked, sizeof looked, ": a launch took %.3f us, and %.3f behind %" PRIu64 " MiB",
		        (double)gpu->near_ps / 1e6, (double)gpu->far_ps / 1e6, gpu->flush_room >> 20);
	snprintf(gpu->base.method, sizeof gpu->base.method,
	        "samples of %u launches, each on buffers of its own (%" PRIu64 " sets, %" PRIu64
	        " MiB in all); %s%s; caches cleared before by reading %" PRIu64
	        " MiB (%.1f us, %.1f in the mean); an empty kernel takes %.3f us; %" PRIu64 " of %" PRIu64
	        " samples disturbed",
	        gpu->launches * gpu->parts, gpu->sets, gpu->sets * gpu->set >> 20,
	        is_cold(gpu) ? "cold" : "not known to be cold", looked, gpu->flush_bytes >> 20,
	        (double)gpu->probe_least_ns / 1e3, mean / 1e3, (double)gpu->floor_ps / 1e6, gpu->disturbed,
	        gpu->samples);
}

static bool is_over(const struct gpu *gpu)
{
	return gpu->base.deadline_ns > 0 && ft_monotonic_ns() >= gpu->base.deadline_ns;
}

/* The least of some samples, behind so many bytes read before each; of one where the time is over. */
static int time_behind(struct gpu *gpu, const hip_graph_exec *exec, uint64_t bytes, uint64_t *launch_ps,
        struct ft_error *error)
{
	const uint64_t usual = gpu->flush_bytes;
	uint64_t least = UINT64_MAX;
	int code = 0;

	gpu->flush_bytes = bytes;
	for (int i = 0; i < COLD_TIMES && !code && (i == 0 || !is_over(gpu)); i++) {
		struct timing timing;

		code = time_graphs(gpu, exec, gpu->parts, &timing, error);
		if (!code && timing.elapsed_ns < least)
			least = timing.elapsed_ns;
	}
	gpu->flush_bytes = usual;
	if (!code)
		*launch_ps = at_least(1, least * 1000 / gpu->launches / gpu->parts);
	return code;
}

/* The size of a cache does not tell how much has to be read for nothing to be left in it, and not every driver tells the
 * size of the last: so more is read, until a launch takes no longer when all that there is room for was read. */
static int look_for_cold(struct gpu *gpu, struct member *member, struct ft_error *error)
{
	hip_graph_exec exec[PARTS] = {NULL};
	int code = 0;

	/* They are those of its first sample. */
	for (unsigned i = 0; i < gpu->parts; i++) {
		if ((code = gpu_load_member(gpu, member, i, error)) ||
		        (code = capture(gpu, member, i, gpu->launches, &member->place[i].graph, error)))
			return code;
		exec[i] = member->place[i].graph;
	}
	while (gpu->flush_bytes < gpu->flush_room && !is_over(gpu)) {
		if ((code = time_behind(gpu, exec, gpu->flush_bytes, &gpu->near_ps, error)) ||
		        (code = time_behind(gpu, exec, gpu->flush_room, &gpu->far_ps, error)))
			return code;
		if (is_cold(gpu))
			break;
		gpu->flush_bytes = at_most(2 * gpu->flush_bytes, gpu->flush_room);
	}
	/* Of reading other amounts nothing follows for those to come. */
	gpu->probes = gpu->probe_sum_ns = 0;
	return 0;
}

int gpu_warm(struct ft_backend *self, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *all = gpu->member, *member = NULL;
	struct timing timing = {0};
	hip_graph_exec exec = NULL;
	uint64_t spent = 0, before = 0;
	unsigned launches;
	int code = gpu_get_ready(gpu, error);

	for (size_t i = 0; i < gpu->count && !member; i++)
		if (all[i].place[0].function[0])
			member = &all[i];
	/* In a sweep that goes on after a crash all may be verified already, and none be loaded. */
	for (size_t i = 0; i < gpu->count && !member && !code; i++)
		if (all[i].code.data && (code = gpu_load_member(gpu, &all[i], 0, error)) == 0)
			member = &all[i];
	if (code || !member)
		return code ? code : ft_fail(error, FT_E_UNAVAILABLE, "no config is ready to be timed");
	launches = (unsigned)at_least(1, at_most(gpu->sets, 16));
	code = capture(gpu, member, 0, launches, &exec, error);
	/* Until two in a row agree within 2 %: clocks have come up, and all code is on the device. */
	for (unsigned i = 0; spent < WARM_MAX_NS && !code; i++) {
		before = timing.elapsed_ns;
		code = time_graphs(gpu, &exec, 1, &timing, error);
		spent += timing.elapsed_ns + 50000;
		if (i >= 4 && timing.elapsed_ns * 50 > before * 49 && timing.elapsed_ns * 50 < before * 51)
			break;
	}
	if (exec)
		gpu->hip.GraphExecDestroy(exec);
	/* Warm again after a pause: what was sized stays so. */
	if (!code && gpu->launches == 0) {
		launches = (unsigned)at_most(gpu->sets, gpu_launches_for(timing.elapsed_ns / launches));
		gpu->parts = launches > 1 ? PARTS : 1;
		gpu->launches = launches / gpu->parts;
		if ((code = look_for_cold(gpu, member, error)) == 0)
			code = measure_floor(gpu, error);
	}
	if (!code)
		say_method(gpu);
	return code;
}

/* A sample that a slice of someone else's fell into is taken again, while that is cheap. It takes half as long again as the
 * config ever took, which no clock does to it; the decision would cut it off as well. */
int gpu_measure(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = &gpu->member[index];
	unsigned at = member->samples++ * gpu->parts % PLACES;
	bool first = member->launches == 0, disturbed = false, cut = true;
	hip_graph_exec graph[PARTS] = {NULL};
	struct timing timing;
	uint64_t spent = 0;
	int code;

	if ((code = gpu_get_ready(gpu, error)))
		return code;
	if (first)
		member->launches = gpu->launches;
	for (unsigned i = 0; i < gpu->parts; i++) {
		struct placed *place = &member->place[at + i];

		if ((code = gpu_load_member(gpu, member, at + i, error)) ||
		        (!place->graph &&
		                (code = capture(
		                         gpu, member, at + i, member->launches, &place->graph, error))))
			return code;
		graph[i] = place->graph;
	}
	for (unsigned i = 0; cut && i <= RETAKES && spent < PATIENCE_NS; i++) {
		if ((code = time_graphs(gpu, graph, gpu->parts, &timing, error)))
			return code;
		if (member->least_ns == 0 || timing.elapsed_ns < member->least_ns)
			member->least_ns = timing.elapsed_ns;
		cut = is_long(timing.elapsed_ns, member->least_ns) ||
		        is_long(timing.probe_ns, gpu->probe_least_ns);
		disturbed = disturbed || cut || is_crowded(gpu, &timing);
		spent += timing.probe_ns + timing.elapsed_ns + timing.waited_ns;
	}
	gpu->samples++;
	gpu->disturbed += disturbed;
	self->disturbed += disturbed;
	*sample_ps = timing.elapsed_ns * 1000 / member->launches / gpu->parts;
	if (*sample_ps == 0)
		*sample_ps = 1;
	/* A config that is many times slower than the rest needs fewer launches. */
	if (first && timing.elapsed_ns > 4 * (uint64_t)TARGET_NS && member->launches > 2) {
		member->launches =
		        (unsigned)at_least(2, (uint64_t)member->launches * TARGET_NS / timing.elapsed_ns);
		member->least_ns = 0;
		gpu_drop_graphs(gpu, member);
	}
	return 0;
}

void gpu_interference(struct ft_backend *self, struct ft_interference *told)
{
	struct gpu *gpu = gpu_of(self);
	struct ft_nvidia_state state;
	uint64_t now = ft_monotonic_ns();
	bool crowded = gpu->disturbed > gpu->looked_at;
	int length = 0;

	say_method(gpu);
	if (gpu->nvidia && gpu->index == gpu->nvidia_device && now - gpu->looked_ns >= LOOK_NS) {
		ft_nvidia_look(gpu->nvidia, crowded, &state);
		gpu->looked_ns = now;
		gpu->looked_at = gpu->disturbed;
		gpu->held = gpu->held || state.held;
		gpu->capped = gpu->capped || state.capped;
		if (state.processes > 1)
			gpu->processes = state.processes;
		told->disturbed = state.held;
	}
	if (gpu->held || gpu->capped)
		length = snprintf(told->reason, sizeof told->reason, "%s",
		        gpu->held ? "heat or power held the device's clocks down"
		                  : "the device's clocks were at its power limit");
	/* One is no reason to be silent about the other. */
	if (gpu->processes > 1)
		snprintf(told->reason + length, sizeof told->reason - (size_t)length,
		        "%s%u processes had a context on the device", length > 0 ? "; " : "", gpu->processes);
}
