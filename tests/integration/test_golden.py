"""Stores that releases wrote, opened by today's daemon: nothing that was in them is lost or told otherwise."""
import json
import shutil
import subprocess

import pytest

import harness
from harness import shape

GOLDEN = sorted(path for path in (harness.TOP / "tests" / "golden").iterdir() if path.is_dir())
# What an answer says that is not of its moment: from where, and how fresh.
PASSING = ("stripe", "version", "daemon_away", "kept")
RENAMED = {"tuned_m": "tuned_scale"}  # after 0.1.0


def but_for_stated(path):
    lines = path.read_text().splitlines()
    assert sum(line.startswith('"from"') for line in lines) == 1
    return [line for line in lines if not line.startswith('"from"')]


def lasting(answer):
    return {RENAMED.get(name, name): value for name, value in answer.items() if name not in PASSING}


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name)
def golden(request, daemons, runner, tmp_path):
    if shutil.which("mdb_load") is None:
        pytest.skip("needs lmdb-utils, to make a store of its dump")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    subprocess.run(["mdb_load", "-f", str(request.param / "store.dump"), str(state)], check=True)
    (state / "lock.mdb").unlink(missing_ok=True)
    shutil.copy(request.param / "initialised", state / "initialised")
    daemon = daemons(runner, state=state).start()
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready", "the device is heard")
    return daemon, request.param, json.loads((request.param / "expected.json").read_text())


def test_the_answers_of_every_moment_are_what_they_were(golden):
    daemon, _, expected = golden
    assert len(expected["moments"]) >= 5
    for name, moment in expected["moments"].items():
        for asked in moment["answers"]:
            now = daemon.ctl("--generation", moment["token"], "lookup", *shape(**asked["shape"])).json
            # A later release may say more, and nothing else.
            assert {**lasting(now), **lasting(asked["answer"])} == lasting(now), (name, asked["shape"])
    last = expected["moments"]["forgotten"]["answers"]
    for asked in last:
        now = daemon.lookup(**asked["shape"])
        for name in ("config", "source", "reason", "time_us", "tuned_at", "identity"):
            assert now.get(name) == asked["answer"].get(name), (asked["shape"], name)


def test_trials_jobs_and_counters_are_what_they_were(golden, runner):
    daemon, _, expected = golden
    # One more: which device its id means has a history, which is stored soon after the device is ready.
    harness.until(lambda: daemon.status()["generation"] == expected["status"]["generation"] + 1, "its history is stored")
    status = daemon.status()
    status["generation"] -= 1
    assert {name: status[name] for name in expected["status"]} == expected["status"]
    jobs = daemon.ctl("jobs").json["jobs"]
    assert [{name: job[name] for name in ("job", "problem", "state")} for job in jobs] == expected["jobs"]
    for asked in expected["trials"]:
        now = daemon.trials(**asked["shape"])
        assert [{**one, **was} for one, was in zip(now, asked["trials"], strict=True)] == now, asked["shape"]
    # What was queued goes on, and what was tuned is not tuned again.
    waits = next(job["job"] for job in expected["jobs"] if job["state"] == "queued")
    daemon.ctl("resume")
    with daemon.peer() as peer:
        assert peer.call("wait", job=waits)["state"] == "done"
    sweeps = len(runner.did("sweep"))
    assert daemon.tune(m=64)[0]["source"] == "tuned" and len(runner.did("sweep")) == sweeps
    assert daemon.tune("--no-wait", m=77)[0]["job"] > max(job["job"] for job in expected["jobs"])


def test_its_export_is_the_same_byte_for_byte_but_for_what_is_stated(golden, tmp_path):
    daemon, folder, _ = golden
    daemon.ctl("export", tmp_path / "export.json")
    assert but_for_stated(tmp_path / "export.json") == but_for_stated(folder / "export.json")
    # And what that release exported can be read.
    done = daemon.ctl("import", folder / "export.json").json
    rows = len(json.loads((folder / "export.json").read_text())["answers"])
    assert done["rows"] == done["kept"] == rows


def test_it_is_sound_before_and_after(golden):
    daemon, _, _ = golden
    daemon.stop()
    done = subprocess.run([str(harness.FLYTUNED), "--check-store", "--state-dir", str(daemon.state)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0 and " 0 damaged" in done.stdout, done
    daemon.start()
    assert daemon.status()["damaged"] == 0 and "damage" not in daemon.log()


def test_a_store_of_a_later_release_is_refused_and_left_as_it_was(golden):
    daemon, _, _ = golden
    daemon.stop()
    (daemon.state / "initialised").write_text("flytune store, format 2\n")
    before = (daemon.state / "data.mdb").read_bytes()
    with pytest.raises(AssertionError):
        daemon.start()
    assert "format 2" in daemon.log() and "newer flytune" in daemon.log()
    assert (daemon.state / "data.mdb").read_bytes() == before
