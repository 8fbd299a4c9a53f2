"""What flytuned and a service manager tell each other: readiness, status, watchdog, end, and the socket that is handed over."""
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import time

import pytest

import harness


class Manager:
    """The socket of a service manager."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(address)
        self.socket.settimeout(harness.DEADLINE)
        self.said = []

    def message(self):
        """The next message as a dict, and when it came."""
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(12))
        assert not [one for one in ancillary if one[1] == socket.SCM_RIGHTS]
        lines = dict(line.split("=", 1) for line in data.decode().splitlines())
        self.said.append(lines)
        return lines, time.monotonic()

    def until(self, name):
        while True:
            lines, when = self.message()
            if name in lines:
                return lines, when

    def rest(self):
        """All that came and was not read yet."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.message()
        self.socket.settimeout(harness.DEADLINE)
        return self.said


@pytest.fixture
def manager(tmp_path):
    path = str(tmp_path / "notify")
    if len(path) > 100:
        path = f"/tmp/flytune-notify-{os.getpid()}"
    made = Manager(path)
    yield made
    made.socket.close()
    os.unlink(path)


def start(daemon, manager, **env):
    """Starts it under this manager and waits until it says that it is ready."""
    daemon.env.update(env)
    daemon.spawn(manager.socket.getsockname())
    return manager.until("READY")


def test_ready_is_said_once_clients_are_served(daemons, manager):
    daemon = daemons()
    lines, _ = start(daemon, manager)
    assert lines["READY"] == "1" and lines["STATUS"]
    with daemon.peer() as peer:
        assert peer.hello
    assert not [said for said in manager.said if "WATCHDOG" in said]


def test_the_watchdog_is_fed_twice_as_often_as_it_bites(daemons, manager):
    limit = 0.4 * harness.PATIENCE
    daemon = daemons()
    _, began = start(daemon, manager, WATCHDOG_USEC=str(int(limit * 1e6)))
    for _ in range(6):
        lines, now = manager.until("WATCHDOG")
        assert lines["WATCHDOG"] == "1"
    # Together, for a busy machine may bring the news of one late.
    assert now - began < 6 * limit


def test_a_stuck_loop_does_not_feed_the_watchdog(daemons, manager):
    daemon = daemons()
    start(daemon, manager, WATCHDOG_USEC="40000")
    manager.until("WATCHDOG")
    os.kill(daemon.pid, signal.SIGSTOP)
    harness.until(lambda: open(f"/proc/{daemon.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T", "it is stopped")
    manager.rest()
    assert not select.select([manager.socket], [], [], 0.2)[0]
    os.kill(daemon.pid, signal.SIGCONT)
    manager.until("WATCHDOG")


def test_the_watchdog_of_another_process_is_left_alone(daemons, manager):
    daemon = daemons()
    start(daemon, manager, WATCHDOG_USEC="2000", WATCHDOG_PID="1")
    for _ in range(20):
        daemon.lookup()
    assert not [said for said in manager.rest() if "WATCHDOG" in said]


def test_the_end_is_announced_before_it_comes(daemons, manager):
    daemon = daemons()
    start(daemon, manager)
    daemon.process.send_signal(signal.SIGTERM)
    assert manager.until("STOPPING")[0]["STOPPING"] == "1"
    assert daemon.wait() == 0


def test_an_abstract_socket_is_understood(daemons):
    name = f"flytune-packaging-{os.getpid()}"
    manager = Manager(f"\0{name}")
    daemon = daemons()
    daemon.spawn(f"@{name}")
    assert manager.until("READY")
    manager.socket.close()


def test_a_manager_that_went_away_does_not_stop_the_daemon(daemons, manager):
    daemon = daemons()
    start(daemon, manager, WATCHDOG_USEC="2000")
    manager.socket.close()
    for _ in range(20):
        daemon.lookup()
    assert daemon.stop() == 0


def test_a_senseless_notify_socket_is_refused(daemons):
    daemon = daemons()
    daemon.spawn("no/absolute/path")
    assert daemon.wait() != 0
    assert "NOTIFY_SOCKET" in daemon.log()


def test_a_runner_inherits_neither_the_managers_socket_nor_the_clients(daemons, manager):
    daemon = daemons()
    start(daemon, manager, WATCHDOG_USEC="60000000")
    daemon.ctl("tune", *harness.shape(m=1, n=256), "--no-wait")
    runner = harness.until(daemon.runner_pids, "a runner starts")[0]
    harness.until(lambda: "runner" in os.readlink(f"/proc/{runner}/exe"), "the runner is executed")
    with open(f"/proc/{runner}/environ", encoding="utf-8", errors="replace") as environment:
        names = {entry.split("=")[0] for entry in environment.read().split("\0")}
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}


# ---- socket activation

@pytest.fixture
def activated(daemons):
    """A daemon that systemd-socket-activate starts with the first client."""
    if shutil.which("systemd-socket-activate") is None:
        pytest.skip("needs systemd-socket-activate")
    daemon = daemons()
    daemon.prefix = ["systemd-socket-activate", f"--listen={daemon.path}"]
    for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        if name in os.environ:
            daemon.prefix.append(f"--setenv={name}")
    daemon.spawn()
    harness.until(lambda: "Listening on" in daemon.log(), "the socket is there")
    return daemon


def test_the_first_client_starts_the_daemon_and_is_answered(activated):
    assert activated.status()["pid"] == activated.pid  # it has become the daemon
    assert activated.lookup()["config"]


def test_clients_that_come_before_the_daemon_wait_for_it(activated):
    clients = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(20)]
    for client in clients:
        client.connect(str(activated.path))
    with activated.peer() as peer:
        assert peer.call("status")
    for client in clients:
        client.close()


def test_the_managers_socket_stays_where_it_is_at_the_end(activated):
    activated.status()
    before = os.stat(activated.path)
    assert activated.stop() == 0
    after = os.stat(activated.path)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


@contextlib.contextmanager
def handed_over(*sockets, pid="$$"):
    """What to put before a command to give it these sockets as descriptors 3 and on, as a service manager does; and the
    descriptors that it needs."""
    kept = [os.dup(one.fileno()) for one in sockets]
    try:
        # A shell puts them where they belong: its redirections can name any descriptor.
        places = " ".join(f"{3 + number}<&{one}" for number, one in enumerate(kept))
        yield ["env", f"LISTEN_FDS={len(sockets)}", "bash", "-c", f'export LISTEN_PID={pid}; exec "$@" {places}', "bash"], kept
    finally:
        for one in kept:
            os.close(one)


def run_handed(daemon, *sockets):
    with handed_over(*sockets) as (prefix, kept):
        return subprocess.run([*prefix, *map(str, daemon.command())], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, pass_fds=kept, check=False, timeout=harness.DEADLINE)


def listening(kind=socket.SOCK_STREAM, family=socket.AF_UNIX, listen=True):
    made = socket.socket(family, kind)
    if family == socket.AF_UNIX:
        made.bind(f"\0flytune-{os.getpid()}-{made.fileno()}")
    if listen:
        made.listen()
    return made


@pytest.mark.parametrize("what, make", [
    ("two", lambda: (listening(), listening())),
    ("one that does not listen", lambda: (listening(listen=False),)),
    ("a datagram socket", lambda: (listening(socket.SOCK_DGRAM, listen=False),)),
    ("one of the network", lambda: (listening(family=socket.AF_INET),)),
])
def test_a_socket_that_makes_no_sense_is_refused(daemons, what, make):
    daemon = daemons()
    given = make()
    done = run_handed(daemon, *given)
    for one in given:
        one.close()
    assert done.returncode == 1, what
    assert "LISTEN_FDS" in done.stdout


def test_sockets_for_another_process_are_left_alone(daemons):
    daemon = daemons()
    with listening() as given, handed_over(given, pid="1") as (prefix, kept), open(daemon.log_path, "ab") as log:
        daemon.process = subprocess.Popen([*prefix, *map(str, daemon.command())], pass_fds=kept, stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)
        harness.until(lambda: "ready version" in daemon.log(), "it makes a socket of its own")
        with daemon.peer() as peer:
            assert peer.hello
        daemon.stop()
