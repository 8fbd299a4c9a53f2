"""Lookups that are answered from what was kept: in the daemon by the bytes of the question, and many in one message."""
import msgpack
import pytest

import harness
from harness import RpcError, problem, shape


def ask(m=64, n=4096, **more):
    return {"kernel": "rmsnorm", "problem": problem(m=m, n=n), **more}


def knobs(answer, **changed):
    return {**answer["config"], **changed}


def config_words(config):
    return ",".join(f"{name}={value}" for name, value in config.items())


def test_a_repeated_question_is_answered_anew_after_every_change(daemon):
    daemon.tune()
    with daemon.peer() as peer:
        first = peer.call("lookup", **ask())
        assert first["source"] == "tuned"
        for _ in range(3):
            assert peer.call("lookup", **ask()) == first
        other = peer.call("lookup", **ask(n=8192))
        for unroll in (2, 8, 2):
            pinned = knobs(first, unroll=unroll)
            daemon.ctl("pin", *shape(), "--config", config_words(pinned))
            for _ in range(3):
                answer = peer.call("lookup", **ask())
                assert (answer["source"], answer["config"]) == ("pinned", pinned)
            daemon.ctl("unpin", *shape())
            for _ in range(3):
                answer = peer.call("lookup", **ask())
                assert (answer["source"], answer["config"]) == ("tuned", first["config"])
            # An answer that did not change is one of the new generation all the same.
            later = peer.call("lookup", **ask(n=8192))
            assert later["generation"] == answer["generation"] > other["generation"]
            assert {**later, "generation": 0} == {**other, "generation": 0}


IDS = [0, 1, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1]


def test_a_question_gets_the_same_answer_whatever_its_id_and_however_it_comes(daemon):
    daemon.tune()
    params = msgpack.packb(ask())
    with daemon.peer() as peer:
        wanted = peer.call("lookup", **ask())
        for number in IDS:
            whole = b"\x94\x00" + msgpack.packb(number) + msgpack.packb("lookup") + params
            longer = b"\x94\x00\xcf" + number.to_bytes(8, "big") + msgpack.packb("lookup") + params
            for data in whole, longer:
                peer.send(data)
                assert peer.message() == [1, number, None, wanted]
            # Several at once, and one behind them that is cut.
            peer.send(3 * whole + whole[:-1])
            for _ in range(3):
                assert peer.message() == [1, number, None, wanted]
            peer.send(whole[-1:] + whole)
            for _ in range(2):
                assert peer.message() == [1, number, None, wanted]


def test_bytes_that_a_known_question_begins_with_are_no_question(daemon):
    daemon.tune()
    whole = msgpack.packb([0, 7, "lookup", ask()])
    with daemon.peer() as peer:
        wanted = peer.call("lookup", **ask())
        for cut in range(1, len(whole)):
            peer.send(whole[:cut])
            peer.send(whole[cut:])
            assert peer.message() == [1, 7, None, wanted]


def test_a_known_question_before_hello_is_refused(daemon):
    daemon.tune()
    with daemon.peer() as peer:
        peer.call("lookup", **ask())
    with daemon.peer(hello=False) as peer:
        with pytest.raises(RpcError, match="hello"):
            peer.call("lookup", **ask())


def test_a_neighbour_that_is_tuned_changes_a_kept_default(daemon):
    with daemon.peer() as peer:
        for _ in range(3):
            assert peer.call("lookup", **ask(m=64))["source"] == "default"
        daemon.tune(m=96)
        for _ in range(3):
            answer = peer.call("lookup", **ask(m=64))
            assert (answer["source"], answer["tuned_scale"]) == ("nearest", 96)
        daemon.ctl("forget", *shape(m=96))
        assert peer.call("lookup", **ask(m=64))["source"] == "default"


def test_kept_answers_count_as_lookups_and_as_misses(daemon):
    daemon.tune(n=8192)  # the device is known then
    with daemon.peer() as peer:
        for _ in range(10):
            peer.call("lookup", **ask())
        peer.call("lookup", **ask(repeats=5))
        peer.call("lookup_many", lookups=[ask()] * 4)
        miss = peer.call("misses")["misses"][0]
        assert (miss["problem"]["m"], miss["count"]) == (64, 20)
        assert peer.call("status")["lookups"]["default"] == 15


def test_many_are_answered_in_order_each_with_its_own_fault(daemon):
    daemon.tune()
    with daemon.peer() as peer:
        wanted = [ask(), ask(m=0), ask(m=65), {"kernel": "softmax", "problem": {}}, 7, ask(surprise=1), ask()]
        answers = peer.call("lookup_many", lookups=wanted)["answers"]
        single = peer.call("lookup", **ask())
        assert answers[0] == answers[6] == answers[5] == single
        assert answers[2]["source"] == "nearest" and answers[2]["problem"]["m"] == 65
        assert answers[1]["error"]["field"] == "m"
        assert answers[3]["error"]["code"] == "unknown_kernel"
        assert answers[4]["error"]["code"] == "bad_request"


@pytest.mark.parametrize("lookups", [[], [ask()] * 1025, {"a": 1}, None], ids=["none", "too many", "a map", "nil"])
def test_the_number_of_lookups_is_bounded(daemon, lookups):
    with daemon.peer() as peer:
        with pytest.raises(RpcError) as caught:
            peer.call("lookup_many", lookups=lookups)
        assert caught.value.error["field"] == "lookups"
        assert len(peer.call("lookup_many", lookups=[ask(m=m) for m in range(1, 1025)])["answers"]) == 1024


def test_a_flood_is_answered_whole_and_in_order(daemon):
    """Answers that are owed stop the reading, not the client."""
    count = 5000
    with daemon.peer() as peer:
        requests = b"".join(msgpack.packb([0, i, "lookup", ask(m=1 + i % 50)]) for i in range(1000, 1000 + count))
        peer.socket.setblocking(False)
        sent, got = 0, 0
        while got < count:
            try:
                sent += peer.socket.send(requests[sent:sent + 65536]) if sent < len(requests) else 0
            except BlockingIOError:
                pass
            try:
                peer.unpacker.feed(peer.socket.recv(65536))
            except BlockingIOError:
                continue
            for kind, number, error, answer in peer.unpacker:
                assert (kind, number, error, answer["problem"]["m"]) == (1, 1000 + got, None, 1 + (1000 + got) % 50)
                got += 1


def test_the_board_travels_with_the_first_hello_only(daemon):
    with daemon.peer(hello=False) as peer:
        for number in (1, 2):
            peer.send(msgpack.packb([0, number, "hello", {"min": 2, "max": 2, "board": True}]))
            data, descriptors, _, _ = harness.socket.recv_fds(peer.socket, 4096, 4)
            reply = msgpack.unpackb(data)[3]
            assert (len(descriptors), reply.get("descriptors", 0)) == ((1, 1) if number == 1 else (0, 0))
            for descriptor in descriptors:
                harness.os.close(descriptor)


# ---- flytunectl lookup with lists

def test_a_list_is_looked_up_as_one_by_one(daemon):
    daemon.tune(m=64)
    answers = daemon.ctl("lookup", *shape(m="64,100,1", n="4096,8192")).json
    assert [(answer["problem"]["m"], answer["problem"]["n"]) for answer in answers] == [
        (64, 4096), (64, 8192), (100, 4096), (100, 8192), (1, 4096), (1, 8192)]
    assert [answer["source"] for answer in answers] == ["tuned", "default", "nearest", "default", "default", "default"]
    for answer in answers:
        assert answer == daemon.lookup(m=answer["problem"]["m"], n=answer["problem"]["n"])
    assert isinstance(daemon.ctl("lookup", *shape(m="64")).json, dict), "one problem is one object"


def test_a_list_is_shown_in_columns(daemon):
    daemon.tune(m=64)
    lines = daemon.ctl("lookup", *shape(m="64,100,100000"), as_json=False).output.splitlines()
    assert len(lines) == 4 and lines[0].split() == ["PROBLEM", "CONFIG", "TIME", "GAIN", "SOURCE", "NOTE"]
    source = lines[0].index("SOURCE")
    assert [line[source:].split()[0] for line in lines[1:]] == ["tuned", "nearest", "default"]
    assert "tuned at m=64" in lines[2] and "no result yet" in lines[3]


def test_a_list_with_a_problem_that_is_refused_is_refused_whole(daemon):
    before = daemon.status()["lookups"]
    done = daemon.ctl("lookup", *shape(m="64,0"), check=False)
    assert done.status == 2 and done.json["error"]["field"] == "m"
    done = daemon.ctl("lookup", *shape(m="64,65"), "--device", "cpu:9", check=False)
    assert done.status == 2 and done.json["error"]["code"] == "unknown_device"
    done = daemon.ctl("lookup", *shape(m=",".join(map(str, range(1, 258)))), check=False, as_json=False)
    assert done.status == 2 and "256" in done.complaint
    assert daemon.status()["lookups"] == before


def test_a_list_of_a_generation_is_of_that_moment_or_fails(daemon):
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready" and daemon.status()["generation"] > 1,
                  "the device is known")
    token = daemon.ctl("lookup", *shape()).json["token"]
    daemon.tune(m=64)
    now = daemon.ctl("lookup", *shape(m="64,65")).json
    then = daemon.ctl("--generation", token, "lookup", *shape(m="64,65")).json
    assert [answer["source"] for answer in now] == ["tuned", "nearest"]
    assert [(answer["source"], answer["token"]) for answer in then] == [("default", token)] * 2
    done = daemon.ctl("--generation", token + "0", "lookup", *shape(m="64,65"), check=False)
    assert done.status == 1 and done.json["error"]["code"] == "generation_unavailable"


def test_a_list_without_a_daemon_is_of_defaults(tmp_path):
    done = harness.ctl(tmp_path / "none", "lookup", *shape(m="64,65,66"), check=False)
    assert done.status == 3 and "not running" in done.complaint
    assert [(answer["source"], answer["daemon_away"]) for answer in done.json] == [("default", True)] * 3
