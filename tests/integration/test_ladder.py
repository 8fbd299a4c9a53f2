"""Sweeps that take turns: where a runner would only wait between the first rounds of one, another has the device."""
import os
import signal

import pytest

from harness import shape, until

SIZES = (16, 64, 256, 1024)


@pytest.fixture(name="ladder")
def begun(daemons, runner):
    """A function that queues a ladder at once, with rounds put off as given, and gives the ids of its jobs."""
    def queue(later, *lines, arguments=()):
        runner.write("problems named", "best 2", f"later {later}", *lines)
        daemon = daemons(runner, arguments=[*arguments]).start()
        daemon.ctl("pause")
        ladder = daemon.ctl("tune", *shape(m=",".join(map(str, SIZES))), "--no-wait").json
        daemon.ctl("resume")
        return daemon, [job["job"] for job in ladder]
    return queue


def states(daemon):
    return [job["state"] for job in daemon.ctl("jobs").json["jobs"]]


def all_done(daemon):
    until(lambda: states(daemon) == ["done"] * len(SIZES), "the ladder is done")


def rounds_of(runner, job):
    """How many rounds were known at the start of each slice of a job."""
    return [int(line.split()[1]) for line in runner.did("sweep") if line.split()[0] == str(job)]


def test_sweeps_take_turns_between_their_first_rounds_and_repeat_nothing(ladder, runner):
    daemon, job = ladder(100)
    with daemon.peer() as peer:
        for number in job:
            peer.call("wait", job=number)
    assert all(rounds_of(runner, number) == [0, 1, 2, 3, 4, 5, 6] for number in job)
    begun = [int(line.split()[0]) for line in runner.did("sweep")]
    # The last has begun long before the first, which has waited six times, is through.
    assert begun.index(job[-1]) < len(begun) - 1 - begun[::-1].index(job[0])
    built = runner.did("build")
    assert built and len(built) == len(set(built)), "something was built twice"
    verified = runner.did("verify")
    assert len(verified) == len(set(verified)), "something was verified twice"
    assert len(runner.pids()) == 1
    for m in SIZES:
        trials = daemon.trials(m=m)
        assert next(trial for trial in trials if trial["winner"])["rounds"] >= 7
    told = [line for line in daemon.log().splitlines() if "job started" in line]
    assert len(told) == len(SIZES)
    assert all(job["sweep_s"] > 0 for job in daemon.ctl("jobs").json["jobs"])


def test_one_that_was_put_off_counts_as_running_and_can_be_cancelled(ladder, runner):
    daemon, job = ladder(2000)
    until(lambda: len(runner.did("reply")) >= len(SIZES), "all are put off")
    assert states(daemon) == ["running"] * len(SIZES)
    daemon.ctl("cancel", job[0])
    ended = daemon.ctl("jobs", job[0]).json["jobs"][0]
    assert ended["state"] == "cancelled" and "kept" in ended["reason"]
    assert any(trial["rounds"] for trial in daemon.trials(m=SIZES[0]))
    runner.write("best 2")
    with daemon.peer() as peer:
        for number in job[1:]:
            peer.call("wait", job=number)
    assert states(daemon) == ["cancelled", "done", "done", "done"]


def test_a_pause_stops_those_that_were_put_off(ladder, runner):
    daemon, _ = ladder(2000)
    until(lambda: len(runner.did("reply")) >= len(SIZES), "all are put off")
    daemon.ctl("pause")
    assert states(daemon) == ["queued"] * len(SIZES)
    runner.write("best 2")
    daemon.ctl("resume")
    all_done(daemon)


def test_those_that_were_put_off_go_on_when_their_runner_has_died(ladder, runner):
    daemon, _ = ladder(200)
    until(lambda: len(runner.did("reply")) >= len(SIZES), "all are put off")
    os.kill(runner.pids()[-1], signal.SIGKILL)
    all_done(daemon)
    built = runner.did("build")
    assert len(built) == len(set(built)), "something was built twice"


def test_those_that_were_put_off_go_on_after_the_daemon_was_killed(ladder, runner):
    daemon, _ = ladder(2000)
    until(lambda: len(runner.did("reply")) >= len(SIZES), "all are put off")
    daemon.kill()
    runner.write("best 2")
    daemon.start()
    all_done(daemon)
    built = runner.did("build")
    assert len(built) == len(set(built)), "something was built twice"


def test_what_matters_less_is_not_begun_meanwhile(daemons, runner):
    runner.write("problems named", "best 2", "later 100")
    daemon = daemons(runner).start()
    daemon.ctl("pause")
    low = daemon.ctl("tune", *shape(m=64), "--no-wait", "--priority", "-5").json[0]["job"]
    high = daemon.ctl("tune", *shape(m=128), "--no-wait", "--priority", "5").json[0]["job"]
    daemon.ctl("resume")
    with daemon.peer() as peer:
        peer.call("wait", job=low)
    begun = [int(line.split()[0]) for line in runner.did("sweep")]
    assert begun == [high] * 7 + [low] * 7
