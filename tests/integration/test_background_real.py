"""Work that nobody waits for, by the real CPU runner: what made-up runners cannot show is how its real sweeps end."""
import contextlib
import os
import signal
import subprocess
import sys

import pytest

import harness
from harness import BUDGET, BUILD, INSTRUMENTED, LARGE_BUDGET, PATIENCE, problem, shape, until
from test_background import at_rest

CORES = sorted(os.sched_getaffinity(0))
ALWAYS = ["--background", "always", "--background-wait", "0.05", "--budget", BUDGET]
# Asks before each sweep how busy the device is, and takes any answer.
IDLE = ["--background", "idle", "--background-load", "100", "--background-wait", "0.05", "--budget", BUDGET]
# Under a sanitizer a real sweep takes a minute: one of them, on a machine as it is, comes by all that the others do.
SHAPES = [{"m": m, "n": 1024} for m in ((16,) if INSTRUMENTED else (1, 16, 128))]
plain_only = pytest.mark.skipif(INSTRUMENTED, reason="other sweeps come by the same under a sanitizer, in less time")
# A sweep takes a second or two, its whole budget beside a load, and is repeated once where it was disturbed.
SWEPT = 240 * PATIENCE


@contextlib.contextmanager
def load(program="while True: pass"):
    """Something that keeps every core busy."""
    busy = [subprocess.Popen([sys.executable, "-c", program], preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}))
            for core in CORES]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.fixture(params=["idle", pytest.param("busy", marks=plain_only)])
def machine(request):
    with load() if request.param == "busy" else contextlib.nullcontext():
        yield request.param


def lookups(daemon, **more):
    """How all shapes are answered: by a daemon whose loop turns, or not at all."""
    with daemon.peer() as peer:
        return [peer.call("lookup", kernel="rmsnorm", problem=problem(**fields), **more) for fields in SHAPES]


def sources(answers):
    return {answer["source"] for answer in answers}


def all_tuned(daemon):
    until(lambda: sources(lookups(daemon)) == {"tuned"}, "all are tuned", SWEPT)


def heard(daemon):
    daemon.start()
    until(lambda: daemon.lookup(m=3).get("reason") != "probing", "the device is heard")
    return daemon


def causes(daemon):
    return [job["cause"] for job in daemon.ctl("jobs").json["jobs"] if job["state"] == "done"]


@pytest.mark.parametrize("arguments", [ALWAYS, IDLE], ids=["always", "idle"])
def test_misses_are_tuned_and_the_daemon_answers_and_ends(daemons, machine, arguments):
    daemon = heard(daemons(arguments=arguments))
    assert "tuned" not in sources(lookups(daemon, tune_on_miss=True)), machine
    all_tuned(daemon)
    assert causes(daemon).count("miss") == len(SHAPES)
    daemon.stop()


@plain_only
def test_what_the_example_asked_for_is_tuned(daemons):
    daemon = heard(daemons(arguments=IDLE))
    asked = [BUILD / "client/example-lookup", "256"]
    environment = {**os.environ, "FLYTUNE_SOCKET": str(daemon.path)}

    def answers():
        done = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, text=True, check=True,
                              timeout=harness.DEADLINE)
        return [line.split()[4] for line in done.stdout.splitlines()]
    assert "tuned" not in answers()
    until(lambda: answers() == ["tuned"] * 4, "its four problems are tuned", SWEPT)
    daemon.stop()


def test_after_an_upgrade_all_are_tuned_again(daemons, machine, tmp_path):
    relay = harness.write_relay(tmp_path / "relay", b"compiler=")
    daemon = heard(daemons(relay, arguments=ALWAYS))
    lookups(daemon, tune_on_miss=True)
    all_tuned(daemon)
    daemon.stop()
    harness.write_relay(relay, b"compilex=")
    daemon.start()
    until(lambda: {answer.get("reason", "")[:5] for answer in lookups(daemon)} != {"probi"}, "the device is heard")
    all_tuned(daemon)
    # Those that were disturbed before are measured again for that.
    assert {"upgrade", "busy"} & set(causes(daemon)), machine

    until(lambda: at_rest(daemon.status()), "the rest is swept", SWEPT)
    daemon.stop()


@plain_only
def test_what_was_measured_on_a_busy_machine_is_measured_again(daemons):
    daemon = heard(daemons(arguments=IDLE))
    # Whoever wakes up a thousand times a second takes a core away in every launch that lasts for milliseconds.
    with load("import time\nwhile True: time.sleep(0.0005)"):
        def disturbed():
            daemon.tune("--force", "--budget", LARGE_BUDGET, m=1024)
            return "something else used" in daemon.ctl("explain", *shape(m=1024), as_json=False).output
        until(disturbed, "a sweep is disturbed", SWEPT)
    until(lambda: "busy" in causes(daemon), "it is measured again", SWEPT)
    daemon.stop()


def test_one_whose_budget_was_too_small_is_tried_again(daemons, tmp_path):
    """What it failed of may pass: here the budget, elsewhere other work that left it too little of it."""
    path = tmp_path / "flytuned.conf"
    path.write_text("[queue]\nbudget = 0.001\n")
    daemon = heard(daemons(arguments=["--background", "always", "--background-wait", "0.05", "--config", path]))
    lookups(daemon, tune_on_miss=True)
    until(lambda: [job["state"] for job in daemon.ctl("jobs").json["jobs"]].count("failed") > len(SHAPES), "one fails again")
    path.write_text(f"[queue]\nbudget = {BUDGET}\n")
    daemon.process.send_signal(signal.SIGHUP)
    all_tuned(daemon)
