"""One user who asks for all that the daemon can do, on many connections, holds up nobody else, and takes bounded memory.
tests/bench/attack measures how long others wait; here they must get on at all."""
import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import harness
from harness import problem

BENCH = Path(harness.__file__).resolve().parents[1] / "bench"
CONNECTIONS, LOOKUPS = 300, 150
MEMORY_MIB = 128  # that a user may have, and what is there anyway


def bench():
    """The benchmark's program, as a module."""
    sys.path.insert(0, str(BENCH))
    loader = SourceFileLoader("attack", str(BENCH / "attack"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("attack", loader))
    loader.exec_module(module)
    return module


ATTACK = bench()
ATTACKS = ATTACK.attacks()


@pytest.fixture
def attacked(daemons, runner, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    daemon = daemons(runner, arguments=["--group", "no-such-group", "--jobs-per-user", 200]).start()
    daemon.await_device()
    ATTACK.JOBS = 100
    ATTACK.prepare(daemon)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    return daemon


@pytest.mark.parametrize("name", ATTACKS)
def test_another_user_is_answered_beside(attacked, tmp_path, name):
    import stage
    stage.CLIENT = -1  # anywhere
    with attacked.peer() as witness:
        assert witness.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
        with ATTACK.attack(attacked, ATTACKS[name], CONNECTIONS, tmp_path):
            for _ in range(LOOKUPS):
                assert witness.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
            assert witness.call("status")["pid"] == attacked.pid
            memory = ATTACK.memory_kib(attacked.pid) / 1024
        # The attacker is gone, and what it asked for goes with it.
        harness.until(lambda: witness.call("status")["sessions"] == 1, "the attacker's connections are gone")
        assert witness.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
    assert harness.INSTRUMENTED or memory < MEMORY_MIB


def test_waits_of_one_connection_for_one_job_are_one_and_all_are_answered(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem())["job"]
        gate.arrived()
        asked = [peer.ask("wait", job=job) for _ in range(1000)]
        assert peer.call("jobs", job=job)["jobs"][0]["waiters"] == 1
        gate.release()
        answers = [peer.answer(number) for number in asked]
        assert all(answer["state"] == "done" and answer["job"] == job for answer in answers)


def test_a_watcher_that_does_not_read_is_told_that_it_missed_events(daemon):
    daemon.ctl("pause")
    with daemon.peer() as slow, daemon.peer() as peer:
        slow.call("watch")
        # More than its socket and what is kept of events hold.
        for _ in range(4):
            tunes = [peer.ask("tune", kernel="rmsnorm", problem=problem(m=1 + m)) for m in range(1000)]
            jobs = [peer.message()[3]["job"] for _ in tunes]
            for job in jobs:
                peer.ask("cancel", job=job)
            assert {peer.message()[3]["state"] for _ in jobs} == {"cancelled"}
        missed = slow.event(lambda event: event["event"] == "missed")
        assert missed["job"] == 0 and "events were not read in time" in missed["reason"]
        assert slow.event(lambda event: event["event"] == "ended" and event["job"] == jobs[-1])
        assert slow.call("status")["pid"] == daemon.pid
