"""No daemon, a stopped one, a returning one: nobody waits past a deadline."""
import os
import signal
import subprocess
import time

import pytest

import harness
from harness import ctl, shape


class Asker:
    """The C program that uses the library."""

    def __init__(self, path):
        self.process = subprocess.Popen([str(harness.program("ask"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, "FLYTUNE_SOCKET": str(path)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(harness.DEADLINE) == 0

    def lookup(self, m=64):
        """source, flags, seconds, reason"""
        self.process.stdin.write(f"{m}\n")
        self.process.stdin.flush()
        source, flags, ns, *reason = self.process.stdout.readline().rstrip("\n").split(" ", 3)
        return source, int(flags), int(ns) / 1e9, " ".join(reason)


AWAY, KEPT = 1, 2


def test_without_a_daemon_the_library_answers_the_default_in_under_1_ms(tmp_path):
    with Asker(tmp_path / "none") as asker:
        times = []
        for m in range(1, 100):
            source, flags, seconds, reason = asker.lookup(m)
            assert source == "default" and flags & AWAY and reason
            times.append(seconds)
    assert harness.INSTRUMENTED or sorted(times)[len(times) // 2] < 0.001
    assert harness.INSTRUMENTED or max(times) < 0.01


@pytest.mark.parametrize("command", [["lookup", *shape()], ["tune", *shape()], ["status"], ["jobs"], ["devices"],
                                     ["trials", *shape()], ["cancel", 1], ["watch"]], ids=lambda words: words[0])
def test_without_a_daemon_the_command_line_says_so_and_exits_3(tmp_path, command):
    done = ctl(tmp_path / "none", *command, as_json=False, check=False)
    assert done.status == 3
    assert "none" in done.complaint or "away" in done.complaint
    if command[0] == "lookup":
        done = ctl(tmp_path / "none", *command, check=False)
        assert done.status == 3 and done.json["source"] == "default"
        assert "away" in done.output + done.complaint


def test_a_stopped_daemon_costs_one_time_out_and_then_nothing(daemon):
    daemon.tune()
    with Asker(daemon.path) as asker:
        assert asker.lookup()[0] == "tuned"
        daemon.process.send_signal(signal.SIGSTOP)
        source, flags, seconds, _ = asker.lookup()
        assert (source, flags) == ("tuned", KEPT), "an answer that nobody can have changed is given without asking"
        assert harness.INSTRUMENTED or seconds < 0.05
        source, flags, first, _ = asker.lookup(4000)
        assert (source, flags & AWAY) == ("default", AWAY)
        assert first < 2 * harness.PATIENCE
        for m in (3000, 64, 4000):
            source, flags, seconds, _ = asker.lookup(m)
            assert flags == KEPT if m == 64 else flags & AWAY
            assert harness.INSTRUMENTED or seconds < 0.05
        assert source == "default"
        daemon.process.send_signal(signal.SIGCONT)
        harness.until(lambda: not asker.lookup(4000)[1] & AWAY, "the client is back")


def test_a_stopped_daemon_does_not_hang_the_command_line(daemon):
    daemon.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    done = daemon.ctl("lookup", *shape(), check=False)
    assert done.status == 3
    assert time.monotonic() - began < 20 * harness.PATIENCE
    daemon.process.send_signal(signal.SIGCONT)


def test_answers_that_a_process_had_outlive_the_daemon(daemon):
    daemon.tune()
    with Asker(daemon.path) as asker:
        assert asker.lookup(64)[0] == "tuned"
        daemon.kill()
        source, flags, _, _ = asker.lookup(64)
        assert source == "tuned" and flags & AWAY
        source, flags, _, _ = asker.lookup(4000)
        assert source == "default" and flags & AWAY
        daemon.start()
        harness.until(lambda: not asker.lookup(64)[1] & AWAY, "the client is back")


def test_a_tune_that_waits_survives_a_restart_of_the_daemon(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    tune = daemon.ctl_start("tune", *shape())
    gate.arrived()
    daemon.kill()
    runner.write()
    daemon.start()
    output, complaint = tune.communicate(timeout=harness.DEADLINE)
    assert tune.returncode == 0, complaint
    assert harness.json.loads(output)[0]["source"] == "tuned"
