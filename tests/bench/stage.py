"""What a benchmark needs around it: daemons on prepared stores, Redis, the floors, and questions in files."""
import contextlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import msgpack

import harness

BENCH = harness.BUILD / "tests/bench"
WORK = harness.BUILD / "bench-work"
SERVER, CLIENT = 0, 1  # cores: of what serves, and of who asks
TUNED_N, DEFAULT_N = 1024, 16384  # of the problems that have a result of their own, and of those that have none near
SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
STEP = 8  # fill_store: after 1,000 values of m comes the next n


def program(name):
    return str(BENCH / name)


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, **options).stdout


# ---- stores and daemons ----

def prepared(count):
    """A state directory with so many results of the made-up device; made once, and to be left as it is."""
    state = WORK / f"state-{count}"
    made = WORK / f"state-{count}.made"
    if made.exists() and made.stat().st_mtime > (BENCH / "fill_store").stat().st_mtime:
        return state
    made.unlink(missing_ok=True)
    shutil.rmtree(state, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    with daemon(state=state) as fresh:
        fresh.tune(m=3000, n=TUNED_N)  # a device must have been met
    run(program("fill_store"), f"state={state}", f"count={count}")
    made.touch()
    return state


@contextlib.contextmanager
def daemon(count=None, state=None, script=(), runner=None, arguments=(), prefix=(), core=None):
    """A daemon whose loop runs on one core, on a copy of a prepared store, or on a state of the caller's."""
    core = SERVER if core is None else core
    WORK.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="daemon.", dir=WORK))
    try:
        if state is None:
            state = folder / "state"
            if count is not None:
                shutil.copytree(prepared(count), state)
        made_up = runner is None
        if made_up:
            runner = harness.BadRunner(folder)
            runner.write(*script)
        # A session of its own, as a service has.
        served = harness.Daemon(folder, runner, ["--runner-idle", "0.05", *arguments], state=state,
                                prefix=["setsid", *prefix])
        try:
            served.start()
            os.sched_setaffinity(served.pid, {core})  # of its main thread alone: commits run where there is room
            if count is not None and made_up:
                until_known(served)
            yield served
        finally:
            served.clean_up()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Notified:
    """Where a daemon says that it is ready, and when it said so by the kernel's clock."""

    def __init__(self, folder):
        self.path = Path(folder) / "notify"
        self.socket = harness.socket.socket(harness.socket.AF_UNIX, harness.socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.setsockopt(harness.socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.settimeout(harness.DEADLINE)

    def ready_ns(self):
        """Nanoseconds of the Unix epoch."""
        while True:
            said, extra, _, _ = self.socket.recvmsg(4096, 64)
            if b"READY=1" in said.split(b"\n"):
                seconds, rest = struct.unpack("=qq", extra[0][2])
                return seconds * 10**9 + rest


def until_known(served):
    """Until it is sure of its device: before that it serves defaults."""
    with served.peer() as peer:
        harness.until(lambda: peer.call("lookup", **body(0))["source"] == "tuned", "the device to be known")


# ---- the floors, and Redis ----

@contextlib.contextmanager
def short_folder():
    """A path of a socket has 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ftb.", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def serving(command, path):
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               start_new_session=True)  # as the daemon has
    try:
        harness.until(path.exists, f"{path} to be served")
        yield path
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def floor(kind, core):
    with short_folder() as folder:
        with serving([program("floor"), f"kind={kind}", f"socket={folder / 's'}", "answer=0", f"cpu={core}"],
                     folder / "s") as path:
            yield path


class Redis:
    def __init__(self, path):
        self.path = path

    def send(self, data, replies):
        with harness.socket.socket(harness.socket.AF_UNIX) as client:
            client.connect(str(self.path))
            client.settimeout(harness.DEADLINE)
            client.sendall(data)
            got = b""
            while got.count(b"\r\n") < replies:
                got += client.recv(65536)
            assert b"-ERR" not in got, got

    def fill(self, values):
        """GET questions for these, once they are set."""
        self.send(b"".join(command("SET", key, value) for key, value in values.items()), len(values))
        return [(command("GET", key), len(b"$%d\r\n" % len(value)) + len(value) + 2, 1)
                for key, value in values.items()]


def command(*words):
    words = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@contextlib.contextmanager
def redis(core):
    with short_folder() as folder:
        with serving(["taskset", "-c", core, "redis-server", "--port", "0", "--unixsocket", folder / "s", "--save", "",
                      "--appendonly", "no", "--dir", folder, "--logfile", folder / "log"], folder / "s") as path:
            yield Redis(path)


# ---- questions ----

def body(index, n=None):
    """The problem that fill_store put in at this index; with n, the same m of another row length."""
    return {"kernel": "rmsnorm",
            "problem": harness.problem(m=1 + index % 1000, n=n or TUNED_N + STEP * (index // 1000))}


def request(method, params):
    return msgpack.packb([0, 1, method, params])


def save(path, questions):
    """Questions for `load`: each its bytes, the bytes of what answers it, and how many answers that is."""
    with open(path, "wb") as file:
        for data, answer, answers in questions:
            file.write(struct.pack("=III", len(data), answer, answers) + data)
    return path


class Asked:
    """Raw requests, and how long their replies are."""

    def __init__(self, served):
        self.peer = served.peer(name="bench")

    def __call__(self, data):
        peer = self.peer
        peer.send(data)
        reply = b""
        while True:
            reply += peer.socket.recv(1 << 20)
            with contextlib.suppress(msgpack.OutOfData):
                unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
                unpacker.feed(reply)
                message = unpacker.unpack()
                assert message[2] is None, message
                return message[3], reply


def lookups(served, indexes, n=None, source=None):
    """Lookups one by one, with the lengths of their answers; every answer has to be of that source."""
    asked = Asked(served)
    questions = []
    for index in indexes:
        data = request("lookup", body(index, n))
        answer, reply = asked(data)
        assert source is None or answer["source"] == source, answer
        questions.append((data, len(reply), 1))
    asked.peer.close()
    return questions


def lookups_many(served, indexes, each):
    asked = Asked(served)
    questions = []
    for first in range(0, len(indexes) - each + 1, each):
        data = request("lookup_many", {"lookups": [body(index) for index in indexes[first:first + each]]})
        answer, reply = asked(data)
        assert len(answer["answers"]) == each
        questions.append((data, len(reply), each))
    asked.peer.close()
    return questions


def framed(method, bodies):
    """Questions whose answers may be of any length."""
    return [(request(method, one), 0, 1) for one in bodies]


def for_floor(questions):
    """The same lengths to and fro: a floor answers with as many bytes as a question's last four say."""
    return [(data[:-4] + struct.pack("=I", answer), answer, answers) for data, answer, answers in questions]


def target(name, speak, path, questions, pipeline=1):
    return f"target={name},{speak},{pipeline},{path},{questions}"


def load(*targets, core=None, **settings):
    """Alternating rounds; gives for each target its rounds and all of them together."""
    words = [f"{name}={value}" for name, value in settings.items()]
    return {one["name"]: one for one in
            json.loads(run(program("load"), f"cpu={CLIENT if core is None else core}", *words, *targets))}
