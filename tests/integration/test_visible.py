"""A change that was acknowledged, or that anybody was told of, is what the next lookup gives, in every process."""
import itertools
import os
import random
import subprocess

import pytest

import harness
from harness import problem, shape

LONG = bool(os.environ.get("FLYTUNE_LONG"))


def words(config):
    return ",".join(f"{name}={value}" for name, value in config.items())


def configs_to_pin(daemon, count=8):
    """Configs that may be pinned for the problem, each different."""
    first = daemon.tune()[0]["config"]
    found = []
    for unroll, stream, prefetch in itertools.product((1, 2, 4, 8), (0, 1), (0, 1)):
        config = words({**first, "unroll": unroll, "stream": stream, "prefetch": prefetch})
        if daemon.ctl("pin", *shape(), "--config", config, check=False).status == 0:
            found.append(config)
    assert len(found) >= count
    return found[:count]


class Drill:
    """The C program that pins and spins."""

    def __init__(self, daemon, *arguments):
        self.process = subprocess.Popen(
            [str(harness.program("drill")), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "FLYTUNE_SOCKET": str(daemon.path)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def line(self):
        return self.process.stdout.readline().split()

    def end(self):
        """The figures of its last line."""
        output, complaint = self.process.stdout.read(), self.process.stderr.read()
        assert self.process.wait(harness.DEADLINE) == 0, output[-2000:] + complaint
        return {name: int(value) for name, value in (pair.split("=") for pair in output.splitlines()[-1].split())}


def spread(name, delays):
    delays.sort()
    print(f"{name}: {len(delays)} changes, seen after the acknowledgement by: median {delays[len(delays) // 2]} ns, "
          f"99 % {delays[len(delays) * 99 // 100]} ns, worst {delays[-1]} ns")


def test_every_change_is_seen_by_the_next_lookup_and_never_taken_back(daemon):
    rounds = 1000 if LONG else 200
    configs = configs_to_pin(daemon)
    delays = []
    with Drill(daemon, "visible", rounds, *configs) as drill:
        for _ in range(rounds):
            delays.append(int(drill.line()[1]))
        figures = drill.end()
    spread("quiet", delays)
    assert figures["wrong"] == figures["failures"] == figures["alone"] == 0
    assert figures["kept"] > figures["lookups"] // 2


@pytest.mark.parametrize("way", ["restart", "kill"])
def test_it_holds_across_daemons(daemon, way):
    """A successor's answers are never older than what its predecessor acknowledged, however that ended."""
    lives = {"restart": 20, "kill": 200}[way] if LONG else 6
    chance = random.Random(11)
    configs = configs_to_pin(daemon)
    rounds = lives * 12
    delays = []
    with Drill(daemon, "visible", rounds, *configs) as drill:
        for life in range(lives):
            for _ in range(chance.randrange(1, 12)):
                delays.append(int(drill.line()[1]))
            if way == "kill":
                daemon.kill()
                daemon.start()
            else:
                daemon.restart()
        while len(delays) < rounds:
            delays.append(int(drill.line()[1]))
        figures = drill.end()
    spread(way, delays)
    print(figures)
    assert figures["wrong"] == 0


def test_it_holds_while_the_loop_is_flooded(daemon):
    configs = configs_to_pin(daemon)
    rounds = 200 if LONG else 40
    flood = [subprocess.Popen([str(harness.program("drill")), "fresh", "100000000"], stdout=subprocess.DEVNULL,
                              env={**os.environ, "FLYTUNE_SOCKET": str(daemon.path)}) for _ in range(2)]
    try:
        with Drill(daemon, "visible", rounds, *configs) as drill:
            delays = [int(drill.line()[1]) for _ in range(rounds)]
            assert drill.end()["wrong"] == 0
    finally:
        for process in flood:
            process.kill()
            process.wait()
    spread("flooded", delays)


def test_a_runner_that_is_started_for_a_sweep_leaves_kept_answers_in_force(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    with daemon.peer() as peer:
        def kept(**fields):
            answer = peer.call("lookup", kernel="rmsnorm", problem=problem(**fields))
            return answer["stripe"], answer["version"]
        before = kept()
        (pid,) = daemon.runner_pids()
        os.kill(pid, 9)
        job = peer.call("tune", kernel="rmsnorm", problem=problem(n=8192))["job"]
        assert peer.call("wait", job=job)["state"] == "done"
        assert pid not in daemon.runner_pids() and kept(n=8192)[0] != before[0]
        assert kept() == before


def test_a_hello_that_makes_no_sense_changes_no_answer(daemons, runner, tmp_path):
    senseless = tmp_path / "senseless"
    runner.write(f"if {senseless} kind hip")
    daemon = daemons(runner, device="auto").start()
    answer = daemon.tune()[0]
    with daemon.peer() as peer:
        before = peer.call("lookup", kernel="rmsnorm", problem=problem())
        for pid in daemon.runner_pids():
            os.kill(pid, 9)
        senseless.touch()
        job = peer.call("tune", kernel="rmsnorm", problem=problem(), force=True)["job"]
        assert peer.call("wait", job=job)["state"] == "failed"
        assert "its hello makes no sense" in daemon.log()
        assert peer.call("lookup", kernel="rmsnorm", problem=problem()) == before
        assert daemon.lookup()["config"] == answer["config"]
        senseless.unlink()
        job = peer.call("tune", kernel="rmsnorm", problem=problem(), force=True)["job"]
        assert peer.call("wait", job=job)["state"] == "done"
