#!/usr/bin/env python3
"""Many problems on a real GPU through the daemon: what a list of them costs beside one at a time, and how long after an
upgrade all of them are served as tuned again.

  scale    12 m of one n in one command, and the same 12 each in a daemon of its own that has nothing kept
  upgrade  50 problems tuned; another compiler (the runner's word for it is changed on its way to the daemon, so that
           nothing built before is used); restart: when the first and the last are served as tuned again

Needs nothing but Python."""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

import daemon

SCALE = [1, 4, 16, 48, 128, 320, 512, 1024, 2048, 3072, 4096, 8192]
# Hidden sizes of published models from 7 to 70 billion parameters, from one token to a long prefill.
UPGRADE_M = [1, 2, 4, 8, 16, 64, 256, 1024, 4096, 8192]
UPGRADE_N = [3584, 4096, 5120, 7168, 8192]
DTYPE = "bf16"

# Stands between the daemon and the runner, and gives the compiler another name of the same length.
RELAY = r'''#!/usr/bin/env python3
import os, select, socket, subprocess, sys
daemon = socket.socket(fileno=3)
ours, theirs = socket.socketpair()
runner = subprocess.Popen(["/bin/bash", "-c", f'exec "$0" 3<&{theirs.fileno()}', %r], pass_fds=[theirs.fileno()],
                          stdin=subprocess.DEVNULL)
theirs.close()
while True:
    for ready in select.select([daemon, ours], [], [])[0]:
        data = ready.recv(1 << 20)
        if not data:
            os._exit(0)
        if ready is ours:
            daemon.sendall(data.replace(b"compiler=", b"compilex="))
        else:
            ours.sendall(data)
'''


class Daemon(daemon.Daemon):
    """One that signals each job's end."""

    def __init__(self, *args, **kwargs):
        self.ended = threading.Semaphore(0)
        super().__init__(*args, **kwargs)

    def listen(self):
        for line in self.watch.stdout:
            if json.loads(line).get("event") == "ended":
                self.ended.release()


def listed(values):
    return ",".join(map(str, values))


def is_tuned(told):
    return told.get("source") == "tuned"


def lookups(served, problems):
    """Which of the problems are served as tuned; one call for each n."""
    found = set()
    for n in sorted({n for _, n in problems}):
        ms = sorted(m for m, other in problems if other == n)
        told = served.ctl("lookup", *daemon.shape(listed(ms), n))
        told = told if isinstance(told, list) else [told]
        found |= {(m, n) for m, answer in zip(ms, told) if is_tuned(answer)}
    return found


def tune(served, ms, n):
    told = served.ctl("tune", *daemon.shape(listed(ms), n))
    assert len(told) == len(ms) and all(job["state"] == "done" for job in told), told
    return told


def scale(args):
    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        served = Daemon(args, folder)
        begin = time.monotonic()
        told = tune(served, SCALE, args.n)
        together = time.monotonic() - begin
        served.stop()
    apart = []
    for m in SCALE:
        with tempfile.TemporaryDirectory(prefix="ft.") as folder:
            served = Daemon(args, folder)
            begin = time.monotonic()
            tune(served, [m], args.n)
            apart.append(time.monotonic() - begin)
            served.stop()
    print(f"scale: {len(SCALE)} problems in one command {together:.2f} s ({together / len(SCALE) * 1e3:.0f} ms a problem, "
          f"{sum(job['sweep_s'] for job in told):.2f} s of sweeping), each alone with nothing kept {sum(apart):.2f} s "
          f"({min(apart):.2f} to {max(apart):.2f}): {sum(apart) / together:.1f} times as fast", flush=True)
    return {"together_s": together, "apart_s": apart}


def upgrade(args):
    problems = {(m, n) for n in UPGRADE_N for m in UPGRADE_M}
    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        served = Daemon(args, folder)
        begin = time.monotonic()
        for n in UPGRADE_N:
            tune(served, UPGRADE_M, n)
        full = time.monotonic() - begin
        assert lookups(served, problems) == problems
        served.stop()

        relay = pathlib.Path(folder, "relay")
        relay.write_text(RELAY % f"{args.build}/kernels/runner/flytune-runner-{args.kind}")
        relay.chmod(0o755)
        os.unlink(os.path.join(folder, "notify"))
        begin = time.monotonic()
        # As if idle: whether others use the device is not what is measured here.
        served = Daemon(args, folder, ["--runner", f"{args.kind}={relay}", "--background", "always"])
        asked = {(m, UPGRADE_N[-1]) for m in UPGRADE_M}
        first, found, order = None, set(), []
        while found != problems:
            new = lookups(served, problems - found)
            if new and first is None:
                first = time.monotonic() - begin
                # The device is known now: what is asked for most goes next.
                asked -= new
                for _ in range(10):
                    new |= lookups(served, asked - new)
            order += sorted(new)
            found |= new
            if found != problems and not served.ended.acquire(timeout=args.patience):
                print(f"FAILED: only {len(found)} of {len(problems)} are served as tuned after "
                      f"{time.monotonic() - begin:.1f} s, and no sweep has ended since", flush=True)
                print(json.dumps(served.ctl("jobs"))[-2000:], json.dumps(served.ctl("status"))[-1500:])
                served.stop()
                return None
        took = time.monotonic() - begin
        early = len(set(order[:len(asked) + 6]) & asked)
        served.stop()
    print(f"upgrade: {len(problems)} problems; full sweeps {full:.2f} s in all; after the upgrade the first is served as tuned "
          f"after {first:.2f} s, all after {took:.2f} s: {full / took:.1f} times as fast; of the {len(asked)} most asked "
          f"{early} were among the first {len(asked) + 6}", flush=True)
    return {"full_s": full, "first_s": first, "all_s": took, "most_asked_first": early}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--kind", default="cuda")
    parser.add_argument("--n", type=int, default=8192, help="of the list of m")
    parser.add_argument("--patience", type=float, default=60, help="seconds without the end of a sweep")
    parser.add_argument("parts", nargs="*", default=["scale", "upgrade"])
    args = parser.parse_args()
    results = {part: {"scale": scale, "upgrade": upgrade}[part](args) for part in args.parts}
    with open(args.out, "w") as file:
        json.dump(results, file, indent=1)
    sys.exit(1 if None in results.values() else 0)


if __name__ == "__main__":
    main()
