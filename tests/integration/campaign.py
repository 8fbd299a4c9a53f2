"""Lives of the daemon, of a program that uses the library, and of flytunectl, in which one call fails (tests/fail/fail.c):
an allocation, or a call to the system. Each life says what became of it, or raises a Fault that names the call.

What must hold, whichever call it was: the daemon refuses to start and says why, or serves; a request that fails says so, and
the same request succeeds when it is asked again; an answer is the one expected or, of what the daemon could not know then,
the default; what was acknowledged is there after a clean restart; nothing hangs, dies of a signal, or is left behind.
tests/integration/test_campaign.py takes some points of each; tests/fail/campaign takes them all."""
import contextlib
import difflib
import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import fail
import harness
from harness import problem, shape

VARIANTS = 60  # a multiple of each number of errors that a call can give
TRIES = 3      # of a request: once for the failure, once for what it leaves, such as a connection that was cut
PATIENT_S = 20 * harness.PATIENCE


class Fault(AssertionError):
    """What must not happen."""


class Point:
    """The call that fails: which one of its kind, or of one function."""

    def __init__(self, kind=None, number=0, variant=0, call=None):
        self.kind, self.number, self.variant, self.call = kind, number, variant, call

    def environment(self, count):
        more = {"FLYTUNE_FAIL_VARIANT": str(self.variant)}
        if self.call:
            more["FLYTUNE_FAIL_CALL"] = self.call
        return fail.environment(count, self.kind, self.number, **more)

    def __repr__(self):
        return f"{self.kind} {self.number} variant {self.variant}{f' of {self.call}' if self.call else ''}"


def hit_line(count):
    """What tests/fail/fail.c tells of the call that was failed; "" if none was."""
    return next((line for line in count.read_text().splitlines() if line.startswith("hit ")), "") if count.exists() else ""


def callers(count):
    """Who made that call, the innermost first, as OBJECT+OFFSET."""
    return [word for word in hit_line(count).split(" ")[7:] if fail.MODULE.name not in word]


def hit_of(count):
    """Which call was failed, in words."""
    words = hit_line(count).split(" ")
    if words == [""]:
        return "no call was failed"
    return f"{words[5]} gave {os.strerror(int(words[6]))} in {' < '.join(map(frame, callers(count)[:-3]))}"


def frame(word):
    """A function, of OBJECT+OFFSET."""
    path, _, offset = word.rpartition("+")
    place = subprocess.run(["addr2line", "-f", "-e", path, hex(int(offset, 16) - 1)], stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.DEVNULL, check=False).stdout.split("\n") if shutil.which("addr2line") else []
    if place and not place[0].startswith("??"):
        return f"{place[0]} {Path(place[1].split(' ')[0]).name}"
    return Path(path).name


def left_of(count):
    """Processes that inherited the name of this life."""
    mark = f"FLYTUNE_FAIL_COUNT={count}".encode()
    left = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0") and harness.alive(int(folder.name)):
                    left.append(int(folder.name))
    return left


class Aborted(Exception):
    """libuv ended the program, or the C library in getgrnam: some of what they cannot do they answer with abort()."""


class Life:
    """What all have: a folder of their own, a file of counts, and a verdict."""

    def __init__(self, folder, point):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.point = point
        self.count = self.folder / "count"

    def was_hit(self):
        return hit_line(self.count) != ""

    def fault(self, what):
        return Fault(f"{self.point}: {what}\n  {hit_of(self.count)}")

    def check(self, fact, what):
        if not fact:
            raise self.fault(what)

    def calls(self):
        """How many calls there were of each kind."""
        return fail.counts(self.count)[-1][1]


# ---- the daemon

PINNED = problem(m=16)
TUNED = problem(m=1, n=64, dtype="f32")
MISSED = problem(m=8, n=512)
BROUGHT = problem(m=1, n=96, dtype="f32")
FORGOTTEN = problem(m=16, n=768)


class DaemonLife(Life):
    """One flytuned, from its start through every kind of request to SIGTERM, and a restart in which nothing fails."""

    def __init__(self, folder, point, real=False, kept=None):
        super().__init__(folder, point)
        self.real, self.patience = real, PATIENT_S * (6 if real else 1)  # a sweep takes what it takes on a busy machine
        runner = None if real else harness.BadRunner(self.folder)
        self.daemon = harness.Daemon(self.folder, runner=runner, env=point.environment(self.count))
        self.peer = self.subscriber = None
        self.promised = {}  # what was acknowledged: of a problem, source and config
        self.known = {}     # what the store held before
        self.refusals = []
        if kept:
            shutil.copytree(kept.state, self.daemon.state)
            self.promised = dict(kept.promised)

    def live(self):
        """What became of it: "refused" to start, "served", "aborted" by libuv, or "not met" where the call never came."""
        try:
            try:
                word = self.first_life()
            except Aborted:
                word = "aborted"
            self.second_life()
            return word if self.was_hit() else "not met"
        except Fault as fault:
            raise Fault(f"{fault}\n--- log\n{self.daemon.log()[-3000:]}") from None
        finally:
            self.hang_up()
            for pid in left_of(self.count):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.daemon.clean_up()

    def first_life(self):
        if not self.begin():
            return "refused"
        self.talk()
        self.end()
        return "served"

    def second_life(self):
        self.daemon.env = {}
        try:
            self.daemon.start()
        except AssertionError as fault:
            raise self.fault(f"it does not start again: {fault}") from None
        self.hang_up()
        self.await_device()
        for asked, told in self.promised.items():
            answer = self.ask("lookup", kernel="rmsnorm", problem=dict(asked))
            self.check(told == (answer["source"], answer["config"]), f"{dict(asked)} was {told}, and is {answer} after a restart")
        self.hang_up()
        status = self.daemon.stop(expect=None)
        self.check(status == 0, f"the restarted one ended with {status}")

    # -- its beginning and its end

    def begin(self):
        """Whether it serves; else it has ended, and said why."""
        end = time.monotonic() + PATIENT_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            where = self.daemon.short / "notify"
            notify.bind(str(where))
            process = self.daemon.spawn(where)
            handle = os.pidfd_open(process.pid)
            try:
                while time.monotonic() < end:
                    # What it tells its manager may be what fails: then who connects is served all the same.
                    came = select.select([notify, handle], [], [], 0.25)[0]
                    if handle in came:
                        return self.refused()
                    if notify in came and b"READY=1" in notify.recv(4096).split(b"\n"):
                        return True
                    if not came and self.daemon.path.exists() and self.reach():
                        return True
            finally:
                os.close(handle)
        raise self.fault("it neither serves nor ends")

    def refused(self):
        status = self.ended()
        self.check(status > 0, f"it ended with {status}")
        self.check(self.was_hit(), f"it ended with {status}, and nothing had failed")
        self.check(re.search(r"error|cannot|flytuned: ", self.daemon.log()), f"it ended with {status} and does not say why")
        self.none_left()
        return False

    def ended(self):
        """Its status, unless libuv ended it."""
        status = self.daemon.wait()
        called = callers(self.count)
        own = next((i for i, caller in enumerate(called) if "/flytuned+" in caller), 0)
        if status == -signal.SIGABRT and any("libuv" in caller for caller in called[:own]):
            raise Aborted
        if (status < 0 or status == 127) and "getgrnam" in hit_of(self.count):
            raise Aborted
        return status

    def died(self):
        status = self.ended()
        return self.fault(f"it ended with {status} while it served")

    def end(self):
        self.hang_up()
        self.daemon.process.send_signal(signal.SIGTERM)
        try:
            self.daemon.process.wait(PATIENT_S)
        except subprocess.TimeoutExpired:
            raise self.fault("SIGTERM does not end it") from None
        status = self.ended()
        self.check(status == 0 or (status > 0 and self.was_hit() and "error" in self.daemon.log()),
                   f"SIGTERM ended it with {status}")
        self.none_left()

    def none_left(self):
        try:
            harness.until(lambda: not left_of(self.count), "its children end", PATIENT_S)
        except harness.Late:
            raise self.fault(f"it left processes: {left_of(self.count)}") from None

    # -- requests

    def hang_up(self):
        if self.peer is not None:
            self.peer.close()
            self.peer = None
        if self.subscriber is not None:
            self.subscriber.close()
            self.subscriber = None

    def reach(self):
        if self.peer is None:
            try:
                self.peer = self.daemon.peer()
                self.peer.socket.settimeout(self.patience)
            except (OSError, EOFError, harness.RpcError, harness.Late) as fault:
                self.refusals.append(f"hello: {fault}")
                return False
        return True

    def attempt(self, what, act):
        """What act() gives with a connection; it may fail, but not for ever."""
        faults = []
        for _ in range(TRIES):
            if self.daemon.process.poll() is not None:
                raise self.died()
            if not self.reach():
                faults.append(self.refusals[-1])
                continue
            try:
                return self.once_open(act)
            except harness.RpcError as fault:
                self.check(fault.code and fault.error.get("message"), f"{what} is refused without a reason: {fault.error}")
                faults.append(str(fault.error))
            except (EOFError, OSError) as fault:
                faults.append(repr(fault))
                self.hang_up()
            except harness.Late:
                raise self.fault(f"{what} is not answered") from None
            self.refusals.append(f"{what}: {faults[-1]}")
            self.check(self.was_hit(), f"{what} failed, and no call had: {faults[-1]}")
        if "refused" in faults[-1]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.process.wait(PATIENT_S / 4)  # one that dies closes its socket first
        if self.daemon.process.poll() is not None:
            raise self.died()
        raise self.fault(f"{what} fails again and again: {faults}")

    def once_open(self, act):
        """What act() gives; it is asked again while the store is being opened, which is no failure of its own."""
        end = time.monotonic() + PATIENT_S
        while True:
            try:
                return act()
            except harness.RpcError as fault:
                if "being opened again" not in str(fault) or not self.was_hit() or time.monotonic() > end:
                    raise
            harness.pause()

    def ask(self, method, **params):
        return self.attempt(method, lambda: self.peer.call(method, **params))

    def change(self, method, asked, **more):
        return self.ask(method, kernel="rmsnorm", problem=asked, **more)

    def look(self, asked, *allowed):
        """The answer; `allowed` are pairs of source and config (None: any), and before any of them its default."""
        answer = self.change("lookup", asked)
        for source, config in allowed:
            if answer["source"] == source and config in (None, answer["config"]):
                return answer
        raise self.fault(f"{asked} is answered with {answer}, and {allowed} is right")

    def promise(self, asked, source, config):
        """From here on this is the answer."""
        self.promised[tuple(sorted(asked.items()))] = (source, config)
        self.look(asked, (source, config))

    def await_device(self):
        def ready():
            devices = self.ask("status")["devices"]
            return devices and devices[0]["state"] == "ready"
        try:
            harness.until(ready, "the device is ready", PATIENT_S)
        except harness.Late:
            raise self.fault(f"the device is not ready: {self.ask('status')['devices']}") from None

    def talk(self):
        for asked, told in self.promised.items():
            self.look(dict(asked), told, ("default", None))  # which device there is need not be known yet
        self.await_device()
        default = self.look(MISSED, ("default", None))["config"]
        self.follow()
        self.change("pin", PINNED, config=default)
        self.promise(PINNED, "pinned", default)
        self.heard()
        self.sweep()
        self.bring()
        self.change("pin", FORGOTTEN, config=default)
        self.change("forget", FORGOTTEN)
        self.look(FORGOTTEN, ("default", None))
        for method in ("pause", "resume", "jobs", "misses", "devices", "kernels", "metrics"):
            self.ask(method)
        self.read_anew()
        for asked, told in self.promised.items():
            self.look(dict(asked), told)

    def follow(self):
        def subscribe():
            self.peer.call("subscribe", lookups=[{"kernel": "rmsnorm", "problem": PINNED}])
            self.subscriber, self.peer = self.peer, None
        self.attempt("subscribe", subscribe)

    def heard(self):
        """The subscriber is told of the pin, unless its connection was cut: then it subscribes anew."""
        def hear():
            if self.subscriber is None:
                self.follow()
            subscriber = self.subscriber
            try:
                while True:
                    message = subscriber.notices.pop(0) if subscriber.notices else subscriber.message()
                    if message is None:
                        raise EOFError("the daemon hung up")
                    if message[0] == 2 and message[1] == "answer" and message[2].get("answer", {}).get("source") == "pinned":
                        return
            except EOFError:
                self.subscriber.close()
                self.subscriber = None
                raise
        self.attempt("a notice", hear)

    def sweep(self):
        if tuple(sorted(TUNED.items())) in self.promised:
            return
        def won():
            reply = self.peer.call("tune", kernel="rmsnorm", problem=TUNED)
            return self.peer.call("wait", job=reply["job"]) if "job" in reply else {"state": "done", "answer": reply["answer"]}
        for _ in range(TRIES):
            job = self.attempt("tune", won)
            if job["state"] == "done":
                break
            self.check(self.was_hit() and job.get("reason"), f"a job failed: {job}")
            self.refusals.append(f"job: {job['reason']}")
        self.check(job["state"] == "done", f"jobs fail again and again: {self.refusals}")
        trials = self.ask("trials", kernel="rmsnorm", problem=TUNED)["trials"]
        good = [trial["config"] for trial in trials if trial["status"] == "ok"]
        self.check(job["answer"]["config"] in good, f"{job['answer']} won, and what is ok is {good}")
        if not self.real:
            self.check(len(trials) == len({str(trial["config"]) for trial in trials}), f"a config is there twice: {trials}")
        self.promise(TUNED, "tuned", job["answer"]["config"])

    def bring(self):
        """Exports all, and imports the tuned row as one of another problem."""
        rows = self.ask("export")["rows"]
        self.check(len(rows) >= 2, f"{len(rows)} rows are exported")
        row = next(row for row in rows if row["problem"].get("n") == TUNED["n"])
        self.check(row["config"] == self.promised[tuple(sorted(TUNED.items()))][1], f"exported is {row}")
        row = {**row, "problem": {**row["problem"], "n": BROUGHT["n"], "row_stride": BROUGHT["n"]}}

        def all_three():
            self.peer.call("import_begin")
            self.peer.call("import_rows", rows=[row])
            self.peer.call("import_commit")
        self.attempt("import", all_three)
        self.promise(BROUGHT, "imported", row["config"])

    def read_anew(self):
        """SIGHUP: it reads its configuration again, or says why not. A line that could not be written is lost, so it is told
        twice before it is blamed."""
        def said():
            return self.daemon.process.poll() is not None or self.daemon.log().count("reloaded") > before
        before = self.daemon.log().count("reloaded")
        for patience in (PATIENT_S / 8, PATIENT_S):
            self.daemon.process.send_signal(signal.SIGHUP)
            with contextlib.suppress(harness.Late):
                harness.until(said, "SIGHUP is heeded", patience)
                break
        self.check(said(), "SIGHUP is not heeded")
        if self.daemon.process.poll() is not None:
            raise self.died()


class Kept:
    """A store that a killed daemon left, and what it had promised."""

    def __init__(self, folder):
        life = DaemonLife(folder, Point())
        try:
            if not life.begin():
                raise AssertionError(life.daemon.log())
            life.talk()
            life.hang_up()
            life.daemon.kill(runners=True)
        finally:
            life.daemon.clean_up()
        self.state, self.promised = life.daemon.state, life.promised


# ---- the library and flytunectl, beside a daemon in which nothing fails


@contextlib.contextmanager
def filled(folder):
    """A daemon with answers of each kind: tuned, pinned, of another stride, of another dtype."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    daemon = harness.Daemon(folder, runner=harness.BadRunner(folder), arguments=["--runner-idle", "0.05"]).start()
    try:
        fill(daemon)
        # That one runs is to be seen.
        harness.until(lambda: not daemon.runner_pids(), "the runner is let go")
        yield daemon
    finally:
        daemon.clean_up()


def fill(daemon):
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready", "the device is known")
    daemon.ctl("tune", *shape(m="16,64"))
    daemon.ctl("tune", *shape(m=64, row_stride=8192))
    daemon.ctl("tune", *shape(m=64, dtype="f32"))
    config = daemon.ctl("lookup", *shape(m=16)).json["config"]
    daemon.ctl("pin", *shape(m=32), "--config", ",".join(f"{name}={value}" for name, value in config.items()))
    return daemon


class Library(Life):
    """tests/integration/calls.c: every call of the library."""

    def __init__(self, folder, point, daemon, whole=None):
        super().__init__(folder, point)
        self.daemon, self.whole = daemon, whole

    def live(self):
        # What it changes it would see of another.
        with open(self.daemon.log_path, "rb") as one_by_one:
            fcntl.flock(one_by_one, fcntl.LOCK_EX)
            return self.live_alone()

    def live_alone(self):
        try:
            done = fail.run([harness.program("calls")], {**self.point.environment(self.count),
                                                         "FLYTUNE_SOCKET": str(self.daemon.path)}, PATIENT_S + 30)
        except subprocess.TimeoutExpired as late:
            raise self.fault(f"it hangs: {(late.output or b'')[-1000:]!r}") from None
        said = [line for line in done.output.splitlines() if not line.startswith(("failed ", "away "))]
        failed = [line for line in done.output.splitlines() if line.startswith(("failed ", "away "))]
        self.check(done.status == 0, f"it ended so: {done}")
        self.check(self.was_hit() or not failed, f"nothing had failed, and the library says: {failed}")
        self.check(all(re.fullmatch(r"failed \w+ \w+: .+|away \w+.*", line) for line in failed), f"no reason is given: {failed}")
        self.check(not any(line.startswith("away") and " default" not in line and " kept" not in line and
                           not set(line.split()[2:]) <= set(" ".join(self.whole or said).split()) for line in failed),
                   f"away, another answer is given: {failed}")
        if self.whole is None:
            self.whole = said
        self.check(said == self.whole, f"another answer: {set(said) ^ set(self.whole)} after {failed}")
        return "not met" if not self.was_hit() else "refused" if failed else "served"


# What changes from run to run, whoever is asked.
VOLATILE = re.compile(r'"at": "[^"]*"|"uptime_s": [\d.]+|, up .*|("(first|last)_ago_s": )[\d.]+|"(misses|generation)": \d+|'
                      r"(?<=\d )\w+ nearest, \w+ default|(?<=generation )\d+|"
                      r"(?<=[0-9a-f]{12}:)\d+|(?<=bad_runner 1) \(pid \d+\)|(?<=\"runner_pid\": )\w+|(?<=time)s?$", re.MULTILINE)


def steady(command, text):
    text = VOLATILE.sub("…", text)
    if command[0] in ("status", "metrics", "misses"):
        text = re.sub(r" +", " ", re.sub(r"\d+", "0", text))
    return text


def difference(whole, other):
    return "\n  ".join(difflib.unified_diff("\n".join(map(str, whole)).splitlines(), "\n".join(map(str, other)).splitlines(),
                                            "whole", "this", n=0, lineterm=""))


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


COMMANDS = [
    ("export", "FILE"), ("export", "-"), ("--json", "export", "FILE"),
    ("lookup", *shape()), ("--json", "lookup", *shape()), ("--json", "lookup", *shape(m="16,64", dtype="bf16,f32")),
    ("lookup", *shape(m="16,64")), ("list",), ("--json", "list"),
    ("trials", *shape()), ("--json", "trials", *shape()), ("explain", *shape()), ("--json", "explain", *shape()),
    ("--json", "explain", *shape(m=32)), ("tune", *shape(m="16,64")), ("--json", "tune", *shape(m="16,64")),
    ("jobs",), ("--json", "jobs"), ("watch", "1"), ("--json", "watch", "1"), ("--json", "cancel", "1"),
    ("status",), ("--json", "status"), ("devices",), ("--json", "devices"), ("misses",), ("--json", "misses"), ("metrics",),
    ("--json", "metrics"), ("kernels",), ("--json", "kernels"), ("import", "--dry-run", "EXPORTED"), ("--json", "import", "EXPORTED"),
    ("--help",), ("tune", "--help"), ("--version",),
]


class Command(Life):
    """flytunectl: its output is whole, or it says that it is not; never another output with status 0."""

    def __init__(self, folder, point, daemon, words, whole=None):
        super().__init__(folder, point)
        self.daemon, self.whole = daemon, whole
        self.file, exported = self.folder / "file", Path(daemon.folder) / "exported"
        if not exported.exists():
            daemon.ctl("export", exported)
            daemon.lookup(m=4096)
        self.as_json = words[0] == "--json"
        self.words = [{"FILE": self.file, "EXPORTED": exported}.get(word, word) for word in words if word != "--json"]

    def live(self):
        command = harness.ctl_command(self.daemon.path, *self.words, as_json=self.as_json)
        try:
            done = fail.run(command, self.point.environment(self.count), PATIENT_S + 10)
        except subprocess.TimeoutExpired:
            raise self.fault(f"{' '.join(command)} hangs") from None
        said = steady(self.words, done.output).replace(str(self.folder), "FOLDER")
        wrote = steady(self.words, self.file.read_text()) if self.file.exists() else None
        if self.whole is None:
            self.check(done.status == 0, done)
            self.whole = said, wrote
        try:
            self.judge(done, said, wrote)
        except AssertionError:
            raise self.fault(f"{' '.join(command)}: {done}\n  {difference(self.whole, (said, wrote))}") from None
        return "not met" if not self.was_hit() else "refused" if done.status else "served"

    def judge(self, done, said, wrote):
        output, written = self.whole
        assert done.status >= 0
        if done.status == 0 and self.words[0] == "watch" and "away" in said:
            assert "back" in said and "is the only one left" in said
        elif done.status == 0:
            assert (said, wrote) == (output, written)
        else:
            assert self.was_hit() and done.complaint
            assert wrote is None or wrote == written
            if self.as_json and said and "standard output:" not in done.complaint:
                lines = done.output.splitlines() if self.words[0] == "watch" else [done.output]
                assert all(map(is_json, lines))
        assert not [left for left in self.folder.iterdir() if left.name.startswith("file.")]


# ---- points


class Program:
    """What is tried: a name, and what makes a life of it at a point."""

    def __init__(self, name, make):
        self.name, self.make = name, make

    def calls(self, folder):
        """How many calls it makes, of each kind: counted in a life in which none fails."""
        with tempfile.TemporaryDirectory(prefix="life.", dir=folder) as where:
            life = self.make(where, Point())
            life.live()
            whole, make = getattr(life, "whole", None), self.make
            if whole is not None:
                self.make = lambda folder, point: make(folder, point, whole=whole)
            return life.calls()

    def live(self, folder, point):
        """What becomes of one life, in a folder that is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="life.", dir=folder) as where:
            return self.make(where, point).live()


def daemon_programs(kept, real=False):
    programs = [Program("flytuned, new store", DaemonLife),
                Program("flytuned, killed before", lambda folder, point: DaemonLife(folder, point, kept=kept))]
    if real:
        programs.append(Program("flytuned, CPU runner", lambda folder, point: DaemonLife(folder, point, real=True)))
    return programs


def library_programs(daemon):
    return [Program("library", lambda folder, point, **more: Library(folder, point, daemon, **more))]


def command_programs(daemon):
    return [Program("flytunectl " + " ".join(map(str, words[:3 if words[0] == "--json" else 2])),
                    lambda folder, point, words=words, **more: Command(folder, point, daemon, words, **more))
            for words in COMMANDS]


def sample(chance, calls, most):
    """So many points over both kinds; all of them with None."""
    chosen = []
    for kind in fail.KINDS:
        numbers = range(1, calls[kind] + 1)
        if most is not None and len(numbers) > most // 2:
            numbers = chance.sample(numbers, most // 2)
        chosen += [Point(kind, number, chance.randrange(VARIANTS) if kind == "io" else 0) for number in numbers]
    return chosen


def seed():
    return os.environ.get("FLYTUNE_SEED") or f"{random.SystemRandom().getrandbits(32):08x}"
