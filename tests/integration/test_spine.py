"""Tune, keep, serve: what a user sees when nothing goes wrong."""
import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import harness
from harness import problem, shape

M64 = problem(m=64)


def test_a_real_sweep_is_decided_stored_and_served(daemons):
    """The real CPU runner, from tune to lookup, across a restart."""
    daemon = daemons(arguments=["--budget", harness.BUDGET]).start()
    tuned, = daemon.tune(m=16, n=1024)
    assert tuned["source"] == "tuned" and tuned["device"] == "cpu:0"
    assert tuned["time_us"] > 0 and tuned["default_time_us"] > 0 and tuned["sweep_s"] > 0
    assert tuned["trials"] >= 12
    found = daemon.lookup(m=16, n=1024)
    assert found["config"] == tuned["config"] and found["source"] == "tuned"
    trials = daemon.trials(m=16, n=1024)
    assert len(trials) >= 12
    statuses = {trial["status"] for trial in trials}
    assert "ok" in statuses and not statuses & {"wrong", "failed", "timeout"}
    # An instrumented runner is so slow that the budget may end before everybody was timed.
    assert harness.INSTRUMENTED or "waiting" not in statuses
    daemon.restart()
    assert daemon.lookup(m=16, n=1024)["config"] == tuned["config"]


@pytest.mark.smoke
def test_the_whole_way_over_the_wire(daemon, runner):
    with daemon.peer() as peer, daemon.peer() as watcher:
        watcher.call("watch")
        assert peer.call("lookup", kernel="rmsnorm", problem=M64)["source"] == "default"
        job = peer.call("tune", kernel="rmsnorm", problem=M64)["job"]
        assert peer.call("wait", job=job)["answer"]["source"] == "tuned"
        assert watcher.event(lambda event: event["event"] == "ended")["job"] == job
        found = peer.call("lookup", kernel="rmsnorm", problem=M64)
        assert found["source"] == "tuned" and found["config"]
        assert "job" not in peer.call("tune", kernel="rmsnorm", problem=M64)
        assert len(peer.call("trials", kernel="rmsnorm", problem=M64)["trials"]) >= 12
        assert peer.call("jobs")["jobs"][0]["state"] == "done"
        assert peer.call("devices")["devices"][0]["state"] == "ready"
        assert peer.call("status")["answers"] == 1
        # In mid-sweep it is stopped, and starts again.
        gate = runner.gate("round")
        runner.write(f"at round 1 once gate {gate}")
        second = peer.call("tune", kernel="rmsnorm", problem=problem(m=5))["job"]
        gate.arrived()
    daemon.restart()
    with daemon.peer() as peer:
        assert peer.call("wait", job=second)["state"] == "done"
        assert peer.call("lookup", kernel="rmsnorm", problem=M64)["source"] == "tuned"


def test_an_answer_has_all_the_fields_that_scripts_lean_on(daemon):
    before = daemon.lookup()
    assert before["source"] == "default" and before["reason"]
    tuned, = daemon.tune()
    found = daemon.lookup()
    for answer in (tuned, found):
        assert answer["kernel"] == "rmsnorm"
        assert answer["problem"] == {"m": 64, "n": 4096, "dtype": "bf16", "weight_dtype": "bf16", "row_stride": 4096}
        assert answer["device"] == "cpu:0"
        assert answer["config"] and all(isinstance(value, int) for value in answer["config"].values())
        assert answer["source"] == "tuned"
        assert answer["generation"]
        assert 90 < answer["time_us"] < answer["default_time_us"] < 1000
        assert answer["tuned_at"]
    assert tuned["job"] and tuned["trials"] and tuned["sweep_s"] > 0
    assert found["generation"] != before["generation"]


def test_the_winner_is_the_fastest_and_the_trials_say_so(daemon, runner):
    tuned, = daemon.tune()
    trials = daemon.trials()
    assert len(trials) >= 12
    timed = [trial for trial in trials if trial["status"] == "ok"]
    for trial in timed:
        assert trial["time_us"] > 0 and trial["code"]
    fastest = min(timed, key=lambda trial: trial["time_us"])
    assert fastest["config"] == tuned["config"]
    assert fastest["time_us"] == pytest.approx(100, rel=0.01)
    assert fastest["ci_us"] < 1
    losers = [trial for trial in timed if trial is not fastest]
    assert losers and all(trial["reason"] for trial in losers)


def test_a_winner_is_not_tuned_again_unless_forced(daemon, runner):
    tuned, = daemon.tune()
    again, = daemon.tune()
    assert again["config"] == tuned["config"] and len(runner.did("sweep")) == 1
    runner.write("best 0")
    forced, = daemon.tune("--force")
    assert len(runner.did("sweep")) == 2
    assert forced["source"] == "tuned"


def test_results_outlive_kill_9_of_daemon_and_runner(daemon, runner):
    tuned = daemon.ctl("tune", *shape(m="64,512")).json
    assert [answer["problem"]["m"] for answer in tuned] == [64, 512]
    daemon.kill(runners=True)
    did = len(runner.did("round"))
    daemon.start()
    for answer in tuned:
        found = daemon.lookup(m=answer["problem"]["m"])
        assert found["source"] == "tuned" and found["config"] == answer["config"]
    again = daemon.ctl("tune", *shape(m="64,512")).json
    assert [answer["config"] for answer in again] == [answer["config"] for answer in tuned]
    assert len(runner.did("round")) == did, "it measured again"


def test_lists_of_shapes_are_tuned_crosswise(daemon):
    tuned = daemon.ctl("tune", *shape(m="1,2", n="1024,2048")).json
    assert sorted((answer["problem"]["m"], answer["problem"]["n"]) for answer in tuned) == [
        (1, 1024), (1, 2048), (2, 1024), (2, 2048)]


def test_fifty_who_ask_at_once_share_one_sweep(daemon, runner):
    gate = runner.gate("sweep")
    runner.write(f"at sweep gate {gate}")

    def one(_):
        with daemon.peer() as peer:
            reply = peer.call("tune", kernel="rmsnorm", problem=M64)
            asked.append(reply["job"])
            if len(asked) == 50:
                gate.arrived()
                gate.release()
            return peer.call("wait", job=reply["job"])

    asked = []
    with ThreadPoolExecutor(50) as pool:
        jobs = list(pool.map(one, range(50)))
    assert len(set(asked)) == 1
    assert len(runner.did("sweep")) == 1
    assert all(job["state"] == "done" for job in jobs)
    answers = {json.dumps([job["answer"][key] for key in ("config", "source", "generation")], sort_keys=True)
               for job in jobs}
    assert len(answers) == 1, answers


def test_many_command_lines_at_once_get_the_same_answer(daemon, runner):
    started = [daemon.ctl_start("tune", *shape()) for _ in range(10)]
    outputs = [process.communicate(timeout=harness.DEADLINE) for process in started]
    assert all(process.returncode == 0 for process in started), outputs
    configs = {json.dumps(json.loads(output)[0]["config"], sort_keys=True) for output, _ in outputs}
    assert len(configs) == 1 and len(runner.did("sweep")) == 1


def test_nearest_is_bounded_to_twice_either_way(daemon):
    daemon.ctl("tune", *shape(m="64,512"))
    near = daemon.lookup(m=100)
    assert near["source"] == "nearest" and near["tuned_scale"] == 64
    assert near["config"] == daemon.lookup(m=64)["config"]
    assert daemon.lookup(m=32)["tuned_scale"] == 64
    assert daemon.lookup(m=128)["tuned_scale"] == 64
    for far in (31, 129, 255, 1025, 100000):
        answer = daemon.lookup(m=far)
        assert answer["source"] == "default" and answer["tuned_scale"] is None, far
    big = daemon.lookup(m=1000)
    assert big["source"] == "nearest" and big["tuned_scale"] == 512
    assert daemon.lookup(m=256)["tuned_scale"] == 512
    # Another n, dtype or stride is another problem, however near the m.
    assert daemon.lookup(m=64, n=8192)["source"] == "default"
    assert daemon.lookup(m=64, dtype="f16")["source"] == "default"
    assert daemon.lookup(m=64, row_stride=8192)["source"] == "default"


def test_a_tie_of_distances_goes_to_the_smaller_m(daemon):
    daemon.ctl("tune", *shape(m="64,256"))
    assert daemon.lookup(m=128)["tuned_scale"] == 64


def test_fields_at_their_default_are_the_same_problem(daemon):
    daemon.tune(m=8)
    found = daemon.lookup(m=8, weight_dtype="bf16", row_stride=4096)
    assert found["source"] == "tuned"
    assert daemon.lookup(m=8, weight_dtype="f32")["source"] == "default"


def test_cancel_keeps_what_was_measured(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=M64)["job"]
        gate.arrived()
        waiting = peer.ask("wait", job=job)
        with daemon.peer() as other:
            cancelling = other.ask("cancel", job=job)
            daemon.heard("audit cancel")
            gate.release()
            other.answer(cancelling)
        assert peer.answer(waiting)["state"] == "cancelled"
    built, verified = runner.did("build"), runner.did("verify")
    assert daemon.lookup()["source"] == "default"
    known = daemon.trials()
    assert len([trial for trial in known if trial.get("code")]) == len(built)
    tuned, = daemon.tune()
    assert tuned["source"] == "tuned"
    assert runner.did("build") == built and runner.did("verify") == verified, "it built or verified again"
    assert int(runner.did("sweep")[1].split()[1]) >= 2, "it began from round 0 again"


def test_cancel_by_command_line_ends_the_waiting_tune_with_status_4(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    tune = daemon.ctl_start("tune", *shape())
    gate.arrived()
    job, = daemon.ctl("jobs").json["jobs"]
    assert job["state"] == "running"
    cancel = daemon.ctl_start("cancel", job["job"])
    daemon.heard("audit cancel")
    gate.release()
    cancel.communicate(timeout=harness.DEADLINE)
    tune.communicate(timeout=harness.DEADLINE)
    assert cancel.returncode == 0 and tune.returncode == 4


def test_a_waiter_that_leaves_does_not_end_the_job(daemon, runner):
    gate = runner.gate("sweep")
    runner.write(f"at sweep once gate {gate}")
    tune = daemon.ctl_start("tune", *shape())
    gate.arrived()
    tune.kill()
    tune.communicate()
    gate.release()
    with daemon.peer() as peer:
        job, = peer.call("jobs")["jobs"]
        assert peer.call("wait", job=job["job"])["state"] == "done"
    assert daemon.lookup()["source"] == "tuned"


def test_no_wait_returns_while_the_sweep_goes_on(daemon, runner):
    gate = runner.gate("sweep")
    runner.write(f"at sweep once gate {gate}")
    queued, = daemon.tune("--no-wait")
    assert queued["job"]
    gate.arrived()
    assert daemon.lookup()["source"] == "default"
    gate.release()
    with daemon.peer() as peer:
        peer.call("wait", job=queued["job"])
    assert daemon.lookup()["source"] == "tuned"


def timed(trials, runner, *more, **known):
    """Has the runner find these times, in microseconds by the place of a config, and long ones for all others."""
    runner.write(*more, *[f"time {at} {known.get(f'm{at}', 200) * 1000000:.0f}" for at in range(len(trials))])


def members(daemon):
    """All configs, and the places of two that may win; the default is neither."""
    daemon.tune()
    trials = daemon.trials()
    places = [at for at, trial in enumerate(trials) if trial["status"] == "ok" and not trial["default"]]
    return trials, places[0], places[-1]


def test_a_stored_winner_gives_way_only_to_what_is_better_beyond_the_noise(daemon, runner):
    trials, early, late = members(daemon)
    for times, winner in (((130, 100), late), ((99.9, 100), late), ((90, 100), early), ((90, 89.9), early)):
        timed(trials, runner, **{f"m{early}": times[0], f"m{late}": times[1]})
        assert daemon.tune("--force")[0]["config"] == trials[winner]["config"], times


def test_a_config_that_was_never_verified_does_not_win_although_its_runner_says_so(daemon, runner):
    trials, early, late = members(daemon)
    before = daemon.lookup()["config"]
    timed(trials, runner, f"at verify {late} lie unverified", **{f"m{early}": 100, f"m{late}": 50})
    done = daemon.ctl("tune", *shape(), "--force", check=False)
    assert done.status == 4 and "no config can win" in done.complaint, "all others were dropped for it"
    assert daemon.lookup()["config"] == before


def order_of(daemon, runner, wanted):
    """The numbers, in `wanted`, of jobs in the order in which they run: all are queued while the first runs."""
    gate = runner.gate("sweep")
    runner.write(f"at sweep once gate {gate}")
    with daemon.peer() as peer:
        jobs = []
        for fields, options in wanted:
            jobs.append(peer.call("tune", kernel="rmsnorm", problem=problem(**fields), **options)["job"])
            if len(jobs) == 1:
                gate.arrived()
        gate.release()
        for job in jobs:
            assert peer.call("wait", job=job)["state"] == "done"
        ended = [peer.call("jobs", job=job)["jobs"][0]["ended_at_ns"] for job in jobs]
    return sorted(range(len(jobs)), key=ended.__getitem__)


def test_jobs_run_by_priority_then_age(daemon, runner):
    wanted = [(1, 0), (2, 0), (5, 0), (3, 50), (6, 0), (4, -5)]
    order = order_of(daemon, runner, [({"m": m}, {"priority": priority}) for m, priority in wanted])
    assert [wanted[at][0] for at in order] == [1, 3, 2, 5, 6, 4]


def test_the_rest_of_a_scale_field_goes_before_what_is_older_but_another_problem(daemon, runner):
    """It shares what the device was given for the sweep before."""
    wanted = [(1, 4096), (1, 1024), (2, 4096), (2, 1024), (3, 4096)]
    order = order_of(daemon, runner, [({"m": m, "n": n}, {}) for m, n in wanted])
    assert [wanted[at] for at in order] == [(1, 4096), (2, 4096), (3, 4096), (1, 1024), (2, 1024)]


def test_watch_tells_of_every_trial_and_the_end(daemon, runner):
    with daemon.peer() as watcher, daemon.peer() as peer:
        watcher.call("watch")
        job = peer.call("tune", kernel="rmsnorm", problem=M64)["job"]
        events = []

        def ended(event):
            events.append(event)
            return event["event"] == "ended"

        last = watcher.event(ended)
    assert last["state"] == "done" and last["job"] == job
    kinds = [event["event"] for event in events]
    assert kinds.index("queued") < kinds.index("started") < kinds.index("trial") < kinds.index("ended")
    assert kinds.count("round") == len(runner.did("round"))
    settled = [tuple(sorted(event["config"].items())) for event in events if event["event"] == "trial"]
    assert len(settled) == len(set(settled)) == last["trials"]


def test_tune_shows_a_line_a_trial(daemon):
    output = daemon.ctl("tune", *shape(), as_json=False).output
    lines = [line for line in output.splitlines() if line.startswith("[")]
    trials = daemon.trials()
    assert len(lines) >= len([trial for trial in trials if trial["status"] != "pruned"])
    assert any("µs" in line and "±" in line for line in lines)


def test_the_real_sweep_in_the_middle_leaves_lookups_quick(daemons):
    daemon = daemons(arguments=["--budget", harness.LARGE_BUDGET]).start()
    with daemon.peer() as peer:
        # What a sanitizer slows down thirty times still lasts long enough where it is small.
        fields = {"m": 16, "n": 1024} if harness.INSTRUMENTED else {"m": 256}
        job = peer.call("tune", kernel="rmsnorm", problem=problem(**fields))["job"]
        waiting = peer.ask("wait", job=job)
        took = []
        with daemon.peer() as other:
            while not harness.select.select([peer.socket], [], [], 0)[0]:
                began = time.monotonic()
                other.call("lookup", kernel="rmsnorm", problem=problem(m=1 + len(took) % 1000))
                took.append(time.monotonic() - began)
        assert peer.answer(waiting)["state"] == "done"
    # The median: the sweep itself uses every core, and other tests may, too.
    assert len(took) > 100 and sorted(took)[len(took) // 2] < 1


def test_a_runner_that_is_idle_goes_home(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune()
    harness.await_death(runner.pids()[-1])
    daemon.tune(m=65)
    assert len(set(runner.pids())) >= 2


def test_a_runner_inherits_nothing_of_the_daemon(daemon, runner):
    daemon.tune()
    for descriptors in runner.did("descriptors"):
        assert descriptors == "0 1 2 3"
    names = set(runner.did("environment"))
    assert not [name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))]
    assert "PYTEST_CURRENT_TEST" not in names


def test_status_and_devices_tell_what_is_there(daemon):
    daemon.tune()
    daemon.lookup()
    status = daemon.status()
    assert status["pid"] == daemon.pid
    assert status["answers"] == 1 and status["damaged"] == 0 and not status.get("degraded")
    assert status["state_dir"] == str(daemon.state)
    assert status["lookups"]["tuned"] >= 1
    device, = daemon.ctl("devices").json["devices"]
    assert device["id"] == "cpu:0" and device["state"] == "ready" and device["name"] == "Made-up processor"
    for words in (["status"], ["devices"], ["jobs"], ["lookup", *shape()], ["trials", *shape()]):
        assert daemon.ctl(*words, as_json=False).output.strip()


def test_the_socket_may_come_from_the_environment(daemon):
    done = subprocess.run([str(harness.FLYTUNECTL), "--json", "lookup", *map(str, shape())],
                          env={"FLYTUNE_SOCKET": str(daemon.path)}, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)["source"] == "default"


def test_configs_of_equal_code_are_one_trial(daemon, runner):
    runner.write("same 3", "best 0")
    tuned, = daemon.tune()
    statuses = [trial["status"] for trial in daemon.trials()]
    assert statuses.count("same_code_as") == len(runner.did("build")) - 3
    assert tuned["source"] == "tuned"


def test_a_wrong_config_cannot_win_however_fast(daemon, runner):
    runner.write("best 4", "wrong 4")
    tuned, = daemon.tune()
    wrong, = [trial for trial in daemon.trials() if trial["status"] == "wrong"]
    assert wrong["config"] != tuned["config"] and wrong["reason"]


def test_memory_and_store_stay_flat_under_many_lookups(daemon):
    daemon.tune()
    with daemon.peer() as peer:
        def burst(count):
            for number in range(count):
                peer.ask("lookup", kernel="rmsnorm", problem=problem(m=1 + number % 5000))
                if number % 100 == 99:
                    for _ in range(100):
                        assert peer.message()[2] is None
        burst(6000)  # every question once: what is kept is bounded
        before = harness.memory_kb(daemon.pid)
        burst(20000)
        after = harness.memory_kb(daemon.pid)
    assert harness.INSTRUMENTED or after - before < 512
