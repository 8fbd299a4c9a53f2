"""What `watch` shows: on a terminal a line that moves under those that stay, elsewhere lines alone; and how it goes on when
the daemon ends."""
import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import threading

import msgpack
import pytest

import harness
from harness import shape

ESCAPE = "\x1b"


def screen(raw):
    """What a terminal shows in the end: a line taken back is gone."""
    lines = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        shown = line.rsplit(f"\r{ESCAPE}[K", 1)[-1]
        lines.append(shown.replace(f"{ESCAPE}[?7l", "").replace(f"{ESCAPE}[?7h", ""))
    return lines


class Terminal:
    """A command with a terminal for its output."""

    def __init__(self, command, **env):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                        env={**os.environ, "TERM": "xterm", **env})
        os.close(theirs)

    def part(self):
        """What comes next; nothing at the end."""
        if not select.select([self.ours], [], [], harness.DEADLINE)[0]:
            self.process.kill()
            raise harness.Late("nothing more is shown")
        with contextlib.suppress(OSError):  # the other end is closed
            return os.read(self.ours, 65536)
        return b""

    def read_until(self, words):
        raw = b""
        while words not in raw:
            part = self.part()
            assert part, f"it ended after {raw}"
            raw += part
        return raw.decode()

    def read(self, status=0):
        """All of it, until the command has ended."""
        raw = b""
        while part := self.part():
            raw += part
        os.close(self.ours)
        assert self.process.wait(harness.DEADLINE) == status, raw
        return raw.decode()


def job_of(daemon):
    daemon.ctl("pause")
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]
    return job


def watching(daemon):
    """Waits until the watcher of one job has asked what that is: on a connection of its own, and once its watch was taken up."""
    return harness.until(lambda: daemon.status()["sessions"] >= 3, "the watcher is there")


def test_on_a_terminal_the_running_job_has_a_line_that_moves(daemon, runner):
    job = job_of(daemon)
    terminal = Terminal(harness.ctl_command(daemon.path, "watch", job, as_json=False))
    watching(daemon)
    daemon.ctl("resume")
    raw = terminal.read()
    shown = screen(raw)
    print("\n".join(shown))
    assert f"job {job}  [" in raw and " of 40 settled" in raw and ", round 2" in raw and ", build" in raw
    # Of all that moved nothing is left; what stays is a line each.
    assert not any("settled" in line for line in shown)
    assert sum("µs" in line for line in shown) >= 30
    assert f"job {job}  started  rmsnorm m=64 n=4096" in "\n".join(shown)
    assert [line for line in shown if line][-1].startswith(f"job {job}  done")
    assert raw.count(f"{ESCAPE}[?7l") == raw.count(f"{ESCAPE}[?7h"), "the terminal is left as it was"


def test_elsewhere_it_is_lines_alone(daemon):
    for command, env in ((lambda job: Terminal(harness.ctl_command(daemon.path, "watch", job, as_json=False), TERM="dumb"),
                          None), (None, None)):
        job = job_of(daemon)
        if command:
            terminal = command(job)
        else:
            process = daemon.ctl_start("watch", job, as_json=False)
        watching(daemon)
        daemon.ctl("resume")
        raw = terminal.read() if command else process.communicate(timeout=harness.DEADLINE)[0]
        assert ESCAPE not in raw and f"job {job}  round 2" in raw and f"job {job}  done" in raw
        daemon.ctl("forget", *shape())


# ---- over the daemon's end ----

class Watcher:
    """A watch whose lines are waited for."""

    def __init__(self, daemon, *words, as_json=True, path=None):
        self.process = subprocess.Popen(harness.ctl_command(path or daemon.path, "watch", *words, as_json=as_json),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.as_json = as_json
        self.lines = []
        # So that a line that never comes is a failure.
        self.guard = threading.Timer(2 * harness.DEADLINE, self.process.kill)
        self.guard.start()

    def line(self, wanted):
        """The next line for which wanted(line) holds."""
        while True:
            line = self.process.stdout.readline()
            assert line, f"the watch ended after {self.lines}: {self.process.stderr.read()}"
            self.lines.append(json.loads(line) if self.as_json else line.rstrip("\n"))
            if wanted(self.lines[-1]):
                return self.lines[-1]

    def event(self, name, **members):
        return self.line(lambda line: line["event"] == name and
                         all(line.get(member) == value for member, value in members.items()))

    def end(self):
        """Its exit status, after all of its lines."""
        output, complaint = self.process.communicate(timeout=harness.DEADLINE)
        self.lines += output.splitlines()
        self.complaint = complaint
        return self.process.returncode


@pytest.fixture
def watchers():
    made = []

    def make(*arguments, **options):
        made.append(Watcher(*arguments, **options))
        return made[-1]

    yield make
    for watcher in made:
        watcher.guard.cancel()
        watcher.process.kill()
        watcher.process.communicate()


def restart(daemon):
    daemon.restart()


def kill_and_start(daemon):
    daemon.kill()
    daemon.start()


@pytest.mark.parametrize("again", [restart, kill_and_start])
def test_a_watch_goes_on_with_the_next_daemon(daemon, watchers, again):
    watcher = watchers(daemon)
    watcher.event("watching")
    for _ in range(3):
        again(daemon)
        watcher.event("away")
        back = watcher.event("back")
        assert f"pid {daemon.pid}" in back["reason"]
        job = daemon.ctl("tune", *shape(), "--no-wait", "--force").json[0]["job"]
        watcher.event("started", job=job)
        watcher.event("ended", job=job, state="done")
    names = [line["event"] for line in watcher.lines]
    assert names.count("away") == names.count("back") == 3, "each is said once"


def test_it_waits_for_as_long_as_there_is_no_daemon_and_says_so_in_words(daemon, watchers):
    watcher = watchers(daemon, as_json=False)

    def watched():
        daemon.ctl("cancel", job_of(daemon))
        return select.select([watcher.process.stdout], [], [], 0)[0]
    harness.until(watched, "what happens is shown")
    daemon.ctl("resume")
    daemon.stop()
    assert watcher.line(lambda line: not line.startswith("job ")).startswith("-- flytuned went away: ")
    daemon.start()
    back = watcher.line(lambda line: True)
    assert back.startswith(f"-- flytuned is back: pid {daemon.pid}, up ") and "not shown" in back
    daemon.tune()
    watcher.line(lambda line: "  done" in line)


@pytest.mark.parametrize("again", [restart, kill_and_start])
def test_the_watch_of_one_job_ends_with_it_whichever_daemon_ends_it(daemon, watchers, again):
    job = job_of(daemon)
    watcher = watchers(daemon, job)
    watcher.event("watching")
    again(daemon)
    watcher.event("back")
    daemon.ctl("resume")
    watcher.event("ended", job=job, state="done")
    assert watcher.end() == 0


def test_the_watch_of_a_job_that_ended_meanwhile_tells_its_end(daemon, watchers):
    job = job_of(daemon)
    watcher = watchers(daemon, job)
    watcher.event("watching")
    watcher.process.send_signal(signal.SIGSTOP)
    daemon.restart()
    daemon.ctl("cancel", job)
    watcher.process.send_signal(signal.SIGCONT)
    watcher.event("ended", job=job, state="cancelled")
    assert watcher.end() == 4


class Lossy:
    """Stands between a client and the daemon as a connection that is not read in time: the end of each job is told as missed."""

    def __init__(self, daemon, path):
        self.daemon = daemon
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(str(self.daemon.path))
            for source, target, change in ((client, server, lambda message: message), (server, client, self.lose)):
                threading.Thread(target=self.relay, args=(source, target, change), daemon=True).start()

    @staticmethod
    def lose(message):
        if message[0] == 2 and message[1] == "event" and message[2]["event"] == "ended":
            return [2, "event", {"job": message[2]["job"], "event": "missed", "reason": "1 events were not read in time"}]
        return message

    @staticmethod
    def relay(source, target, change):
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                unpacker.feed(data)
                for message in unpacker:
                    target.sendall(msgpack.packb(change(message)))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_the_watch_of_a_job_whose_end_was_missed_asks_for_it(daemon, watchers):
    job = job_of(daemon)
    lossy = Lossy(daemon, daemon.short / "lossy")
    with contextlib.closing(lossy.listener):
        watcher = watchers(daemon, job, path=lossy.path)
        watcher.event("watching")
        watching(daemon)
        daemon.ctl("cancel", job)
        watcher.event("missed", job=job)
        watcher.event("ended", job=job, state="cancelled")
        assert watcher.end() == 4


@pytest.mark.parametrize("script, status", [((), 0), (("at verify * wrong",), 4)], ids=["done", "failed"])
def test_the_watch_of_a_job_that_is_over_ends_at_once(daemon, runner, script, status):
    runner.write(*script)
    daemon.ctl("tune", *shape(), check=False)
    job = daemon.ctl("jobs").json["jobs"][0]["job"]
    done = daemon.ctl("watch", job, check=False)
    assert done.status == status
    assert json.loads(done.output.splitlines()[-1])["event"] == "ended"


def test_the_watch_of_a_job_that_never_was_says_so(daemon):
    done = daemon.ctl("watch", 4711, as_json=False, check=False)
    assert done.status == 1 and "4711" in done.complaint


def test_once_ends_with_the_daemon(daemon, watchers):
    watcher = watchers(daemon, "--once")
    watcher.event("watching")
    daemon.kill()
    assert watcher.end() == 3 and watcher.complaint.startswith("flytunectl: ")


def test_without_a_daemon_at_the_start_it_does_not_wait(daemons, runner):
    done = harness.ctl(daemons(runner).path, "watch", as_json=False, check=False)
    assert done.status == 3 and done.complaint


def test_a_daemon_that_is_full_is_waited_for(daemons, runner, watchers):
    daemon = daemons(runner, arguments=["--max-clients", 2]).start()
    watcher = watchers(daemon)
    watcher.event("watching")
    watcher.process.send_signal(signal.SIGSTOP)
    daemon.restart()
    with daemon.peer(), daemon.peer() as peer:
        watcher.process.send_signal(signal.SIGCONT)
        watcher.event("away")
        harness.until(lambda: peer.call("status").get("sessions_refused", 0) >= 2, "it has tried twice")
    watcher.event("back")


@pytest.mark.parametrize("while_away", [False, True], ids=["watching", "waiting"])
def test_an_interrupt_ends_it_by_that_signal(daemon, watchers, while_away):
    watcher = watchers(daemon)
    watcher.event("watching")
    if while_away:
        daemon.stop()
        watcher.event("away")
    watcher.process.send_signal(signal.SIGINT)
    assert watcher.end() == -signal.SIGINT and watcher.complaint == ""


def test_it_ends_when_nobody_reads_any_more(daemon, watchers):
    watcher = watchers(daemon)
    watcher.event("watching")
    daemon.stop()
    watcher.event("away")
    watcher.process.stdout.close()
    assert watcher.process.wait(harness.DEADLINE) in (0, 1)


@pytest.mark.parametrize("command", ["watch", "tune"])
def test_an_interrupt_on_a_terminal_leaves_the_prompt_a_line_of_its_own(daemon, runner, command):
    gate = runner.gate("build")
    runner.write(f"at build 3 gate {gate}")
    job = job_of(daemon)
    terminal = Terminal(harness.ctl_command(daemon.path, *(["watch", job] if command == "watch" else ["tune", *shape()]), as_json=False))
    if command == "watch":
        watching(daemon)
    else:
        harness.until(lambda: daemon.ctl("jobs", job).json["jobs"][0]["waiters"], "it waits for the job")
    daemon.ctl("resume")
    gate.arrived()
    raw = terminal.read_until(b"settled")
    terminal.process.send_signal(signal.SIGINT)
    raw += terminal.read(-signal.SIGINT)
    gate.release()
    assert raw.endswith("\r\n") and raw.count(f"{ESCAPE}[?7l") <= raw.count(f"{ESCAPE}[?7h")
