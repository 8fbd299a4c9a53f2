"""What a budget bounds: all of a sweep, from its runner's start to the decision."""
import re
import time

import harness
from harness import problem, shape

LARGE = {"m": 30000, "n": 4096}
HANGS_S = 4  # a budget that a made-up runner uses up by hanging alone


def tune(daemon, budget, **fields):
    done = daemon.ctl("tune", *shape(**fields), "--budget", budget, "--force", check=False)
    assert done.status in (0, 4), done
    return done.json[0]


def needed(job):
    """The seconds that a job which had too few says it needs; 0 if it had enough."""
    if job["state"] == "done":
        return 0
    told = re.search(r"the budget of ([0-9.]+) s is too small: .* takes about (\d+) s", job["reason"])
    assert told and float(told[1]) < int(told[2]), job
    return int(told[2])


def tune_within_need(daemon, **fields):
    """What a job needs is said of the machine as it was then: one that gets busier meanwhile may be asked again."""
    budget = 1
    while True:
        job = tune(daemon, budget, **fields)
        if job["state"] == "done":
            return job
        assert budget < harness.DEADLINE, job
        budget = 2 * needed(job)


def test_a_budget_bounds_a_large_sweep_or_the_job_says_what_it_needs(daemons):
    """A launch and a piece of a check are what nothing interrupts, and a busy machine may stretch them: but not each time."""
    daemon = daemons().start()
    for budget in (1, 2):
        def bounded(budget=budget):
            job = tune(daemon, budget, **LARGE)
            return job["sweep_s"] <= 1.1 * budget + 0.1 and job
        job = harness.until(bounded, f"a sweep ends within its budget of {budget} s")
        if needed(job):
            assert daemon.lookup(**LARGE)["source"] == "default"
    tune_within_need(daemon, m=2000, n=4096)
    timed = [trial for trial in daemon.trials(m=2000, n=4096) if trial["time_us"]]
    assert any(trial["default"] for trial in timed)
    assert all(trial["time_us"] > 10 for trial in timed), "32 MB in less than any machine takes"


def test_what_a_budget_did_not_reach_is_said_and_no_race_is_settled_without_it(daemons):
    daemon = daemons().start()
    job = tune_within_need(daemon, m=4000, n=4096)
    trials = daemon.trials(m=4000, n=4096)
    left = [trial for trial in trials if trial["status"] == "waiting"]
    said = daemon.ctl("explain", *shape(m=4000, n=4096)).json
    assert bool(left) == ("were not reached in the budget" in said["reason"]), (job, said)
    assert not left or not said["conclusive"]


def test_a_runner_that_hangs_past_the_budget_is_not_waited_for(daemons, runner):
    runner.write("at measure 2 once hang")
    daemon = daemons(runner, arguments=["--deadline", "stop=1"]).start()
    began = time.monotonic()
    job = tune(daemon, HANGS_S)
    assert job["state"] == "done" and time.monotonic() - began < harness.DEADLINE / 2, job
    fault, = [trial for trial in daemon.trials() if trial["status"] == "suspect"]
    assert f"within the budget of {HANGS_S} s" in fault["reason"]


def test_a_runner_that_never_ends_within_the_budget_costs_the_job_and_no_config(daemons, runner):
    runner.write("at measure * hang")
    daemon = daemons(runner, arguments=["--deadline", "stop=1"]).start()
    job = tune(daemon, HANGS_S)
    assert job["state"] == "failed" and f"did not end within the budget of {HANGS_S} s" in job["reason"], job
    assert [trial["status"] for trial in daemon.trials()].count("suspect") == 1
    assert not [trial for trial in daemon.trials() if trial["status"] in ("timeout", "failed")]


def test_each_jobs_time_is_its_own(daemons, runner):
    runner.write("pace_us 20000")
    daemon = daemons(runner).start()
    with daemon.peer() as peer:
        for _ in range(3):
            job = peer.call("tune", kernel="rmsnorm", problem=problem(), force=True)["job"]
            ended = peer.call("wait", job=job)
            assert 0 < ended["sweep_ns"] <= ended["ended_at_ns"] - ended["started_at_ns"] + 50_000_000, ended
