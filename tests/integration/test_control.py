"""What an operator decides: pins, forgetting, pauses, and what was asked in vain; generations throughout."""
import json
import os
import subprocess

import pytest

import harness
from harness import problem, shape


def other_config(daemon, **fields):
    """A config of the space that is not what a lookup answers."""
    answer = daemon.lookup(**fields)["config"]
    return next(trial["config"] for trial in daemon.trials(**fields)
                if trial["config"] != answer and trial["status"] == "ok")


def words_of(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def ready(daemon):
    """Waits until the daemon has heard its device and stored who it is: lookups before are answered but not counted,
    and their generation is one of another identity."""
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready" and daemon.status()["generation"] > 1,
                  "the device is known")
    return daemon


def at(daemon, token, check=True, **fields):
    return daemon.ctl("--generation", token, "lookup", *shape(**fields), check=check)


def test_a_pin_is_seen_at_once_survives_a_crash_and_goes_away(daemon):
    tuned, = daemon.tune()
    before = daemon.lookup()
    other = other_config(daemon)
    pinned = daemon.ctl("pin", *shape(), "--config", words_of(other)).json
    assert pinned["generation"] > before["generation"] and not pinned["was_set"]
    found = daemon.lookup()
    assert (found["source"], found["config"]) == ("pinned", other)
    daemon.kill()
    daemon.start()
    assert daemon.lookup()["source"] == "pinned"
    freed = daemon.ctl("unpin", *shape()).json
    assert freed["was_set"] and freed["generation"] > pinned["generation"]
    found = daemon.lookup()
    assert (found["source"], found["config"]) == ("tuned", tuned["config"])
    assert not daemon.ctl("unpin", *shape()).json["was_set"]
    # Each moment can still be asked for.
    assert at(daemon, before["token"]).json["source"] == "tuned"
    assert at(daemon, pinned["token"]).json["source"] == "pinned"
    assert at(daemon, freed["token"]).json["source"] == "tuned"


def test_forget_takes_all_of_a_problem_and_leaves_its_history(daemon, runner):
    tuned, = daemon.tune()
    daemon.ctl("pin", *shape(), "--config", words_of(other_config(daemon)))
    held = daemon.lookup()
    gone = daemon.ctl("forget", *shape()).json
    assert gone["was_set"]
    assert daemon.lookup()["source"] == "default"
    assert daemon.trials() == []
    assert at(daemon, held["token"]).json["source"] == "pinned"
    assert at(daemon, gone["token"]).json["source"] == "default"
    assert not daemon.ctl("forget", *shape()).json["was_set"]
    again, = daemon.tune()
    assert again["config"] == tuned["config"] and len(runner.did("sweep")) == 2


@pytest.mark.parametrize("config,name", [
    ({"threads": 1, "colour": 3}, "colour"), ({"threads": 1}, ""), ({"-include": 1}, "include"),
    ({"$(reboot)": 1}, ""), ({"": 1}, ""), ({"threads": "1"}, "threads"), ({"threads": 1.5}, "threads"),
    ({"threads": True}, "threads"), ({"threads": 2**63 - 1}, "threads"), ({"a" * 40: 1}, ""), ({}, "config")], ids=str)
def test_a_config_that_the_space_does_not_have_is_refused_by_name(daemon, config, name):
    whole = {**daemon.lookup()["config"], **config} if name not in ("", "config") else config
    with daemon.peer() as peer:
        with pytest.raises(harness.RpcError) as refusal:
            peer.call("pin", kernel="rmsnorm", problem=problem(), config=whole)
        assert refusal.value.code in ("bad_value", "unknown_knob", "bad_request")
        assert name in str(refusal.value)
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
    assert daemon.status()["answers"] == 0


def test_a_pin_of_a_value_out_of_the_knobs_list_names_knob_and_bound(daemon):
    config = daemon.lookup()["config"]
    knob = next(iter(config))
    done = daemon.ctl("pin", *shape(), "--config", words_of({**config, knob: 12345}), check=False)
    assert done.status == 2 and knob in done.complaint and "12345" in done.complaint
    done = daemon.ctl("pin", *shape(), check=False)
    assert done.status == 2 and "--config" in done.complaint


def test_a_change_before_the_devices_are_known_waits_for_them_in_order(daemons, runner):
    gate = runner.gate("hello")
    runner.write(f"at hello once gate {gate}")
    daemon = daemons(runner).start()
    gate.arrived()
    config = daemon.lookup()["config"]
    with daemon.peer() as peer:
        numbers = [peer.ask("pin", kernel="rmsnorm", problem=problem(), config=config),
                   peer.ask("unpin", kernel="rmsnorm", problem=problem()),
                   peer.ask("pin", kernel="rmsnorm", problem=problem(m=7), config=config)]
        gate.release()
        generations = [peer.answer(number)["generation"] for number in numbers]
    assert generations == sorted(generations)
    assert daemon.lookup()["source"] == "default" or daemon.lookup()["source"] == "nearest"
    assert daemon.lookup(m=7)["source"] == "pinned"


def test_a_change_leaves_an_audit_line(daemon):
    config = daemon.lookup()["config"]
    daemon.ctl("pin", *shape(), "--config", words_of(config))
    daemon.ctl("pause")
    lines = [line for line in daemon.log().splitlines() if " audit " in line]
    assert len(lines) == 2
    assert f"uid={os.geteuid()}" in lines[0] and "pin" in lines[0] and "m=64" in lines[0] and "generation=" in lines[0]
    assert "pause" in lines[1]


# ---- misses


def test_misses_are_listed_most_asked_first_and_can_be_fed_to_tune(daemon):
    ready(daemon)
    for m, times in ((16, 2), (4096, 5), (1, 1)):
        for _ in range(times):
            daemon.lookup(m=m)
    with daemon.peer() as peer:
        peer.call("lookup", kernel="rmsnorm", problem=problem(m=1), repeats=100)
    listed = daemon.ctl("misses").json
    assert [(miss["problem"]["m"], miss["count"]) for miss in listed["misses"]] == [(1, 102), (4096, 5), (16, 2)]
    assert listed["asked"] == 109
    lines = daemon.ctl("misses", as_json=False).output.splitlines()
    assert len(lines) == 3 and lines[0].startswith("rmsnorm --m 1 --n 4096 --dtype bf16")
    fed = subprocess.run(["xargs", "-L1", *harness.ctl_command(daemon.path, "tune", as_json=False)],
                         input="\n".join(lines[:2]), text=True, capture_output=True, timeout=2 * harness.DEADLINE,
                         check=False)
    assert fed.returncode == 0, fed
    # As the manual has it: options before the kernel, and what is queued is waited for by another command.
    fed = subprocess.run(["sh", "-c", 'flytunectl misses 10 | xargs -L1 flytunectl tune --no-wait'], text=True,
                         capture_output=True, timeout=2 * harness.DEADLINE, check=False,
                         env={**os.environ, "FLYTUNE_SOCKET": str(daemon.path),
                              "PATH": f"{harness.FLYTUNECTL.parent}:{os.environ['PATH']}"})
    assert fed.returncode == 0 and "m=16 " in fed.stdout, fed
    daemon.ctl("watch", daemon.ctl("jobs").json["jobs"][-1]["job"])
    assert daemon.lookup(m=16)["source"] == "tuned"
    # What has a result now is no miss any more.
    assert [miss["problem"]["m"] for miss in daemon.ctl("misses").json["misses"]] == []
    assert daemon.lookup(m=1)["source"] == "tuned"


def test_repeats_from_a_hostile_client_do_not_wrap_around(daemon):
    with ready(daemon).peer() as peer:
        for _ in range(3):
            peer.call("lookup", kernel="rmsnorm", problem=problem(m=3), repeats=2**64 - 1)
        peer.call("lookup", kernel="rmsnorm", problem=problem(m=5))
        listed = peer.call("misses")
    assert [miss["problem"]["m"] for miss in listed["misses"]] == [3, 5]
    assert listed["misses"][0]["count"] == 2**64 - 1


def test_the_table_of_misses_is_bounded_and_keeps_what_is_asked_most(daemon):
    with ready(daemon).peer() as peer:
        for _ in range(50):
            peer.call("lookup", kernel="rmsnorm", problem=problem(m=77))
        for start in range(0, 20000, 500):
            numbers = [peer.ask("lookup", kernel="rmsnorm", problem=problem(m=100000 + m))
                       for m in range(start, start + 500)]
            for number in numbers:
                peer.answer(number)
        listed = peer.call("misses")
        assert len(listed["misses"]) <= 2048
        assert listed["misses"][0]["problem"]["m"] == 77
        assert listed["forgotten"] + len(listed["misses"]) == 20001
        assert len(peer.call("misses", most=3)["misses"]) == 3


# ---- pause


def test_a_pause_stops_what_runs_and_repeats_nothing_when_it_goes_on(daemon, runner):
    gate = runner.gate("round")
    runner.write("pace_us 100000", f"at round 3 once gate {gate}")
    tune = daemon.ctl_start("tune", *shape())
    gate.arrived()
    with daemon.peer() as peer:
        number = peer.ask("pause")
        gate.release()
        assert peer.answer(number)["paused"]
        status = peer.call("status")
        assert status["paused"] and status["jobs_running"] == 0 and status["jobs_queued"] == 1
        did = {step: runner.did(step) for step in ("build", "verify")}
        assert [job["state"] for job in peer.call("jobs")["jobs"]] == ["queued"]
        daemon.kill()
    runner.write()
    daemon.start()
    assert daemon.status()["paused"], "a pause outlives the daemon"
    assert daemon.ctl("resume").json == {"paused": False}
    output, complaint = tune.communicate(timeout=harness.DEADLINE)
    assert tune.returncode == 0, complaint
    assert json.loads(output)[0]["source"] == "tuned"
    assert did["build"] and {step: runner.did(step) for step in did} == did, "it built or verified again"


def test_a_job_can_be_cancelled_while_the_queue_is_paused(daemon):
    daemon.ctl("pause")
    daemon.ctl("pause")
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]
    assert daemon.ctl("cancel", job).json == {"job": job, "state": "cancelled", "cancelled": job}
    assert daemon.ctl("jobs", job).json["jobs"][0]["state"] == "cancelled"
    daemon.ctl("resume")
    assert daemon.tune()[0]["source"] == "tuned"


def test_a_forced_sweep_is_one_whatever_it_joins(daemon, runner):
    """Who asks with force gets all times anew, with a budget of their own, although a check of the problem waited already."""
    daemon.tune()
    daemon.ctl("pause")
    with daemon.peer() as peer:
        check = peer.call("tune", kernel="rmsnorm", problem=problem(), check=True)
        forced = peer.call("tune", kernel="rmsnorm", problem=problem(), force=True)
        assert forced["job"] == check["job"]
        rounds = len(runner.did("round"))
        daemon.ctl("resume")
        ended = peer.call("wait", job=forced["job"])
    assert ended["state"] == "done"
    assert len(runner.did("round")) > rounds, "nothing was timed"


def test_those_who_ask_for_one_job_are_answered_in_their_order(daemon):
    """Each by its own commit."""
    daemon.ctl("pause")
    with daemon.peer() as peer:
        asked = [peer.ask("tune", kernel="rmsnorm", problem=problem(), force=number % 2 == 1) for number in range(8)]
        replies = [peer.message() for _ in asked]
    assert [reply[1] for reply in replies] == asked
    assert [reply[3].get("joined", False) for reply in replies] == [False] + [True] * 7


def test_cancelling_a_job_that_was_over_claims_nothing(daemon):
    job = daemon.tune()[0]["job"]
    assert daemon.ctl("cancel", job).json == {"job": job, "state": "done", "cancelled": None}
    assert daemon.ctl("cancel", job, as_json=False).output == f"job {job} had ended already: done\n"


# ---- generations


def test_one_token_gives_16_processes_one_answer_while_100_change(daemon):
    config = daemon.lookup()["config"]
    daemon.ctl("tune", *shape(m="64,128,256"))
    other = other_config(daemon)
    held = daemon.lookup()
    askers = []

    def ask(m):
        askers.append((m, subprocess.Popen(
            harness.ctl_command(daemon.path, "--generation", held["token"], "lookup", *shape(m=m)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
    want = {m: at(daemon, held["token"], m=m).json for m in (64, 128, 256, 90)}
    assert want[90]["source"] == "nearest"
    with daemon.peer() as peer:
        for change in range(100):
            m = (64, 128, 256, 90)[change % 4]
            if change % 3 == 2:
                peer.call("forget" if change % 2 else "unpin", kernel="rmsnorm", problem=problem(m=m))
            else:
                peer.call("pin", kernel="rmsnorm", problem=problem(m=m), config=other if change % 2 else config)
            if change % 6 == 0 and len(askers) < 16:
                ask((64, 128, 256, 90)[len(askers) % 4])
        while len(askers) < 16:
            ask((64, 128, 256, 90)[len(askers) % 4])
        last = peer.call("pin", kernel="rmsnorm", problem=problem(m=64), config=other)
    for m, process in askers:
        output, complaint = process.communicate(timeout=harness.DEADLINE)
        assert process.returncode == 0, complaint
        got = json.loads(output)
        assert {key: got[key] for key in ("config", "source", "generation", "tuned_at")} == \
            {key: want[m][key] for key in ("config", "source", "generation", "tuned_at")}
    assert daemon.lookup()["config"] == other and daemon.lookup()["generation"] == last["generation"]


def test_16_processes_agree_while_a_sweep_decides(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    token = ready(daemon).lookup()["token"]
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]
    gate.arrived()
    command = harness.ctl_command(daemon.path, "lookup", *shape())
    env = {**os.environ, "FLYTUNE_GENERATION": token}
    early = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(8)]
    gate.release()
    late = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(8)]
    answers = {process.communicate(timeout=harness.DEADLINE)[0] for process in early + late}
    assert len(answers) == 1 and json.loads(answers.pop())["source"] == "default"
    harness.until(lambda: daemon.ctl("jobs", job).json["jobs"][0]["state"] == "done", "the job ends")
    assert daemon.lookup()["source"] == "tuned"
    assert at(daemon, token).json["source"] == "default"


def test_a_token_from_before_the_device_was_heard_is_honoured(daemons, runner):
    gate = runner.gate("hello")
    runner.write(f"at hello once gate {gate}")
    daemon = daemons(runner).start()
    gate.arrived()
    early = daemon.lookup()
    assert early["reason"] == "probing" and early["generation"] == 1
    with daemon.peer() as peer:
        # Who names it gets no guess: the answers wait until they are those of ever after.
        one = peer.ask("lookup", kernel="rmsnorm", problem=problem(), generation=early["token"])
        many = peer.ask("lookup_many", lookups=[
            {"kernel": "rmsnorm", "problem": problem(m=m), "generation": early["token"]} for m in (64, 128)])
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["reason"] == "probing"
        gate.release()
        first = peer.answer(one)
        assert (first["source"], first["generation"], first["device"]) == ("default", 1, "cpu:0")
        assert [answer["config"] for answer in peer.answer(many)["answers"]][0] == first["config"]
        ready(daemon)
        daemon.tune()
        for _ in range(2):
            then = peer.call("lookup", kernel="rmsnorm", problem=problem(), generation=early["token"])
            assert (then["source"], then["config"], then["generation"]) == ("default", first["config"], 1)
            daemon.restart()
            peer = daemon.peer()
    # Under another compiler the answers were none of that moment's.
    daemon.stop()
    runner.write("identity compiler=newer")
    daemon.runner.program.write_text(daemon.runner.program.read_text() + "\n")
    daemon.start()
    harness.until(lambda: daemon.lookup()["reason"] != "probing", "the device is heard anew")
    refused(at(daemon, early["token"], check=False), "another compiler")


def refused(done, *words):
    assert done.status == 1 and done.json["error"]["code"] == "generation_unavailable", done
    for word in words:
        assert word in done.complaint
    return done


def test_a_generation_that_cannot_be_honoured_is_never_answered_otherwise(daemons, daemon, runner):
    daemon.tune()
    token = daemon.lookup()["token"]
    uuid, counter = token.split(":")
    for other in (f"{uuid}:{int(counter) + 1000}", f"{uuid}:0", f"00000000-0000-4000-8000-000000000000:{counter}"):
        refused(at(daemon, other, check=False))
    for bad in (f"{uuid}:-1", f"{uuid}:x", uuid, "x:1", f"{uuid}:", f"{uuid}:{2**64}"):
        done = at(daemon, bad, check=False)
        assert done.status == 2 and bad[:36] in done.json["error"]["message"], done
        with daemon.peer() as peer, pytest.raises(harness.RpcError) as refusal:
            peer.call("lookup", kernel="rmsnorm", problem=problem(), generation=bad)
        assert refusal.value.code == "generation_unavailable"
    # The daemon is away, and this process had nothing of that generation.
    daemon.stop()
    refused(at(daemon, token, check=False), token)
    # Another store in its place.
    other = daemons(runner, state=daemon.folder / "another")
    os.rmdir(other.short)
    mine, other.short, other.path, other.lives = other.short, daemon.short, daemon.path, 100
    try:
        other.start()
        refused(at(other, token, check=False), token)
        other.stop()
    finally:
        mine.mkdir()
        other.short = mine


def test_a_generation_whose_history_was_collected_is_refused(daemons, runner):
    daemon = daemons(runner, arguments=["--history-days", 0, "--history-answers", 2]).start()
    config = ready(daemon).lookup()["config"]
    token = daemon.lookup()["token"]
    with daemon.peer() as peer:
        def collected():
            for change in range(50):
                peer.call("pin", kernel="rmsnorm", problem=problem(m=change % 5 + 1), config=config)
            return at(daemon, token, check=False).status != 0
        harness.until(collected, "old history is collected")
    refused(at(daemon, token, check=False), "not kept")
    daemon.ctl("lookup", *shape())


def test_a_clock_that_jumps_a_year_ahead_makes_no_generation_old(daemons, runner, tmp_path):
    if harness.INSTRUMENTED:
        pytest.skip("a sanitizer wants to be loaded first")
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    daemon = daemons(runner, arguments=["--history-answers", 1],
                     env={"LD_PRELOAD": str(harness.BUILD / "tests/integration/clock.so"), "CLOCK_AHEAD": str(ahead)})
    ready(daemon.start())
    configs = [words_of(trial["config"]) for trial in daemon.ctl("tune", *shape()) and daemon.trials() if trial["status"] == "ok"]
    early = daemon.lookup()
    for step, seconds in enumerate((0, 365 * 86400, 0)):
        ahead.write_text(str(seconds))
        for turn in range(40):  # more than a step of collection waits for
            pinned = daemon.ctl("pin", *shape(), "--config", configs[(turn + step) % 2])
        kept = at(daemon, early["token"]).json
        assert (kept["source"], kept["config"]) == (early["source"], early["config"])
    daemon.restart()
    assert at(daemon, early["token"]).json["config"] == early["config"]
    assert at(daemon, pinned.json["token"]).json["source"] == "pinned"
