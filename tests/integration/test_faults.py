"""Crashes of the daemon, and runners that crash, hang or lie: a fault costs the config at fault, and nothing else."""
import os
import signal
import threading
import time

import pytest

import harness
from harness import problem, shape

M64 = problem(m=64)
# What a stage may take before the runner is given up. Honest stages take microseconds.
SHORT = "4" if not harness.INSTRUMENTED else "15"
DEADLINES = [word for stage in ("build", "verify", "measure", "start") for word in ("--deadline", f"{stage}={SHORT}")]
# A member just outside the band of the fastest: the race needs some thirty rounds, and drops the others on the way.
RIVAL = "time 3 100550000"


class Lookups:
    """Looks up again and again in a thread of its own; every question must be answered.

    A breath between two leaves the kernel time to write back what the daemon syncs: without it, small machines stall.
    """

    def __init__(self, daemon):
        self.daemon = daemon
        self.count = 0
        self.worst = 0
        self.fault = None
        self.enough = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            with self.daemon.peer() as peer:
                while not self.enough.wait(0.002):
                    began = time.monotonic()
                    answer = peer.call("lookup", kernel="rmsnorm", problem=problem(m=64 + self.count % 3 * 1000))
                    assert answer["source"] in ("default", "tuned")
                    self.worst = max(self.worst, time.monotonic() - began)
                    self.count += 1
        except BaseException as fault:  # told in the test's own thread
            self.fault = fault

    def __enter__(self):
        self.thread.start()
        # What the test does next may be over before the thread has run at all.
        harness.until(lambda: self.count or self.fault, "the first lookup is answered")
        return self

    def __exit__(self, *_):
        self.enough.set()
        self.thread.join()
        if self.fault:
            raise self.fault
        assert self.count > 0
        assert harness.INSTRUMENTED or self.worst < 5.0, f"a lookup took {self.worst} s"


def tune_and_wait(daemon):
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=M64)["job"]
        return peer.call("wait", job=job)


def key(config):
    return ",".join(f"{name}={value}" for name, value in config.items())


# Where a fault can be pinned on one config, it costs that config.
AT_FAULT = [
    ("build 2", "signal SEGV", "failed"),
    ("build 2", "signal KILL", "failed"),
    ("build 2", "exit 3", "failed"),
    ("build 2", "fork", "failed"),
    ("build 2", "fork away", "failed"),
    ("build 2", "rubbish", "failed"),
    ("build 2", "hang", "timeout"),
    ("build 2", "stop", "timeout"),
    ("build 2", "half", "timeout"),
    ("build 2", "lie fail", "failed"),
    ("build 2", "lie trial", "failed"),
    ("verify 2", "signal ABRT", "failed"),
    ("verify 2", "stop", "timeout"),
    ("verify 2", "lie wrong", "wrong"),
    ("measure 2", "signal BUS", "failed"),
    ("measure 2", "exit 0", "failed"),
    ("measure 2", "hang", "timeout"),
    ("measure 2", "rubbish", "failed"),
]


@pytest.mark.parametrize("step,action,status", AT_FAULT, ids=[f"{step}-{action}" for step, action, _ in AT_FAULT])
def test_a_fault_costs_the_config_at_fault(daemons, runner, step, action, status):
    runner.write(f"at {step} {action}")
    daemon = daemons(runner, arguments=DEADLINES).start()
    with Lookups(daemon):
        job = tune_and_wait(daemon)
    assert job["state"] == "done", job
    trials = daemon.trials()
    fault, = [trial for trial in trials if trial["status"] not in ("ok", "pruned")]
    assert fault["status"] == status and fault["reason"]
    assert fault["config"] == trials[2]["config"] or key(fault["config"]) == runner.did("build")[2]
    answer = daemon.lookup()
    assert answer["source"] == "tuned" and answer["config"] != fault["config"]
    # By hand it can be tried again; but what was wrong, be it once, stays wrong.
    runner.write()
    daemon.tune("--force")
    again, = [trial for trial in daemon.trials() if trial["config"] == fault["config"]]
    assert again["status"] == (status if status == "wrong" else "ok")


def test_a_config_that_takes_its_runner_down_is_not_tried_in_each_sweep(daemons, runner):
    runner.write("space 6", "at verify 2 signal SEGV")
    daemon = daemons(runner, arguments=DEADLINES).start()
    job = tune_and_wait(daemon)
    assert job["state"] == "done" and job["restarts"] == 2, job
    fault, = [trial for trial in daemon.trials() if trial["status"] == "failed"]
    assert "signal 11" in fault["reason"] and "stage verify" in fault["reason"]
    # The space has grown: its trials are known, and what is new is tried.
    runner.write("space 9", "at verify 2 signal SEGV")
    job = tune_and_wait(daemon)
    assert job["state"] == "done" and not job.get("restarts"), job
    trials = daemon.trials()
    assert sum(trial["status"] == "ok" for trial in trials) > 6
    assert [trial["config"] for trial in trials if trial["status"] == "failed"] == [fault["config"]]


def test_a_device_that_takes_down_whatever_it_runs_costs_no_config(daemons, runner):
    runner.write("devices 2", "on cpu:0 at verify signal SEGV")
    daemon = daemons(runner, arguments=DEADLINES).start()
    failed = daemon.ctl("tune", *shape(), "--device", "cpu:0", check=False)
    assert failed.status == 4 and "none of them is to blame" in failed.complaint, failed
    suspects = [trial for trial in daemon.trials() if trial["status"] == "suspect"]
    assert suspects and not [trial for trial in daemon.trials() if trial["status"] in ("failed", "timeout")]
    # An equal one finds that there is nothing against them.
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=M64, device="cpu:1")["job"]
        assert peer.call("wait", job=job)["state"] == "done"
    assert {trial["status"] for trial in daemon.trials()} <= {"ok", "pruned"}
    assert not [trial for trial in daemon.trials() if "its runner failed" in trial["reason"]]


def test_who_has_taken_a_runner_down_is_remembered_over_kill_9(daemons, runner):
    gate = runner.gate("round")
    runner.write("at verify 2 signal SEGV", f"at round 1 gate {gate}")
    daemon = daemons(runner, arguments=DEADLINES).start()
    job = daemon.tune("--no-wait")[0]["job"]
    gate.arrived()
    harness.until(lambda: [trial for trial in daemon.trials() if trial["status"] == "suspect"], "it is suspected")
    daemon.kill()
    runner.write("at verify 2 signal SEGV")
    daemon.start()
    with daemon.peer() as peer:
        ended = peer.call("wait", job=job)
    assert ended["state"] == "done" and ended["restarts"] == 1, ended  # of this daemon
    fault, = [trial for trial in daemon.trials() if trial["status"] == "failed"]
    assert key(fault["config"]) == runner.did("build")[2]


# Where nobody can be blamed, the runner is given one more chance and the sweep ends all the same.
NOBODY = [
    ("hello", "exit 1"), ("hello", "signal SEGV"), ("hello", "rubbish"), ("hello", "twice"), ("hello", "unknown"),
    ("hello", "lie version"),
    ("space", "exit 1"), ("space", "twice"), ("space", "unknown"), ("space", "rubbish"), ("space", "lie default_index"),
    ("sweep", "exit 1"), ("sweep", "signal KILL"), ("sweep", "rubbish"),
    ("build 2", "twice"), ("build 2", "order"), ("build 2", "unknown"), ("build 2", "lie code"),
    ("build 2", "lie event"), ("build 2", "late 100"),
    ("verify 2", "twice"), ("verify 2", "unknown"), ("verify 2", "order"),
    ("round 3", "exit 1"), ("round 3", "twice"), ("round 3", "unknown"), ("round 3", "order"),
    ("round 3", "lie index"), ("round 3", "lie huge"), ("round 3", "lie zero"), ("round 3", "lie tiny"), ("round 3", "lie negative"),
    ("round 3", "lie text"), ("round 3", "lie round"), ("round 3", "fork"), ("round 3", "half"),
    ("dropped", "twice"), ("dropped", "unknown"), ("dropped", "exit 1"),
    ("confirm", "exit 1"), ("confirm", "twice"),
    ("reply", "exit 1"), ("reply", "twice"), ("reply", "unknown"), ("reply", "rubbish"), ("reply", "lie winner"),
    ("reply", "lie nobody"), ("reply", "lie outcome"),
]


@pytest.mark.parametrize("step,action", NOBODY, ids=[f"{step}-{action}" for step, action in NOBODY])
def test_a_single_lapse_does_not_cost_the_sweep(daemons, runner, step, action):
    where = step if " " in step else f"{step} *"
    runner.write(RIVAL, f"at {where} once {action}")
    daemon = daemons(runner, arguments=[*DEADLINES, "--deadline", "hello=10", "--deadline", "space=10"])
    daemon.start()
    with Lookups(daemon):
        harness.until(lambda: daemon.ctl("devices").json["devices"][0]["state"] in ("ready", "failed"), "a device")
        job = tune_and_wait(daemon)
        if job["state"] != "done":  # a lapse that ends a job must not end the next one
            assert job["state"] == "failed" and job["reason"]
            job = tune_and_wait(daemon)
    assert job["state"] == "done", job
    trials = daemon.trials()
    assert len([trial for trial in trials if trial["status"] in ("failed", "timeout")]) <= 1, trials
    timed = [trial for trial in trials if trial["status"] == "ok" and trial.get("time_us")]
    fastest = min(timed, key=lambda trial: trial["time_us"])
    assert daemon.lookup()["config"] == fastest["config"], "the runner chose the winner by saying so"


def test_a_flood_of_events_is_bounded_and_ends_with_a_winner(daemons, runner):
    runner.write("at round 2 once flood")
    daemon = daemons(runner, arguments=DEADLINES).start()
    before = harness.memory_kb(daemon.pid)
    with Lookups(daemon):
        job = tune_and_wait(daemon)
    assert job["state"] == "done"
    assert harness.INSTRUMENTED or harness.memory_kb(daemon.pid) - before < 32 << 10


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV], ids=lambda blow: blow.name)
def test_a_runner_struck_from_outside_costs_no_config(daemons, runner, blow):
    gate = runner.gate("measure")
    runner.write(f"at measure 5 once gate {gate}")
    daemon = daemons(runner, arguments=DEADLINES).start()
    with Lookups(daemon), daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=M64)["job"]
        peer.call("watch", job=job)
        gate.arrived()
        os.kill(daemon.runner_pids()[0], blow)
        struck = peer.event(lambda event: event.get("status") == "suspect")
        assert key(struck["config"]) == runner.did("build")[5] and "stage measure" in struck["reason"]
        assert peer.call("wait", job=job)["state"] == "done"
    assert {trial["status"] for trial in daemon.trials()} <= {"ok", "pruned"}
    assert daemon.status()["runner_restarts"] == 1


@pytest.mark.parametrize("stage", [
    pytest.param("build", marks=pytest.mark.skipif(harness.INSTRUMENTED, reason="it waits as long as the other stage")), "measure"])
def test_a_machine_that_stood_still_costs_no_config(daemons, stage):
    """Past every deadline; the daemon goes on before its runner has said anything, as it may."""
    daemon = daemons(arguments=[word for name in ("build", "verify", "measure", "start") for word in ("--deadline", f"{name}={round(30 * harness.PATIENCE)}")] +
                     ["--budget", harness.LARGE_BUDGET])
    daemon.start()
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=M64)["job"]
        peer.call("watch", job=job)
        peer.event(lambda event: event.get("stage") == stage)
        stopped = [*daemon.runner_pids(), daemon.pid]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        harness.until(lambda: time.monotonic() > began + 33 * harness.PATIENCE, "the deadlines are over")
        os.kill(daemon.pid, signal.SIGCONT)
        # It runs, and has nothing to read.
        daemon.status()
        for pid in stopped[:-1]:
            os.kill(pid, signal.SIGCONT)
        assert peer.call("wait", job=job)["state"] == "done"
    assert not [trial for trial in daemon.trials() if trial["status"] == "timeout"]
    assert daemon.status()["runner_restarts"] == 0


def cancel_at(daemon, job, gate):
    """The cancel is taken up while the sweep stands at the gate."""
    cancel = daemon.ctl_start("cancel", job)
    daemon.heard("audit cancel")
    gate.release()
    cancel.communicate(timeout=harness.DEADLINE)
    assert cancel.returncode == 0


def test_a_runner_that_ignores_a_cancel_is_told_of_as_what_it_is(daemons, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}", "at round 2 hang")
    daemon = daemons(runner, arguments=["--deadline", "stop=0.5"]).start()
    job = daemon.tune("--no-wait")[0]["job"]
    gate.arrived()
    cancel_at(daemon, job, gate)
    assert daemon.ctl("jobs", job).json["jobs"][0]["state"] == "cancelled"
    daemon.heard("runner gone kind=cpu cause=late: it was told to cancel its sweep, and did not within 0.5 s")


def test_a_runner_that_never_works_fails_the_job_and_not_the_daemon(daemons, runner):
    runner.write("at sweep exit 1")
    daemon = daemons(runner, arguments=DEADLINES).start()
    done = daemon.ctl("tune", *shape(), check=False)
    assert done.status == 4
    assert daemon.lookup()["source"] == "default"
    assert len(runner.did("sweep")) <= 3, "it was tried for ever"
    runner.write()
    assert daemon.tune()[0]["source"] == "tuned"


def test_all_configs_faulty_leaves_the_default_and_says_why(daemons, runner):
    runner.write("at build exit 1")
    daemon = daemons(runner, arguments=DEADLINES).start()
    assert daemon.ctl("tune", *shape(), check=False).status == 4
    assert daemon.lookup()["source"] == "default"
    job = daemon.ctl("jobs").json["jobs"][-1]
    assert job["state"] == "failed" and job["reason"]


def test_a_space_in_which_nobody_can_win_is_told_with_counts_and_the_first_complaint(daemons, runner):
    runner.write("space 4", "at build 0 lie fail", "at build 1 lie fail", "at verify 2 lie wrong", "at verify 3 lie wrong",
                 "at build 4 lie fail")
    daemon = daemons(runner, arguments=DEADLINES).start()
    told = daemon.ctl("tune", *shape(), check=False)
    tried = [trial for trial in daemon.trials() if trial["status"] != "pruned"]
    counts = [sum(trial["status"] == status for trial in tried) for status in ("failed", "wrong")]
    assert told.status == 4 and min(counts) > 0, told
    first = " ".join(f"{knob}={value}" for knob, value in tried[0]["config"].items())
    assert f"no config can win: of {len(tried)} that were tried, {counts[0]} failed, {counts[1]} were wrong; the first, " \
        in told.complaint, told
    assert first[:40] in told.complaint and "does not compile" in told.complaint, told


@pytest.mark.parametrize("runner_path", ["/nonexistent/runner", "/bin/true", "/bin/cat"])
def test_a_program_that_is_no_runner_leaves_lookups_alone(daemons, runner_path):
    daemon = daemons(runner_path, arguments=["--deadline", "hello=1"]).start()
    assert daemon.lookup()["source"] == "default"
    done = daemon.ctl("tune", *shape(), check=False)
    assert done.status in (1, 4) and done.complaint
    assert daemon.lookup()["source"] == "default"


def test_a_runner_dies_with_its_daemon(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 1 gate {gate}")
    daemon.tune("--no-wait")
    gate.arrived()
    pids = daemon.runner_pids()
    assert pids
    daemon.kill()
    for pid in pids:
        assert not harness.alive(pid)


CRASHES = ["build 1", "build 6", "verify 3", "round 0", "round 3", "round 12", "dropped *", "confirm *", "reply *"]


@pytest.mark.parametrize("where", CRASHES)
def test_after_kill_9_the_job_goes_on_and_repeats_nothing_stored(daemons, runner, where):
    crash, hold = runner.gate("crash"), runner.gate("hold")
    runner.write(RIVAL, f"at {where} once gate {crash}")
    daemon = daemons(runner).start()
    job = daemon.tune("--no-wait")[0]["job"]
    crash.arrived()
    if where.startswith("round") and where != "round 0":
        # What was sent before this round is on its way; let some of it arrive.
        harness.until(lambda: any(trial.get("code") for trial in daemon.trials()), "a trial is stored")
    daemon.kill()
    before = {word: runner.did(word) for word in ("build", "verify", "drop")}
    # Hold the resumed sweep at its start: what `trials` tells now is what was stored.
    runner.write(RIVAL, f"at sweep once gate {hold}")
    daemon.start()
    hold.arrived()
    stored = [trial for trial in daemon.trials() if trial.get("code")]
    dropped = [trial for trial in stored if trial.get("dropped_round")]
    hold.release()
    with daemon.peer() as peer:
        assert peer.call("wait", job=job)["state"] == "done"
    after = {word: runner.did(word)[len(before[word]):] for word in before}
    assert not {key(trial["config"]) for trial in stored} & set(after["build"]), "a stored build was repeated"
    verified = set(before["verify"]) & {key(trial["config"]) for trial in stored}
    # A verification may have been under way for the last one that was built.
    assert len(verified & set(after["verify"])) <= 1, "a stored verification was repeated"
    assert not {key(trial["config"]) for trial in dropped} & set(after["drop"]), "a stored drop was repeated"
    assert daemon.lookup()["source"] == "tuned"
    assert len(runner.did("sweep")) == 2


def test_queued_jobs_survive_kill_9(daemons, runner):
    gate = runner.gate("sweep")
    runner.write(f"at sweep once gate {gate}")
    daemon = daemons(runner).start()
    jobs = [daemon.tune("--no-wait", m=m)[0]["job"] for m in (1, 4, 16)]
    gate.arrived()
    daemon.kill()
    runner.write()
    daemon.start()
    with daemon.peer() as peer:
        for job in jobs:
            assert peer.call("wait", job=job)["state"] == "done"
    for m in (1, 4, 16):
        assert daemon.lookup(m=m)["source"] == "tuned"


def test_a_cancelled_job_stays_cancelled_after_kill_9(daemons, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    daemon = daemons(runner).start()
    job = daemon.tune("--no-wait")[0]["job"]
    gate.arrived()
    cancel_at(daemon, job, gate)
    daemon.kill()
    daemon.start()
    assert daemon.ctl("jobs", job).json["jobs"][0]["state"] == "cancelled"
    assert daemon.lookup()["source"] == "default"


def test_sigterm_in_mid_sweep_is_clean_and_the_job_goes_on_later(daemons, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    daemon = daemons(runner).start()
    job = daemon.tune("--no-wait")[0]["job"]
    gate.arrived()
    daemon.stop()
    runner.write()
    daemon.start()
    with daemon.peer() as peer:
        assert peer.call("wait", job=job)["state"] == "done"


def test_kill_9_at_random_moments_loses_nothing_acknowledged(daemons, runner):
    """A short loop; each round tunes shapes, kills at a moment that the seed chose, and checks all it was told."""
    import random
    chance = random.Random(20240607)
    daemon = daemons(runner).start()
    runner.write("pace_us 2000")
    told = {}
    m = 1
    for _ in range(5):
        tunes = [daemon.ctl_start("tune", *shape(m=m + offset)) for offset in range(3)]
        reach = len(runner.did()) + chance.randrange(10, 120)
        harness.until(lambda: len(runner.did()) >= reach or all(tune.poll() is not None for tune in tunes),
                      "the runner works")
        daemon.kill(runners=chance.random() < 0.5)
        daemon.start()
        for offset, tune in enumerate(tunes):
            output, _ = tune.communicate(timeout=harness.DEADLINE)
            if tune.returncode == 0:
                told[m + offset] = harness.json.loads(output)[0]["config"]
        for known, config in told.items():
            found = daemon.lookup(m=known)
            assert found["source"] == "tuned" and found["config"] == config, known
        m += 1000


def test_a_runners_texts_steer_no_terminal(daemons, runner):
    runner.write("identity compiler=\x1b[2Jx\x07 \x9bnot-text", "device \x1b]0;owned\x07 units=4")
    daemon = daemons(runner).start()
    daemon.tune()
    for words in (["status"], ["devices"], ["jobs"], ["explain", *shape()], ["trials", *shape()], ["lookup", *shape()],
                  ["export", "-"]):
        shown = daemon.ctl(*words, as_json=False, check=False).output
        assert all(sign == "\n" or sign >= " " and sign != "\x7f" and not "\x80" <= sign <= "\x9f" for sign in shown), words
        daemon.ctl(*words, check=False).json  # and it is text
    assert all(sign not in daemon.log() for sign in "\x1b\x07")
