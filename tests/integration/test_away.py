"""No daemon, a stopped one, a returning one: nobody waits past a deadline."""
import errno
import platform
import signal
import sys
import time

import pytest

import harness
from harness import AWAY, KEPT, Asker, ctl, shape

AT_ONCE = harness.ASKER_S / 2  # who takes less than the time-out of a lookup has not waited for it


def test_without_a_daemon_the_library_answers_the_default_in_under_1_ms(tmp_path):
    with Asker(tmp_path / "none") as asker:
        times = []
        for m in range(1, 100):
            source, flags, seconds, reason = asker.lookup(m)
            assert source == "default" and flags & AWAY and reason
            times.append(seconds)
    # Of each single one a busy machine may have taken the processor away.
    assert harness.INSTRUMENTED or sorted(times)[len(times) // 2] < 0.001


@pytest.mark.parametrize("command", [["lookup", *shape()], ["tune", *shape()], ["status"], ["jobs"], ["devices"], ["kernels"],
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
        assert seconds < AT_ONCE
        source, flags, first, _ = asker.lookup(4000)
        assert (source, flags & AWAY) == ("default", AWAY)
        assert harness.ASKER_S <= first < harness.DEADLINE
        for m in (3000, 64, 4000):
            source, flags, seconds, _ = asker.lookup(m)
            assert flags == KEPT if m == 64 else flags & AWAY
            assert seconds < AT_ONCE
        assert source == "default"
        daemon.process.send_signal(signal.SIGCONT)
        harness.until(lambda: not asker.lookup(4000)[1] & AWAY, "the client is back")


def test_a_stopped_daemon_does_not_hang_the_command_line(daemon):
    daemon.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    done = daemon.ctl("lookup", *shape(), check=False)
    assert done.status == 3
    assert time.monotonic() - began < harness.DEADLINE
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


# Refuses system calls by a seccomp filter, and becomes the command that follows.
SANDBOX = """
import ctypes, os, struct, sys
error, numbers = int(sys.argv[1]), [int(number) for number in sys.argv[2].split(",")]
code = [(0x20, 0, 0, 0)]
for at, number in enumerate(numbers):
    code.append((0x15, len(numbers) - at, 0, number))
code += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050000 | error)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, program, 0, 0):
    sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[3], sys.argv[3:])
"""
SET_ROBUST_LIST, GET_ROBUST_LIST = {"x86_64": (273, 274), "aarch64": (99, 100)}.get(platform.machine(), (0, 0))


def sandbox(error, *numbers):
    return [sys.executable, "-c", SANDBOX, str(error), ",".join(map(str, numbers))]


@pytest.mark.skipif(not SET_ROBUST_LIST, reason="the numbers of system calls are not known here")
@pytest.mark.parametrize("lives", [
    [sandbox(errno.ENOSYS, SET_ROBUST_LIST)] * 2,
    [sandbox(errno.EPERM, SET_ROBUST_LIST, GET_ROBUST_LIST)] * 2,
    [[], sandbox(errno.EPERM, SET_ROBUST_LIST), []],
], ids=["unknown", "refused", "by turns"])
def test_a_daemon_whose_death_a_sandbox_hides_is_not_believed_for_ever(daemons, runner, lives):
    daemon = daemons(runner, prefix=lives[0]).start()
    winner = daemon.tune()[0]["config"]
    pin = ["pin", *shape(), "--config", ",".join(f"{name}={value}" for name, value in winner.items())]
    with Asker(daemon.path) as asker:
        for life, prefix in enumerate(lives):
            if life > 0:
                daemon.prefix = prefix
                daemon.start()
                # An answer of the last life, and of the one before, is not given again once another daemon answers.
                daemon.ctl(*(pin if life % 2 else ["unpin", *shape()]))
                harness.until(lambda: not asker.lookup()[1] & AWAY, "the client is back")
            wanted = "pinned" if life % 2 else "tuned"
            assert asker.lookup()[0] == wanted
            source, flags, _, _ = asker.lookup()
            assert (source, flags) == (wanted, 0 if prefix else KEPT)
            daemon.kill()
            source, flags, _, _ = asker.lookup()
            assert source in (wanted, "default") and flags & AWAY
