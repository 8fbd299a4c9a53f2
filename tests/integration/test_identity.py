"""A result belongs to the compiler, device and rule that it was measured under."""
import harness
from harness import problem, shape

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
