#!/usr/bin/env python3
"""The whole way as a user goes it, on a real GPU: flytuned --device cuda, flytunectl tune, lookup, trials and code, and a
program that launches the tuned kernel; how long a sweep takes with nothing cached, with the runner up, and with its code
kept; and kernels that never end or write wildly. Needs nothing but Python."""
import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SHAPES = [(1, 4096), (16, 8192), (128, 8192), (1024, 8192), (4096, 4096)]
DEADLINE = 120
KERNEL = "rmsnorm"


class Daemon:
    def __init__(self, args, folder, extra=(), kinds=None):
        self.args, self.folder = args, folder
        self.socket, self.state = os.path.join(folder, "s"), os.path.join(folder, "state")
        self.fault = os.path.join(folder, "fault")
        wrapper = os.path.join(folder, "runner")
        with open(wrapper, "w") as file:
            file.write(f"#!/bin/sh\n[ -f {self.fault} ] && export FLYTUNE_TEST_FAULT=\"$(cat {self.fault})\"\n"
                       f"exec {args.build}/kernels/runner/flytune-runner-{args.kind} \"$@\"\n")
        os.chmod(wrapper, 0o755)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(folder, "notify"))
        notify.settimeout(DEADLINE)
        self.log = open(os.path.join(folder, "log"), "ab")
        self.process = subprocess.Popen(
            [f"{args.build}/daemon/flytuned", "--socket", self.socket, "--state-dir", self.state,
             *(word for kind in ((args.kind,) if kinds is None else kinds) for word in ("--device", kind)),
             "--runner", f"{args.kind}={wrapper}", "--runner-idle", "1", *extra],
            env={**os.environ, "NOTIFY_SOCKET": os.path.join(folder, "notify")}, stdout=self.log, stderr=self.log)
        while b"READY=1" not in notify.recv(4096):
            pass

        self.events = []
        self.watch = subprocess.Popen([f"{args.build}/client/flytunectl", "--json", "--socket", self.socket, "watch"],
                                      stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.watch.stdout:
            self.events.append((time.monotonic(), json.loads(line)))

    def ctl(self, *words, status=0):
        ran = subprocess.run([f"{self.args.build}/client/flytunectl", "--json", "--socket", self.socket, *map(str, words)],
                             capture_output=True, text=True, timeout=DEADLINE)
        if ran.returncode != status:
            raise AssertionError(f"flytunectl {words}: status {ran.returncode}: {ran.stdout} {ran.stderr}")
        return json.loads(ran.stdout) if ran.stdout.strip().startswith(("{", "[")) else None

    def tune(self, m, n, *more):
        """The job, and the seconds that a user waited."""
        begin = time.monotonic()
        self.begin = begin
        told = self.ctl("tune", *shape(m, n), *more)[0]
        return told, time.monotonic() - begin

    def parts(self, waited):
        """Milliseconds of the last sweep's parts, as the daemon's events tell them."""
        began = {event["stage"]: at for at, event in list(self.events) if at >= self.begin and event.get("event") == "stage"}
        ended = [at for at, event in list(self.events) if at >= self.begin and event.get("event") == "ended"]
        marks = [self.begin, began.get("build"), began.get("measure"), began.get("confirm"), ended[-1] if ended else None,
                 self.begin + waited]
        names = ["start", "build+verify", "measure", "confirm", "rest"]
        return {name: round((marks[i + 1] - marks[i]) * 1e3) for i, name in enumerate(names) if marks[i] and marks[i + 1]}

    def trials(self, m, n):
        found = {}
        for trial in self.ctl("trials", *shape(m, n))["trials"]:
            found.setdefault(trial["status"], []).append(trial)
        return found

    def runner_pids(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]

    def runners_gone(self, kill=False):
        """Waits until the idle runner was let go, or kills it."""
        for pid in self.runner_pids():
            handle = os.pidfd_open(pid)
            if kill:
                os.kill(pid, signal.SIGKILL)
            if not select.select([handle], [], [], DEADLINE)[0]:
                raise AssertionError("the idle runner stays")
            os.close(handle)

    def forget_code(self):
        for name in os.listdir(os.path.join(self.state, "code")):
            os.unlink(os.path.join(self.state, "code", name))

    def stop(self):
        self.watch.terminate()
        self.watch.wait(DEADLINE)
        self.process.terminate()
        return self.process.wait(DEADLINE)


def shape(m, n, dtype="bf16"):
    return [KERNEL, "--m", m, "--n", n, "--dtype", dtype]


def times(daemon):
    """Seconds of a sweep, for each shape and each state of the caches."""
    rows = []
    for m, n in SHAPES:
        daemon.runners_gone()
        daemon.forget_code()
        row = {"m": m, "n": n}
        for state in ("nothing", "runner up", "code kept"):
            if state == "runner up":
                daemon.forget_code()
            told, waited = daemon.tune(m, n, "--force")
            row[state] = {"waited_s": waited, "sweep_s": told["sweep_s"], "trials": told["trials"], "config": told["config"],
                          "parts_ms": daemon.parts(waited)}
            if state == "runner up":
                built = [t["build_ms"] for found in daemon.trials(m, n).values() for t in found if t["build_ms"]]
                row["compiled"] = {"count": len(built), "longest_ms": max(built, default=0), "sum_ms": sum(built)}
        rows.append(row)
        print(f"{m:>6}x{n:<6} {row['nothing']['trials']:>3} trials; seconds waited (swept): "
              + ", ".join(f"{state} {row[state]['waited_s']:.3f} ({row[state]['sweep_s']:.3f})"
                          for state in ("nothing", "runner up", "code kept")), flush=True)
        for state in ("nothing", "runner up", "code kept"):
            print(f"    ms of {state}: " + ", ".join(f"{name} {ms}" for name, ms in row[state]["parts_ms"].items())
                  + (f"; compiled: {row['compiled']['count']}, the longest {row['compiled']['longest_ms']:.0f}, all "
                     f"{row['compiled']['sum_ms']:.0f}" if state == "runner up" else ""), flush=True)
    return rows


def launch(daemon, args, folder, m, n):
    """The winner's code, and the example program that launches it."""
    path = os.path.join(folder, "winner.code")
    told = daemon.ctl("code", *shape(m, n), "-o", path)
    print(f"code: {os.path.getsize(path)} bytes for {told['target']}, hash {told['hash']}")
    ran = subprocess.run([f"{args.build}/client/example-launch", str(m), str(n)], capture_output=True, text=True,
                         timeout=DEADLINE, env={**os.environ, "FLYTUNE_SOCKET": daemon.socket})
    print(ran.stdout.strip(), ran.stderr.strip())
    assert ran.returncode == 0, f"the example ended with {ran.returncode}"
    return {"code": {k: v for k, v in told.items()}, "example": ran.stdout.strip()}


def inject(args, how):
    """A bad kernel among the configs: the sweep ends, the next is right, the daemon does not notice."""
    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        daemon = Daemon(args, folder, ["--deadline", "verify=3", "--deadline", "measure=3"])
        try:
            with open(daemon.fault, "w") as file:
                file.write(f"{how}:BLOCK_THREADS=128,ROW_THREADS=128,WEIGHT=3,waves_per_eu=0,NONTEMPORAL=3")
            daemon.runners_gone(kill=True)
            told, waited = daemon.tune(64, 4096)
            bad = daemon.trials(64, 4096)
            hit = bad.get("timeout", []) + bad.get("failed", []) + bad.get("wrong", []) + bad.get("suspect", [])
            assert told["state"] == "done" and len(hit) == 1, (told, hit)
            os.unlink(daemon.fault)
            daemon.runners_gone(kill=True)
            after, _ = daemon.tune(65, 4096)
            clean = daemon.trials(65, 4096)
            assert after["state"] == "done" and not set(clean) - {"ok", "pruned", "same_code_as"}, clean.keys()
            # The next sweep's times are those of a healthy device.
            assert daemon.process.poll() is None, "the daemon ended"
            # A runner that only found its kernel's writes next to the output goes on.
            restarts = daemon.ctl("status")["runner_restarts"]
            assert (restarts >= 1) == (how != "near"), f"{restarts} restarts of the runner"
            print(f"{how}: {hit[0]['status']} ({hit[0]['reason']}), sweep done after {waited:.1f} s, next sweep right, "
                  f"winner {after['time_us'] if 'time_us' in after else after['config']}", flush=True)
            return {"status": hit[0]["status"], "reason": hit[0]["reason"], "waited_s": waited}
        finally:
            daemon.stop()


def main():
    global KERNEL
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--kind", default="cuda")
    parser.add_argument("--only-times", action="store_true", help="no kernel that never ends or writes wildly")
    parser.add_argument("--kernel", default=KERNEL, help="that is tuned; the example launches rmsnorm alone, so another goes without")
    args = parser.parse_args()
    KERNEL = args.kernel
    results, failed = {}, 0

    def step(name, function, *more):
        nonlocal failed
        try:
            results[name] = function(*more)
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {type(error).__name__} {str(error)[-600:]}", flush=True)
        with open(args.out, "w") as file:
            json.dump(results, file, indent=1)

    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        daemon = Daemon(args, folder)
        try:
            step("devices", daemon.ctl, "devices")
            step("times", times, daemon)
            step("lookup", daemon.ctl, "lookup", *shape(4096, 4096))
            step("trials", daemon.ctl, "trials", *shape(4096, 4096))
            if KERNEL == "rmsnorm":
                step("launch", launch, daemon, args, folder, 4096, 4096)
        finally:
            status = daemon.stop()
            if status:
                failed += 1
            if failed:
                with open(os.path.join(folder, "log")) as file:
                    print(file.read()[-3000:])
    for how in () if args.only_times else ("loop", "wild", "near"):
        step(how, inject, args, how)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
