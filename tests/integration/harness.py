"""Runs the real daemon, runner and command line against each other, and waits on events, never on time.

Every wait has a deadline, which only a failure reaches: FLYTUNE_PATIENCE multiplies it for slow builds.
"""
import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import msgpack

import shapes

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FLYTUNE_BUILD", TOP / "build")).resolve()
PATIENCE = float(os.environ.get("FLYTUNE_PATIENCE", "1"))
DEADLINE = 60 * PATIENCE
# Seconds of a sweep by the real CPU runner: it verifies the default in it, also beside a load on every core; of a large problem,
# and of the many configs of a GPU that is pretended.
BUDGET = round(40 * PATIENCE)
LARGE_BUDGET = round(100 * PATIENCE)
# Put before the daemon's command line: valgrind and its options.
WRAP = os.environ.get("FLYTUNE_WRAP", "").split()
# The version of Landlock that this system's kernel has, less than 1: none; and the first that confines all that is confined.
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1)
LANDLOCK_WHOLE = 6
# Timing and memory figures mean nothing in an instrumented program.
INSTRUMENTED = bool(WRAP) or os.environ.get("FLYTUNE_INSTRUMENTED") == "1"


def program(name):
    """The built program of that name, wherever in the build folder it is."""
    for folder in ("daemon", "client", "kernels/runner", "tests/runner", "tests/integration"):
        path = BUILD / folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"{name} is not built in {BUILD}")


FLYTUNED = program("flytuned")
FLYTUNECTL = program("flytunectl")
BAD_RUNNER = program("bad_runner")


class Late(AssertionError):
    """An event that had to come did not."""


def until(check, what, deadline=None):
    """Waits until check() is true, for facts that the kernel or the daemon tells only when asked."""
    end = time.monotonic() + (deadline or DEADLINE)
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise Late(f"not in time: {what}")
        pause()


def pause():
    """Between two looks at what nobody tells of."""
    select.select([], [], [], 0.005)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_death(pid, deadline=None):
    """Waits for a process that need not be our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([handle], [], [], deadline or DEADLINE)[0]:
            raise Late(f"process {pid} still runs")
    finally:
        os.close(handle)


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(error.get("message"))
        self.code = error.get("code")
        self.error = error


class Peer:
    """A client that speaks MessagePack-RPC by itself, and may misbehave."""

    def __init__(self, path, hello=True, name="pytest"):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(str(path))
        self.unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=64 << 20)
        self.next = 1
        self.notices = []
        try:
            self.hello = self.call("hello", min=2, max=2, name=name) if hello else None
        except BaseException:
            self.close()
            raise

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, method, **params):
        """Sends a request and gives its id."""
        number = self.next
        self.next += 1
        # One that is refused may be closed before it has asked: what it was told says why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send(msgpack.packb([0, number, method, params]))
        return number

    def message(self):
        """The next message, None at the end."""
        while True:
            for message in self.unpacker:
                return message
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            except socket.timeout:
                raise Late("the daemon did not answer") from None
            if not data:
                return None
            self.unpacker.feed(data)

    def answer(self, number):
        """The result of a request; notices that come before it are kept."""
        while True:
            message = self.message()
            if message is None:
                raise EOFError("the daemon hung up")
            if message[0] == 2:
                self.notices.append(message)
                continue
            if message[2] is not None and message[1] in (0, number):  # 0: to nobody's question, before it hangs up
                raise RpcError(message[2])
            assert message[0] == 1 and message[1] == number, message
            return message[3]

    def call(self, method, **params):
        return self.answer(self.ask(method, **params))

    def event(self, wanted):
        """The params of the next event notice for which wanted(params) holds."""
        while True:
            message = self.notices.pop(0) if self.notices else self.message()
            if message is None:
                raise EOFError("the daemon hung up")
            if message[0] == 2 and message[1] == "event" and wanted(message[2]):
                return message[2]

    def ended(self):
        """Reads to the end; gives what was said before the daemon hung up."""
        said = []
        while True:
            message = self.message()
            if message is None:
                return said
            said.append(message)


class Ctl:
    """What a run of flytunectl gave."""

    def __init__(self, status, output, complaint):
        self.status = status
        self.output = output
        self.complaint = complaint

    @property
    def json(self):
        return json.loads(self.output)

    def __repr__(self):
        return f"exit {self.status}\n{self.output}\n{self.complaint}"


def ctl_command(path, *arguments, as_json=True):
    return [str(FLYTUNECTL), "--socket", str(path), *(["--json"] if as_json else []), *map(str, arguments)]


def ctl(path, *arguments, as_json=True, check=True, env=None, prefix=(), timeout=None):
    """Runs flytunectl; checks that it exits 0 unless told not to."""
    done = subprocess.run(
        [*prefix, *ctl_command(path, *arguments, as_json=as_json)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=timeout or 2 * DEADLINE + LARGE_BUDGET, env={**os.environ, **(env or {})}, check=False)
    result = Ctl(done.returncode, done.stdout, done.stderr)
    if as_json:
        shapes.hold(arguments, done.stdout)
    if check and result.status != 0:
        raise AssertionError(f"flytunectl {' '.join(map(str, arguments))}: {result}")
    return result


def complete(script, line):
    """What bash offers after a line, by a completion script."""
    library = Path("/usr/share/bash-completion/bash_completion")
    if not library.exists():
        import pytest  # the benches do without
        pytest.skip("needs bash-completion")
    script = f"""
        . {library}
        . "{script}"
        COMP_LINE={subprocess.list2cmdline([line])}
        COMP_WORDS=($COMP_LINE)
        [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        COMP_POINT=${{#COMP_LINE}}
        _flytunectl {FLYTUNECTL} "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=True)
    return set(done.stdout.split())


def shape(m=64, n=4096, dtype="bf16", **more):
    """The command line's words for an rmsnorm problem."""
    words = ["rmsnorm", "--m", m, "--n", n, "--dtype", dtype]
    for name, value in more.items():
        words += ["--" + name.replace("_", "-"), value]
    return words


def problem(m=64, n=4096, dtype="bf16", **more):
    """The same on the wire."""
    return {"m": m, "n": n, "dtype": dtype, **more}


class Gate:
    """A point at which a bad runner waits: it says that it arrived, and goes on when let."""

    def __init__(self, path):
        self.path = Path(path)
        for way in (".in", ".out"):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(f"{path}{way}")
        # Held open for reading, so that the runner's open for writing never fails.
        self.arrivals = os.open(f"{path}.in", os.O_RDONLY | os.O_NONBLOCK)

    def __str__(self):
        return str(self.path)

    def arrived(self, deadline=None):
        until(self.came, f"somebody comes to {self.path.name}", deadline)

    def came(self):
        """Whether somebody has arrived since this was last asked."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.arrivals, 1) != b""
        return False

    def release(self):
        def opened():
            try:
                return os.open(f"{self.path}.out", os.O_WRONLY | os.O_NONBLOCK) + 1
            except OSError as fault:
                if fault.errno != errno.ENXIO:
                    raise
                return 0
        way = until(opened, f"the runner at {self.path.name} waits to be let on") - 1
        os.write(way, b".")
        os.close(way)


class BadRunner:
    """A script for tests/runner/bad_runner, and the log of what it did."""

    def __init__(self, folder, name="runner"):
        self.folder = Path(folder)
        self.script = self.folder / f"{name}.script"
        self.log = self.folder / f"{name}.log"
        self.program = self.folder / f"{name}.sh"
        # The daemon starts runners with an environment of its own, so the script's path travels in a wrapper.
        self.program.write_text(f'#!/bin/sh\nexec "{BAD_RUNNER}" --script "{self.script}" "$@"\n')
        self.program.chmod(0o755)
        self.write()

    def write(self, *lines):
        """Replaces the script; rules with `once` may fire anew."""
        for mark in self.folder.glob(f"{self.script.name}.fired.*"):
            mark.unlink()
        fresh = self.script.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in (f"log {self.log}", *lines)))
        fresh.rename(self.script)

    def gate(self, name):
        return Gate(self.folder / f"gate-{name}")

    def did(self, word=None):
        """The lines of the log, or the rest of those that begin with a word."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        if word is None:
            return lines
        return [line[len(word):].strip() for line in lines if line.split(" ", 1)[0] == word]

    def pids(self):
        return [int(pid) for pid in self.did("hello")]


# Stands between the daemon and the real CPU runner, and rewrites the identity in the hello's reply.
RELAY = r'''#!/usr/bin/python3
import os, select, socket, subprocess, sys
OLD, NEW = b"compiler=", %r
daemon = socket.socket(fileno=3)
ours, theirs = socket.socketpair()
runner = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" 3<&%%d 3>&%%d' %% (theirs.fileno(), theirs.fileno()), %r],
                          pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
theirs.close()
while True:
    for ready in select.select([daemon, ours], [], [])[0]:
        data = ready.recv(1 << 20)
        if not data:
            os._exit(0)
        if ready is ours:
            data = data.replace(OLD, NEW)
        (daemon if ready is ours else ours).sendall(data)
'''


def write_relay(path, word):
    """Makes `path` a program that is the real CPU runner but for "compiler=" in its identity: as many bytes, since only these
    are seen."""
    assert len(word) == len(b"compiler=")
    path.with_suffix(".new").write_text(RELAY % (word, str(program("flytune-runner-cpu"))))
    path.with_suffix(".new").chmod(0o755)
    path.with_suffix(".new").rename(path)
    return path


ASKER_S = 5  # the time-out of its lookups


class Asker:
    """The C program that uses the library."""

    def __init__(self, path):
        self.process = subprocess.Popen([str(program("ask"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, "FLYTUNE_SOCKET": str(path)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(DEADLINE) == 0

    def lookup(self, m=64):
        """source, flags, seconds, reason"""
        self.process.stdin.write(f"{m}\n")
        self.process.stdin.flush()
        source, flags, ns, *reason = self.process.stdout.readline().rstrip("\n").split(" ", 3)
        return source, int(flags), int(ns) / 1e9, " ".join(reason)


AWAY, KEPT = 1, 2  # of an asker's flags


class Daemon:
    """One flytuned with a state directory, socket and log of its own."""

    def __init__(self, folder, runner=None, arguments=(), state=None, device="cpu", prefix=(), env=None):
        self.folder = Path(folder)
        self.state = Path(state or self.folder / "state")
        # The path of a socket has 107 bytes, and pytest's folders are long.
        self.short = Path(tempfile.mkdtemp(prefix="ft.", dir="/tmp"))
        self.path = self.short / "s"
        self.runner = runner
        self.arguments = list(arguments)
        self.device = device
        self.prefix = list(prefix)
        self.env = env or {}
        self.pass_fds = ()
        self.log_path = self.folder / "flytuned.log"
        self.process = None
        self.lives = 0

    def command(self):
        runner = self.runner.program if isinstance(self.runner, BadRunner) else self.runner
        if runner is None:
            runner = program("flytune-runner-cpu")
        return [*self.prefix, *WRAP, str(FLYTUNED), "--socket", str(self.path), "--state-dir", str(self.state),
                "--device", self.device, "--runner", f"cpu={runner}",
                # Nothing by itself, unless a test is about that.
                "--background", "off", *map(str, self.arguments)]

    def spawn(self, notify=None):
        env = {**os.environ, **self.env}
        env.pop("NOTIFY_SOCKET", None)
        if notify:
            env["NOTIFY_SOCKET"] = str(notify)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                            pass_fds=self.pass_fds)
        return self.process

    def start(self):
        """Starts it and waits for its READY=1; fails with its log if it ends before."""
        assert self.process is None
        self.lives += 1
        where = self.short / f"notify{self.lives}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(where))
            os.chmod(where, 0o777)
            began = time.monotonic()
            handle = os.pidfd_open(self.spawn(where).pid)
            try:
                while True:
                    left = began + DEADLINE - time.monotonic()
                    came = select.select([notify, handle], [], [], max(0, left))[0]
                    if notify in came:
                        if b"READY=1" in notify.recv(4096).split(b"\n"):
                            break
                    elif handle in came:
                        status = self.process.wait()
                        self.process = None
                        raise AssertionError(f"flytuned ended with {status}:\n{self.log()}")
                    else:
                        raise Late(f"flytuned is not ready:\n{self.log()}")
            finally:
                os.close(handle)
        self.ready_s = time.monotonic() - began
        return self

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def heard(self, words):
        """Waits until it logs these words."""
        until(lambda: words in self.log(), f"{words!r} in the daemon's log")

    @property
    def pid(self):
        """Of flytuned itself, whatever it is wrapped in: wrappers exec it."""
        return self.process.pid

    def await_device(self):
        """Until the first one was heard: until then lookups count as no miss, and nothing is known of it."""
        until(lambda: self.status()["devices"][0]["state"] == "ready", "the device is known")
        return self

    def runner_pids(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as children:
            return [int(pid) for pid in children.read().split()]

    def stop(self, expect=0):
        """SIGTERM, and its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.wait()
        if expect is not None:
            assert status == expect, f"flytuned ended with {status}:\n{self.log()}"
        return status

    def wait(self):
        status = self.process.wait(DEADLINE)
        self.process = None
        return status

    def kill(self, runners=False):
        """kill -9; returns when daemon and, by their own doing or ours, all runners are gone."""
        pids = self.runner_pids()
        self.process.kill()
        if runners:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.wait()
        for pid in pids:
            await_death(pid)

    def restart(self):
        self.stop()
        return self.start()

    def ctl(self, *arguments, **options):
        return ctl(self.path, *arguments, **options)

    def ctl_start(self, *arguments, as_json=True):
        return subprocess.Popen(ctl_command(self.path, *arguments, as_json=as_json), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def lookup(self, **fields):
        return self.ctl("lookup", *shape(**fields)).json

    def tune(self, *options, **fields):
        return self.ctl("tune", *shape(**fields), *options).json

    def trials(self, **fields):
        return self.ctl("trials", *shape(**fields)).json["trials"]

    def status(self):
        return self.ctl("status").json

    def peer(self, **options):
        return Peer(self.path, **options)

    def clean_up(self):
        """Ends it, however the test ended; gives what a sanitizer said."""
        if self.process is not None:
            pids = []
            with contextlib.suppress(OSError):
                pids = self.runner_pids()
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for left in self.short.iterdir():
            left.unlink()
        self.short.rmdir()
        words = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:", "ERROR SUMMARY")
        return [line for line in self.log().splitlines()
                if any(word in line for word in words) and "ERROR SUMMARY: 0 errors" not in line]


def memory_kb(pid):
    """RssAnon and RssShmem of a process, in kB, together."""
    total = 0
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1])
    return total


def await_sleep(pid, seconds, most=0):
    """Waits until it wakes up no more than `most` times in so many seconds at a stretch: what it had still to do does not count,
    and what comes again and again does. Gives how often it woke up."""
    before = wakeups(pid)
    end = time.monotonic() + DEADLINE + 3 * seconds
    while True:
        select.select([], [], [], seconds)
        now = wakeups(pid)
        if now - before <= most:
            return now - before
        if time.monotonic() > end:
            raise Late(f"process {pid} woke up {now - before} times in {seconds} s")
        before = now


def wakeups(pid):
    """Context switches of all threads of a process so far."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if "ctxt_switches" in line:
                total += int(line.split()[1])
    return total
