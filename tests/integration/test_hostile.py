"""Peers, operators and machines that do what nobody should: the daemon answers, refuses, or goes on."""
import contextlib
import os
import socket
import threading

import msgpack
import pytest

import harness
from harness import problem


def packed(number, method, **params):
    return msgpack.packb([0, number, method, params])


def lookup(number, m=64):
    return packed(number, "lookup", kernel="rmsnorm", problem=problem(m=m))


@contextlib.contextmanager
def sending(peer, data, shut=False):
    """Sends more than the sockets hold, while the body reads."""
    def run():
        peer.send(data)
        if shut:
            peer.socket.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


# ---- connections ----

def test_who_asks_and_closes_the_sending_half_gets_every_answer(daemon):
    with daemon.peer() as peer:
        asks = [lookup(number) for number in range(10, 4000)]
        asks += [packed(4000, "tune", kernel="rmsnorm", problem=problem()), packed(4001, "status")]
        with sending(peer, b"".join(asks), shut=True):
            said = peer.ended()
    assert [message[1] for message in said[:3990]] == list(range(10, 4000))
    assert {message[1] for message in said[3990:]} == {4000, 4001}
    assert all(message[2] is None for message in said)


def test_a_half_closed_wait_is_answered_at_the_end_of_its_job(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem())["job"]
        gate.arrived()
        peer.send(packed(7, "wait", job=job))
        peer.socket.shutdown(socket.SHUT_WR)
        gate.release()
        said = peer.ended()
    assert [message[1] for message in said] == [7] and said[0][3]["state"] == "done"


def test_a_half_closed_client_that_goes_away_is_noticed(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem())["job"]
        gate.arrived()
        sessions = peer.call("status")["sessions"]
        for ask in (packed(7, "wait", job=job), packed(7, "watch")):
            other = daemon.peer()
            other.send(ask)
            other.socket.shutdown(socket.SHUT_WR)
            harness.until(lambda: peer.call("status")["sessions"] == sessions + 1, "it is served")
            other.close()
            harness.until(lambda: peer.call("status")["sessions"] == sessions, "its end is seen")
        gate.release()


def test_waits_without_number_are_refused_and_hold_up_nobody(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 1 once gate {gate}")
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem())["job"]
        gate.arrived()
        greedy = [daemon.peer() for _ in range(4)]
        for other in greedy:
            with sending(other, b"".join(packed(number, "wait", job=job) for number in range(1000, 11000))):
                refused = [other.message() for _ in range(10000 - 4096)]
            assert {message[2]["code"] for message in refused} == {"busy"}
            assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
        for other in greedy[1:]:
            other.close()
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
        # Of one connection they are one.
        assert peer.call("jobs", job=job)["jobs"][0]["waiters"] <= 4
        gate.release()
        assert {greedy[0].message()[3]["state"] for _ in range(4096)} == {"done"}
        greedy[0].close()


# ---- a full disk ----

def test_jobs_that_a_full_disk_refuses_are_answered_to_all_who_joined_or_cancelled(small_disk):
    daemon, fill, free = small_disk
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem(m=3))["job"]
        assert peer.call("wait", job=job)["state"] == "done"
        peer.call("pause")  # so that jobs alone fill what the store still has inside
        fill()
        refused = 0
        for m in range(10, 3000):
            asks = 24
            first = peer.next
            peer.next += asks
            # Joined and cancelled in the same write, by who guessed the job's number.
            peer.send(b"".join(
                packed(first + i, "tune", kernel="rmsnorm", problem=problem(m=m)) if i < 16
                else packed(first + i, "cancel", job=job + m - 10 + i - 18) for i in range(asks)))
            said = [peer.message() for _ in range(asks)]
            assert {message[1] for message in said} == set(range(first, first + asks))
            refused += any(message[2] is not None and message[2]["code"] == "store" for message in said)
            if refused > 20:
                break
        assert refused > 20, "the disk never got full for the daemon"
        assert peer.call("lookup", kernel="rmsnorm", problem=problem(m=3))["source"] == "tuned"
        free()

        def again():
            with contextlib.suppress(harness.RpcError):
                return peer.call("tune", kernel="rmsnorm", problem=problem(m=7))
        told = harness.until(again, "the daemon takes jobs again")
        assert told["job"]
    daemon.stop()


# ---- the start ----

@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
def test_a_start_without_standard_descriptors_writes_no_log_into_the_store(daemons, runner, closed):
    daemon = daemons(runner, prefix=["sh", "-c", f'exec "$@" {closed}', "sh"]).start()
    assert os.readlink(f"/proc/{daemon.pid}/fd/2") == "/dev/null"
    daemon.tune()
    daemon.kill()
    daemon.prefix = []
    daemon.start()
    assert daemon.lookup()["source"] == "tuned"
    assert "damage" not in daemon.log()
