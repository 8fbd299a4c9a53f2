"""Work that nobody waits for: missed lookups, upgrades and grown spaces, done when the device is idle."""
import pytest

from harness import INSTRUMENTED, BadRunner, await_sleep, problem, shape, until

IDLE = ["--background", "idle", "--background-wait", "0.05"]
ALWAYS = ["--background", "always"]
OLD, NEW = "identity compiler=made-up-1", "identity compiler=made-up-2"


def miss(peer, times=1, **fields):
    for _ in range(times):
        answer = peer.call("lookup", kernel="rmsnorm", problem=problem(**fields), tune_on_miss=True)
    return answer


def start(daemon):
    """Started, and its device heard: before that a miss has no device that it could be tuned on."""
    daemon.start()
    until(lambda: daemon.lookup(m=3).get("reason") != "probing", "the device is probed")
    return daemon


def tuned(daemon, **fields):
    """The lookup once it is served as tuned."""
    def there():
        answer = daemon.lookup(**fields)
        return answer if answer["source"] == "tuned" else None
    return until(there, f"{fields} is tuned")


def jobs(daemon):
    return daemon.ctl("jobs").json["jobs"]


def at_rest(status):
    return not status["background"]["waiting"] and status["jobs"] == {"queued": 0, "running": 0}


def order(daemon):
    """The rows of the problems whose sweeps have begun, in that order."""
    begun = [job for job in jobs(daemon) if job["started_at"]]
    return [job["problems"][0]["m"] for job in sorted(begun, key=lambda job: job["job"])]


def test_a_miss_is_tuned_when_nothing_else_is_to_do(daemons, runner):
    daemon = start(daemons(runner, arguments=IDLE))
    with daemon.peer() as peer:
        assert miss(peer, m=64)["source"] == "default"
    tuned(daemon, m=64)
    job, = jobs(daemon)
    assert job["state"] == "done" and job["priority"] < -100 and job["cause"] == "miss"
    assert " miss " in daemon.ctl("jobs", as_json=False).output
    assert runner.did("load")


def test_a_lookup_that_does_not_ask_for_it_queues_nothing(daemons, runner):
    daemon = start(daemons(runner, arguments=ALWAYS))
    daemon.lookup(m=64)
    daemon.tune(m=128)  # whatever was queued would have been begun by now
    assert len(jobs(daemon)) == 1 and not daemon.status()["background"]["waiting"]


def test_nothing_is_swept_while_others_use_the_device(daemons, runner):
    runner.write("load 90")
    daemon = start(daemons(runner, arguments=IDLE))
    with daemon.peer() as peer:
        miss(peer, m=64)
    until(lambda: len(runner.did("load")) >= 3, "the device is looked at again")
    assert not runner.did("sweep") and daemon.status()["background"]["waiting"] == 1
    runner.write("load 5")
    tuned(daemon, m=64)


def test_the_most_asked_goes_first_and_near_shapes_together(daemons, runner):
    runner.write("load 90")
    daemon = start(daemons(runner, arguments=IDLE))
    with daemon.peer() as peer:
        miss(peer, 2, m=1)
        miss(peer, 9, m=64)
        miss(peer, 7, m=64, n=2048)
        miss(peer, 6, m=32)
    runner.write("load 0")
    tuned(daemon, m=1)
    done = sorted(jobs(daemon), key=lambda job: job["job"])
    assert [(job["problems"][0]["m"], job["problems"][0]["n"]) for job in done] == \
        [(64, 4096), (32, 4096), (64, 2048), (1, 4096)]


def test_the_queue_is_bounded_and_says_what_it_dropped(daemons, runner):
    runner.write("load 90")
    daemon = start(daemons(runner, arguments=[*IDLE, "--background-queue", 4]))
    with daemon.peer() as peer:
        for m in range(1, 11):
            miss(peer, m=m * 1000)
        miss(peer, 5, m=77)
    said = daemon.status()["background"]
    assert said["waiting"] == 4 and said["dropped"] >= 7
    runner.write("load 0")
    tuned(daemon, m=77)  # asked often enough to take another's place
    assert order(daemon)[0] == 77


def making_way(daemons, runner):
    """A background sweep of m=64, held at a gate, that makes way for a tune of m=8 by hand."""
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    daemon = start(daemons(runner, arguments=ALWAYS))
    with daemon.peer() as peer:
        miss(peer, m=64)
    gate.arrived()
    hand = daemon.ctl_start("tune", *shape(m=8))
    daemon.heard("makes way")
    until(lambda: jobs(daemon)[-1]["waiters"], "it waits for its job")
    return daemon, gate, hand


def test_a_tune_by_hand_is_not_kept_waiting(daemons, runner):
    daemon, gate, hand = making_way(daemons, runner)
    gate.release()
    assert hand.wait() == 0
    background, by_hand = jobs(daemon)
    assert (background["cause"], by_hand["cause"]) == ("miss", "user")
    assert by_hand["state"] == "done" and by_hand["started_at"]
    tuned(daemon, m=64)
    # What it had measured was kept: the second sweep began with those rounds.
    begun = [int(line.split()[1]) for line in runner.did("sweep") if int(line.split()[0]) == background["job"]]
    assert len(begun) == 2 and begun[0] == 0 and begun[1] >= 2
    assert len(runner.did("build")) == len(daemon.trials(m=64)) + len(daemon.trials(m=8))  # each once


def test_who_cancels_a_sweep_that_makes_way_need_not_wait_for_its_end(daemons, runner):
    daemon, gate, hand = making_way(daemons, runner)
    number = jobs(daemon)[0]["job"]
    with daemon.peer() as peer:
        sessions = peer.call("status")["sessions"]
        with daemon.peer() as canceller:
            canceller.ask("cancel", job=number)
            canceller.call("status")  # by now the daemon has read the one before
        until(lambda: peer.call("status")["sessions"] == sessions, "the daemon has seen it leave")
    gate.release()
    assert hand.wait() == 0
    background = daemon.ctl("jobs", number).json["jobs"][0]
    assert background["state"] == "cancelled" and daemon.lookup(m=64)["source"] != "tuned"


def test_a_tune_by_hand_takes_over_what_is_queued(daemons, runner):
    runner.write("load 90")
    daemon = start(daemons(runner, arguments=IDLE))
    with daemon.peer() as peer:
        miss(peer, m=64)
    daemon.tune(m=64)
    assert daemon.lookup(m=64)["source"] == "tuned"
    until(lambda: daemon.status()["background"]["waiting"] == 0, "the candidate is granted")


def test_a_background_sweep_makes_way_for_others_on_the_device(daemons, runner):
    runner.write("disturbed 90", "load 0", "pace_us 50000")
    daemon = start(daemons(runner, arguments=IDLE))
    with daemon.peer() as peer:
        miss(peer, m=64)
    daemon.heard("makes way")
    until(lambda: runner.did("cancel"), "the sweep is stopped")
    runner.write("load 0")
    tuned(daemon, m=64)


def test_a_disturbed_result_is_marked_and_repeated_when_it_is_quiet(daemons, runner):
    runner.write("disturbed 60", "load 90", "best 3")
    daemon = start(daemons(runner, arguments=IDLE))
    daemon.tune(m=64)
    assert "something else used the device" in daemon.ctl("explain", *shape(m=64), as_json=False).output
    assert "something else used the device" in daemon.lookup(m=64)["reason"]
    runner.write("load 0", "best 3")
    until(lambda: len([job for job in jobs(daemon) if job["state"] == "done"]) == 2, "it is measured again")
    assert "something else used" not in daemon.ctl("explain", *shape(m=64), as_json=False).output
    assert not daemon.lookup(m=64).get("reason")


def asked_for(daemons, runner):
    """A daemon whose device is busy, so that three misses stay candidates; the last is asked most."""
    runner.write("load 90")
    daemon = start(daemons(runner, arguments=IDLE))
    with daemon.peer() as peer:
        for times, m in enumerate((64, 512, 8192), 1):
            miss(peer, times, m=m)
    assert daemon.status()["background"]["waiting"] == 3
    return daemon


def granted(daemon, runner):
    runner.write("load 0")
    daemon.start()
    for m in (8192, 512, 64):
        tuned(daemon, m=m)
    assert [job["problems"][0]["m"] for job in jobs(daemon)] == [8192, 512, 64]
    assert all(job["cause"] == "miss" for job in jobs(daemon))


def test_candidates_outlive_a_stop(daemons, runner):
    daemon = asked_for(daemons, runner)
    daemon.stop()
    granted(daemon, runner)
    # What was granted is no candidate any more.
    daemon.restart()
    assert daemon.status()["background"]["waiting"] == 0 and len(jobs(daemon)) == 3


def test_candidates_that_were_stored_outlive_a_kill(daemons, runner):
    daemon = asked_for(daemons, runner)
    store, = daemon.state.glob("data.mdb")
    until(lambda: b"Ocandidates" in store.read_bytes(), "they are written")  # daemon/store/STORE.md
    daemon.ctl("resume")  # answered after its commit, and so after theirs
    daemon.kill()
    granted(daemon, runner)


def test_one_whose_sweep_fails_is_not_tried_again_and_again(daemons, runner):
    runner.write("at build * lie fail")
    daemon = start(daemons(runner, arguments=[*ALWAYS, "--background-wait", "60"]))
    with daemon.peer() as peer:
        miss(peer, m=64)
        until(lambda: [job for job in jobs(daemon) if job["state"] == "failed"], "its sweep fails")
        miss(peer, 5, m=64)
        miss(peer, m=8)
        until(lambda: len([job for job in jobs(daemon) if job["state"] == "failed"]) == 2, "the other fails")
    assert len(jobs(daemon)) == 2


@pytest.mark.parametrize("mode", [ALWAYS, [*IDLE]], ids=["always", "idle"])
def test_one_kind_whose_runner_cannot_be_started_keeps_no_other_waiting(daemons, runner, tmp_path, mode):
    gpu = BadRunner(tmp_path, "gpu")
    gpu.write("kind hip")
    daemon = start(daemons(runner, arguments=[*mode, "--background-wait", "0.05", "--runner-idle", "0.05", "--device", "hip",
                                              "--runner", f"hip={gpu.program}"]))
    until(lambda: daemon.lookup(device="hip:0").get("reason") != "probing", "the other device is probed")
    until(lambda: not daemon.runner_pids(), "the runners are let go")
    gpu.program.chmod(0o644)
    with daemon.peer() as peer:
        for device, m, times in (("hip:0", 64, 9), ("cpu:0", 8, 1)):
            for _ in range(times):
                peer.call("lookup", kernel="rmsnorm", problem=problem(m=m), device=device, tune_on_miss=True)
        tuned(daemon, m=8, device="cpu:0")
        until(lambda: daemon.log().count("runner gone kind=hip cause=unstarted") > 1, "it is tried again")
        job, = jobs(daemon)
        assert job["device"] == "cpu:0", "what cannot be begun makes no jobs"
        gpu.program.chmod(0o755)
        tuned(daemon, m=64, device="hip:0")


def test_a_candidate_waits_for_a_device_that_is_away(daemons, runner):
    runner.write("load 90")
    daemon = start(daemons(runner, arguments=[*IDLE, "--runner-idle", "0.01"]))
    with daemon.peer() as peer:
        miss(peer, m=64)
    assert daemon.status()["background"]["waiting"] == 1
    runner.write("load 90", "at hello lie nodevice")
    until(lambda: daemon.lookup(m=3).get("reason") == "no device", "the device is away")
    assert daemon.status()["background"]["waiting"] == 1
    runner.write()
    tuned(daemon, m=64)


def test_after_an_upgrade_the_old_best_come_first_and_then_the_rest(daemons, runner):
    runner.write(OLD, "best 2")
    daemon = start(daemons(runner, arguments=ALWAYS))
    sizes = (16, 64, 256, 1024, 4096)
    before = {m: daemon.tune(m=m)[0]["config"] for m in sizes}
    trials = [daemon.trials(m=m) for m in sizes]
    loser = next(index for index in range(99)
                 if not any(known[index]["default"] or known[index]["winner"] or known[index]["tied"]
                            for known in trials))
    daemon.stop()
    built = len(runner.did("build"))
    gate = runner.gate("build")
    # None of the old best: by the time that it is built all five must be served.
    runner.write(NEW, "best 2", f"at build {loser} gate {gate}")
    daemon.start()
    gate.arrived()
    for m in sizes:
        answer = daemon.lookup(m=m)
        assert answer["source"] == "tuned" and answer["config"] == before[m]
    first = len(runner.did("build")) - built
    assert first <= len(sizes) * 4 + loser + 1
    runner.write(NEW, "best 2")
    gate.release()
    until(lambda: at_rest(daemon.status()), "the rest is swept")
    again, = daemon.tune(m=64)  # nothing is left to do
    assert again["job"] is None
    # The next start has nothing to do either.
    sweeps = len(runner.did("sweep"))
    daemon.restart()
    daemon.tune(m=2)
    assert len(runner.did("sweep")) == sweeps + 1


def test_an_upgrade_whose_old_winner_was_forgotten_meanwhile_tries_all_and_leaves_nothing(daemons, runner):
    runner.write(OLD, "best 2")
    daemon = start(daemons(runner, arguments=ALWAYS))
    daemon.tune()
    daemon.stop()
    gate = runner.gate("round")
    runner.write(NEW, "best 4", "time 2 200000000", f"at round 1 once gate {gate}")
    daemon.start()
    gate.arrived()
    daemon.ctl("forget", *shape())
    gate.release()
    until(lambda: daemon.lookup()["source"] == "tuned" and at_rest(daemon.status()), "it is swept")
    again, = daemon.tune()
    assert again["job"] is None and len(runner.did("sweep")) == 3


def test_what_is_asked_most_is_upgraded_first(daemons, runner):
    runner.write(OLD)
    daemon = start(daemons(runner, arguments=[*IDLE]))
    for m in (16, 64, 256):
        daemon.tune(m=m)
    daemon.stop()
    runner.write(NEW, "load 90")
    daemon.start()
    until(lambda: daemon.lookup(m=64).get("reason", "").startswith("stale"), "the device is heard")
    with daemon.peer() as peer:
        for _ in range(300):  # more than the wait below asks for the other
            peer.call("lookup", kernel="rmsnorm", problem=problem(m=64))
    runner.write(NEW, "load 0")
    tuned(daemon, m=16)
    ups = [job for job in jobs(daemon) if job["priority"] < -100]
    assert ups[0]["problems"][0]["m"] == 64


def test_a_grown_space_measures_its_new_members_and_no_loser(daemons, runner):
    runner.write("space 6", "best 1")
    daemon = start(daemons(runner))
    old, = daemon.tune()
    small = {tuple(sorted(trial["config"].items())) for trial in daemon.trials()}
    losers = [trial["config"] for trial in daemon.trials() if trial["dropped_round"]]
    built = len(runner.did("build"))
    gate = runner.gate("grown")
    runner.write("space 10", "best 1", f"at build * once gate {gate}")
    hand = daemon.ctl_start("tune", *shape())
    gate.arrived()
    served = daemon.lookup()
    assert served["source"] == "tuned" and served["config"] == old["config"]
    gate.release()
    assert hand.wait() == 0
    grown = {tuple(sorted(trial["config"].items())) for trial in daemon.trials()}
    assert small < grown
    assert len(runner.did("build")) - built == len(grown - small)
    rounds = {tuple(sorted(trial["config"].items())): trial["rounds"] for trial in daemon.trials()}
    assert losers and all(rounds[tuple(sorted(config.items()))] < 20 for config in losers)
    assert daemon.lookup()["config"] == old["config"]


def test_what_a_member_of_a_grown_space_gains_is_known_though_the_default_was_dropped_before(daemons, runner):
    runner.write("space 6", "best 1")
    daemon = start(daemons(runner))
    daemon.tune()
    default, = [trial for trial in daemon.trials() if trial["default"]]
    assert default["dropped_round"]
    runner.write("space 10", "best 9")
    new, = daemon.tune()
    told = daemon.ctl("explain", *shape()).json
    winner, = [trial for trial in daemon.trials() if trial["winner"]]
    default, = [trial for trial in daemon.trials() if trial["default"]]
    assert new["config"] == winner["config"] and default["dropped_round"], "it must have been dropped all the while"
    assert 2.8 < told["gain_percent"] < 3.2 and told["gain_least_percent"] > 2, told  # the default stands next to it
    answer = daemon.lookup()
    assert answer["config"] == winner["config"] and 1.028 < answer["gain"] < 1.032, answer


def test_a_stored_winner_stays_in_a_tie_only_if_it_was_looked_at(daemons, runner):
    """Member 1 goes before 2 in the tie rule's order, but the stored one keeps its place."""
    apart = ["space 4", "time 1 110000000", "time 2 100000000", "time 0 120000000", "time 3 120000000"]
    alike = [*apart, "time 1 100000000"]
    runner.write(*apart)
    daemon = start(daemons(runner))
    stored = daemon.tune()[0]["config"]
    runner.write(*alike)
    assert daemon.tune("--force")[0]["config"] == stored
    runner.write(*alike, "at confirm 2 lie unconfirmed")
    other = daemon.tune("--force")[0]["config"]
    assert other != stored and daemon.lookup()["config"] == other
    assert [trial["config"] for trial in daemon.trials() if trial["winner"]] == [other]


def test_a_space_that_shrank_keeps_what_it_knows(daemons, runner):
    runner.write("space 8", "best 1", "wrong 3")
    daemon = start(daemons(runner))
    daemon.tune()
    known = {str(trial["config"]): trial["status"] for trial in daemon.trials()}
    runner.write("space 4", "best 1")
    daemon.tune()
    assert {str(trial["config"]) for trial in daemon.trials()} == set(known)
    built = len(runner.did("build"))
    runner.write("space 8", "best 1")
    daemon.tune()
    assert len(runner.did("build")) == built
    # What was wrong under this identity stays so, without another try.
    assert [str(trial["config"]) for trial in daemon.trials() if trial["status"] == "wrong"] == \
        [config for config, status in known.items() if status == "wrong"]


def test_a_check_times_no_more_than_winner_and_default(daemons, runner):
    runner.write("best 2")
    daemon = start(daemons(runner))
    winner, = daemon.tune()
    built, rounds = len(runner.did("build")), len(runner.did("round"))
    before = daemon.trials()
    said = daemon.ctl("check", *shape()).json
    assert said["holds"] and said["config"] == winner["config"]
    assert [job["cause"] for job in jobs(daemon)] == ["user", "check"]
    assert len(runner.did("build")) == built
    assert all(int(line.split()[1]) <= 2 for line in runner.did("round")[rounds:])
    assert daemon.trials() == before  # a check leaves no trace in what was measured
    assert daemon.lookup()["config"] == winner["config"]


def test_a_winner_that_no_longer_holds_is_swept_again(daemons, runner):
    runner.write("best 2")
    daemon = start(daemons(runner))
    winner, = daemon.tune()
    default = [index for index, trial in enumerate(daemon.trials()) if trial["default"]][0]
    # Now the default is the fastest of all.
    runner.write("best 2", f"time {default} 50000000")
    said = daemon.ctl("check", *shape()).json
    assert not said["holds"] and said["config"] != winner["config"]
    assert daemon.lookup()["config"] == said["config"]
    assert "swept anew" not in daemon.ctl("check", *shape(), as_json=False).output


def test_a_check_without_a_winner_is_a_sweep(daemon):
    said = daemon.ctl("check", *shape()).json
    assert said["state"] == "done" and not said["holds"]
    assert daemon.lookup()["source"] == "tuned"


@pytest.mark.skipif(INSTRUMENTED, reason="an instrumented program wakes up by itself")
def test_without_anything_to_do_it_sleeps(daemons, runner):
    daemon = start(daemons(runner, arguments=[*IDLE, "--runner-idle", "0.1"]))
    with daemon.peer() as peer:
        miss(peer, m=64)
        tuned(daemon, m=64)
    until(lambda: not daemon.runner_pids(), "the runner is let go")
    until(lambda: not daemon.status()["background"]["waiting"], "nothing waits")
    await_sleep(daemon.pid, 1.5, most=2)
