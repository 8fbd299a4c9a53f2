"""Configs that are right when they are looked at and wrong now and then, and configs that write into their arrays, under the
real daemon and the real CPU runner: only that some of its configs, which would win, are spoilt (tests/runner/spoilt_runner.c)."""
import os
import re

import pytest

import harness

SPOILT_RUNNER = harness.program("spoilt_runner")
SHAPE = dict(m=4, n=1024)


@pytest.fixture
def spoilt(tmp_path, daemons):
    """A daemon whose next runner is spoilt as it is told."""
    runner = tmp_path / "runner-cpu"
    runner.write_text(f'#!/bin/sh\nexport FLYTUNE_SPOIL="$(cat {tmp_path}/spoil)"\nexec {SPOILT_RUNNER} "$@"\n')
    runner.chmod(0o755)
    (tmp_path / "spoil").write_text("")
    # On one core: where others keep every core busy, each of many thousand launches of two threads waits for both.
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        daemon = daemons(runner=runner, arguments=["--budget", "60"]).start()
    finally:
        os.sched_setaffinity(0, before)

    def spoil(how):
        (tmp_path / "spoil").write_text(how)
        for pid in daemon.runner_pids():
            os.kill(pid, 9)
            harness.await_death(pid)
        return daemon
    return spoil


def is_spoilt(trial):
    return trial["config"]["unroll"] == 2


def tuned_by(daemon):
    answer = daemon.lookup(**SHAPE)
    assert answer["source"] == "tuned", answer
    return answer["config"]


@pytest.mark.parametrize("how", ["racy=20", "stale=50"])
def test_what_is_wrong_now_and_then_never_wins(spoilt, how):
    daemon = spoilt(how)
    assert daemon.tune(**SHAPE)[0]["state"] == "done"
    assert tuned_by(daemon)["unroll"] != 2
    trials = daemon.trials(**SHAPE)
    wrong = [trial for trial in trials if trial["status"] == "wrong"]
    assert wrong and all(map(is_spoilt, wrong)), wrong
    assert any("right at first, wrong in launch" in trial["reason"] for trial in wrong), wrong
    told = daemon.ctl("explain", *harness.shape(**SHAPE), as_json=False).output
    assert re.search(r"\d+ of the winner's launches checked", " ".join(told.split())), told


def test_a_winner_that_turns_out_wrong_now_and_then_does_not_pass_a_check(spoilt):
    daemon = spoilt("")
    daemon.tune(**SHAPE)
    assert tuned_by(daemon)["unroll"] == 2
    spoilt("racy=50")
    daemon.ctl("check", *harness.shape(**SHAPE))
    assert tuned_by(daemon)["unroll"] != 2
    assert all(map(is_spoilt, (trial for trial in daemon.trials(**SHAPE) if trial["status"] == "wrong")))


@pytest.mark.parametrize("how", ["input", "weight"])
def test_one_that_writes_into_its_arrays_is_out_alone(spoilt, how):
    daemon = spoilt(f"{how}=1")
    assert daemon.tune(**SHAPE)[0]["state"] == "done"
    trials = [trial for trial in daemon.trials(**SHAPE) if trial["status"] not in ("pruned", "same_code_as")]
    assert any(map(is_spoilt, trials)) and not all(map(is_spoilt, trials))
    for trial in trials:
        if is_spoilt(trial):
            assert trial["status"] == "wrong" and f"it changed its {how}" in trial["reason"], trial
        else:
            assert trial["status"] == "ok", trial
