"""What the daemon costs when nobody asks."""
import os
import select

import pytest

import harness

pytestmark = pytest.mark.skipif(harness.INSTRUMENTED, reason="means nothing in an instrumented program")
# The full figure takes two minutes; the short one finds a timer that should not run as well.
WINDOW = float(os.environ.get("FLYTUNE_IDLE_SECONDS", "6"))


def test_idle_it_sleeps_and_is_small(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.ctl("tune", *harness.shape(m="1,2,3,4"))
    for pid in set(runner.pids()):
        harness.await_death(pid)
    with daemon.peer() as peer:
        peer.call("lookup", kernel="rmsnorm", problem=harness.problem())
        harness.await_sleep(daemon.pid, WINDOW)
    memory = harness.memory_kb(daemon.pid)
    print(f"idle: {memory} kB of its own, no wake-up in {WINDOW:g} s; ready after {daemon.ready_s * 1e3:.1f} ms")
    assert memory < 10 * 1024


def test_for_clients_that_keep_answers_it_looks_once_a_second(daemons, runner):
    """Whether what they keep still is of the device that there is: nothing else would tell."""
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune(m=1)
    with harness.Asker(daemon.path) as asker:
        assert asker.lookup(1)[0] == "tuned"
        for pid in set(runner.pids()):
            harness.await_death(pid)
        before = harness.wakeups(daemon.pid)
        select.select([], [], [], WINDOW)
        woken = harness.wakeups(daemon.pid) - before
    print(f"{woken} wake-ups in {WINDOW:g} s")
    assert 0 < woken < 4 * WINDOW


def test_it_starts_quickly(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    # A busy machine may keep it waiting for its turn, but not each time.
    harness.until(lambda: daemon.restart().ready_s < 0.5, "it starts quickly")
    print(f"ready after {daemon.ready_s * 1e3:.1f} ms")
