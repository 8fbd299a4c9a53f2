"""Restarts under load: whoever was heard is answered, and whoever was not asks the next daemon; no call is lost."""
import os
import signal
import socket
import subprocess
import sys
import threading

import msgpack
import pytest

import harness
from harness import problem, shape

CLIENTS = 8
RESTARTS = 3 if harness.INSTRUMENTED else 10


class Busy:
    """Processes that use the library without rest."""

    def __init__(self, path):
        self.processes = [subprocess.Popen(
            [str(harness.program("busy")), str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "FLYTUNE_SOCKET": str(path)}) for number in range(CLIENTS)]
        self.said = [[] for _ in self.processes]
        self.threads = [threading.Thread(target=self.read, args=(at,)) for at in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def read(self, at):
        for line in self.processes[at].stdout:
            self.said[at].append(line.strip())

    def go_on(self, tens):
        """Until each has made so many more calls, ten at a time."""
        goals = [len(said) + tens for said in self.said]
        harness.until(lambda: all(len(said) >= goal for said, goal in zip(self.said, goals)), "all clients go on")

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process, thread in zip(self.processes, self.threads):
            assert process.wait(harness.DEADLINE) == 0
            thread.join()
        failed = [line for said in self.said for line in said if line.startswith("failed")]
        assert not failed, failed
        totals = [line.split() for said in self.said for line in said if line.startswith("done")]
        assert len(totals) == CLIENTS
        return sum(int(calls) for _, calls, _ in totals), sum(int(away) for _, _, away in totals)


@pytest.fixture
def handed_over(daemons, runner):
    """A daemon whose socket is the test's, as it is the service manager's."""
    daemon = daemons(runner)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(daemon.path))
        listener.listen(1024)
        number = listener.fileno()
        daemon.pass_fds = (number,)
        daemon.prefix = ["bash", "-c", f'exec 3<&{number} && LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "bash"]
        yield daemon


def test_eight_busy_clients_lose_no_call_to_restarts_behind_a_socket_of_the_managers(handed_over):
    handed_over.start()
    busy = Busy(handed_over.path)
    for _ in range(RESTARTS):
        busy.go_on(3)
        handed_over.restart()
    busy.go_on(3)
    calls, away = busy.end()
    print(f"{calls} calls over {RESTARTS} restarts, {away} lookups answered without the daemon")
    # The next daemon is behind the same socket: nobody even notices.
    assert away == 0
    handed_over.stop()


def test_a_socket_of_the_managers_whose_file_is_gone_is_told_of_at_sighup(handed_over):
    handed_over.start()
    handed_over.process.send_signal(signal.SIGHUP)
    handed_over.heard("configuration reloaded")
    assert "is gone" not in handed_over.log()
    handed_over.path.unlink()
    handed_over.process.send_signal(signal.SIGHUP)
    handed_over.heard("systemctl restart flytuned.socket")
    handed_over.stop()


def test_eight_busy_clients_lose_no_call_to_restarts_of_a_daemon_with_a_socket_of_its_own(daemon):
    busy = Busy(daemon.path)
    for _ in range(RESTARTS):
        busy.go_on(3)
        daemon.restart()
    busy.go_on(3)
    calls, away = busy.end()
    print(f"{calls} calls over {RESTARTS} restarts, {away} lookups answered without the daemon")
    assert away < calls / 2


class Flood:
    """A client that sends far ahead of the answers, and counts what is sent and what comes back. It can read in time, though, all
    that it is owed at the daemon's end: 3 s are granted for that."""
    AHEAD = 300

    def __init__(self, daemon, number, words):
        self.peer = daemon.peer()
        self.number, self.words = number, words
        self.sent, self.answers = [], []
        self.threads = [threading.Thread(target=self.send), threading.Thread(target=self.hear)]
        for thread in self.threads:
            thread.start()

    def send(self):
        try:
            for number in range(10, 10 ** 6):
                while len(self.sent) - len(self.answers) > self.AHEAD and self.threads[1].is_alive():
                    harness.pause()
                self.peer.send(msgpack.packb([0, number, *self.words(number)]))
                self.sent.append(number)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def hear(self):
        while (message := self.peer.message()) is not None:
            self.answers.append(message)

    def end(self):
        for thread in self.threads:
            thread.join(harness.DEADLINE)
            assert not thread.is_alive()
        self.peer.close()


def test_whatever_was_sent_before_the_end_is_answered(daemon):
    """On the wire: the last request that the socket took has its answer, too."""
    config = daemon.lookup()["config"]
    daemon.await_device()
    looks = [Flood(daemon, number, lambda m: ["lookup", {"kernel": "rmsnorm", "problem": problem(m=m)}])
             for number in range(4)]
    pins = [Flood(daemon, number, lambda m: ["pin", {"kernel": "rmsnorm", "problem": problem(m=m), "config": config}])
            for number in range(4)]
    floods = looks + pins
    harness.until(lambda: all(len(flood.answers) > 50 for flood in floods), "all are heard")
    daemon.stop()
    for flood in floods:
        flood.end()
        assert {message[1] for message in flood.answers} == set(flood.sent), "what was taken was not answered"
        assert all(message[2] is None for message in flood.answers)
    # And what was said to be done is done.
    daemon.start()
    assert daemon.lookup(m=max(pins[0].sent))["source"] == "pinned"


def test_those_who_wait_are_told_to_ask_the_next_daemon(daemon, runner):
    gate = runner.gate("round")
    runner.write(f"at round 2 once gate {gate}")
    tune = daemon.ctl_start("tune", *shape())
    gate.arrived()
    with daemon.peer() as peer:
        job = peer.call("jobs")["jobs"][0]["job"]
        waits = [peer.ask("wait", job=job), peer.ask("cancel", job=10 ** 6)]
        with pytest.raises(harness.RpcError) as unknown:
            peer.answer(waits[1])
        assert unknown.value.code == "unknown_job"
        daemon.process.send_signal(15)
        with pytest.raises(harness.RpcError) as refusal:
            peer.answer(waits[0])
        assert refusal.value.code == "stopping" and "go on when it is back" in str(refusal.value)
        assert peer.message() is None
    assert daemon.wait() == 0
    runner.write()
    daemon.start()
    output, complaint = tune.communicate(timeout=harness.DEADLINE)
    assert tune.returncode == 0, complaint
    assert harness.json.loads(output)[0]["source"] == "tuned"


def test_those_who_had_not_been_let_in_are_answered_as_well(daemon):
    """Connected, and their question sent, but not accepted: the daemon stands still until it is told to end."""
    daemon.process.send_signal(19)
    waiting = []
    for _ in range(20):
        peer = harness.Peer(daemon.path, hello=False)
        peer.ask("hello", min=2, max=2)
        peer.ask("lookup", kernel="rmsnorm", problem=problem())
        waiting.append(peer)
    daemon.process.send_signal(15)
    daemon.process.send_signal(18)
    for peer in waiting:
        said = peer.ended()
        assert [message[1] for message in said] == [1, 2] and said[1][3]["source"] == "default"
        peer.close()
    assert daemon.wait() == 0
    assert not daemon.path.exists()


def test_one_who_does_not_read_cannot_hold_up_the_end(daemon):
    with daemon.peer() as peer:
        peer.socket.settimeout(0.2)
        request = msgpack.packb([0, 1, "lookup", {"kernel": "rmsnorm", "problem": problem()}]) * 100
        with pytest.raises(TimeoutError):
            while True:
                peer.send(request)
        assert daemon.stop() == 0


def test_the_end_leaves_a_socket_that_another_put_in_its_place(daemon):
    daemon.path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(daemon.path))
        daemon.stop()
        assert daemon.path.exists()


@pytest.mark.parametrize("command", [["status"], ["tune", *shape()], ["jobs"], ["misses"], ["pause"], ["export", "-"],
                                     ["import", "-"], ["devices"], ["forget", *shape()]], ids=lambda words: words[0])
def test_a_first_call_that_a_daemon_took_and_did_not_greet_is_asked_of_the_next(daemons, runner, tmp_path, command):
    daemon = daemons(runner)
    rows = tmp_path / "rows"
    if command[0] == "import":
        daemon.start()
        daemon.ctl("export", rows)
        daemon.stop()
        command = ["import", rows]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(daemon.path))
        listener.listen(8)
        listener.settimeout(harness.DEADLINE)
        call = daemon.ctl_start(*command)
        # As a daemon that is told to stop: what it has taken and not heard is closed, and so is the socket.
        taken, _ = listener.accept()
        assert b"hello" in taken.recv(4096)
    daemon.path.unlink()
    taken.close()
    daemon.start()
    output, complaint = call.communicate(timeout=harness.DEADLINE)
    assert call.returncode == 0, f"{output}{complaint}"


# Blocked and ignored before the daemon is executed, as a careless parent leaves it.
CARELESS = """import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1})
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])"""


def signals(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        value = next(int(line.split()[1], 16) for line in status if line.startswith(name))
    return {number for number in range(1, 65) if value >> (number - 1) & 1}


def test_whatever_signals_were_blocked_or_ignored_it_tunes_and_ends(daemons):
    daemon = daemons(prefix=[sys.executable, "-c", CARELESS]).start()
    assert not signals(daemon.pid, "SigBlk")
    answer, = daemon.tune("--budget", harness.BUDGET, m=16, n=1024)
    assert answer["source"] == "tuned"
    runner, = daemon.runner_pids()
    assert not signals(runner, "SigBlk")
    assert signals(runner, "SigIgn") == {signal.SIGPIPE, signal.SIGXFSZ}
    os.kill(runner, signal.SIGKILL)
    daemon.heard("it was killed (signal 9)")  # its end is heard of, too
    daemon.stop()
