"""The sections of tests/bench/run, each a function that gives its table."""
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import harness
import stage
from figures import Ratio, Table, median, of, rate, spread, us
from stage import TUNED_N, DEFAULT_N, floor, load, program, target

ENTRIES = 1000
ROUNDS = 10


def ratio_of(rounds, beside, what):
    return Ratio(of(rounds, what), of(beside, what))


def redis_values(questions):
    """For each question a key, and a value that makes GET's reply as long on the wire as the answer is."""
    values = {}
    for index, (_, answer, _) in enumerate(questions):
        length = answer - len(b"$%d\r\n\r\n" % (answer - 8))
        values[f"rmsnorm:bf16:{1 + index}:{TUNED_N}"] = b"x" * length
    return values


class Socket:
    """A daemon with 1,000 results, the floors and Redis on one core, and the questions for them in files."""

    def __init__(self, rig, core=None):
        core = stage.SERVER if core is None else core
        self.folder = rig.enter_context(stage.short_folder())
        self.daemon = rig.enter_context(stage.daemon(ENTRIES, core=core))
        self.ping = rig.enter_context(floor("blocking", core))
        self.echo = rig.enter_context(floor("libuv", core))
        self.redis = rig.enter_context(stage.redis(core))
        self.asked = stage.lookups(self.daemon, range(ENTRIES), source="tuned")
        self.tuned = self.save("tuned", self.asked)
        self.default = self.save("default", stage.lookups(self.daemon, range(ENTRIES), n=DEFAULT_N, source="default"))
        self.floor = self.save("floor", stage.for_floor(self.asked))
        self.get = self.save("get", self.redis.fill(redis_values(self.asked)))

    def save(self, name, questions):
        return stage.save(self.folder / name, questions)

    def ours(self, name="tuned", pipeline=1, speak="flytune"):
        return target(name, speak, self.daemon.path, getattr(self, name), pipeline)

    def floors(self):
        return target("ping", "plain", self.ping, self.floor), self.bare_echo()

    def bare_echo(self):
        return target("echo", "plain", self.echo, self.floor)

    def get_of(self, pipeline=1, name="redis"):
        return target(name, "plain", self.redis.path, self.get, pipeline)


def one_client(table, where, core_of_client, core_of_server, bars):
    with contextlib.ExitStack() as rig:
        set_up = Socket(rig, core_of_server)
        said = load(*set_up.floors(), set_up.ours(), set_up.ours("default"), set_up.get_of(),
                    core=core_of_client, rounds=ROUNDS, seconds=0.3)
    ping, echo = said["ping"]["rounds"], said["echo"]["rounds"]
    words = {"ping": "ping-pong, blocking", "echo": "libuv echo", "tuned": "lookup, tuned", "default": "lookup, default",
             "redis": "Redis GET"}
    for name, one in said.items():
        rounds = one["rounds"]
        table.add(f"{words[name]}{where}", spread(rounds, "p50"), spread(rounds, "p99"), rate(rounds),
                  ratio_of(rounds, ping, "p50"), ratio_of(rounds, echo, "p50"), ratio_of(rounds, ping, "p99"))
        if bars and name in ("tuned", "default"):
            table.bar(f"p50 of one client, {name}, beside the ping-pong", ratio_of(rounds, ping, "p50").median, most=1.15)
            table.bar(f"p50 of one client, {name}, beside the echo", ratio_of(rounds, echo, "p50").median, most=1.05)
    table.data["one client" + where] = said
    return said


def socket():
    """One client over the socket beside a ping-pong, an echo and Redis."""
    table = Table("socket", "One client over the socket, 1,000 entries",
                  ["what", "p50, µs", "p99, µs", "answers a second", "p50 beside ping-pong", "p50 beside echo",
                   "p99 beside ping-pong"])
    said = one_client(table, "", stage.CLIENT, stage.SERVER, True)
    one_client(table, ", one core for both", stage.SERVER, stage.SERVER, False)
    with contextlib.ExitStack() as rig:
        set_up = Socket(rig)
        both = json.loads(stage.run(program("libraries"), f"flytune={set_up.daemon.path}", f"redis={set_up.redis.path}",
                                    f"rounds={ROUNDS}", "seconds=0.3", f"cpu={stage.CLIENT}"))
    for name, words in (("flytune", "libflytune-client, nothing kept"), ("redis", "hiredis, GET")):
        rounds = both[name]["rounds"]
        table.add(words, spread(rounds, "p50"), spread(rounds, "p99"), "", "", "", "")
    beside = ratio_of(both["flytune"]["rounds"], both["redis"]["rounds"], "p50")
    table.note(f"The raw protocol, by a client that looks at the length of an answer alone, the same for all; "
               f"{said['tuned']['question']} bytes there, {said['tuned']['answer']} back (default: "
               f"{said['default']['answer']}). A round is 0.3 s; figures are medians of {ROUNDS} rounds that alternate, "
               f"with their quartiles. Server on core {stage.SERVER}, client on core {stage.CLIENT}.")
    table.note(f"The two libraries, writing, reading and parsing: p50 {beside} of hiredis's. "
               f"{both['kept']:,} of {both['flytune']['all']['count']:,} answers came from the library's memory.")
    table.data["libraries"] = both
    return table


def redis_benchmark(set_up, clients, pipeline, size):
    """Its own client's figure, GET of 1,000 keys."""
    words = ["taskset", "-c", stage.CLIENT, "redis-benchmark", "-s", set_up.redis.path, "-c", clients, "-P", pipeline,
             "-d", size, "-r", ENTRIES, "--csv"]
    if "filled" not in set_up.__dict__:
        stage.run(*words, "-t", "set", "-n", 20 * ENTRIES)
        set_up.filled = True
    said = stage.run(*words, "-t", "get", "-n", 40000 * min(pipeline, 5)).splitlines()[-1]
    return float(said.split(",")[1].strip('"'))


def throughput():
    """32 clients, and many questions in one message, beside Redis."""
    table = Table("throughput", "Answers a second, 1,000 entries, beside Redis GET",
                  ["what", "answers a second", "p50, µs", "p99, µs", "answers beside Redis"])
    with contextlib.ExitStack() as rig:
        set_up = Socket(rig)
        size = set_up.asked[0][1]
        many = stage.lookups_many(set_up.daemon, list(range(ENTRIES)) * 8, 64)
        set_up.many = set_up.save("many", many)
        said = {name: {"rounds": []} for name in ("tuned", "default", "redis", "echo")}
        their_own = []
        for _ in range(ROUNDS):
            once = load(set_up.ours(), set_up.get_of(), set_up.ours("default"), set_up.bare_echo(),
                        clients=32, rounds=1, seconds=0.3)
            for name, one in once.items():
                said[name]["rounds"] += one["rounds"]
            their_own.append({"rate": redis_benchmark(set_up, 32, 1, size)})
        best = [{"rate": max(a["rate"], b["rate"])} for a, b in zip(said["redis"]["rounds"], their_own)]
        words = {"tuned": "32 clients: lookup, tuned", "default": "32 clients: lookup, default",
                 "redis": "32 clients: Redis GET, our client", "echo": "32 clients: libuv echo"}
        for name, text in words.items():
            rounds = said[name]["rounds"]
            table.add(text, rate(rounds), spread(rounds, "p50"), spread(rounds, "p99"),
                      ratio_of(rounds, best, "rate"))
        table.add("32 clients: Redis GET, redis-benchmark", rate(their_own), "", "", ratio_of(their_own, best, "rate"))
        table.bar("answers a second, 32 clients, beside Redis (the better of its two clients)",
                  ratio_of(said["tuned"]["rounds"], best, "rate").median, least=1.2)
        piped = load(set_up.ours("many"), set_up.get_of(16, "redis16"), set_up.get_of(64, "redis64"),
                     set_up.ours("tuned", 16), rounds=ROUNDS, seconds=0.3)
        own = {16: [], 64: []}
        for _ in range(ROUNDS):
            for pipeline, rounds in own.items():
                rounds.append({"rate": redis_benchmark(set_up, 1, pipeline, size)})
    kinds = {"many": "1 client: lookup_many of 64", "redis16": "1 client: Redis, pipelines of 16, our client",
             "redis64": "1 client: Redis, pipelines of 64, our client", "tuned": "1 client: lookups, pipelines of 16"}
    best = [{"rate": max(ones)} for ones in zip(of(piped["redis16"]["rounds"], "rate"),
                                                of(piped["redis64"]["rounds"], "rate"),
                                                of(own[16], "rate"), of(own[64], "rate"))]
    for name, text in kinds.items():
        rounds = piped[name]["rounds"]
        table.add(text, rate(rounds), spread(rounds, "p50"), spread(rounds, "p99"), ratio_of(rounds, best, "rate"))
    for pipeline, rounds in own.items():
        table.add(f"1 client: Redis, pipelines of {pipeline}, redis-benchmark", rate(rounds), "", "",
                  ratio_of(rounds, best, "rate"))
    table.bar("answers a second of lookup_many, 64 at a time, beside Redis (the best of its pipelines)",
              ratio_of(piped["many"]["rounds"], best, "rate").median, least=1.5)
    table.note(f"Redis gives as many bytes as flytune does ({size} an answer). 'Beside Redis' is beside the best that any "
               "client got out of it in the same round; times are of one message and all that it asked.")
    table.data = {"clients": said, "redis-benchmark": their_own, "many": piped, "redis-benchmark pipelines": own}
    return table


def in_process(table, served, threads, n, what):
    """A row: repeated lookups by so many threads, and the probes, in the same rounds."""
    words = [f"socket={served.path}", f"threads={threads}", f"n={n}"]
    said = json.loads(stage.run(program("repeat"), *words, "rounds=10", "ms=50"))
    calls = json.loads(stage.run(program("repeat"), *words, "mode=calls", "calls=1000000"))
    assert said["unlike"] == 0 and calls["unlike"] == 0 and calls["one_more"] == calls["calls"] + 1, (said, calls)
    probes = ("probe", "probe_copy", "probe_hash")
    beside = {name: Ratio(said["lookup"], said[name]) for name in probes}
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    table.add(f"{threads}, {what}", *(f"{median(said[name]):.1f}" for name in ("lookup", *probes)), *beside.values(),
              f"{calls['calls']} in {calls['lookups']:,}")
    table.bar(f"lookup in process, {count}, {what}, beside a probe that gives as much",
              beside["probe_copy"].median, most=2)
    table.bar(f"system calls in {calls['lookups']:,} lookups, {count}, {what}", calls["calls"], most=0)
    table.data[f"{threads} {what}"] = {"times": said, "calls": calls}
    return said


def inprocess():
    """Repeated lookups inside the client's process, beside a hash probe; system calls."""
    table = Table("inprocess", "A lookup repeated inside the process, 1,000 problems",
                  ["threads, answers", "lookup, ns", "probe, ns", "probe that copies as much, ns",
                   "that makes the hash besides, ns", "beside probe", "beside the probe that copies",
                   "beside that which hashes", "system calls"])
    with stage.daemon(ENTRIES) as served:
        said = [in_process(table, served, threads, TUNED_N, "tuned") for threads in (1, 2, 8)][0]
        other = in_process(table, served, 1, DEFAULT_N, "default")
    table.note("Nanoseconds of a core for a call: with more threads than cores, of the cores together. The library copies "
               f"{said['copied']} bytes out ({other['copied']} of a default); the probe gives a pointer, the one that copies "
               "the same bytes. All compare 88 bytes of a key. The library has the hash of a problem beforehand, and so have "
               "the first two probes. Defaults are counted, since the daemon is told how often what is not tuned was asked for. "
               "System calls are counted by a seccomp filter that lets none through, and sees one made on purpose at the end.")
    return table


def visibility():
    """From the return of a pin or unpin to the first lookup that tells it."""
    table = Table("visibility", "From a commit's return to its visibility, 1,000 changes",
                  ["what", "p50, µs", "p90, µs", "p99, µs", "most, µs"])
    with stage.daemon(ENTRIES) as served:
        for thread in os.listdir(f"/proc/{served.pid}/task"):  # the writer as well: the reader is to have its core alone
            os.sched_setaffinity(int(thread), {stage.SERVER})
        said = json.loads(stage.run(program("changes"), f"socket={served.path}", f"daemon={served.pid}", "changes=1000",
                                    f"cpu={stage.SERVER}", f"reader={stage.CLIENT}"))
    for name, text in (("after", "from the change's return to its first sight"),
                       ("waited", "of that, reader or daemon's loop waited for a core"),
                       ("net", "the rest"),
                       ("whole", "from the change's request to its first sight")):
        one = said[name]
        table.add(text, us(one["p50"]), us(one["p90"]), us(one["p99"]), us(one["max"]))
    table.bar("most µs from a change's return to its first sight", said["after"]["max"] / 1000, most=1000)
    table.bar("most µs of that in which neither waited for a core", said["net"]["max"] / 1000,
              most=1000)
    table.bar("lookups that began after a change had returned and told the old answer", said["stale"], most=0)
    table.bar("lookups that told the old answer after the new one", said["back"], most=0)
    table.note(f"One thread looks up all the time on core {stage.CLIENT} ({said['lookups']:,} lookups, of which "
               f"{said['asked']:,} asked the daemon), another pins and unpins by turns on core {stage.SERVER}, where all "
               f"of the daemon is too. {said['before_return']:,} of 1,000 changes were seen before their own request returned. The "
               "five that took longest, with how long of that the reader and the daemon's loop waited for a core by the "
               "kernel's account: " + "; ".join(f"{us(after)} µs, {us(reader)} and {us(loop)}"
                                                for after, reader, loop in said["worst"]) + ".")
    table.data = said
    return table


def successor():
    """From a successor's readiness, after kill -9, to the first answer that is not marked away."""
    table = Table("successor", "From a successor's readiness to its first answer, 200 times kill -9",
                  ["what", "p50, ms", "p90, ms", "p99, ms", "most, ms"])
    lives = 200
    chance = random.Random(7)
    late, ready = [], []
    with contextlib.ExitStack() as rig:
        notified = stage.Notified(rig.enter_context(stage.short_folder()))
        served = rig.enter_context(stage.daemon(ENTRIES))
        with subprocess.Popen([program("successor"), f"socket={served.path}", f"cpu={stage.CLIENT}"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout.readline() == "here\n"
            for _ in range(lives):
                served.kill()
                assert client.stdout.readline() == "away\n"
                time.sleep(chance.uniform(0, 0.2))  # so that the client's looks do not fall in step with the starts
                began = time.time_ns()
                served.spawn(notified.path)
                ready.append(notified.ready_ns() - began)
                word, at = client.stdout.readline().split()
                assert word == "back"
                late.append(max(0, int(at) - began - ready[-1]))
            client.stdin.close()
            assert client.wait() == 0
    for name, values in (("from the start to READY=1", ready), ("from READY=1 to the first answer not marked away", late)):
        ordered = sorted(values)
        table.add(name, *(f"{ordered[int((len(ordered) - 1) * share)] / 1e6:.1f}" for share in (0.5, 0.9, 0.99, 1)))
    table.bar("most ms from a successor's readiness to its first answer", max(late) / 1e6, most=100)
    table.note(f"The client looks up all the time on core {stage.CLIENT}; it gave the right answer throughout, marked away "
               "while no daemon was there. A successor is started 0 to 0.2 s after the death was seen. READY=1 is timed by the "
               f"kernel as it is sent. {sum(value == 0 for value in late)} of {lives} times the answer came before it.")
    table.data = {"late": late, "ready": ready}
    return table


# ---- scale ----

def start_times(state, times):
    ready = []
    for _ in range(times):
        with stage.daemon(state=state) as served:
            ready.append(served.ready_s * 1000)
            served.stop()
    return ready


def spread_questions(folder, count, most=100000):
    """Of so many entries, as many as `most`, evenly over all of them; in an order that no cache likes."""
    step = max(1, count // most)
    return stage.save(folder / f"spread-{count}",
                      stage.framed("lookup", (stage.body(index) for index in range(0, count, step))))


def mdb_get(count):
    """What store_bench says of LMDB itself, and of the store on top of it."""
    said = stage.run("taskset", "-c", stage.SERVER, program("store_bench"), count)
    figures = {line[:22].strip(): line[22:].split()[0] for line in said.splitlines()}
    return float(figures["mdb_get"]), float(figures["store_get_answer"])


def scale():
    """1,000 entries and 1,000,000."""
    table = Table("scale", "1,000 and 1,000,000 entries",
                  ["entries", "lookup p50, µs", "p99, µs", "p50 beside 1,000", "start to ready, ms (most of 10)",
                   "own memory after start, kB", "and after the lookups, kB", "mdb_get, µs", "the store's get, µs"])
    counts = (1000, 1000000)
    states = {count: stage.prepared(count) for count in counts}
    with contextlib.ExitStack() as rig:
        folder = rig.enter_context(stage.short_folder())
        served = {count: rig.enter_context(stage.daemon(state=states[count])) for count in counts}
        began = {count: harness.memory_kb(served[count].pid) for count in counts}
        for count in counts:
            stage.until_known(served[count])
            with served[count].peer() as peer:
                answer = peer.call("lookup", **stage.body(count - 1))
                assert answer["source"] == "tuned", answer
        said = load(*(target(count, "framed", served[count].path, spread_questions(folder, count)) for count in counts),
                    rounds=ROUNDS, seconds=0.4)
        after = {count: harness.memory_kb(served[count].pid) for count in counts}
    # Turn by turn, so that the machine's mood is the same for both.
    ready = {count: [] for count in counts}
    for _ in range(10):
        for count in counts:
            ready[count] += start_times(states[count], 1)
    base = said["1000"]["rounds"]
    for count in counts:
        rounds = said[str(count)]["rounds"]
        bare, ours = mdb_get(count)
        table.add(f"{count:,}", spread(rounds, "p50"), spread(rounds, "p99"), ratio_of(rounds, base, "p50"),
                  f"{median(ready[count]):.1f} ({max(ready[count]):.1f})", f"{began[count]:,}", f"{after[count]:,}",
                  f"{bare / 1000:.2f}", f"{ours / 1000:.2f}")
    table.bar("p50 with 1,000,000 entries beside 1,000", ratio_of(said["1000000"]["rounds"], base, "p50").median, most=1.2)
    table.bar("ms from start to ready with 1,000,000 entries, median", median(ready[1000000]), most=50)
    table.bar("MB of own memory with 1,000,000 entries, after the lookups", after[1000000] / 1000, most=10)
    table.note("Over the socket, one client; with 1,000,000 entries 100,000 of them are asked for by chance. Own memory is "
               "RssAnon and RssShmem. `mdb_get` is LMDB's own time for such a key in a store of as many, with its "
               "transaction renewed; the store's get adds the checksum and the decoding.")
    table.data = {"lookups": said, "ready_ms": ready, "memory_kb": {"start": began, "after": after}}
    return table


# ---- under load ----

def commits(served):
    for line in served.ctl("metrics", as_json=False).output.splitlines():
        if line.startswith("flytune_store_commits_total"):
            return int(line.split()[1])
    raise AssertionError("no count of commits")


class Sweeps:
    """Sweeps one problem after the other until it is told to rest."""

    def __init__(self, served, **problem):
        self.problem = harness.problem(**problem)
        self.served = served
        self.count = 0

    def __enter__(self):
        self.going = True
        self.thread = threading.Thread(target=self.keep_going)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join()

    def keep_going(self):
        with self.served.peer(name="sweeps") as peer:
            while self.going:
                job = peer.call("tune", kernel="rmsnorm", problem=self.problem, force=True)["job"]
                peer.call("wait", job=job)
                self.count += 1


def side_by_side(table, what, idle, busy, rate_text, bar=None):
    table.add(what, spread(idle, "p50"), spread(busy, "p50"), spread(idle, "p99"), spread(busy, "p99"),
              ratio_of(busy, idle, "p99"), rate_text)
    if bar is not None:
        table.bar(f"p99, {what}, beside idle", ratio_of(busy, idle, "p99").median, most=bar)
    table.data[what] = {"idle": idle, "busy": busy}


def one_round(served, questions, seconds=0.5):
    return load(target("lookup", "framed", served.path, questions), rounds=1, seconds=seconds)["lookup"]["rounds"][0]


def busy_with_commits(table, folder, pace_us):
    with stage.daemon(ENTRIES, script=[f"pace_us {pace_us}"]) as served:
        questions = stage.save(folder / "q", stage.framed("lookup", (stage.body(i) for i in range(ENTRIES))))
        idle, busy, rates, swept = [], [], [], 0
        one_round(served, questions)
        for _ in range(ROUNDS):
            idle.append(one_round(served, questions))
            with Sweeps(served, m=5000, n=2048) as sweeps:
                began, before = time.monotonic(), commits(served)
                busy.append(one_round(served, questions))
                rates.append((commits(served) - before) / (time.monotonic() - began))
            swept += sweeps.count
    side_by_side(table, f"a runner commits, a round each {pace_us / 1000:g} ms", idle, busy,
                 f"{median(rates):,.0f} commits a second, {swept} sweeps", 1.5)


def artifact(count):
    """What a daemon with so many results exports."""
    path = stage.WORK / f"export-{count}.json"
    state = stage.prepared(count)
    if not path.exists() or path.stat().st_mtime < state.stat().st_mtime:
        with stage.daemon(state=state) as served:
            served.ctl("export", path)
    return path


def busy_with_import(table, folder, count=100000):
    path = artifact(count)
    idle, busy, took = [], [], []
    questions = stage.save(folder / "q", stage.framed("lookup", (stage.body(i) for i in range(ENTRIES))))
    for _ in range(3):
        with stage.daemon(ENTRIES) as served:
            one_round(served, questions)
            before = [one_round(served, questions, 0.3) for _ in range(4)]
            began = time.monotonic()
            during = []
            # It reads and packs 44 MB, which is the client's work, not the daemon's: it takes what is left of its core.
            with subprocess.Popen(["taskset", "-c", str(stage.CLIENT), "chrt", "--idle", "0",
                                   *harness.ctl_command(served.path, "import", path)], stdout=subprocess.DEVNULL) as work:
                while work.poll() is None:
                    during.append(one_round(served, questions, 0.3))
                assert work.returncode == 0
            took.append(time.monotonic() - began)
            before += [one_round(served, questions, 0.3) for _ in range(4)]
            during = during[:-1] or during  # the last may have outlasted it
            # As many of one as of the other, for ratios in pairs.
            busy += during
            idle += [before[i % len(before)] for i in range(len(during))]
    side_by_side(table, f"{count:,} results are imported", idle, busy, f"{median(took):.1f} s an import", 1.5)


def busy_with_flood(table, folder):
    with stage.daemon(ENTRIES) as served:
        questions = stage.save(folder / "q", stage.framed("lookup", (stage.body(i) for i in range(ENTRIES))))
        flood = subprocess.Popen(
            ["chrt", "--idle", "0", program("load"), f"cpu={stage.CLIENT}", "clients=2", "rounds=1", "seconds=1000",
             target("flood", "framed", served.path, questions, 64)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            idle, busy, rates = [], [], []
            for _ in range(ROUNDS):
                flood.send_signal(signal.SIGSTOP)
                idle.append(one_round(served, questions))
                flood.send_signal(signal.SIGCONT)
                began, before = time.monotonic(), sum(served.status()["lookups"].values())
                busy.append(one_round(served, questions))
                rates.append((sum(served.status()["lookups"].values()) - before) / (time.monotonic() - began))
            assert flood.poll() is None, "the flood ended"
        finally:
            flood.kill()
            flood.wait()
    side_by_side(table, "a client floods", idle, busy, f"{median(rates):,.0f} lookups a second in all", 1.5)


def busy_with_sweep(table, folder):
    with stage.daemon(ENTRIES, runner=harness.program("flytune-runner-cpu")) as served:
        # What was tuned on the made-up device is none of this one's: the questions are answered by default.
        questions = stage.save(folder / "q", stage.framed("lookup", (stage.body(i) for i in range(ENTRIES))))
        idle, busy, swept = [], [], 0
        served.tune(m=64, n=4096)
        for _ in range(ROUNDS // 2):
            idle.append(one_round(served, questions))
            with Sweeps(served, m=4096, n=4096, dtype="f32") as sweeps:
                harness.until(lambda: any(job["state"] == "running" for job in served.ctl("jobs").json["jobs"]),
                              "a sweep runs")
                busy.append(one_round(served, questions, 1))
                served.ctl("cancel", max(job["job"] for job in served.ctl("jobs").json["jobs"]), check=False)
            swept += sweeps.count
    side_by_side(table, "a real CPU sweep on all cores", idle, busy, f"{swept} sweeps")


def busy():
    """p99 beside idle: commits, an import, a flood; a real sweep, apart."""
    table = Table("busy", "Lookups while the daemon has other work, 1,000 entries, one client",
                  ["meanwhile", "p50 idle, µs", "p50 busy, µs", "p99 idle, µs", "p99 busy, µs", "p99 beside idle",
                   "how much"])
    with stage.short_folder() as folder:
        for pace_us in (1000, 10000):
            busy_with_commits(table, folder, pace_us)
        busy_with_import(table, folder)
        busy_with_flood(table, folder)
        busy_with_sweep(table, folder)
    table.note(f"Idle and busy rounds alternate. The daemon's loop is on core {stage.SERVER}, the client on core "
               f"{stage.CLIENT}; the daemon's writer and its runners go where there is room, and whoever floods or "
               "imports takes what the client leaves of its core. The sweep measures on both cores at full load: there "
               "the client itself waits for a core, so it has no bar.")
    return table


# ---- a crowd ----

class Crowd:
    """Clients that are connected, of which some do not read, and some have sent half a message."""

    def __init__(self, served, clients, deaf, half):
        self.peers = [served.peer(name="crowd") for _ in range(clients)]
        data = stage.request("lookup", stage.body(1))
        for peer in self.peers[:deaf]:
            peer.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    peer.socket.send(data * 1000)
        for peer in self.peers[deaf:deaf + half]:
            peer.send(data[:len(data) // 2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for peer in self.peers:
            peer.close()


def crowd():
    """1,000 clients, 100 of them not reading, 100 in the middle of a message."""
    table = Table("crowd", "1,000 clients connected, 100 not reading, 100 having sent half a message",
                  ["who asks", "p50 alone, µs", "p50 in the crowd, µs", "p99 alone, µs", "p99 in the crowd, µs",
                   "p99 beside alone", "own memory of the daemon, kB"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with stage.daemon(ENTRIES) as served, stage.short_folder() as folder:
        questions = stage.save(folder / "q", stage.framed("lookup", (stage.body(i) for i in range(ENTRIES))))
        alone, among = {1: [], 32: []}, {1: [], 32: []}
        before = harness.memory_kb(served.pid)
        most = 0
        for _ in range(ROUNDS // 2):
            for clients in alone:
                alone[clients] += load(target("x", "framed", served.path, questions), clients=clients, rounds=1,
                                       seconds=0.4)["x"]["rounds"]
            with Crowd(served, 1000, 100, 100):
                for clients in among:
                    among[clients] += load(target("x", "framed", served.path, questions), clients=clients, rounds=1,
                                           seconds=0.4)["x"]["rounds"]
                most = max(most, harness.memory_kb(served.pid))
            harness.until(lambda: served.status()["sessions"] <= 1, "the crowd to be gone")
            time.sleep(0.5)  # what they leave is given back once, when all are gone
        after = harness.memory_kb(served.pid)
    for clients in alone:
        table.add(f"{clients} more", spread(alone[clients], "p50"), spread(among[clients], "p50"),
                  spread(alone[clients], "p99"), spread(among[clients], "p99"),
                  ratio_of(among[clients], alone[clients], "p99"), f"{before:,}; crowd {most:,}; later {after:,}")
        table.bar(f"p99 of {clients} more, beside alone", ratio_of(among[clients], alone[clients], "p99").median, most=1.5)
    table.bar("MB of own memory for each client that does not read", (most - before) / 1000 / 100, most=1.5)
    table.data = {"alone": alone, "among": among, "memory_kb": [before, most, after]}
    return table


# ---- curves ----

def curves():
    """For the plots: latency against stored entries, and against clients."""
    table = Table("curves", "Latency against stored entries and against clients",
                  ["what", "p50, µs", "p99, µs", "answers a second"])
    counts = (1000, 10000, 100000, 1000000)
    entries, clients = {}, {}
    states = {count: stage.prepared(count) for count in counts}
    with contextlib.ExitStack() as rig:
        folder = rig.enter_context(stage.short_folder())
        served = {count: rig.enter_context(stage.daemon(state=states[count])) for count in counts}
        for one in served.values():
            stage.until_known(one)
        said = load(*(target(count, "framed", served[count].path, spread_questions(folder, count)) for count in counts),
                    rounds=6, seconds=0.3)
        for count in counts:
            entries[count] = said[str(count)]["rounds"]
            table.add(f"{count:,} entries, 1 client", spread(entries[count], "p50"), spread(entries[count], "p99"),
                      rate(entries[count]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.ExitStack() as rig:
        set_up = Socket(rig)
        for number in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000):
            said = load(set_up.ours(), set_up.bare_echo(), set_up.get_of(), clients=number, rounds=4, seconds=0.2)
            clients[number] = {name: one["rounds"] for name, one in said.items()}
            for name, rounds in clients[number].items():
                words = {"tuned": "lookup", "echo": "libuv echo", "redis": "Redis GET"}[name]
                table.add(f"{number:,} client{'s' if number > 1 else ''}, {words}", spread(rounds, "p50"), spread(rounds, "p99"), rate(rounds))
    table.data = {"entries": entries, "clients": clients}
    return table


# ---- instructions ----

class Counted:
    """A daemon under callgrind, and the instructions that its main work costs between two looks."""

    def __init__(self, rig):
        self.folder = Path(rig.enter_context(stage.short_folder()))
        self.daemon = rig.enter_context(stage.daemon(
            ENTRIES, prefix=["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={self.folder / 'out'}",
                             "--dump-line=no"]))
        self.dumps = 0

    def control(self, *words):
        stage.run("callgrind_control", *words, self.daemon.pid, stderr=subprocess.STDOUT)

    def during(self, act):
        self.control("-z")
        act()
        self.control("-d")
        self.dumps += 1
        path = Path(f"{self.folder / 'out'}.{self.dumps}")
        harness.until(path.exists, "a dump of callgrind's")
        return total(path)


def total(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(("totals:", "summary:")):
            return int(line.split(":")[1].split()[0])
    raise AssertionError(f"no total in {path}")


def daemon_instructions():
    counts = {}
    with contextlib.ExitStack() as rig:
        counted = Counted(rig)
        folder = counted.folder
        path = counted.daemon.path

        def ask(name, bodies, method="lookup", each=1, times=1):
            questions = stage.save(folder / "q", stage.framed(method, bodies))
            few, many = (counted.during(lambda n=n: load(target("x", "framed", path, questions), count=n, rounds=1))
                         for n in (len(bodies) * times // 10, len(bodies) * times + len(bodies) * times // 10))
            counts[name] = (many - few) / (len(bodies) * times * each)

        tuned = [stage.body(index) for index in range(ENTRIES)]
        default = [stage.body(index, DEFAULT_N) for index in range(ENTRIES)]
        # A question with a word more is not the one that was kept: it goes the whole way, once.
        ask("daemon lookup first tuned", [{**one, "extra": 1 + index} for index, one in enumerate(tuned * 2)])
        ask("daemon lookup first default", [{**one, "extra": 1 + index} for index, one in enumerate(default * 2)])
        for one in tuned, default:
            load(target("x", "framed", path, stage.save(folder / "q", stage.framed("lookup", one))), count=2 * ENTRIES,
                 rounds=1)
        ask("daemon lookup tuned", tuned, times=5)
        ask("daemon lookup default", default, times=5)
        ask("daemon lookup_many of 64, each", [{"lookups": tuned[first:first + 64]} for first in range(0, 960, 64)],
            "lookup_many", 64, 10)
    return counts


def client_instructions():
    counts = {}
    with stage.daemon(ENTRIES) as served, stage.short_folder() as folder:
        for name, mode, many in (("client lookup kept", "run", 20000), ("client lookup asked", "ask", 4000)):
            seen = []
            for calls in (0, many):
                out = folder / f"{mode}-{calls}"
                stage.run("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", program("repeat"),
                          f"socket={served.path}", f"mode={mode}", f"calls={calls}", stderr=subprocess.DEVNULL)
                seen.append(total(out))
            counts[name] = (seen[1] - seen[0]) / many
    return counts


def system_calls():
    """Of the daemon for a lookup, by strace."""
    with stage.daemon(ENTRIES) as served, stage.short_folder() as folder:
        questions = stage.save(folder / "q", stage.framed("lookup", [stage.body(i) for i in range(ENTRIES)]))
        with subprocess.Popen(["strace", "-c", "-U", "calls,name", "-p", str(served.pid), "-o", folder / "calls"],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tracer:
            tracer.stderr.readline()  # "attached"
            load(target("x", "framed", served.path, questions), count=10000, rounds=1)
            tracer.send_signal(signal.SIGINT)
        calls = {}
        for line in (folder / "calls").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) == 2 and words[0].isdigit() and words[1] != "total":
                calls[words[1]] = int(words[0]) / 10000
    return calls


BASELINE = Path(__file__).resolve().parent / "BASELINE"


def kept_baseline():
    kept = {}
    if BASELINE.exists():
        for line in BASELINE.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition("\t")
                kept[name.strip()] = float(value)
    return kept


def keep_baseline(counts):
    BASELINE.write_text(
        "# Instructions and system calls a lookup, by `tests/bench/run --keep instructions`: gcc 12, -O2, Debian 12, x86-64.\n"
        + "".join(f"{name}\t{value:.2f}\n" for name, value in counts.items()), encoding="utf-8")


def instructions(keep=False, tolerance=3.0):
    """Instructions and system calls a lookup, beside what was kept."""
    table = Table("instructions", "Instructions a lookup",
                  ["what", "now", "kept", "change"])
    counts = {**daemon_instructions(), **client_instructions()}
    calls = system_calls()
    counts["daemon system calls a lookup"] = sum(calls.values())
    if keep:
        keep_baseline(counts)
    kept = kept_baseline()
    for name, value in counts.items():
        before = kept.get(name)
        change = None if before is None else 100 * (value - before) / before
        table.add(name, f"{value:,.1f}", "" if before is None else f"{before:,.1f}",
                  "" if change is None else f"{change:+.2f} %")
        if change is not None:
            table.bar(f"{name}: % away from what was kept", abs(change), most=tolerance)
    table.note("By callgrind: user-space instructions of the whole process between two looks, 10 % of the questions taken from "
               "110 %, so that what is not lookups falls out. System calls by strace: "
               + ", ".join(f"{name} {count:.2f}" for name, count in sorted(calls.items(), key=lambda one: -one[1])) + ".")
    table.data = {"counts": counts, "calls": calls}
    return table


SECTIONS = {section.__name__: section for section in
            (socket, throughput, inprocess, visibility, successor, scale, busy, crowd, instructions, curves)}
