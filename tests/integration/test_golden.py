"""Stores that releases wrote, opened by today's daemon: nothing that was in them is lost or told otherwise."""
import json
import shutil
import subprocess

import pytest

import harness
from harness import shape

ALL = sorted(path for path in (harness.TOP / "tests" / "golden").iterdir() if path.is_dir())
OLD = [path for path in ALL if "format 1" in (path / "initialised").read_text()]
GOLDEN = [path for path in ALL if path not in OLD]
# What an answer says that is not of its moment: from where, and how fresh.
PASSING = ("stripe", "version", "daemon_away", "kept")


def but_for_stated(path):
    lines = path.read_text().splitlines()
    assert sum(line.startswith('"from"') for line in lines) == 1
    return [line for line in lines if not line.startswith('"from"')]


def lasting(answer):
    return {name: value for name, value in answer.items() if name not in PASSING}


def load(folder, state):
    """The store of a folder, made again."""
    if shutil.which("mdb_load") is None:
        pytest.skip("needs lmdb-utils, to make a store of its dump")
    state.mkdir(mode=0o700)
    subprocess.run(["mdb_load", "-f", str(folder / "store.dump"), str(state)], check=True)
    (state / "lock.mdb").unlink(missing_ok=True)
    shutil.copy(folder / "initialised", state / "initialised")


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name)
def golden(request, daemons, runner, tmp_path):
    state = tmp_path / "state"
    load(request.param, state)
    daemon = daemons(runner, state=state).start()
    daemon.await_device()
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
    status = daemon.status()
    assert {name: status[name] for name in expected["status"]} == expected["status"]
    jobs = daemon.ctl("jobs").json["jobs"]
    assert [{name: job[name] for name in ("job", "problems", "state")} for job in jobs] == expected["jobs"]
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
    (daemon.state / "initialised").write_text("flytune store, format 99\n")
    before = (daemon.state / "data.mdb").read_bytes()
    with pytest.raises(AssertionError):
        daemon.start()
    assert "format 99" in daemon.log() and "newer flytune" in daemon.log()
    assert (daemon.state / "data.mdb").read_bytes() == before


def facts(state):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in state.iterdir()}


@pytest.mark.parametrize("marked", (True, False), ids=("marker", "store"))
@pytest.mark.parametrize("folder", OLD, ids=lambda path: path.name)
def test_a_store_of_format_1_is_refused_with_what_to_do_and_left_as_it_was(daemons, runner, tmp_path, folder, marked):
    state = tmp_path / "state"
    load(folder, state)
    if not marked:
        (state / "initialised").write_text("")  # a power cut left it empty: the store says it itself
    before, opened = facts(state), state.stat().st_mtime_ns
    daemon = daemons(runner, state=state)
    with pytest.raises(AssertionError):
        daemon.start()
    assert all(word in daemon.log() for word in ("format 1", "flytunectl export", "flytunectl import", "left as it is"))
    done = subprocess.run([str(harness.FLYTUNED), "--check-store", "--state-dir", str(state)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and "flytunectl export" in done.stdout + done.stderr, done
    left = facts(state)
    if not marked:
        left.pop("lock")  # it was in doubt until the store was read
    assert left == before and (not marked or state.stat().st_mtime_ns == opened)


@pytest.mark.parametrize("folder", OLD, ids=lambda path: path.name)
def test_what_it_exported_is_imported_with_equal_answers(daemons, runner, folder):
    daemon = daemons(runner).start()
    daemon.await_device()
    exported = json.loads((folder / "export.json").read_text())["answers"]
    done = daemon.ctl("import", folder / "export.json").json
    assert done["rows"] == done["kept"] == len(exported)
    asked = json.loads((folder / "expected.json").read_text())["moments"]["forgotten"]["answers"]
    held = [one for one in asked if one["answer"]["source"] in ("pinned", "tuned", "imported")]
    assert len(held) >= 3
    for one in held:
        now = daemon.lookup(**one["shape"])
        # What was tuned there is imported here; a pin is one still.
        assert now["source"] == one["answer"]["source"].replace("tuned", "imported"), one["shape"]
        for name in ("config", "time_us", "default_time_us"):
            assert now[name] == one["answer"][name], (one["shape"], name)
