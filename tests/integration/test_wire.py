"""The wire: whatever one peer sends, it gets an error or a disconnect, and nobody else notices."""
import contextlib
import os
import random
import socket
import struct
import threading

import msgpack
import pytest

import harness
from harness import Peer, problem

CORPUS = sorted(path for folder in (harness.TOP / "tests" / "fuzz").glob("corpus*") for path in folder.rglob("*")
                if path.is_file())

MALFORMED = {
    "never used byte": b"\xc1",
    "not an array": msgpack.packb({"hello": 1}),
    "empty array": msgpack.packb([]),
    "type 3": msgpack.packb([3, 1, "hello", {}]),
    "two elements": msgpack.packb([0, 1]),
    "five elements": msgpack.packb([0, 1, "hello", {}, 1]),
    "negative id": msgpack.packb([0, -1, "hello", {}]),
    "id of 64 bits": msgpack.packb([0, 1 << 40, "hello", {}]),
    "method of bytes": msgpack.packb([0, 1, b"hello", {}]),
    "params an array": msgpack.packb([0, 1, "hello", []]),
    "an array of 4 G": b"\xdd\xff\xff\xff\xff",
    "an array that asks for 128 GiB": b"\xdd\xff\x00\x00\x00",
    "a map of 4 G": b"\x94\x00\x01\xa5hello\xdf\xff\xff\xff\xff",
    "a text of 4 G": b"\x94\x00\x01\xdb\xff\xff\xff\xff",
    "nested deep": b"\x91" * 1000 + b"\xc0",
    "nested in params": b"\x94\x00\x01\xa5hello" + b"\x81\xa1a" * 40 + b"\xc0",
    "an extension": b"\x94\x00\x01\xa5hello\x81\xa1a\xc7\x01\x05\x00",
    "too many values": msgpack.packb([0, 1, "hello", {"a": [None] * 100000}]),
    "too many bytes": msgpack.packb([0, 1, "hello", {"a": "x" * (2 << 20)}]),
    "a response to nothing": msgpack.packb([1, 1, None, {}]),
    "a reply of rubbish": bytes(random.Random(1).randbytes(4096)),
}

BAD_REQUESTS = {
    "hello without a version": ("hello", {}),
    "hello of no common version": ("hello", {"min": 90, "max": 99}),
    "unknown method": ("transmogrify", {}),
    "lookup without a kernel": ("lookup", {"problem": {"m": 1}}),
    "lookup with a kernel of the wrong type": ("lookup", {"kernel": 5, "problem": {}}),
    "problem that is no map": ("lookup", {"kernel": "rmsnorm", "problem": [1]}),
    "problem with a nested map": ("lookup", {"kernel": "rmsnorm", "problem": {"m": {"x": 1}}}),
    "problem with a bad name": ("lookup", {"kernel": "rmsnorm", "problem": {"m n": 1}}),
    "problem with a real": ("lookup", {"kernel": "rmsnorm", "problem": {"m": 1.5, "n": 1, "dtype": "f32"}}),
    "problem with NaN": ("lookup", {"kernel": "rmsnorm", "problem": {"m": float("nan"), "n": 1, "dtype": "f32"}}),
    "m beyond 63 bits": ("lookup", {"kernel": "rmsnorm", "problem": {"m": 1 << 63, "n": 1, "dtype": "f32"}}),
    "kernel with a NUL": ("lookup", {"kernel": "rms\0norm", "problem": {"m": 1}}),
    "kernel name too long": ("lookup", {"kernel": "r" * 300, "problem": {"m": 1}}),
    "many fields": ("lookup", {"kernel": "rmsnorm", "problem": {f"f{i}": i for i in range(40)}}),
    "generation that is no token": ("lookup", {"kernel": "rmsnorm", "problem": problem(), "generation": "x" * 200}),
    "wait for an unknown job": ("wait", {"job": 1 << 50}),
    "cancel without a job": ("cancel", {}),
}


@pytest.fixture
def witness(daemon):
    """A well-behaved client that must not notice anything."""
    with daemon.peer() as peer:
        yield daemon, peer
        for _ in range(3):
            assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"


def ends_well(peer):
    """The daemon says why and hangs up, or just hangs up; it never goes on with a broken peer."""
    for message in peer.ended():
        assert message[0] in (1, 2), message
        if message[0] == 1:
            assert message[2] is not None, f"a broken message was answered with a result: {message}"


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("greeted", [True, False], ids=["greeted", "ungreeted"])
def test_broken_framing_is_told_why_and_disconnected(witness, name, greeted):
    daemon, _ = witness
    with daemon.peer(hello=greeted) as peer:
        try:
            peer.send(MALFORMED[name])
            # Nothing more will come: whoever waits for the rest must give up.
            peer.socket.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        ends_well(peer)


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_gets_an_error_and_the_session_goes_on(witness, name):
    daemon, _ = witness
    method, params = BAD_REQUESTS[name]
    with daemon.peer(hello=method != "hello") as peer:
        with pytest.raises((harness.RpcError, EOFError)) as refusal:
            peer.call(method, **params)
        if method != "hello":
            assert isinstance(refusal.value, harness.RpcError)
            assert refusal.value.code and str(refusal.value)
            assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"


def test_a_field_twice_is_refused(witness):
    daemon, _ = witness
    with daemon.peer() as peer:
        peer.send(b"\x94\x00\x07\xa6lookup\x82\xa6kernel\xa7rmsnorm\xa7problem\x84\xa1m\x01\xa1m\x02\xa1n\x01"
                  b"\xa5dtype\xa3f32")
        message = peer.message()
        assert message[:2] == [1, 7] and message[2]["field"] == "m"


def test_unknown_fields_of_a_message_are_ignored(witness):
    daemon, _ = witness
    with daemon.peer() as peer:
        assert peer.call("lookup", kernel="rmsnorm", problem=problem(), mood="sunny")["source"] == "default"


@pytest.mark.parametrize("low,high,old", [(1, 1, "client"), (3, 9, "daemon"), (5, 3, None)])
def test_a_hello_of_another_version_is_told_who_is_too_old(witness, low, high, old):
    daemon, _ = witness
    with daemon.peer(hello=False) as peer:
        with pytest.raises(harness.RpcError) as refusal:
            peer.call("hello", min=low, max=high)
        assert refusal.value.code == "protocol" and f"protocol {low} to {high}" in str(refusal.value)
        assert old is None or f"upgrade the {old}" in str(refusal.value)
        assert peer.message() is None
    with daemon.peer(hello=False) as peer:  # one that speaks more than this daemon does gets what both speak
        assert peer.call("hello", min=1, max=9)["protocol"] == 2


def test_hello_must_come_first(witness):
    daemon, _ = witness
    with daemon.peer(hello=False) as peer:
        with pytest.raises((harness.RpcError, EOFError)):
            peer.call("lookup", kernel="rmsnorm", problem=problem())


@pytest.mark.smoke
def test_one_daemon_survives_all_that_is_malformed(witness):
    daemon, _ = witness
    for data in MALFORMED.values():
        for greeted in (True, False):
            with daemon.peer(hello=greeted) as peer:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    peer.send(data)
                    peer.socket.shutdown(socket.SHUT_WR)
                ends_well(peer)
    with daemon.peer() as peer:
        for method, params in BAD_REQUESTS.values():
            if method != "hello":
                with pytest.raises(harness.RpcError):
                    peer.call(method, **params)


@pytest.mark.smoke
def test_byte_by_byte_is_as_good_as_whole(witness):
    daemon, _ = witness
    with daemon.peer(hello=False) as peer:
        for number, (method, params) in enumerate((("hello", {"min": 2, "max": 2}),
                                                   ("lookup", {"kernel": "rmsnorm", "problem": problem()}))):
            for byte in msgpack.packb([0, number, method, params]):
                peer.send(bytes([byte]))
            message = peer.message()
            assert message[:3] == [1, number, None]


def test_many_requests_in_one_write_are_answered_in_order(witness):
    daemon, _ = witness
    with daemon.peer() as peer:
        asked = list(range(100, 600))
        peer.send(b"".join(msgpack.packb([0, number, "lookup", {"kernel": "rmsnorm", "problem": problem(m=number)}])
                           for number in asked))
        assert [peer.message()[1] for _ in asked] == asked


def test_half_a_message_holds_up_nobody(witness):
    daemon, _ = witness
    whole = msgpack.packb([0, 1, "lookup", {"kernel": "rmsnorm", "problem": problem()}])
    peers = [daemon.peer() for _ in range(50)]
    for size, peer in enumerate(peers, 1):
        peer.send(whole[:size % len(whole)])
    with daemon.peer() as other:
        assert other.call("lookup", kernel="rmsnorm", problem=problem())
    for peer in peers:
        peer.close()


def test_one_who_does_not_read_is_bounded(witness):
    daemon, _ = witness
    with daemon.peer() as peer:
        before = harness.memory_kb(daemon.pid)
        request = msgpack.packb([0, 1, "lookup", {"kernel": "rmsnorm", "problem": problem()}]) * 500
        peer.socket.setblocking(False)
        sent = 0
        # Until the daemon no longer reads, or hangs up: both are bounds.
        stuck = 0
        while stuck < 50 and sent < 64 << 20:
            try:
                sent += peer.socket.send(request)
                stuck = 0
            except BlockingIOError:
                stuck += 1
                harness.select.select([], [peer.socket], [], 0.02)
            except (BrokenPipeError, ConnectionResetError):
                break
        assert sent < 64 << 20, "it was read for ever"
        assert harness.INSTRUMENTED or harness.memory_kb(daemon.pid) - before < 16 << 10


def test_abrupt_ends_leave_nothing_behind(witness):
    daemon, peer = witness
    descriptors = lambda: len(os.listdir(f"/proc/{daemon.pid}/fd"))
    before = descriptors()
    for number in range(200):
        other = Peer(daemon.path, hello=number % 2 == 0)
        if number % 3 == 0:
            other.ask("lookup", kernel="rmsnorm", problem=problem())
        if number % 5 == 0:
            other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
    harness.until(lambda: descriptors() <= before + 1, "the sessions are closed")


def test_a_thousand_connections_are_served(witness):
    import resource
    daemon, _ = witness
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("no 1,200 descriptors allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))
    try:
        peers = [daemon.peer() for _ in range(1000)]
        for peer in peers[::50]:
            assert peer.call("lookup", kernel="rmsnorm", problem=problem())
        for peer in peers:
            peer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_too_many_is_told_so(daemons, runner):
    daemon = daemons(runner, arguments=["--max-clients", "5"]).start()
    peers = [daemon.peer() for _ in range(5)]
    with daemon.peer(hello=False) as extra:
        with contextlib.suppress(BrokenPipeError):  # it is told without having asked
            extra.ask("hello", min=2, max=2)
        said = extra.ended()
        assert said and "busy" in str(said)
    peers.pop().close()

    def again():
        try:
            with daemon.peer() as peer:
                return peer.call("lookup", kernel="rmsnorm", problem=problem())
        except (EOFError, harness.RpcError, BrokenPipeError, ConnectionResetError):
            return None
    harness.until(again, "a place is free again")
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("mode", ["whole", "bytes"])
def test_every_message_of_the_fuzz_corpus_is_survived(witness, mode):
    daemon, _ = witness
    if not CORPUS:
        pytest.skip("there is no corpus")
    for path in CORPUS:
        data = path.read_bytes()
        for greeted in (True, False):
            with daemon.peer(hello=greeted) as peer:
                try:
                    if mode == "whole":
                        peer.send(data)
                    else:
                        for byte in data[:512]:
                            peer.send(bytes([byte]))
                    peer.socket.shutdown(socket.SHUT_WR)
                    while peer.socket.recv(65536):
                        pass
                except (BrokenPipeError, ConnectionResetError, OSError):
                    pass
    assert daemon.process.poll() is None


def test_random_damage_to_good_messages_is_survived(witness):
    daemon, _ = witness
    chance = random.Random(7)
    good = [msgpack.packb([0, 1, "lookup", {"kernel": "rmsnorm", "problem": problem()}]),
            msgpack.packb([0, 2, "jobs", {}]), msgpack.packb([0, 3, "status", {}]),
            msgpack.packb([0, 4, "trials", {"kernel": "rmsnorm", "problem": problem()}])]
    for _ in range(400):
        data = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with daemon.peer() as peer:
            peer.send(bytes(data))
            peer.socket.shutdown(socket.SHUT_WR)
            try:
                while peer.socket.recv(65536):
                    pass
            except ConnectionResetError:
                pass


def test_floods_from_eight_clients_leave_the_ninth_served(witness):
    daemon, _ = witness
    enough = threading.Event()

    def flood(number):
        with daemon.peer() as peer:
            request = msgpack.packb([0, 1, "lookup", {"kernel": "rmsnorm", "problem": problem(m=number + 1)}]) * 50
            while not enough.is_set():
                peer.send(request)
                for _ in range(50):
                    peer.message()

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        with daemon.peer() as peer:
            for _ in range(200):
                peer.call("lookup", kernel="rmsnorm", problem=problem())
    finally:
        enough.set()
        for thread in threads:
            thread.join()
