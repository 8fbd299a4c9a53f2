"""PROTOCOL.md against the daemon: its list of members against the tables, and its examples against a real daemon."""
import json
import re
import sys

import msgpack
import pytest

import harness
from harness import problem

sys.path.insert(0, str(harness.TOP / "tests"))

import messages  # noqa: E402

PAGE = (harness.TOP / "proto" / "PROTOCOL.md").read_text()


def test_every_member_of_every_message_is_listed_with_its_type():
    declared, documented = messages.declared(), messages.documented(PAGE)
    assert len(declared) > 50 and set(declared) == set(documented)
    for tag, members in declared.items():
        told = {name: (shown, needed) for name, shown, needed in documented[tag]}
        assert list(told) == [name for name, _, _ in members], tag
        for name, shown, needed in members:
            assert told[name][1] == needed, f"{tag}.{name}"
            if shown is not None:
                assert told[name][0] == shown, f"{tag}.{name}"
                continue
            # A list or a map: of what, the tables do not say; it must be something that is told of.
            word = told[name][0].replace("list of ", "").replace("map of ", "").split(" or ")
            assert all(part.split()[0] in {*declared, "error", "uint", "int", "text"} for part in word), f"{tag}.{name}"


def methods():
    """The rows of the table of methods: names, members that must and that may be given, members of the result."""
    table = PAGE[PAGE.index("| method | params | result |"):]
    for row in re.findall(r"^\| (`.*?) \|(.*?)\|(.*?)\|$", table[:table.index("\n\n")], re.M):
        yield re.findall(r"`(\w+)`", row[0]), row[1], row[2]


def test_the_table_of_methods_names_the_members_of_the_messages():
    declared = messages.declared()
    rows = {name: (params, result) for names, params, result in methods() for name in names}
    last = PAGE[PAGE.index("| params of | are | its result |"):]
    seen = set()
    for names, request, reply in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (?:`(\w+)`|nothing) \| `(\w+)`", last, re.M):
        for name in re.findall(r"\w+", names):
            params, _ = rows[name]
            told = set(re.findall(r"`(\w+)`", re.sub("params of `lookup`", "", params)))
            known = {member for member, _, _ in declared[request]} if request else set()
            assert told <= known, name
            needed = {member for member, _, must in declared[request] if must} if request else set()
            assert needed <= set(re.findall(r"`(\w+)`", params.partition(";")[0])), name
            seen.add(name)
    assert seen == set(rows), seen ^ set(rows)


# What this page says at the places where it once said something else.

def check(message, result):
    """A reply holds what the list says, and nothing else."""
    listed = {name: (shown, needed) for name, shown, needed in messages.documented(PAGE)[message]}
    assert set(result) <= set(listed), set(result) - set(listed)
    assert {name for name, (_, needed) in listed.items() if needed} <= set(result)
    kinds = {"uint": int, "int": int, "bool": bool, "text": str, "bytes": bytes, "problem": dict, "config": dict, "list": list,
             "map": dict, "real": (int, float)}
    for name, value in result.items():
        shown = listed[name][0]
        assert isinstance(value, kinds.get(shown.split()[0], dict)), (name, value)
        if shown.startswith("text"):
            assert len(value.encode()) <= int(shown.split()[1])


def test_replies_of_a_daemon_are_as_they_are_listed(daemon):
    daemon.ctl("tune", *harness.shape())
    with daemon.peer() as peer:
        check("hello_reply", peer.hello)
        config = peer.call("lookup", kernel="rmsnorm", problem=problem())["config"]
        with pytest.raises(harness.RpcError):
            peer.call("lookup", kernel="rmsnorm", problem=problem(m=0))
        for message, method, params in (
                ("answer", "lookup", dict(kernel="rmsnorm", problem=problem())),
                ("lookup_many_reply", "lookup_many", dict(lookups=[dict(kernel="rmsnorm", problem=problem())])),
                ("subscribe_reply", "subscribe", dict(lookups=[dict(kernel="rmsnorm", problem=problem())])),
                ("tune_reply", "tune", dict(kernel="rmsnorm", problem=problem())), ("jobs_reply", "jobs", {}),
                ("empty", "watch", {}), ("trials_reply", "trials", dict(kernel="rmsnorm", problem=problem())),
                ("misses_reply", "misses", {}),
                ("change_reply", "pin", dict(kernel="rmsnorm", problem=problem(), config=config)),
                ("change_reply", "unpin", dict(kernel="rmsnorm", problem=problem())), ("pause_reply", "pause", {}),
                ("pause_reply", "resume", {}), ("export_reply", "export", {}), ("empty", "import_begin", {}),
                ("import_reply", "import_rows", dict(rows=[])), ("import_reply", "import_commit", {}),
                ("status_reply", "status", {}), ("devices_reply", "devices", {}),
                ("kernels_reply", "kernels", {}), ("metrics_reply", "metrics", {})):
            check(message, peer.call(method, **params))
        check("job", peer.call("jobs")["jobs"][0])
        check("trial", peer.call("trials", kernel="rmsnorm", problem=problem())["trials"][0])
        check("device_state", peer.call("devices")["devices"][0])
        check("kernel_state", peer.call("kernels")["kernels"][0])
        check("row", peer.call("export")["rows"][0])
        assert peer.call("watch")["ok"] is True and peer.call("import_begin")["ok"] is True
        lookups = peer.call("status")["lookups"]
        assert set(lookups) == {"pinned", "tuned", "fleet", "imported", "recorded", "nearest", "default", "refused"}
        assert lookups["refused"] >= 1


def test_a_hello_without_versions_may_be_sent_again(daemon):
    with daemon.peer(hello=False) as peer:
        with pytest.raises(harness.RpcError) as refusal:
            peer.call("hello", name="x")
        assert refusal.value.code == "bad_request" and refusal.value.error["field"] == "min"
        assert peer.call("hello", min=2, max=2)["protocol"] == 2


def test_params_that_are_an_array_end_the_connection_under_id_0(daemon):
    with daemon.peer() as peer:
        peer.send(msgpack.packb([0, 7, "status", []]))
        (said,) = peer.ended()
        assert said[:2] == [1, 0] and said[2]["code"] == "bad_frame"


def test_the_examples_of_requests_are_taken(daemon):
    """Those of the client road, as they stand on the page."""
    road = PAGE[PAGE.index("## The client road"):PAGE.index("## The runner road")]
    asked = [json.loads(block) for block in re.findall(r"```text\n(\[0, .*?)```", road, re.S)]
    assert len(asked) >= 6
    with daemon.peer(hello=False) as peer:
        job = store = None
        for _, number, method, params in asked:
            if "job" in params:
                params = {**params, "job": job}
            if "store" in params:
                params = {**params, "store": store}
            peer.send(msgpack.packb([0, number, method, params]))
            result = peer.answer(number)
            store = result["store"] if method == "hello" else store
            job = result.get("job", job) if method == "tune" else job
            assert result, method
