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


def test_a_neighbour_that_is_tuned_changes_a_kept_default(daemon):
    with daemon.peer() as peer:
        for _ in range(3):
            assert peer.call("lookup", **ask(m=64))["source"] == "default"
        daemon.tune(m=96)
        for _ in range(3):
            answer = peer.call("lookup", **ask(m=64))
            assert (answer["source"], answer["tuned_m"]) == ("nearest", 96)
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
            peer.send(msgpack.packb([0, number, "hello", {"min": 1, "max": 1, "board": True}]))
            data, descriptors, _, _ = harness.socket.recv_fds(peer.socket, 4096, 4)
            reply = msgpack.unpackb(data)[3]
            assert (len(descriptors), reply.get("descriptors", 0)) == ((1, 1) if number == 1 else (0, 0))
            for descriptor in descriptors:
                harness.os.close(descriptor)
