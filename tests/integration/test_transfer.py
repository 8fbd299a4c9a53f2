"""Answers out of a store and into another: export and import, and files that mean harm."""
import json
import os
import stat
import subprocess

import pytest

import harness
from harness import problem, shape

ORIGIN = "0f8fad5b-d9cb-469f-a165-70867728950e"


def ready(daemon):
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready" and daemon.status()["generation"] > 1,
                  "the device is known")
    return daemon


def words(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def export(daemon, path, *options):
    daemon.ctl(*options, "export", path)
    return json.loads(path.read_text())


def but_for_stated(path):
    """The file without what is stated to differ: the line that says where and when it was written."""
    lines = path.read_text().splitlines()
    assert sum(line.startswith('"from"') for line in lines) == 1
    return [line for line in lines if not line.startswith('"from"')]


@pytest.fixture
def filled(daemon):
    daemon.ctl("tune", *shape(m="1,64,512,4096"))
    daemon.ctl("tune", *shape(m=64, n=1024, dtype="f32"))
    other = next(trial["config"] for trial in daemon.trials() if trial["status"] == "ok" and not trial["winner"])
    daemon.ctl("pin", *shape(), "--config", words(other))
    daemon.ctl("pin", *shape(m=7), "--config", words(other))
    return daemon


def test_an_export_has_a_line_a_problem_sorted_with_device_identity_and_origin(filled, tmp_path):
    path = tmp_path / "answers.json"
    data = export(filled, path)
    rows = data["answers"]
    assert len(rows) == 6 and data["version"] == 1
    assert [(row["problem"]["m"], row["problem"]["n"]) for row in rows] == \
        sorted((row["problem"]["m"], row["problem"]["n"]) for row in rows)
    lines = path.read_text().splitlines()
    assert sum('"problem"' in line for line in lines) == 6
    uuid = filled.status()["store"]
    identities = {device["identity_text"] for device in filled.ctl("devices").json["devices"]}
    for row in rows:
        assert data["devices"][row["device"]]
        if row["problem"]["m"] == 7:
            assert "config" not in row and row["pin"] and row["pinned_at"]
            continue
        assert row["origin"] == uuid and row["tuned_at"] and 0 < row["time_ps"] <= row["default_time_ps"]
        assert data["devices"][row["device"]] in identities and "source=" in data["identities"][row["identity"]]
        assert ("pin" in row) == (row["problem"] == {**row["problem"], "m": 64, "n": 4096})
    first = path.read_text()
    export(filled, path)
    assert but_for_stated(path) == [line for line in first.splitlines() if not line.startswith('"from"')]


def test_export_wipe_import_export_gives_the_same_file(filled, daemons, runner, tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    export(filled, before)
    answers = {m: filled.lookup(m=m) for m in (1, 7, 64, 512, 4096)}
    filled.stop()
    other = ready(daemons(runner).start())
    done = other.ctl("import", before).json
    assert (done["rows"], done["usable"], done["kept"], done["notes"]) == (6, 6, 6, [])
    export(other, after)
    assert but_for_stated(before) == but_for_stated(after)
    for m, answer in answers.items():
        found = other.lookup(m=m)
        assert found["config"] == answer["config"]
        assert found["source"] == ("pinned" if m in (7, 64) else "imported")
        if found["source"] == "imported":
            assert (found["time_us"], found["reason"]) == (answer["time_us"], "")
    # Once more, over itself, and after a crash.
    other.ctl("import", before)
    other.kill()
    other.start()
    export(other, after)
    assert but_for_stated(before) == but_for_stated(after)
    # What is measured here takes the place of what was brought in.
    assert other.tune(m=512)[0]["source"] == "tuned"
    assert other.lookup(m=512)["source"] == "tuned"


def test_an_import_is_one_change_and_can_be_asked_around(filled, daemons, runner, tmp_path):
    path = tmp_path / "answers.json"
    export(filled, path)
    filled.stop()
    other = ready(daemons(runner).start())
    token = other.lookup()["token"]
    done = other.ctl("import", path).json
    assert int(done["token"].split(":")[1]) == int(token.split(":")[1]) + 1
    assert other.ctl("--generation", token, "lookup", *shape()).json["source"] == "default"
    assert other.ctl("--generation", done["token"], "lookup", *shape()).json["source"] == "pinned"
    assert " audit import" in other.log() and "rows=6" in other.log()
    # The moment before can be exported as well.
    assert export(other, tmp_path / "then.json", "--generation", token)["answers"] == []
    other.ctl("forget", *shape())
    now = export(other, tmp_path / "now.json")["answers"]
    then = export(other, tmp_path / "then.json", "--generation", done["token"])["answers"]
    assert len(now) == 5 and len(then) == 6


def test_a_dry_run_changes_nothing(filled, daemons, runner, tmp_path):
    path = tmp_path / "answers.json"
    export(filled, path)
    filled.stop()
    other = ready(daemons(runner).start())
    before = other.status()
    done = other.ctl("import", path, "--dry-run").json
    assert done["rows"] == 6 and done["usable"] == 6 and done["dry_run"]
    after = other.status()
    assert (before["answers"], before["generation"]) == (after["answers"], after["generation"])


def test_rows_of_another_device_are_kept_as_they_came_and_never_served(filled, daemons, runner, tmp_path):
    path, again = tmp_path / "answers.json", tmp_path / "again.json"
    export(filled, path)
    filled.stop()
    runner.write("device arch=another cores=4", "identity compiler=another")
    other = ready(daemons(runner).start())
    done = other.ctl("import", path).json
    assert (done["rows"], done["usable"], done["kept"]) == (6, 0, 6)
    assert {note["field"] for note in done["notes"]} == {"device"} and len(done["notes"]) == 6
    assert [note["row"] for note in done["notes"]] == list(range(1, 7))
    assert other.lookup()["source"] == "default"
    other.tune()
    export(other, again)
    foreign = set(but_for_stated(path)) & set(but_for_stated(again))
    assert sum('"problem"' in line for line in foreign) >= 5, "foreign rows were restamped"


def test_rows_measured_under_another_compiler_are_served_and_marked(filled, daemons, runner, tmp_path):
    path = tmp_path / "answers.json"
    export(filled, path)
    filled.stop()
    runner.write("identity compiler=newer")
    other = ready(daemons(runner).start())
    done = other.ctl("import", path).json
    assert (done["usable"], {note["field"] for note in done["notes"]}) == (6, {"identity"})
    assert all(note["usable"] for note in done["notes"])
    found = other.lookup(m=512)
    assert found["source"] == "imported" and "another identity" in found["reason"]
    done = other.ctl("import", path, as_json=False)
    assert "6 usable here" in done.output and "identity differs" in done.output


def test_what_was_seen_and_the_order_class_travel_with_a_row(filled, daemons, runner, tmp_path):
    path, again = tmp_path / "answers.json", tmp_path / "again.json"
    data = export(filled, path)
    assert all(row["seen_ppm"] == 1000000 and "order_class" not in row for row in data["answers"] if "config" in row)
    assert filled.lookup(m=512)["seen"] == 1 and filled.lookup(m=512)["order_class"] is None
    row = next(row for row in data["answers"] if row["problem"]["m"] == 512)
    row.update(seen_ppm=250000, order_class=77)
    path.write_text(json.dumps(data))
    filled.stop()
    other = ready(daemons(runner).start())
    assert other.ctl("import", path).json["usable"] == 6
    found = other.lookup(m=512)
    assert (found["source"], found["seen"], found["order_class"]) == ("imported", 0.25, 77)
    assert next(row for row in export(other, again)["answers"] if row["problem"]["m"] == 512)["order_class"] == 77


@pytest.mark.parametrize("config", ['{"block": [64, 128], "note": "wärme"}', {"threads": "many"}])
def test_a_document_or_word_where_the_kernel_has_knobs_is_refused_by_name(filled, tmp_path, config):
    path = tmp_path / "answers.json"
    data = export(filled, path)
    row = next(row for row in data["answers"] if "config" in row)
    row["config"] = config
    path.write_text(json.dumps(data))
    done = filled.ctl("import", path, check=False)
    assert done.status in (1, 2) and "nothing is imported" in done.complaint, done
    assert done.json["error"]["field"].startswith("config"), done


def test_an_unknown_kernel_is_told_and_left_out(filled, tmp_path):
    path = tmp_path / "answers.json"
    data = export(filled, path)
    data["answers"][0]["kernel"] = "softmax"
    path.write_text(json.dumps(data))
    done = filled.ctl("import", path).json
    assert (done["rows"], done["usable"], done["kept"]) == (6, 5, 5)
    assert [(note["row"], note["field"]) for note in done["notes"]] == [(1, "kernel")]


# ---- files that mean harm


def test_all_answers_are_listed_with_where_they_come_from(filled, tmp_path):
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    elsewhere = {**row, "problem": {**row["problem"], "m": 13}, "origin": ORIGIN}
    path.write_text(json.dumps({**data, "answers": [elsewhere]}))
    filled.ctl("import", path)
    said = filled.ctl("list").json
    assert [(one["problem"]["m"], one["problem"]["n"], one["source"]) for one in said["answers"]] == [
        (64, 1024, "tuned"), (1, 4096, "tuned"), (7, 4096, "pinned"), (13, 4096, "imported"), (64, 4096, "pinned"),
        (512, 4096, "tuned"), (4096, 4096, "tuned")]
    for one in said["answers"]:
        served = filled.ctl("lookup", *shape(**one["problem"])).json
        assert [served[name] for name in ("source", "config", "device")] == [one[name] for name in ("source", "config", "device")]
        assert served["time_us"] is None or abs(served["time_us"] - one["time_us"]) < 0.001
    unknown = filled.ctl("list", "another", check=False)
    assert unknown.status == 2 and unknown.json["error"]["code"] == "unknown_kernel", unknown
    lines = filled.ctl("list", "rmsnorm", as_json=False).output.splitlines()
    assert len(lines) == 8 and lines[0].split()[:3] == ["KERNEL", "PROBLEM", "DEVICE"]
    # The moment before can be had as well, as everywhere.
    token = f"{said['store']}:{said['generation'] - 1}"
    assert len(filled.ctl("--generation", token, "list").json["answers"]) == 6


def sample(daemon, path):
    data = export(daemon, path)
    row = next(row for row in data["answers"] if row["problem"]["m"] == 512)
    return data, row


def knob_of(row):
    return next(iter(row["config"]))


def put(row, *where):
    """Sets row[where[0]]...[where[-2]] = where[-1]."""
    for name in where[:-2]:
        row = row[name]
    row[where[-2]] = where[-1]


BAD_ROWS = [
    # what to do to a row, and the field that the refusal must name
    (lambda row: put(row, "config", "colour", 1), "config.colour"),
    (lambda row: put(row, "config", "-include", 1), "config.-include"),
    (lambda row: put(row, "config", "$(reboot)", 1), "config.$(reboot)"),
    (lambda row: put(row, "config", "../../x", 1), "config.../../x"),
    (lambda row: put(row, "config", "a b", 1), "config.a b"),
    (lambda row: put(row, "config", 'quo"te', 1), "config.quo"),
    (lambda row: put(row, "config", "x" * 65536, 1), "config.xxx"),
    (lambda row: put(row, "config", "", 1), "config."),
    (lambda row: put(row, "config", knob_of(row), "-O3 -include /etc/passwd"), "config."),
    (lambda row: put(row, "config", knob_of(row), 1.5), "config."),
    (lambda row: put(row, "config", knob_of(row), True), "config."),
    (lambda row: put(row, "config", knob_of(row), None), "config."),
    (lambda row: put(row, "config", knob_of(row), [1]), "config."),
    (lambda row: put(row, "config", knob_of(row), 2**62), "config."),
    (lambda row: put(row, "config", knob_of(row), -1), "config."),
    (lambda row: row["config"].pop(knob_of(row)), "config."),
    (lambda row: put(row, "config", []), "config"),
    (lambda row: put(row, "config", {}), "config"),
    (lambda row: row.pop("config"), "config"),
    (lambda row: put(row, "pin", {"colour": 1}), "pin.colour"),
    (lambda row: put(row, "pin", 7), "pin"),
    (lambda row: put(row, "problem", "m", 0), "m"),
    (lambda row: put(row, "problem", "n", 2**40), "n"),
    (lambda row: put(row, "problem", "n", "$(id)"), "n"),
    (lambda row: put(row, "problem", "dtype", "f64"), "dtype"),
    (lambda row: put(row, "problem", "dtype", "bf16; rm -rf /"), "dtype"),
    (lambda row: put(row, "problem", "dtype", "x" * 65536), "dtype"),
    (lambda row: put(row, "problem", "dtype", ""), "dtype"),
    (lambda row: put(row, "problem", "dtype", {"a": 1}), "dtype"),
    (lambda row: put(row, "problem", "colour", 1), "colour"),
    (lambda row: put(row, "problem", "-include", 1), "-include"),
    (lambda row: put(row, "problem", "row_stride", 1), "row_stride"),
    (lambda row: put(row, "problem", None), "problem"),
    (lambda row: row.pop("problem"), "problem"),
    (lambda row: put(row, "kernel", "../rmsnorm"), "kernel"),
    (lambda row: put(row, "kernel", "rms norm"), "kernel"),
    (lambda row: put(row, "kernel", "$(id)"), "kernel"),
    (lambda row: put(row, "kernel", "x" * 65536), "kernel"),
    (lambda row: put(row, "kernel", 3), "kernel"),
    (lambda row: put(row, "device", "nowhere"), "device"),
    (lambda row: put(row, "device", "0" * 32), "device"),
    (lambda row: row.pop("device"), "device"),
    (lambda row: put(row, "identity", "0" * 32), "identity"),
    (lambda row: row.pop("identity"), "identity"),
    (lambda row: put(row, "origin", "../../etc"), "origin"),
    (lambda row: put(row, "origin", "$(id)"), "origin"),
    (lambda row: put(row, "origin", "x" * 65536), "origin"),
    (lambda row: put(row, "origin", ""), "origin"),
    (lambda row: put(row, "time_ps", -1), "time_ps"),
    (lambda row: put(row, "time_ps", 2**62), "time_ps"),
    (lambda row: put(row, "time_ps", 999), "time_ps"),
    (lambda row: put(row, "gain_least_ppm", -1), "gain_least_ppm"),
    (lambda row: put(row, "unsettled", 1), "unsettled"),
    (lambda row: put(row, "time_ps", 1e3), "time_ps"),
    (lambda row: put(row, "default_time_ps", "fast"), "default_time_ps"),
    (lambda row: put(row, "tuned_at", "yesterday"), "tuned_at"),
    (lambda row: put(row, "tuned_at", "2025-02-31T00:00:00Z"), "tuned_at"),
    (lambda row: put(row, "tuned_at", "2025-06-01T12:00:00Z; id"), "tuned_at"),
    (lambda row: put(row, "tuned_at", 7), "tuned_at"),
    (lambda row: put(row, "shell", "id"), "shell"),
]


@pytest.mark.parametrize("number", range(len(BAD_ROWS)), ids=[f"{i}-{field}" for i, (_, field) in enumerate(BAD_ROWS)])
def test_one_bad_row_costs_the_whole_file_and_is_named(filled, tmp_path, number):
    spoil, field = BAD_ROWS[number]
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    where = data["answers"].index(row) + 1
    # Of every row something would change, were it applied.
    for other in data["answers"]:
        if "tuned_at" in other:
            other["tuned_at"] = "2025-06-01T12:00:00Z"
    spoil(row)
    path.write_text(json.dumps(data))
    before = filled.status()["generation"]
    done = filled.ctl("import", path, check=False)
    assert done.status in (1, 2), done
    assert f"row {where}:" in done.complaint and field in done.complaint + done.json["error"]["field"], done
    assert "nothing is imported" in done.complaint
    if row.get("time_ps") in (999, 2**62):
        assert f"{row['time_ps']}; it must be from 1000 to 3600000000000000" in done.complaint, done
    assert filled.status()["generation"] == before
    assert filled.ctl("import", path, "--dry-run", check=False).status == done.status


@pytest.mark.parametrize("text,words", [
    ("", "line 1"), ("[]", "the file"), ("{}", "flytune"), ("nonsense", "line 1"),
    ('{"flytune": "answers", "version": 2}', "version"),
    ('{"flytune": "answers", "version": "1"}', "version"),
    ('{"flytune": "sweeps", "version": 1}', "flytune"),
    ('{"flytune": "answers", "version": 1, "version": 1}', "line 1"),
    ('{"flytune": "answers", "version": 1, "from": {}, "devices": {}, "identities": {}}', "answers"),
    ('{"flytune": "answers", "version": 1, "from": {}, "devices": {}, "identities": {}, "answers": [3]}', "row 1"),
    ('{"flytune": "answers", "version": 1, "from": {}, "devices": {}, "identities": {}, "answers": [], "x": 1}', "x"),
    ('{"flytune": "answers", "version": 1, "from": {}, "devices": {"00": "a"}, "identities": {}, "answers": []}', "devices.00"),
    ('{"flytune": "answers", "version": 1, "from": {}, "devices": {}, "identities": {"x": 1}, "answers": []}', "identities.x"),
    ('{"flytune": "ans\\u0000wers", "version": 1}', "line 1"), ('{"flytune": "ans\0wers"}', "line 1"),
    ('{"a":' * 100000, "line 1"), ("[" * 100000, "line 1"), ('{"flytune": "answers", "version": 1', "line 1"),
    ('{"flytune": "answers", "version": 99999999999999999999}', "line 1"),
    ('{"flytune": "answers", "version": 1, "from": {}, "devices": {"%s": "%s"}, "identities": {}, "answers": []}'
     % ("0" * 32, "x" * 65536), "devices.")], ids=lambda value: repr(value[:60]))
def test_a_file_that_is_no_export_is_refused_by_place(daemon, tmp_path, text, words):
    path = tmp_path / "answers.json"
    path.write_bytes(text.encode())
    done = daemon.ctl("import", path, check=False)
    assert done.status in (1, 2) and words in done.complaint, done
    assert daemon.status()["answers"] == 0


@pytest.mark.parametrize("where,words", [
    (("problem", "dtype"), "bf16\0"), (("kernel",), "rms\0norm"), (("origin",), ORIGIN[:-1] + "\0"),
    (("config", "threads\0"), 1), (("device",), "a\0b"), (("identity",), "a\0b"), (("tuned_at",), "2025\0")], ids=str)
def test_a_nul_in_a_row_is_refused_in_the_file_and_on_the_wire(filled, tmp_path, where, words):
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    row = json.loads(json.dumps(row))
    put(row, *where, words)
    path.write_text(json.dumps({**data, "answers": [row]}))
    before = filled.status()["generation"]
    done = filled.ctl("import", path, check=False)
    assert done.status in (1, 2) and ("nothing is imported" in done.complaint or "line 1" in done.complaint), done
    if where != ("tuned_at",):  # on the wire it is a number
        wire = {"kernel": "rmsnorm", "problem": row["problem"], "device": data["devices"].get(row["device"], row["device"]),
                "identity": data["identities"].get(row["identity"], row["identity"]), "config": row["config"],
                "origin": row["origin"]}
        if where == ("kernel",):
            wire["kernel"] = words
        with filled.peer() as peer:
            peer.call("import_begin")
            with pytest.raises(harness.RpcError) as refusal:
                peer.call("import_rows", rows=[wire])
            assert refusal.value.code in ("bad_value", "bad_request", "unknown_knob") and "row 1:" in str(refusal.value)
            with pytest.raises(harness.RpcError):
                peer.call("import_commit")
    assert filled.status()["generation"] == before


@pytest.mark.parametrize("row", [{"\x1b[2J\n": 1}, {"tuned_at": "\x1b]0;x\x07"}, {"kernel": "\x9b2J"},
                                 {"tuned_at": "µ" * 70}, {"device": "\u009b31m"}], ids=range(5))
def test_a_fault_shown_steers_no_terminal_and_is_text(filled, tmp_path, row):
    path = tmp_path / "answers.json"
    filled.ctl("export", path)
    whole = json.loads(path.read_text())
    whole["answers"][0].update(row)
    path.write_text(json.dumps(whole))
    done = filled.ctl("import", path, as_json=False, check=False)
    assert done.status != 0 and "row 1" in done.complaint
    assert all(sign >= " " and sign != "\x7f" and not "\x80" <= sign <= "\x9f" for sign in done.complaint.replace("\n", ""))
    done = filled.ctl("import", path, check=False)
    assert "row 1" in done.json["error"]["message"]


def test_deep_nesting_inside_a_row_is_refused(filled, tmp_path):
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    number = data["answers"].index(row) + 1
    for field in ("problem", "config", "pin", "origin"):
        deep = current = {}
        for _ in range(500):
            current["a"] = current = {}
        path.write_text(json.dumps({**data, "answers": [{**one, field: deep} if one is row else one
                                                        for one in data["answers"]]}))
        done = filled.ctl("import", path, check=False)
        assert done.status in (1, 2) and f"row {number}:" in done.complaint and field in done.complaint, done


def test_duplicates_and_conflicts_are_refused_by_row(filled, tmp_path):
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    first = data["answers"].index(row) + 1
    last = len(data["answers"]) + 1
    # The same problem said otherwise: a field at its default left out, the order changed.
    for twin in (dict(row), {**row, "problem": {"dtype": "bf16", "n": 4096, "m": 512}}, {**row, "time_ps": 1000}):
        path.write_text(json.dumps({**data, "answers": data["answers"] + [twin]}))
        done = filled.ctl("import", path, check=False)
        assert done.status in (1, 2) and f"row {last}:" in done.complaint and f"row {first}" in done.complaint


def many_rows(data, row, count):
    return {**data, "answers": [{**row, "problem": {**row["problem"], "m": m}} for m in range(1, count + 1)]}


def test_of_10000_rows_one_bad_one_is_named_and_nothing_is_applied(filled, tmp_path):
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    data = many_rows(data, row, 10000)
    data["answers"][7776]["config"] = {**row["config"], knob_of(row): 12345}
    path.write_text(json.dumps(data))
    before = filled.status()
    done = filled.ctl("import", path, check=False)
    assert done.status == 2 and "row 7777:" in done.complaint and knob_of(row) in done.complaint
    after = filled.status()
    assert (after["answers"], after["generation"]) == (before["answers"], before["generation"])
    # Without it all of them are there, in one generation.
    data["answers"][7776]["config"] = row["config"]
    path.write_text(json.dumps(data))
    done = filled.ctl("import", path).json
    assert done["rows"] == done["kept"] == 10000
    after = filled.status()
    assert after["generation"] == before["generation"] + 1 and after["answers"] == 10001
    again = export(filled, tmp_path / "again.json")
    assert len(again["answers"]) == 10001


def test_an_import_that_is_given_up_changes_nothing(filled, tmp_path):
    data, row = sample(filled, tmp_path / "answers.json")
    wire = {"kernel": "rmsnorm", "problem": {**row["problem"], "m": 9}, "device": data["devices"][row["device"]],
            "identity": data["identities"][row["identity"]], "config": row["config"], "origin": ORIGIN}
    before = filled.status()["generation"]
    with filled.peer() as peer:
        with pytest.raises(harness.RpcError):
            peer.call("import_rows", rows=[wire])
        with pytest.raises(harness.RpcError):
            peer.call("import_commit")
        peer.call("import_begin")
        assert peer.call("import_rows", rows=[wire])["usable"] == 1
        peer.call("import_begin")
        assert peer.call("import_commit")["rows"] == 0, "a new one begins empty"
        peer.call("import_begin")
        peer.call("import_rows", rows=[wire])
    with filled.peer() as peer:
        peer.call("import_begin")
        with pytest.raises(harness.RpcError):
            peer.call("import_rows", rows=[wire, wire])
        with pytest.raises(harness.RpcError):
            peer.call("import_commit")
        assert peer.call("status")["generation"] == before
        for bad in (b"\x00" * 5, "x" * 32, b"\xff" * 32):
            try:
                assert peer.call("export", place=bad)["rows"] == []
            except harness.RpcError as refusal:
                assert refusal.code in ("bad_value", "bad_request")
        peer.call("import_begin")
        peer.call("import_rows", rows=[wire])
        assert peer.call("import_commit")["kept"] == 1
    assert filled.lookup(m=9)["source"] == "imported"


def test_exports_and_imports_of_one_path_at_once_never_meet_a_half(filled, tmp_path):
    path = tmp_path / "answers.json"
    data, row = sample(filled, path)
    path.write_text(json.dumps(many_rows(data, row, 300)))
    filled.ctl("import", path)
    times = 1000 if os.environ.get("FLYTUNE_LONG") else 60
    running, done = [], 0

    def finish(process):
        output, complaint = process.communicate(timeout=2 * harness.DEADLINE)
        assert process.returncode == 0, output + complaint
    for turn in range(times):
        running.append(subprocess.Popen(
            harness.ctl_command(filled.path, "import" if turn % 2 else "export", path),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        if len(running) == 8:
            finish(running.pop(0))
            done += 1
        assert len(json.loads(path.read_text())["answers"]) >= 300
    for process in running:
        finish(process)
    assert [left.name for left in tmp_path.iterdir() if left.name.startswith("answers.json.")] == []


def test_an_export_that_cannot_be_written_leaves_the_file_as_it_was(filled, tmp_path, nobody):
    path = tmp_path / "answers.json"
    path.write_text("before")
    filled.short.chmod(0o755)
    filled.path.chmod(0o666)
    done = filled.ctl("export", path, prefix=nobody, check=False)
    assert done.status == 1 and path.read_text() == "before"
    assert filled.ctl("export", tmp_path / "no" / "such", check=False).status == 1
    assert filled.ctl("export", "/dev/full/x", check=False).status == 1
    piped = filled.ctl("export", "-", as_json=False)
    assert json.loads(piped.output)["version"] == 1


def test_an_export_into_a_pipe_or_over_a_link_leaves_them_there(filled, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        try:
            filled.ctl("export", pipe)
            assert stat.S_ISFIFO(pipe.lstat().st_mode)
            assert json.loads(reader.communicate(timeout=harness.DEADLINE)[0])["version"] == 1
        finally:
            reader.kill()
    kept, link = tmp_path / "kept.json", tmp_path / "link.json"
    kept.write_text("before")
    link.symlink_to(kept.name)
    assert export(filled, link)["version"] == 1
    assert link.is_symlink() and json.loads(kept.read_text())["version"] == 1
    # Also one that leads to what is not there yet.
    (tmp_path / "below").mkdir()
    later, link = tmp_path / "below" / "later.json", tmp_path / "dangling.json"
    link.symlink_to(f"below/{later.name}")
    assert export(filled, link)["version"] == 1
    assert link.is_symlink() and json.loads(later.read_text())["version"] == 1
    # Who could read a file still can, and nobody else.
    kept.chmod(0o640)
    owner = (65534, 65534) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(kept, *owner)
    export(filled, kept)
    facts = kept.stat()
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid, facts.st_gid) == (0o640, *owner)
    done = filled.ctl("export", tmp_path, check=False)
    assert done.status == 1 and "Is a directory" in done.complaint and tmp_path.is_dir()


def test_a_store_with_a_long_history_is_exported_in_steps_of_one_moment(daemon, tmp_path):
    config = ready(daemon).lookup()["config"]
    with daemon.peer() as peer:
        numbers = [peer.ask("pin", kernel="rmsnorm", problem=problem(m=m), config=config) for m in range(1, 601)]
        for number in numbers:
            peer.answer(number)
        first = peer.call("export")
        assert 0 < len(first["rows"]) < 600
        token = f"{first['store']}:{first['generation']}"
        rows, place = list(first["rows"]), first["place"]
        # While it goes on, half of what it is still to see is forgotten, and more is pinned.
        for m in range(1, 601, 2):
            peer.ask("forget", kernel="rmsnorm", problem=problem(m=m))
        for m in range(1000, 1100):
            peer.ask("pin", kernel="rmsnorm", problem=problem(m=m), config=config)
        last = peer.ask("unpin", kernel="rmsnorm", problem=problem(m=5000))
        while (message := peer.message())[1] != last:
            assert message[2] is None
        while place:
            step = peer.call("export", generation=token, place=place)
            rows += step["rows"]
            place = step.get("place")
    assert sorted(row["problem"]["m"] for row in rows) == list(range(1, 601))


def test_an_export_of_a_large_store_with_many_devices_is_imported_again(filled, daemons, runner, tmp_path):
    rows, devices = 2000 if harness.INSTRUMENTED else 210000, 1100
    path, again = tmp_path / "answers.json", tmp_path / "again.json"
    data, row = sample(filled, path)
    held = harness.memory_kb(filled.pid)
    path.write_text(json.dumps(many_rows(data, row, rows)))
    assert filled.ctl("import", path).json["kept"] == rows
    print(f"{rows} rows: the daemon came to hold {harness.memory_kb(filled.pid) - held} kB more")
    wire = {"kernel": "rmsnorm", "problem": row["problem"], "identity": data["identities"][row["identity"]],
            "config": row["config"], "origin": ORIGIN}
    names = [f"{data['devices'][row['device']]} rack={number}" for number in range(devices)]
    with filled.peer() as peer:
        peer.call("import_begin")
        for first in range(0, devices, 100):
            peer.call("import_rows", rows=[{**wire, "device": name} for name in names[first:first + 100]])
        assert peer.call("import_commit")["kept"] == devices
    count = filled.ctl("export", path).json["answers"]
    assert count > rows + devices
    other = ready(daemons(runner).start())
    assert other.ctl("import", path).json["kept"] == count
    other.ctl("export", again)
    assert but_for_stated(again) == but_for_stated(path)
