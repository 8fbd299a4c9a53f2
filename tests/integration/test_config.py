"""The configuration file, from the command line to a reload."""
import grp
import os
import signal
import socket
import subprocess

import pytest

import harness
from harness import shape

# Names that this host has, of which none is a part of what is said otherwise.
GROUPS = sorted((group.gr_name for group in grp.getgrall()), key=len)[-2:]


def check(*arguments):
    return subprocess.run([str(harness.FLYTUNED), *map(str, arguments), "--check-config"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=harness.DEADLINE, check=False)


def test_a_fault_in_the_file_is_named_with_its_line_before_anything_is_done(daemons, tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text("[queue]\nbudget = 5\nbugdet = 6\n")
    done = check("--config", path)
    assert done.returncode == 2 and f"{path}:3:" in done.stderr and "bugdet" in done.stderr
    daemon = daemons("/bin/true", arguments=["--config", path])
    assert daemon.spawn().wait(harness.DEADLINE) == 2
    daemon.process = None
    assert f"{path}:3:" in daemon.log() and not daemon.state.exists()
    path.write_text("[queue]\nbudget = 5\n")
    done = check("--config", path)
    assert done.returncode == 0 and str(path) in done.stdout
    assert check("--config", tmp_path / "none").returncode == 2


def test_the_example_is_sound():
    assert check("--config", harness.BUILD / "daemon" / "flytuned.conf").returncode == 0


@pytest.mark.parametrize("section,line,word", [
    ("daemon", "group = no-such-group", "a group of this host"),
    ("daemon", "admin_group = no-such-group", "a group of this host"),
    ("daemon", "state_dir = /dev/null", "a directory"),
    ("daemon", "state_dir = /dev/null/state", "in a directory that is there"),
    ("daemon", "state_dir = /no/such/place/", "in a directory that is there"),
    ("daemon", "socket = /no/such/place/s", "in a directory that is there"),
    ("runner", "cpu = /no/such/runner", "a program that can be run"),
    ("runner", "cuda = /etc/passwd", "a program that can be run"),
    ("runner", "hip = /usr/bin", "a program that can be run"),
])
def test_what_the_host_does_not_bear_out_is_a_fault(tmp_path, section, line, word):
    path = tmp_path / "flytuned.conf"
    path.write_text(f"[{section}]\n{line}\n")
    done = check("--config", path)
    key, value = line.split(" = ")
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr == f"flytuned: {path}: {section}.{key} is {value}; it must be {word}\n"
    # As an option it is the same fault.
    option = f"--runner={key}={value}" if section == "runner" else \
        f"--{key.replace('_', '-')}={value}"
    done = check("--config", "/dev/null", option)
    assert done.returncode == 2 and word in done.stderr


def test_all_that_is_missing_is_said_at_once(tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text("[daemon]\ngroup = no-such-group\nstate_dir = /dev/null\n[runner]\ncpu = /no/such/runner\n")
    done = check("--config", path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 3, done


def test_a_key_that_is_given_twice_is_a_fault(tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text("[queue]\nbudget = 5\n[daemon]\nlog_level = info\n[queue]\nbudget = 6\n")
    done = check("--config", path)
    assert done.returncode == 2 and f"{path}:6: budget is given twice" in done.stderr
    path.write_text("[queue]\nbudget = 5\n")
    assert check("--config", path, "--budget", 6, "--budget", 7).returncode == 0, "options override"


def test_a_runner_that_is_wanted_by_its_kind_must_be_there(tmp_path):
    done = check("--config", "/dev/null", "--device", "hip", "--runner", "hip=/no/such/runner")
    assert done.returncode == 2 and "runner.hip is /no/such/runner" in done.stderr
    # One of a kind that nobody wants need not be.
    assert check("--config", "/dev/null", "--device", "cpu", "--runner", "hip=/no/such/runner").returncode == 0


def test_a_runner_that_is_missing_is_told_in_the_log_and_in_the_status(daemons):
    daemon = daemons("/no/such/runner").start()
    assert "configuration: runner.cpu is /no/such/runner" in daemon.log()
    status = daemon.status()
    assert "no runner program /no/such/runner" in status["degraded"]
    assert "no runner program /no/such/runner" in status["devices"][0]["reason"]
    assert "no runner program /no/such/runner" in daemon.ctl("status", as_json=False).output


def test_a_reload_that_names_what_is_missing_says_so_and_changes_nothing(daemons, runner, tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text(f"[daemon]\ngroup = {GROUPS[0]}\n")
    daemon = daemons(runner, arguments=["--config", path]).start()
    before = daemon.status()["access"]
    path.write_text("[daemon]\ngroup = no-such-group\nlog_level = debug\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.heard("configuration not reloaded: daemon.group is no-such-group; it must be a group of this host")
    # A group that is not there would let everybody in.
    assert GROUPS[0] in before and daemon.status()["access"] == before
    assert "debug:" not in daemon.log() and "configuration reloaded" not in daemon.log()


@pytest.mark.skipif(harness.INSTRUMENTED, reason="the sanitizer's library must come first")
def test_a_user_database_that_does_not_answer_holds_up_no_client(daemons, runner, tmp_path):
    gate, path = tmp_path / "gate", tmp_path / "flytuned.conf"
    path.write_text("")
    daemon = daemons(runner, arguments=["--config", path],
                     env={"LD_PRELOAD": str(harness.BUILD / "tests/integration/groups.so"), "GROUPS_GATE": str(gate)}).start()
    os.mkfifo(gate)
    path.write_text(f"[daemon]\ngroup = {GROUPS[0]}\n")
    daemon.process.send_signal(signal.SIGHUP)
    way = os.open(gate, os.O_WRONLY)  # which opens once the daemon asks
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.lookup()["source"] == "default" and GROUPS[0] not in daemon.status()["access"]
    gate.unlink()
    os.close(way)
    harness.until(lambda: GROUPS[0] in daemon.status()["access"], "the groups are known")
    harness.until(lambda: daemon.log().count("configuration reloaded") == 2, "what was asked meanwhile is done after it")
    # Nor the daemon's end.
    os.mkfifo(gate)
    daemon.process.send_signal(signal.SIGHUP)
    way = os.open(gate, os.O_WRONLY)
    daemon.stop()
    os.close(way)


class Manager:
    """The service manager's end of sd_notify."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(harness.DEADLINE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def until(self, wanted):
        """All messages up to the first with this line."""
        said = []
        while True:
            said.append(self.socket.recv(4096).decode())
            if wanted in said[-1].split("\n"):
                return said


def test_a_reload_changes_what_can_change_live_and_tells_the_manager(daemons, runner, tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text("[daemon]\nlog_level = notice\n")
    daemon = daemons(runner, arguments=["--config", path])
    with Manager(daemon.short / "notify") as manager:
        daemon.spawn(daemon.short / "notify")
        manager.until("READY=1")
        path.write_text(f"[daemon]\nlog_level = debug\nmax_clients = 7\nadmin_group = {GROUPS[0]}\n"
                        f"[queue]\njobs_per_user = 1\n")
        daemon.process.send_signal(signal.SIGHUP)
        said = manager.until("READY=1")
        assert said[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert int(said[0].split("=")[2]) > 0
        daemon.heard("not before a restart: daemon.max_clients")
        assert GROUPS[0] in daemon.status()["access"]
        daemon.lookup()
        daemon.heard("debug: session opened")
        # With a fault in the file all stays as it was.
        path.write_text("[daemon]\nlog_level = loud\n")
        daemon.process.send_signal(signal.SIGHUP)
        manager.until("READY=1")
        daemon.heard(f"{path}:2:")
        assert GROUPS[0] in daemon.status()["access"]
        # And back: what is set no more has its default again.
        path.write_text("")
        daemon.process.send_signal(signal.SIGHUP)
        manager.until("READY=1")
        assert "flytune-admin" in daemon.status()["access"]


def test_flags_win_over_the_file_after_a_reload_as_well(daemons, runner, tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text(f"[daemon]\nadmin_group = {GROUPS[0]}\n")
    daemon = daemons(runner, arguments=["--config", path, "--admin-group", GROUPS[1]]).start()
    assert GROUPS[1] in daemon.status()["access"]
    daemon.process.send_signal(signal.SIGHUP)
    daemon.heard("configuration reloaded")
    assert GROUPS[1] in daemon.status()["access"]


def test_a_pause_and_running_jobs_outlive_a_reload(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]
    gate.arrived()
    daemon.process.send_signal(signal.SIGHUP)
    daemon.heard("configuration reloaded")
    gate.release()
    harness.until(lambda: daemon.ctl("jobs", job).json["jobs"][0]["state"] == "done", "the job ends")


def test_the_journals_form_of_lines_is_for_the_journal_alone(daemons, runner):
    """A shell under systemd hands JOURNAL_STREAM on, whatever standard error is there."""
    daemon = daemons(runner, env={"JOURNAL_STREAM": "8:1234"}).start()
    daemon.stop()
    before = daemon.log().splitlines()
    assert before and not [line for line in before if line.startswith("<")]
    facts = daemon.log_path.stat()
    daemon.env = {"JOURNAL_STREAM": f"{facts.st_dev}:{facts.st_ino}"}
    daemon.start()
    assert daemon.log().splitlines()[len(before)].startswith("<6>ready ")
