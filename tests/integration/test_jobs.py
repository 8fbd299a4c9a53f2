"""A job is its number in its store: another store gives the same numbers, and none is taken for the other."""
import os
import signal

import msgpack
import pytest

import harness
from harness import problem, shape


def kill_and_come_back(daemon, how):
    """Kills it and starts it at the same socket, with a runner that waits at no gate; says whether its store is another one then."""
    daemon.kill()
    daemon.runner.write()
    if how == "directory":
        daemon.state = daemon.folder / "other"
    elif how == "rescue":
        os.truncate(daemon.state / "data.mdb", 4096)
    daemon.start()
    return how != "restart"


@pytest.mark.parametrize("how", ["restart", "directory", "rescue"])
def test_a_wait_goes_on_with_the_same_store_and_takes_no_other_for_it(daemons, runner, how):
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    daemon = daemons(runner).start()
    command = daemon.ctl_start("tune", *shape(m=64))
    gate.arrived()
    job = daemon.ctl("jobs").json["jobs"][0]["job"]
    store = daemon.status()["store"]
    # It looks again once the next daemon has tuned another problem, whose job may have the same number.
    command.send_signal(signal.SIGSTOP)
    other = kill_and_come_back(daemon, how)
    assert daemon.tune(m=2)[0]["source"] == "tuned"
    command.send_signal(signal.SIGCONT)
    output, complaint = command.communicate(timeout=harness.DEADLINE)
    if not other:
        assert command.returncode == 0, complaint
        answer = harness.json.loads(output)[0]
        assert (answer["problem"]["m"], answer["job"], answer["source"]) == (64, job, "tuned")
        return
    assert store != daemon.status()["store"]
    assert command.returncode == 1, f"{output}{complaint}"
    assert f"job {job} is of another store" in complaint and store in complaint
    listed = daemon.ctl("jobs").json["jobs"]
    assert [each["problems"][0]["m"] for each in listed] == [2]
    assert how == "rescue" or listed[0]["job"] == job, "the number came again"


@pytest.mark.parametrize("other", [False, True], ids=["same", "other"])
def test_a_number_with_its_store_is_refused_by_another(daemons, runner, other):
    daemon = daemons(runner).start()
    store = daemon.status()["store"]
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem(m=64))["job"]
        peer.call("wait", job=job, store=store)
    if kill_and_come_back(daemon, "directory" if other else "restart"):
        daemon.tune(m=2)
    with daemon.peer() as peer:
        for method in ("wait", "cancel", "jobs", "watch"):
            if not other:
                peer.call(method, job=job, store=store)
                continue
            with pytest.raises(harness.RpcError) as refused:
                peer.call(method, job=job, store=store)
            assert refused.value.code == "unknown_job"
            assert refused.value.error["field"] == "store" and refused.value.error["value"] == store
            assert refused.value.error["bound"] == daemon.status()["store"]
        # A number that a person typed means the store that is there.
        assert peer.call("jobs", job=job)["jobs"][0]["problems"][0]["m"] == (2 if other else 64)


def test_a_watch_of_one_job_does_not_go_on_with_another_store(daemons, runner):
    first, second = runner.gate("first"), runner.gate("second")
    runner.write(f"at round 1 once gate {first}", f"at round 2 once gate {second}")
    daemon = daemons(runner).start()
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem(m=64))["job"]
    first.arrived()
    watch = daemon.ctl_start("watch", job)
    assert harness.json.loads(watch.stdout.readline())["event"] == "watching"
    first.release()
    second.arrived()
    # By its first event it has asked what the job is.
    assert harness.json.loads(watch.stdout.readline())["job"] == job
    kill_and_come_back(daemon, "directory")
    assert daemon.tune(m=2)[0]["source"] == "tuned"
    output, complaint = watch.communicate(timeout=harness.DEADLINE)
    assert watch.returncode not in (0, 4), output
    assert "another store" in complaint


def test_a_problem_that_no_device_has_room_for_is_refused_with_what_lies_between_its_rows(daemons, runner):
    """The made-up device has 1 GiB."""
    daemon = daemons(runner).start()
    for stride, fits in ((1 << 16, True), (1 << 18, False)):
        told = daemon.ctl("tune", *shape(m=1025, row_stride=stride), check=False)
        assert (told.status == 0) == fits, told
    assert "problem is " in told.complaint and "at most the 1073741824 bytes of the device" in told.complaint


def test_a_tune_joins_no_job_that_was_cancelled(daemons, runner):
    """Its runner takes no notice of that yet: until it does, the device is its own, and the next sweep goes on after it."""
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    daemon = daemons(runner).start()
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem())["job"]
        gate.arrived()
        cancels = [peer.ask("cancel", job=job) for _ in range(2)]
        told = peer.call("tune", kernel="rmsnorm", problem=problem())
        assert told["job"] != job and not told.get("joined")
        assert [each["state"] for each in daemon.ctl("jobs").json["jobs"]] == ["running", "queued"]
        gate.release()
        assert [peer.answer(number)["state"] for number in cancels] == ["cancelled"] * 2
        assert peer.call("wait", job=told["job"])["state"] == "done"


def test_jobs_that_come_one_after_another_hold_no_other_up_for_ever(daemons, runner, tmp_path):
    """Those of one command go together; one that comes each time before the last has ended is no such command."""
    if harness.INSTRUMENTED:
        pytest.skip("a sanitizer wants to be loaded first")
    ahead, gate = tmp_path / "ahead", runner.gate("sweep")
    ahead.write_text("0")
    runner.write("space 2", "problems named", f"at sweep gate {gate}")
    daemon = daemons(runner, env={"LD_PRELOAD": str(harness.BUILD / "tests/integration/clock.so"), "CLOCK_AHEAD": str(ahead)})
    with daemon.start().peer() as peer:
        def tune(m, seconds, **more):
            ahead.write_text(str(seconds))
            return peer.call("tune", kernel="rmsnorm", problem=problem(m=m, **more))["job"]
        chain = [tune(1, 1000)]
        gate.arrived()
        other = tune(1, 1000, n=2048)
        chain.append(tune(2, 1006))
        gate.release()
        gate.arrived()
        chain.append(tune(3, 1012))
        for _ in range(2):
            gate.release()
            gate.arrived()
        gate.release()
        jobs = [peer.call("wait", job=job) for job in (chain[0], chain[1], other, chain[2])]
    started = [job["started_at_ns"] for job in jobs]
    assert started == sorted(started), jobs


def test_a_job_is_listed_once_it_is_acknowledged(daemon):
    with daemon.peer() as peer:
        asked = [[0, 90 + i, "tune", {"kernel": "rmsnorm", "problem": problem(m=i + 1)}] for i in range(4)]
        peer.send(b"".join(msgpack.packb(message) for message in [*asked, [0, 99, "jobs", {}]]))
        acknowledged = set()
        while (message := peer.message())[1] != 99:
            acknowledged.add(message[3]["job"])
        assert {job["job"] for job in message[3]["jobs"]} <= acknowledged
        while len(acknowledged) < len(asked):
            acknowledged.add(peer.message()[3]["job"])
        assert acknowledged == {job["job"] for job in peer.call("jobs")["jobs"]}


@pytest.mark.parametrize("check", [False, True], ids=["sweep", "check"])
def test_the_answer_of_a_job_is_the_same_after_a_restart(daemon, check):
    config = daemon.tune()[0]["config"]
    daemon.ctl("pin", *shape(m=2), "--config", ",".join(f"{knob}={value}" for knob, value in config.items()))

    def answer():
        with daemon.peer() as peer:
            return peer.call("wait", job=job)["answer"]
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem(m=64 if check else 128), check=check)["job"]
    before = answer()
    assert 0 < before["generation"] <= daemon.lookup()["generation"]
    daemon.restart()
    assert answer() == before
