"""Much of everything: forks, threads, connections, problems and clients. Answers stay right, and nothing grows."""
import contextlib
import json
import os
import resource
import subprocess
import time

import msgpack
import pytest

import harness
from harness import problem, shape

LONG = bool(os.environ.get("FLYTUNE_LONG"))
POOL = 3 + 8  # descriptors of a program whose threads share a client: its own, and as many connections as there can be
PARTIAL_S = 30  # that the daemon waits for the rest of a message
CLIENTS = 200 if harness.INSTRUMENTED else 1000


def drill(daemon, what, count, started=None):
    """Runs the C program; gives its figures. started() is called once it is warm."""
    process = subprocess.Popen([str(harness.program("drill")), what, str(count)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, env={**os.environ, "FLYTUNE_SOCKET": str(daemon.path)})
    try:
        line = ""
        for line in process.stdout:
            if line == "warm\n" and started:
                started()
        assert process.wait(harness.DEADLINE) == 0
        return {name: int(value) for name, value in (pair.split("=") for pair in line.split())}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_parent_and_child_of_a_fork_each_get_their_own_answers(daemon, tmp_path):
    count = 300 if harness.INSTRUMENTED else 10000
    path = tmp_path / "answers.json"
    daemon.tune(m=64, n=4096)
    daemon.ctl("export", path)
    daemon.ctl("forget", *shape())
    data = json.loads(path.read_text())
    row = data["answers"][0]
    # As the program expects it: each problem tells itself by its time.
    path.write_text(json.dumps({**data, "answers": [
        {**row, "problem": {**row["problem"], "n": n, "row_stride": n}, "time_ps": n * 10**6}
        for n in range(1, 2 * count + 1)]}))
    assert daemon.ctl("import", path).json["kept"] == 2 * count
    assert drill(daemon, "fork", count)["lookups"] == 2 * count


# What it is, how often in short and in full, and how much a program and the daemon may grow meanwhile, in kB.
@pytest.mark.parametrize("what,short,full,client_kb,daemon_kb", [
    ("threads", 1000, 10000, 512, 512), ("connects", 2000, 10000, 512, 512), ("fresh", 60000, 10000000, 512, 512)])
def test_memory_and_descriptors_stay_flat(daemon, what, short, full, client_kb, daemon_kb):
    count = full if LONG else short // 10 if harness.INSTRUMENTED else short
    warm = {}

    def started():
        warm["kb"], warm["descriptors"] = harness.memory_kb(daemon.pid), descriptors(daemon.pid)

    daemon.tune()
    figures = drill(daemon, what, count, started)
    with daemon.peer() as peer:
        # Whoever closed is gone once a later one was answered and the loop went round.
        harness.until(lambda: descriptors(daemon.pid) <= warm["descriptors"], "the descriptors are closed")
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "tuned"
    grown = harness.memory_kb(daemon.pid) - warm["kb"]
    print(f"{count} {what}: the client {figures}; the daemon grew by {grown} kB from {warm['kb']} kB")
    # How many of its connections a client has needed by half-time is up to chance.
    assert figures["descriptors"] <= (figures["descriptors_warm"] if what == "connects" else POOL)
    if not harness.INSTRUMENTED:
        assert figures["kb"] - figures["kb_warm"] < client_kb
        assert grown < daemon_kb


@pytest.mark.parametrize("what", ["cancel", "cancel-at-once"])
def test_threads_that_are_cancelled_in_lookups_leave_the_client_as_quick_as_it_was(daemon, what):
    if what == "cancel-at-once" and harness.INSTRUMENTED:
        pytest.skip("a sanitizer's own code may not be cancelled at any moment")
    daemon.tune()
    figures = drill(daemon, what, 10000 if LONG else 1000)
    print(figures)
    # A connection or a lock that was lost would cost the lookup's whole time-out, which is a minute.
    assert figures["slowest_ns"] < 50e9


def test_a_thousand_clients_of_whom_some_do_not_read_and_some_send_half(daemons, runner):
    deaf, half = CLIENTS // 10, CLIENTS // 10
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CLIENTS + 200:
        pytest.skip("needs more descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CLIENTS + 200), hard))
    daemon = daemons(runner, arguments=["--max-clients", 2 * CLIENTS]).start()
    config = daemon.tune()[0]["config"]
    request = [0, 7, "lookup", {"kernel": "rmsnorm", "problem": problem()}]
    whole = msgpack.packb(request)
    try:
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(daemon.peer()) for _ in range(CLIENTS)]
            for peer in peers[:deaf]:
                # Until the daemon takes no more of it.
                peer.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        peer.send(whole * 64)
            began = time.monotonic()
            for peer in peers[deaf:deaf + half]:
                peer.send(whole[:len(whole) // 2])
            for _ in range(3):
                for peer in peers[deaf + half:]:
                    answer = peer.call("lookup", kernel="rmsnorm", problem=problem())
                    assert answer["source"] == "tuned" and answer["config"] == config
            memory = harness.memory_kb(daemon.pid)
            print(f"{CLIENTS} clients, {deaf} deaf, {half} half a message: {memory} kB of the daemon's own")
            if not harness.INSTRUMENTED:
                assert memory < 64 * 1024
            # Who sent half goes on where it was; a machine on which that took longer than the daemon waits for it shows nothing.
            for peer in peers[deaf:deaf + half]:
                if time.monotonic() - began < PARTIAL_S / 2:
                    peer.send(whole[len(whole) // 2:])
                    assert peer.answer(7)["config"] == config
        assert daemon.ctl("lookup", *shape()).json["config"] == config
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
