"""The socket's name: one daemon has it, whoever else wants it at the same moment, and however the last one ended."""
import contextlib
import fcntl
import signal
import socket
import subprocess
import threading

import pytest

import harness

RIVALS = 20


def rival(daemon, number):
    """The daemon's command with a state directory of its own, that waits for the end of its input before it begins."""
    command = ["sh", "-c", 'read -r line; exec "$@"', "sh", *daemon.command()]
    command[command.index("--state-dir") + 1] = str(daemon.folder / f"state{number}")
    return command


class Clients:
    """Threads that connect again and again until stopped, and never give up a connection that answered."""

    def __init__(self, path, count):
        self.path = path
        self.stopping = threading.Event()
        self.peers = []
        self.threads = [threading.Thread(target=self.run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stopping.is_set():
            # Nobody serves the name yet.
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                self.peers.append(harness.Peer(self.path))
                if len(self.peers) > 200:
                    return

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def test_of_twenty_daemons_at_once_one_has_the_socket_and_keeps_its_clients(daemons, runner):
    daemon = daemons(runner)
    with socket.socket(socket.AF_UNIX) as left:  # as by a daemon that was killed
        left.bind(str(daemon.path))
    logs = [daemon.folder / f"log{number}" for number in range(RIVALS)]
    rivals = []
    try:
        for number, path in enumerate(logs):
            with open(path, "wb") as log:
                rivals.append(subprocess.Popen(rival(daemon, number), stdin=subprocess.PIPE, stdout=log, stderr=log))
        clients = Clients(daemon.path, 4)
        for process in rivals:
            process.stdin.close()
        harness.until(lambda: sum(process.poll() is None for process in rivals) == 1, "all but one have ended")
        winner = next(process for process in rivals if process.poll() is None)
        with harness.Peer(daemon.path) as peer:
            assert peer.call("status")["pid"] == winner.pid
        clients.stop()
        for peer in clients.peers:
            assert peer.call("status")["pid"] == winner.pid, "a client of the winner was lost"
            peer.close()
        for process, path in zip(rivals, logs):
            if process is not winner:
                assert process.returncode == 1
                assert f"socket {daemon.path} is already served by process {winner.pid}" in path.read_text()
        winner.terminate()
        assert winner.wait(harness.DEADLINE) == 0
        assert not list(daemon.short.iterdir()), "the name and its lock are gone"
    finally:
        for process in rivals:
            process.kill()
            process.wait()


def test_what_a_killed_daemon_left_is_taken_over(daemon):
    for _ in range(3):
        daemon.kill()
        assert daemon.path.exists() and daemon.path.with_name("s.lock").exists()
        daemon.start()
        assert daemon.lookup()["source"] == "default"


def test_a_stopped_daemon_keeps_its_socket(daemons, daemon):
    other = daemons("/bin/true")
    other.command = lambda: [*type(other).command(other), "--socket", str(daemon.path)]
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        assert other.spawn().wait(harness.DEADLINE) == 1
        other.process = None
        assert f"is already served by process {daemon.pid}" in other.log()
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert daemon.lookup()["source"] == "default"


def test_two_sockets_of_one_directory_are_two(daemons, daemon, runner):
    other = daemons(runner)
    other.path = daemon.short / "other"
    other.start()
    assert other.lookup()["source"] == "default" and daemon.lookup()["source"] == "default"
    other.stop()
    assert daemon.lookup()["source"] == "default"
    assert sorted(path.name for path in daemon.short.iterdir() if "notify" not in path.name) == ["s", "s.lock"]


def test_a_lock_that_another_holds_is_respected(daemons):
    daemon = daemons("/bin/true")
    with open(daemon.path.with_name("s.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert daemon.spawn().wait(harness.DEADLINE) == 1
        daemon.process = None
    assert "is already served by another process" in daemon.log()


def test_a_link_in_the_locks_place_is_not_followed(daemons):
    daemon = daemons("/bin/true")
    victim = daemon.folder / "victim"
    victim.write_text("precious")
    daemon.path.with_name("s.lock").symlink_to(victim)
    assert daemon.spawn().wait(harness.DEADLINE) == 1
    daemon.process = None
    assert f"{daemon.path}.lock" in daemon.log()
    assert victim.read_text() == "precious"


def test_a_directory_that_cannot_be_written_serves_a_socket_that_is_handed_over(owned):
    owned.short.chmod(0o755)  # root's, as /run/flytuned is: the daemon makes nothing in it
    assert owned.spawn().wait(harness.DEADLINE) == 1
    owned.process = None
    assert f"cannot make {owned.path}.lock" in owned.log() and "Permission denied" in owned.log()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(owned.path))
        listener.listen(64)
        number = listener.fileno()
        owned.pass_fds = (number,)
        owned.prefix += ["bash", "-c", f'exec 3<&{number} && LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "bash"]
        for _ in range(2):
            owned.start()
            assert owned.lookup()["source"] == "default"
            owned.stop()
        assert owned.path.exists() and not owned.path.with_name("s.lock").exists()


# ---- odd places ----

@pytest.mark.parametrize("name", ["with a space", "ümläut €", "it's \"quoted\"; $(false)", "%s%n", "new\nline"], ids=range(5))
def test_a_socket_and_a_state_directory_of_any_name(daemons, runner, name):
    daemon = daemons(runner)
    daemon.path = daemon.short / name
    daemon.state = daemon.folder / name
    daemon.start()
    assert daemon.lookup()["source"] == "default"
    assert daemon.status()["state_dir"] == str(daemon.state).replace("\n", "?")
    daemon.restart()
    assert daemon.tune()[0]["source"] == "tuned"


def test_the_longest_name_that_a_socket_can_have(daemons, runner):
    daemon = daemons(runner)
    daemon.path = daemon.short / ("x" * (107 - len(str(daemon.short)) - 1))
    assert len(str(daemon.path)) == 107
    daemon.start()
    assert daemon.lookup()["source"] == "default"
    daemon.stop()
    assert not daemon.path.exists() and not daemon.path.with_name(daemon.path.name + ".lock").exists()


def test_a_link_to_the_directory_is_the_directory_and_a_link_in_the_sockets_place_is_left(daemons, runner, tmp_path):
    daemon = daemons(runner)
    link = daemon.folder / "link"
    link.symlink_to(daemon.short)
    daemon.path = daemon.short / "link"
    daemon.path.symlink_to(tmp_path / "nowhere")
    assert daemon.spawn().wait(harness.DEADLINE) == 1
    daemon.process = None
    assert "is no socket: it is left as it is" in daemon.log() and daemon.path.is_symlink()
    daemon.path = link / "s"
    if len(str(daemon.path)) <= 107:
        daemon.start()
        assert (daemon.short / "s").is_socket() and daemon.lookup()["source"] == "default"


@pytest.mark.parametrize("mask", ["0000", "0777"])
def test_whatever_the_mask_the_files_are_the_daemons_alone(daemons, runner, mask):
    daemon = daemons(runner, prefix=["sh", "-c", f'umask {mask}; exec "$@"', "sh"]).start()
    daemon.tune()
    assert daemon.path.stat().st_mode & 0o777 == 0o660
    assert daemon.path.with_name("s.lock").stat().st_mode & 0o777 == 0o600
    for path in daemon.state.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_an_environment_full_of_nonsense_is_survived(daemons, runner):
    daemon = daemons(runner, env={
        "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "LISTEN_FDS": "99999999999999999999", "LISTEN_PID": "1",
        "LISTEN_FDNAMES": ":" * 5000, "JOURNAL_STREAM": "", "TZ": ":/etc/passwd", "LC_ALL": "xx_XX.UTF-8", "HOME": "/nowhere",
        "TMPDIR": "/nowhere", "PATH": "", "FLYTUNE_SOCKET": "x" * 5000, "FLYTUNE_GENERATION": "%s%n", "UV_THREADPOOL_SIZE": "-1"})
    daemon.start()
    assert daemon.tune()[0]["source"] == "tuned"
    for name, value in (("FLYTUNE_GENERATION", "%s%n" * 500), ("FLYTUNE_AUTOTUNE", "2")):
        done = daemon.ctl("lookup", *harness.shape(), as_json=False, check=False, env={name: value})
        assert done.status == 2 and done.complaint.startswith("flytunectl: ")
    assert daemon.ctl("status", as_json=False, env={"COLUMNS": "-1", "TERM": "", "LC_ALL": "xx"}).output
