"""A result belongs to the compiler, device and rule that it was measured under."""
import contextlib
import os
import signal
from pathlib import Path

import pytest

import harness
from harness import problem, shape, until

OLD, NEW = "identity compiler=made-up-1", "identity compiler=made-up-2"


def settled(daemon):
    """The lookup once the daemon is sure of the device."""
    def sure():
        answer = daemon.lookup()
        return answer if answer.get("reason") != "probing" else None
    return harness.until(sure, "the device is probed")


def test_another_compiler_makes_a_result_stale(daemons, runner):
    runner.write(OLD)
    daemon = daemons(runner).start()
    tuned, = daemon.tune()
    daemon.stop()
    runner.write(NEW)
    daemon.start()
    # Not for a moment served as tuned, not even before the device was probed.
    assert daemon.lookup()["source"] == "default"
    answer = settled(daemon)
    assert answer["source"] == "default" and answer["reason"].startswith("stale")
    again, = daemon.tune()
    assert again["source"] == "tuned" and again["config"] == tuned["config"]
    assert len(runner.did("sweep")) == 2


def test_another_device_is_not_served_the_old_ones_results(daemons, runner):
    runner.write("device arch=made-up units=4")
    daemon = daemons(runner).start()
    daemon.tune()
    daemon.stop()
    runner.write("device arch=made-up units=8")
    daemon.start()
    assert daemon.lookup()["source"] == "default"
    assert settled(daemon)["source"] == "default"


def test_the_same_identity_is_served_at_once_after_a_restart(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    starts = len(runner.pids())
    daemon.restart()
    assert daemon.lookup()["source"] == "tuned", "it must know the device without starting a runner"
    assert len(runner.pids()) == starts


def test_a_compiler_that_came_back_finds_its_results_again(daemons, runner):
    runner.write(OLD)
    daemon = daemons(runner).start()
    tuned, = daemon.tune()
    daemon.stop()
    runner.write(NEW)
    daemon.start()
    assert settled(daemon)["source"] == "default"
    daemon.stop()
    runner.write(OLD)
    daemon.start()
    answer = settled(daemon)
    assert answer["source"] == "tuned" and answer["config"] == tuned["config"]


def test_a_winner_of_a_smaller_space_is_served_on(daemons, runner):
    runner.write("space 4", "best 0")
    daemon = daemons(runner).start()
    tuned, = daemon.tune()
    assert len(daemon.trials()) <= 5
    daemon.stop()
    runner.write("best 0")
    daemon.start()
    answer = settled(daemon)
    assert answer["source"] == "tuned" and answer["config"] == tuned["config"]


def test_stale_results_are_not_offered_as_nearest(daemons, runner):
    runner.write(OLD)
    daemon = daemons(runner).start()
    daemon.tune(m=64)
    assert daemon.lookup(m=100)["source"] == "nearest"
    daemon.stop()
    runner.write(NEW)
    daemon.start()
    settled(daemon)
    assert daemon.lookup(m=100)["source"] == "default"


def test_nearest_serves_nothing_that_the_asked_problem_would_not_try(daemons, runner):
    """What wins at one size may be what another prunes: fewer rows than a task takes, say."""
    daemon = daemons(runner).start()
    daemon.tune(m=2)
    tried_there = [trial["config"] for trial in daemon.trials(m=2)]
    daemon.ctl("forget", *shape(m=2))
    daemon.tune(m=4)
    tried = [trial["config"] for trial in daemon.trials(m=4)]  # this runner leaves out what is pruned
    pruned = [config for config in tried if config not in tried_there]
    assert pruned, "every config of m=4 is tried at m=2"
    for config in (pruned[0], next(config for config in tried if config not in pruned)):
        runner.write(f"best {tried.index(config)}", *[f"time {at} 900000000" for at in range(len(tried))
                                                      if tried[at] != config])
        assert daemon.tune("--force", m=4)[0]["config"] == config
        answer = daemon.lookup(m=2)
        if config in pruned:
            assert answer["config"] not in pruned and answer["source"] == "default", answer
        else:
            assert answer["source"] == "nearest" and answer["config"] == config


# ---- what a process may use of its machine: on the real runner ----

SMALL = dict(m=1, n=1024)  # its sweep takes a moment


def affinity():
    return sorted(os.sched_getaffinity(0))


needs_two_cores = pytest.mark.skipif(len(affinity()) < 2, reason="needs two cores, to take one away")


def units(daemon):
    return daemon.status()["devices"][0]["units"]


@needs_two_cores
def test_results_of_all_cores_are_not_served_on_one(daemons):
    daemon = daemons().start()
    tuned, = daemon.tune("--budget", harness.BUDGET, **SMALL)
    assert tuned["source"] == "tuned" and units(daemon) == len(affinity())
    token = daemon.status()["token"]
    daemon.stop()
    daemon.prefix = ["taskset", "-c", str(affinity()[0])]
    daemon.start()
    # Not for a moment, nor once the device is known.
    assert daemon.lookup(**SMALL)["source"] == "default"
    until(lambda: daemon.lookup(**SMALL)["reason"] != "probing", "the device is probed")
    assert daemon.lookup(**SMALL)["source"] == "default" and units(daemon) == 1
    # The answers of that moment were another device's: there is nothing to fall back on.
    of_old = daemon.ctl("--generation", token, "lookup", *shape(**SMALL), check=False)
    assert of_old.status == 1 and of_old.json["error"]["code"] == "generation_unavailable", of_old
    daemon.stop()
    # And with its cores back, it has its results back.
    daemon.prefix = []
    daemon.start()
    until(lambda: daemon.lookup(**SMALL)["source"] == "tuned", "the old device's results are back")
    assert daemon.ctl("--generation", token, "lookup", *shape(**SMALL)).json["source"] == "tuned"


@needs_two_cores
def test_a_running_daemon_that_loses_a_core_serves_nothing_of_before(daemons):
    daemon = daemons().start()
    tuned, = daemon.tune("--budget", harness.BUDGET, **SMALL)
    with daemon.peer() as peer:
        def ask():
            return peer.call("lookup", kernel="rmsnorm", problem=problem(**SMALL))
        for _ in range(3):  # the last of these is answered without being looked up
            assert ask()["source"] == "tuned"
        os.sched_setaffinity(daemon.pid, affinity()[:1])
        until(lambda: ask()["source"] == "default", "it is noticed")
        answer = until(lambda: (lambda a: a if a["reason"] != "probing" else None)(ask()), "the device is probed")
        assert answer["source"] == "default"
        assert units(daemon) == 1
        os.sched_setaffinity(daemon.pid, affinity())
        answer = until(lambda: (lambda a: a if a["source"] == "tuned" else None)(ask()), "the results are back")
        assert answer["config"] == tuned["config"]


@needs_two_cores
def test_who_relies_on_answers_without_asking_is_told_that_the_device_changed(daemons):
    """Clients that keep answers, and those that subscribe, need not ask for the daemon to look."""
    daemon = daemons().start()
    daemon.tune("--budget", harness.BUDGET, **SMALL)
    with daemon.peer() as peer:
        peer.call("subscribe", lookups=[dict(kernel="rmsnorm", problem=problem(**SMALL))])

        def heard(source):
            while True:
                message = peer.notices.pop(0) if peer.notices else peer.message()
                if message[:2] == [2, "answer"] and message[2]["answer"]["source"] == source:
                    return
        heard("tuned")
        os.sched_setaffinity(daemon.pid, affinity()[:1])
        heard("default")
        os.sched_setaffinity(daemon.pid, affinity())
        heard("tuned")


@needs_two_cores
def test_answers_that_a_client_keeps_are_taken_back_when_the_device_changes(daemons):
    """Nobody asks the daemon for anything: the client answers by itself."""
    daemon = daemons().start()
    daemon.tune("--budget", harness.BUDGET, m=1)
    with harness.Asker(daemon.path) as asker:
        assert asker.lookup(1)[0] == "tuned"
        asked = daemon.status()["lookups"]["tuned"]
        for _ in range(20):
            assert asker.lookup(1)[0] == "tuned"
        assert daemon.status()["lookups"]["tuned"] == asked, "it keeps the answer"
        os.sched_setaffinity(daemon.pid, affinity()[:1])
        until(lambda: asker.lookup(1)[0] == "default", "it is told to ask again")
        os.sched_setaffinity(daemon.pid, affinity())
        until(lambda: asker.lookup(1)[0] == "tuned", "the results are back")


@contextlib.contextmanager
def control_group(controller):
    """A control group of its own, of whichever version this machine has; gives its folder."""
    for parent in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup") / controller):
        group = parent / f"flytune-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        limits = [group / "cpu.max", group / "cpu.cfs_quota_us"]
        if not any(limit.exists() for limit in limits):
            group.rmdir()
            continue
        try:
            yield group
        finally:
            until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
            group.rmdir()
        return
    pytest.skip(f"needs root and a hierarchy of {controller}, to make a control group")


def limit(group, percent):
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{percent * 1000} 100000" if percent else "max 100000")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(percent * 1000) if percent else "-1")


@needs_two_cores
def test_results_without_a_quota_are_not_served_under_one(daemons):
    with control_group("cpu") as group:
        daemon = daemons(prefix=["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]).start()
        try:
            daemon.tune("--budget", harness.BUDGET, **SMALL)
            assert daemon.lookup(**SMALL)["source"] == "tuned"
            # While it runs, and by a part of a core that leaves the number of cores as it is.
            limit(group, 150)
            until(lambda: daemon.lookup(**SMALL)["source"] == "default", "the quota is noticed")
            until(lambda: daemon.lookup(**SMALL)["reason"] != "probing", "the device is probed")
            assert daemon.lookup(**SMALL)["source"] == "default"
            assert "quota=1.500" in daemon.status()["devices"][0]["identity_text"]
            # At a start: what was known under one quota is not what there is under another.
            daemon.stop()
            limit(group, 100)
            daemon.start()
            assert daemon.lookup(**SMALL)["source"] == "default"
            daemon.await_device()
            assert units(daemon) == 1
            limit(group, 0)
            until(lambda: daemon.lookup(**SMALL)["source"] == "tuned", "the results are back")
        finally:
            if daemon.process is not None:
                daemon.stop()


@needs_two_cores
def test_a_sweep_under_which_the_cores_change_is_begun_anew(daemons):
    daemon = daemons().start()
    job = daemon.ctl("tune", *shape(m=512, n=4096), "--no-wait", "--budget", 2 * harness.BUDGET).json[0]["job"]

    def rounds():
        job_now, = daemon.ctl("jobs", job).json["jobs"]
        return job_now["rounds"]
    until(lambda: rounds() > 0, "it measures", harness.LARGE_BUDGET)
    os.sched_setaffinity(daemon.pid, affinity()[:1])
    daemon.heard("device in doubt kind=cpu")
    until(lambda: daemon.status()["devices"][0]["state"] == "ready" and units(daemon) == 1, "the device is probed")
    os.sched_setaffinity(daemon.pid, affinity())
    answer = until(lambda: (lambda a: a if a["source"] == "tuned" else None)(daemon.lookup(m=512, n=4096)), "tuned",
                   3 * harness.LARGE_BUDGET)
    assert answer and daemon.ctl("jobs", job).json["jobs"][0]["state"] == "done"
    assert units(daemon) == len(affinity())


def test_another_environment_of_runners_has_them_asked_anew(daemons, runner):
    daemon = daemons(runner, env={"HIP_VISIBLE_DEVICES": "0"}).start()
    daemon.tune()
    starts = len(runner.pids())
    daemon.restart()
    assert daemon.lookup()["source"] == "tuned" and len(runner.pids()) == starts
    daemon.stop()
    daemon.env = {"HIP_VISIBLE_DEVICES": "1"}
    daemon.start()
    until(lambda: len(runner.pids()) > starts, "it is asked which devices it sees now")
    until(lambda: daemon.lookup()["source"] == "tuned", "it says the same")


def test_a_runner_that_was_replaced_while_none_ran_is_asked_anew(daemons, runner):
    runner.write(OLD)
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune()
    for pid in set(runner.pids()):
        harness.await_death(pid)
    runner.write(NEW)
    until(lambda: daemon.lookup()["source"] == "default", "it is noticed")
    assert settled(daemon)["reason"].startswith("stale")


@pytest.mark.parametrize("change", [
    lambda folder: (folder / "2").mkdir(),  # as a device that is parted in two has another node
    lambda folder: (folder / "1").rmdir(),
    lambda folder: ((folder / "1").rmdir(), folder.rmdir()),
], ids=["more", "less", "none"])
def test_what_is_in_a_folder_that_the_runner_names_is_looked_at(daemons, runner, tmp_path, change):
    folder = tmp_path / "nodes"
    (folder / "1").mkdir(parents=True)
    runner.write(f"depends {folder}")
    daemon = daemons(runner).start()
    daemon.tune()
    starts = len(runner.pids())
    daemon.restart()
    assert daemon.lookup()["source"] == "tuned" and len(runner.pids()) == starts
    daemon.stop()
    change(folder)
    daemon.start()
    until(lambda: len(runner.pids()) > starts, "it is asked anew")


# ---- a device that was not there at first ----

def test_a_device_that_comes_late_is_found_without_a_restart(daemons, runner):
    daemon = daemons(runner).start()
    tuned, = daemon.tune()
    daemon.stop()
    runner.write("device other", "at hello lie nodevice")  # so that it is asked
    daemon.start()
    until(lambda: daemon.status()["devices"][0]["state"] == "absent", "it is heard that there is none")
    assert daemon.lookup()["reason"] == "no device"
    runner.write()
    answer = until(lambda: (lambda a: a if a["source"] == "tuned" else None)(daemon.lookup()), "the device is found")
    assert answer["config"] == tuned["config"]


def test_a_device_that_went_away_for_a_while_is_found_again(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune()
    for pid in set(runner.pids()):
        harness.await_death(pid)
    runner.write("at hello lie nodevice")
    until(lambda: daemon.lookup()["reason"] == "no device", "it is heard that there is none")
    runner.write()
    until(lambda: daemon.lookup()["source"] == "tuned", "the device is found again")


def test_a_device_whose_runner_failed_when_it_was_asked_anew_comes_back_though_it_says_what_it_said(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune()
    runner.write("at hello exit 7")
    until(lambda: daemon.lookup() and daemon.status()["devices"][0]["state"] == "failed", "it fails")
    runner.write()
    until(lambda: daemon.lookup()["source"] == "tuned", "the device is found again")


def test_a_tune_that_finds_its_device_gone_fails_and_lets_others_through(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune()
    for pid in set(runner.pids()):
        harness.await_death(pid)
    starts = len(runner.pids())
    runner.write("at hello lie nodevice")
    done = daemon.ctl("tune", *shape(77), "--force", check=False)
    # By the runner that its sweep was given, or before, by one that was asked since the device was in doubt.
    assert {4: "is gone", 1: "no cpu device to tune on"}[done.status] in done.output + done.complaint, done
    # For the job, and after growing pauses for who asks; not without end.
    assert len(runner.pids()) - starts <= 8
    assert not daemon.status()["jobs"]["running"]
    runner.write()
    until(lambda: daemon.lookup()["source"] == "tuned", "the device is found again")
    assert daemon.tune("--force", m=77)[0]["source"] == "tuned"


@needs_two_cores
def test_a_sweep_whose_device_goes_away_in_the_middle_fails(daemons, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    daemon = daemons(runner).start()
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]
    gate.arrived()
    starts = len(runner.pids())
    runner.write("at hello lie nodevice")
    os.sched_setaffinity(daemon.pid, affinity()[:1])
    until(lambda: daemon.lookup() and daemon.ctl("jobs", job).json["jobs"][0]["state"] == "failed", "the job ends")
    assert "gone" in daemon.ctl("jobs", job).json["jobs"][0]["reason"]
    assert len(runner.pids()) - starts <= 8


@needs_two_cores
def test_a_sweep_whose_device_is_in_doubt_again_and_again_ends(daemons, runner):
    runner.write("at build * hang")
    daemon = daemons(runner).start()
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]

    def failed():
        return daemon.ctl("jobs", job).json["jobs"][0]["state"] == "failed"
    for turn in range(40):
        sweeps = until(lambda: failed() or len(runner.did("build")), "it is begun anew, or given up")
        if failed():
            break
        os.sched_setaffinity(daemon.pid, affinity()[:1] if turn % 2 == 0 else affinity())
        until(lambda: failed() or daemon.lookup() and len(runner.did("build")) > sweeps, "the change is seen")  # noqa: B023
    assert "was let go 17 times" in daemon.ctl("jobs", job).json["jobs"][0]["reason"]


def test_a_runner_that_could_not_be_run_at_first_is_tried_again(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    daemon.stop()
    runner.program.chmod(0o644)
    daemon.start()
    assert "no runner program" in daemon.status()["devices"][0]["reason"]
    assert daemon.lookup()["source"] == "default"
    runner.program.chmod(0o755)
    until(lambda: daemon.lookup()["source"] == "tuned", "the runner is found")


def test_a_runner_that_failed_at_first_is_tried_again(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    daemon.stop()
    runner.write("identity other", "at hello exit 7")
    daemon.start()
    until(lambda: daemon.status()["devices"][0]["state"] == "failed", "it fails")
    runner.write()
    until(lambda: daemon.lookup()["source"] == "tuned", "the runner is heard")


def test_a_hello_that_names_more_files_than_can_be_looked_at_is_refused(daemons, runner):
    runner.write("at hello lie files")
    daemon = daemons(runner).start()
    device = until(lambda: (lambda d: d if d["state"] == "failed" else None)(daemon.status()["devices"][0]), "it fails")
    assert "files is a list of 65" in device["reason"] and "at most 64 paths" in device["reason"]
    runner.write()
    until(lambda: daemon.lookup()["reason"] == "no result yet", "the runner is heard")


def test_a_tune_that_finds_the_device_just_asked_for_waits_for_it(daemons, runner):
    runner.write("at hello lie nodevice")
    daemon = daemons(runner).start()
    until(lambda: daemon.status()["devices"][0]["state"] == "absent", "it is heard that there is none")
    gate = runner.gate("hello")
    runner.write(f"at hello once gate {gate}")
    until(lambda: daemon.lookup() and gate.came(), "it is asked for again")
    tune = daemon.ctl_start("tune", *shape())
    with daemon.peer() as peer:  # the one before has been read by the time that this is answered
        peer.call("status")
    gate.release()
    said, complaint = tune.communicate(timeout=harness.DEADLINE)
    assert tune.returncode == 0 and '"tuned"' in said, complaint


def test_a_reload_asks_at_once_for_what_is_absent(daemons, runner):
    runner.write("at hello lie nodevice")
    daemon = daemons(runner).start()
    until(lambda: daemon.status()["devices"][0]["state"] == "absent", "it is heard that there is none")
    asked = len(runner.pids())
    # Nobody asks the daemon for anything but this.
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: len(runner.pids()) > asked, "it is asked for")


def test_what_is_absent_is_asked_for_in_growing_pauses(daemons, runner):
    runner.write("at hello lie nodevice")
    daemon = daemons(runner).start()
    until(lambda: daemon.lookup() and len(runner.pids()) >= 4, "it is asked for again and again")
    # 1 + 2 + 4 s: not sooner, however often it is asked.
    assert daemon.status()["uptime_s"] >= 7
