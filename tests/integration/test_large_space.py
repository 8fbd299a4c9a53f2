"""Spaces too large to be tried whole: a real matrix multiplication on the real CPU runner, some of whose configs are searched for."""
import json
from pathlib import Path

import pytest

import harness

MATMUL = Path(__file__).resolve().parents[1] / "kernels" / "matmul"
SHAPE = ("matmul", "--m", "48", "--n", "64", "--k", "40")
LISTED = 512
SHORT = round(4 * harness.PATIENCE)


def start(daemons, *arguments):
    return daemons(arguments=("--kernels", MATMUL.parent, *arguments)).start().await_device()


def tune(daemon, *options):
    """On a slow machine more time is given, until the default at least is timed in it."""
    budget, done = SHORT, None
    while done is None or "is too small" in done.complaint:
        done = daemon.ctl("tune", *SHAPE, *options, "--budget", budget, check=False)
        budget *= 4
    assert done.status == 0, done
    return done.json[0]


def trials(daemon):
    return daemon.ctl("trials", *SHAPE).json


def tried(found):
    return {json.dumps(trial["config"], sort_keys=True): trial for trial in found["trials"]
            if trial["status"] not in ("waiting", "suspect", "pruned")}


def check_fraction(daemon, found):
    """What was seen is said in all answers, and is what was tried."""
    assert found["space"] > LISTED
    share = len(tried(found)) / found["space"]
    assert 0 < share < 1 and found["seen"] == pytest.approx(share, abs=1e-6)
    assert daemon.ctl("lookup", *SHAPE).json["seen"] == found["seen"]
    words = f"{len(tried(found))} of {found['space']} configs were tried"
    assert words in daemon.ctl("explain", *SHAPE, as_json=False).output


def test_a_large_space_is_searched(daemons, tmp_path):
    daemon = start(daemons)
    answer = tune(daemon)
    assert answer["source"] == "tuned"
    first = trials(daemon)
    check_fraction(daemon, first)
    assert len(first["trials"]) == len({json.dumps(trial["config"], sort_keys=True) for trial in first["trials"]})
    winner = next(trial for trial in first["trials"] if trial["winner"])
    assert winner["config"] == answer["config"] and winner["rounds"] > 0
    # Those that did not race have the time of a look.
    assert all(trial["time_us"] for trial in first["trials"] if trial["status"] == "ok")
    job = daemon.ctl("jobs").json["jobs"][-1]
    assert (job["space"], job["trials"]) == (first["space"], len(first["trials"]))
    saved = tmp_path / "answers.json"
    daemon.ctl("export", saved, as_json=False)
    daemon.stop()
    daemon.start().await_device()
    assert trials(daemon) == first
    # More are looked for beyond what is known.
    tune(daemon, "--force")
    second = trials(daemon)
    check_fraction(daemon, second)
    assert tried(first).keys() <= tried(second).keys()
    other = start(daemons)
    other.ctl("import", saved)
    assert other.ctl("lookup", *SHAPE).json["seen"] == first["seen"]


def test_a_search_goes_on_after_a_kill(daemons):
    daemon = start(daemons)
    daemon.ctl("tune", *SHAPE, "--budget", harness.LARGE_BUDGET, "--no-wait")

    def looked():
        return {config: trial for config, trial in tried(trials(daemon)).items() if trial["time_us"]}

    harness.until(looked, "some are looked at")
    daemon.kill()
    daemon.start().await_device()
    before = looked()
    assert before
    harness.until(lambda: len(looked()) > len(before), "more are looked at")
    after = looked()
    assert all(after[config]["code"] == trial["code"] for config, trial in before.items())
    daemon.ctl("cancel", "1")
    assert looked().keys() >= after.keys()


def test_a_space_that_is_far_too_large(daemons, tmp_path):
    where = tmp_path / "kernels" / "matmul"
    where.mkdir(parents=True)
    for file in MATMUL.iterdir():
        (where / file.name).write_bytes(file.read_bytes())
    document = json.loads((where / "kernel.json").read_text())
    document["knobs"] += [{"name": f"K{i}", "help": "nothing", "values": list(range(32))} for i in range(6)]
    document["default"].update({f"K{i}": 0 for i in range(6)})
    (where / "kernel.json").write_text(json.dumps(document))
    daemon = daemons(arguments=("--kernels", where.parent)).start().await_device()
    failed = daemon.ctl("tune", *SHAPE, check=False)
    assert failed.status != 0
    assert "the space of this problem has more than 65536 configs" in failed.complaint
    assert daemon.ctl("lookup", *SHAPE).json["source"] == "default"
