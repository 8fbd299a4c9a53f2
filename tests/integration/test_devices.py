"""Several equal devices: each has a runner and a sweep of its own, they share the queue, and no fault of one touches another.

Who does what at the same time is seen at gates, at which the made-up runners wait."""
import os
import signal

import pytest

import harness
from harness import problem, shape, until

TWO = ("devices 2", "space 4", "problems named")


@pytest.fixture
def gates(runner):
    """A gate for each of two devices, at which its sweeps begin."""
    return [runner.gate(f"cpu{number}") for number in range(2)]


def at_gates(gates, step="sweep"):
    return [*TWO, *(f"on cpu:{number} at {step} once gate {gate}" for number, gate in enumerate(gates))]


@pytest.fixture
def two(daemons, runner, gates):
    runner.write(*at_gates(gates))
    daemon = daemons(runner).start()
    until(lambda: all(device["state"] == "ready" for device in daemon.status()["devices"]), "both are known")
    return daemon


def tune(peer, m, **more):
    return peer.call("tune", kernel="rmsnorm", problem=problem(m=m), **more)["job"]


def devices(daemon):
    return {device["id"]: device for device in daemon.status()["devices"]}


def job(peer, number):
    told, = peer.call("jobs", job=number)["jobs"]
    return told


def ended(peer, number):
    told = peer.call("wait", job=number)
    assert told["state"] == "done", told
    return told


def sweeps(runner):
    """Device and problem of each sweep that was begun."""
    return [tuple(line.split()[2:]) for line in runner.did("sweep")]


def test_two_devices_sweep_two_problems_at_once(two, runner, gates):
    with two.peer() as peer:
        first, second = tune(peer, 64), tune(peer, 128)
        for gate in gates:
            gate.arrived()
        told = devices(two)
        assert [told[name]["holder"] for name in ("cpu:0", "cpu:1")] == ["sweep", "sweep"]
        assert {told["cpu:0"]["job"], told["cpu:1"]["job"]} == {first, second}
        assert told["cpu:0"]["runner_pid"] != told["cpu:1"]["runner_pid"]
        assert {job(peer, number)["device"] for number in (first, second)} == {"cpu:0", "cpu:1"}
        assert two.status()["jobs"] == {"queued": 0, "running": 2}
        for gate in gates:
            gate.release()
        assert {ended(peer, number)["device"] for number in (first, second)} == {"cpu:0", "cpu:1"}
    until(lambda: not any(device.get("holder") for device in devices(two).values()), "both are free")
    assert two.lookup(m=64)["source"] == two.lookup(m=128, device="cpu:1")["source"] == "tuned"


def test_a_runners_death_costs_the_other_device_nothing(two, runner, gates):
    with two.peer() as peer:
        jobs = {"cpu:0": tune(peer, 64, device="cpu:0"), "cpu:1": tune(peer, 128, device="cpu:1")}
        for gate in gates:
            gate.arrived()
        before = devices(two)
        os.kill(before["cpu:0"]["runner_pid"], signal.SIGKILL)
        assert ended(peer, jobs["cpu:0"])["restarts"] == 1
        after = devices(two)
        assert after["cpu:1"]["runner_pid"] == before["cpu:1"]["runner_pid"] != after["cpu:0"]["runner_pid"]
        assert after["cpu:1"]["holder"] == "sweep"
        gates[1].release()
        assert not ended(peer, jobs["cpu:1"]).get("restarts")
    assert [device for device, _ in sweeps(runner)].count("cpu:1") == 1


def broken(gates, step="sweep"):
    """The first device waits at its gate once; the runner of the second fails at each sweep, or with each config."""
    return [*TWO, f"on cpu:0 at sweep once gate {gates[0]}", f"on cpu:1 at {step} exit 3"]


@pytest.mark.parametrize("step", ["sweep", "build"])
def test_a_device_whose_runner_keeps_dying_takes_no_jobs_from_one_that_works(two, runner, gates, step):
    runner.write(*broken(gates, step))
    with two.peer() as peer, two.peer() as watcher:
        watcher.call("watch")
        numbers = [tune(peer, m) for m in (8, 16, 32, 64, 128)]
        gates[0].arrived()
        told = watcher.event(lambda event: event["event"] == "queued" and event.get("reason"))
        assert told["job"] == numbers[1] and told["state"] == "queued" and told["reason"].startswith("its runner failed on cpu:1: ")
        assert job(peer, told["job"])["reason"] == told["reason"]
        gates[0].release()
        for number in numbers:
            assert ended(peer, number)["device"] == "cpu:0"
        assert "its runner failed" not in job(peer, numbers[1])["reason"]
    assert "device rests device=cpu:1" in two.log() and f"job waits for an equal device job={numbers[1]}" in two.log()


def test_a_device_whose_runner_failed_works_again_after_its_rest(two, runner, gates):
    runner.write(*broken(gates))
    with two.peer() as peer:
        numbers = [tune(peer, m) for m in (8, 16)]
        gates[0].arrived()
        two.heard("device rests device=cpu:1")
        runner.write(*TWO)
        numbers.append(tune(peer, 32))
        assert ended(peer, numbers[2])["device"] == "cpu:1"
        assert job(peer, numbers[1])["state"] == "queued", "it waits for one that it was not lost on"
        gates[0].release()
        for number in numbers[:2]:
            assert ended(peer, number)["device"] == "cpu:0"


def test_a_job_whose_runner_fails_on_each_device_fails_and_names_them(two, runner):
    runner.write(*TWO, "at sweep exit 3")
    with two.peer() as peer:
        told = peer.call("wait", job=tune(peer, 8))
        assert told["state"] == "failed" and told["device"] == "cpu:1", told
        assert told["reason"].endswith("; its runner failed on cpu:0 too"), told
        told = peer.call("wait", job=tune(peer, 16, device="cpu:1"))
        assert told["state"] == "failed" and "too" not in told["reason"], "it named its device"
        runner.write(*TWO)
        ended(peer, tune(peer, 8))


def test_a_job_runs_on_the_device_that_it_names(two, runner, gates):
    with two.peer() as peer:
        first, second, third = tune(peer, 64, device="cpu:1"), tune(peer, 128, device="cpu:1"), tune(peer, 256)
        for gate in gates:
            gate.arrived()
        assert job(peer, second)["state"] == "queued" and job(peer, second)["device"] == "cpu:1"
        assert job(peer, third)["device"] == "cpu:0"
        gates[0].release()
        ended(peer, third)
        assert job(peer, second)["state"] == "queued", "a free device takes no job that names another"
        gates[1].release()
        assert ended(peer, first)["device"] == ended(peer, second)["device"] == "cpu:1"


def test_jobs_that_name_none_keep_each_device_at_work(two, runner, gates):
    with two.peer() as peer:
        numbers = [tune(peer, m) for m in (8, 16, 32, 64, 128)]
        gates[0].arrived()
        gates[1].arrived()
        gates[1].release()
        # The other is still at its first one.
        for number in numbers[1:]:
            assert ended(peer, number)["device"] == "cpu:1"
        assert job(peer, numbers[0])["state"] == "running"
        gates[0].release()
        assert ended(peer, numbers[0])["device"] == "cpu:0"
    assert len(sweeps(runner)) == len(numbers)


def test_one_problem_is_swept_once_whichever_device_is_named(two, runner, gates):
    with two.peer() as peer:
        numbers = {tune(peer, 64), tune(peer, 64), tune(peer, 64, device="cpu:0"), tune(peer, 64, device="cpu:1")}
        assert len(numbers) == 1
        gates[0].arrived()
        assert not devices(two)["cpu:1"].get("holder")
        gates[0].release()
        ended(peer, numbers.pop())
    assert len(sweeps(runner)) == 1


def test_a_job_that_waits_goes_where_someone_names_a_device_for_it(two, runner, gates):
    with two.peer() as peer:
        running = [tune(peer, m) for m in (8, 16)]
        waiting = tune(peer, 64)
        assert tune(peer, 64, device="cpu:1") == waiting
        for gate in gates:
            gate.arrived()
        gates[0].release()
        ended(peer, running[0])
        assert job(peer, waiting)["state"] == "queued"
        gates[1].release()
        assert ended(peer, waiting)["device"] == "cpu:1"


def test_a_pause_waits_for_all_devices_and_resume_goes_on(two, runner, gates):
    with two.peer() as peer, two.peer() as other:
        numbers = [tune(peer, m) for m in (64, 128)]
        for gate in gates:
            gate.arrived()
        paused = other.ask("pause")
        until(lambda: two.status()["paused"], "the pause is stored")
        gates[0].release()
        until(lambda: two.status()["jobs"]["running"] == 1, "the first has stopped")
        gates[1].release()
        other.answer(paused)
        assert two.status()["jobs"] == {"queued": 2, "running": 0}
        other.call("resume")
        for number in numbers:
            ended(peer, number)


def test_cancelling_one_leaves_the_other(two, runner, gates):
    with two.peer() as peer, two.peer() as other:
        first, second = tune(peer, 64), tune(peer, 128)
        for gate in gates:
            gate.arrived()
        cancelled = other.ask("cancel", job=first)
        other.call("status")  # answered after the cancel was taken up, which comes before it
        gates[0].release()
        assert other.answer(cancelled)["state"] == "cancelled"
        assert job(peer, second)["state"] == "running"
        gates[1].release()
        ended(peer, second)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_jobs_of_all_devices_go_on_after_the_daemons_end(two, runner, gates, how):
    with two.peer() as peer:
        numbers = [tune(peer, m) for m in (64, 128)]
        for gate in gates:
            gate.arrived()
    getattr(two, how)()
    runner.write(*TWO)
    two.start()
    with two.peer() as peer:
        told = [ended(peer, number) for number in numbers]
    assert {one["problems"][0]["m"] for one in told} == {64, 128}


def test_background_work_goes_on_where_nothing_else_is_done(daemons, runner, gates):
    runner.write(*at_gates(gates))
    daemon = daemons(runner, arguments=["--background", "always"]).start()
    until(lambda: len(devices(daemon)) == 2, "both are known")
    with daemon.peer() as peer:
        for m in (8, 16):
            peer.call("lookup", kernel="rmsnorm", problem=problem(m=m), tune_on_miss=True)
        for gate in gates:
            gate.arrived()
        assert [device["holder"] for device in devices(daemon).values()] == ["background"] * 2
        # One of them makes way for what is asked for by hand, and one alone.
        by_hand = tune(peer, 64)
        until(lambda: "sweep makes way" in daemon.log(), "background work makes way")
        for gate in gates:
            gate.release()
        ended(peer, by_hand)
        for m in (8, 16):
            until(lambda: daemon.lookup(m=m)["source"] == "tuned", "background work goes on")
    assert daemon.log().count("sweep makes way") == 1


@pytest.mark.parametrize("named", [True, False], ids=["named", "any"])
def test_a_device_that_is_gone_stops_no_other(two, runner, gates, named):
    """The runner of one device comes back and counts fewer: the other's sweep goes on in its own."""
    with two.peer() as peer:
        first, second = tune(peer, 64), tune(peer, 128, **({"device": "cpu:1"} if named else {}))
        for gate in gates:
            gate.arrived()
        before = devices(two)
        runner.write("devices 1", *TWO[1:])
        os.kill(before["cpu:1"]["runner_pid"], signal.SIGKILL)
        until(lambda: list(devices(two)) == ["cpu:0"], "the other is gone")
        assert devices(two)["cpu:0"]["runner_pid"] == before["cpu:0"]["runner_pid"]
        gates[0].release()
        assert not ended(peer, first).get("restarts")
        told = peer.call("wait", job=second)
        if named:
            assert told["state"] == "failed" and "cpu:1" in told["reason"], told
        else:
            assert told["state"] == "done" and told["device"] == "cpu:0", told


@pytest.mark.parametrize("how", ["its device", "another"])
def test_a_job_that_named_no_device_outlives_the_one_that_it_was_to_run_on(two, runner, gates, how):
    """After a restart without it, be it where the job was at work or the one that it was asked for."""
    runner.write(*TWO)
    two.tune(m=8)
    runner.write(*at_gates(gates, "round 1"))
    with two.peer() as peer:
        numbers = [tune(peer, 64), tune(peer, 8, force=True)]  # whose old times are let go of, and that is stored
        for gate in gates:
            gate.arrived()
        assert [job(peer, number)["device"] for number in numbers] == ["cpu:0", "cpu:1"]
    two.kill()
    if how == "another":
        two.device = "cpu:1"
    runner.write(f"devices {1 if how == 'its device' else 2}", *TWO[1:])
    two.start()
    with two.peer() as peer:
        assert {ended(peer, number)["device"] for number in numbers} == {"cpu:0" if how == "its device" else "cpu:1"}


def test_a_candidate_goes_where_an_equal_device_is_left(daemons, runner, gates):
    runner.write(*at_gates(gates))
    daemon = daemons(runner, arguments=["--background", "always"]).start()
    until(lambda: len(devices(daemon)) == 2, "both are known")
    with daemon.peer() as peer:
        by_hand = tune(peer, 64), tune(peer, 128, device="cpu:1")
        for gate in gates:
            gate.arrived()
        peer.call("lookup", kernel="rmsnorm", problem=problem(m=8), device="cpu:1", tune_on_miss=True)
        runner.write("devices 1", *TWO[1:])
        os.kill(devices(daemon)["cpu:1"]["runner_pid"], signal.SIGKILL)
        gates[0].release()
        ended(peer, by_hand[0])
        assert peer.call("wait", job=by_hand[1])["state"] == "failed"
        until(lambda: daemon.lookup(m=8)["source"] == "tuned", "it is swept on the one that is left")


def test_a_hello_costs_no_runner_that_has_yet_to_say_its_own(two, runner):
    gate = runner.gate("hello")
    with two.peer() as peer:
        first = devices(two)["cpu:0"]["runner_pid"]
        runner.write(*TWO, "identity compiler=made-up-2 runtime=none timing=formula-1", f"at hello once gate {gate}")
        numbers = [tune(peer, 64, device="cpu:1")]
        gate.arrived()
        starting = devices(two)["cpu:1"]["runner_pid"]
        os.kill(first, signal.SIGKILL)
        numbers.append(tune(peer, 128, device="cpu:0"))
        ended(peer, numbers[1])
        assert devices(two)["cpu:1"]["runner_pid"] == starting
        gate.release()
        ended(peer, numbers[0])
        assert devices(two)["cpu:1"]["runner_pid"] == starting


def test_a_device_that_is_wanted_and_not_there_is_named_with_what_there_is(daemons, runner):
    runner.write(*TWO)
    daemon = daemons(runner, device="cpu:5").start()
    until(lambda: devices(daemon)["cpu:5"]["state"] == "absent", "its runner was asked")
    missing = "device is cpu:5; it must be cpu:0, cpu:1"
    assert list(devices(daemon)) == ["cpu:5"] and devices(daemon)["cpu:5"]["reason"] == missing
    assert f"warning: {missing}" in daemon.log()
    assert daemon.lookup()["source"] == "default"
    told = daemon.ctl("tune", *shape(), check=False)
    assert told.status == 1 and missing in told.complaint, told
    daemon.stop()
    daemon.arguments = ["--device", "cpu:1"]
    daemon.start()
    daemon.heard(missing)
    until(lambda: list(devices(daemon)) == ["cpu:1"], "the other one is there")
    assert daemon.ctl("tune", *shape()).json[0]["source"] == "tuned"


def test_any_device_of_a_kind_that_has_none_is_answered_alike(daemons, runner):
    """Whether there would be such a one nobody knows; of a kind that has some it is refused."""
    daemon = daemons(runner, arguments=["--device", "cuda", "--runner", "cuda=/nonexistent"]).start()
    until(lambda: devices(daemon)["cpu:0"]["state"] == "ready", "its runner was asked")
    answers = [daemon.lookup(device=device) for device in ("cuda:0", "cuda:7")]
    assert [answer["source"] for answer in answers] == ["default"] * 2 and answers[0]["config"] == answers[1]["config"]
    complaints = {daemon.ctl("tune", *shape(device=device), check=False).complaint for device in ("cuda:0", "cuda:7")}
    assert len(complaints) == 1 and "no cuda device to tune on: no runner program" in complaints.pop()
    for command in ("lookup", "tune"):
        told = daemon.ctl(command, *shape(device="cpu:7"), check=False)
        assert told.status == 2 and "device is cpu:7; it must be cpu:0" in told.complaint, told


def test_devices_that_were_replaced_take_no_memory_while_a_sweep_runs(two, runner, gates):
    with two.peer() as peer:
        held, other = tune(peer, 64, device="cpu:0"), tune(peer, 128, device="cpu:1")
        for gate in gates:
            gate.arrived()
        gates[1].release()
        ended(peer, other)
        memory = []
        for turn in range(4 if harness.INSTRUMENTED else 40):
            runner.write(f"devices {3 - turn % 2}", *TWO[1:])
            os.kill(devices(two)["cpu:1"]["runner_pid"], signal.SIGKILL)
            until(lambda: not devices(two)["cpu:1"]["runner_pid"], "it is gone")
            assert ended(peer, tune(peer, 128, device="cpu:1", force=True))
            assert len(devices(two)) == 3 - turn % 2
            memory.append(harness.memory_kb(two.pid))
        assert harness.INSTRUMENTED or memory[-1] - memory[9] < 8 << 10, memory
        gates[0].release()
        assert not ended(peer, held).get("restarts")


def test_more_devices_than_can_be_are_told_of_with_the_way_out(daemons, runner):
    runner.write("devices 65", *TWO[1:])
    daemon = daemons(runner).start()
    told = until(lambda: (lambda device: device if device["state"] == "failed" else None)(daemon.status()["devices"][0]), "it fails")
    assert "device is cpu:64; it must be one of 64 at most: choose some by the setting `device`" in told["reason"], told
    daemon = daemons(runner, device="cpu:3", arguments=["--device", "cpu:64"]).start()
    until(lambda: list(devices(daemon)) == ["cpu:3", "cpu:64"], "those two are known")


def test_no_descriptor_of_the_daemon_reaches_a_runner(two, runner):
    with two.peer() as peer:
        for m in (64, 128):
            tune(peer, m)
        until(lambda: len(runner.pids()) > 1, "both run")
    assert set(runner.did("descriptors")) == {"0 1 2 3"}
