#!/usr/bin/env python3
"""Two devices of one host under one daemon: what the second is worth, and what one costs the other.

  spread  20 problems, with --device cuda:0 and with both; a fresh store each time, no code and all code kept, runners down at the
          start; the median of the repeats, and its ratio
  wild    one card's runner writes wildly and dies, again and again, while the other sweeps 20 problems: that one loses nothing
  cpu     needs one GPU: the processor's sweeps by themselves and beside a GPU that sweeps all the while: winners, times, seconds

Prints a table; needs nothing but Python. tests/gpu/run two has the options."""
import argparse
import collections
import json
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import daemon

M, N = [1, 16, 128, 1024, 4096], [2048, 4096, 5120, 8192]
WILD = "wild:BLOCK_THREADS=128,ROW_THREADS=128,WEIGHT=3,waves_per_eu=0,NONTEMPORAL=3"
FAULTS = 3  # problems of the card whose runner dies


class Daemon(daemon.Daemon):
    def __init__(self, args, folder, *words):
        # Nothing by itself: only what is asked for is measured.
        super().__init__(args, folder, ["--background", "off", *words], kinds=())

    def await_devices(self, count):
        """Until so many are known; the runner that said so is let go then."""
        while sum(device["state"] == "ready" for device in self.ctl("devices")["devices"]) < count:
            assert self.process.poll() is None, "the daemon ended"
            select.select([], [], [], 0.01)

    def tune_all(self, problems, *more):
        """One command for each n, all at once; the jobs, and the seconds until the last has ended."""
        begin = time.monotonic()
        running = [subprocess.Popen([f"{self.args.build}/client/flytunectl", "--json", "--socket", self.socket, "tune",
                                     *map(str, daemon.shape(",".join(map(str, ms)), n)), *more],
                                    stdout=subprocess.PIPE, text=True) for n, ms in problems]
        told = [job for process in running for job in json.loads(process.communicate(timeout=daemon.DEADLINE)[0])]
        assert all(job["state"] == "done" for job in told), [job for job in told if job["state"] != "done"][:1]
        return told, time.monotonic() - begin

    def device(self, name):
        return next(device for device in self.ctl("devices")["devices"] if device["id"] == name)

    def job(self, number):
        return next(job for job in self.ctl("jobs")["jobs"] if job["job"] == number)


def all_problems(args):
    return [(n, M[:args.ms]) for n in N[:args.ns]]


def sweep_all(args, devices, kept):
    """Seconds, and how many jobs each device worked. `kept`: a folder of code, which is filled if it is not there."""
    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        if kept and kept.is_dir():
            shutil.copytree(kept, pathlib.Path(folder, "state", "code"))
            pathlib.Path(folder, "state").chmod(0o700)
        served = Daemon(args, folder, *(word for name in devices for word in ("--device", name)))
        try:
            served.await_devices(len(devices))
            served.runners_gone()
            told, took = served.tune_all(all_problems(args))
            worked = [served.job(job["job"])["device"] for job in told]
            if kept and not kept.is_dir():
                shutil.copytree(pathlib.Path(folder, "state", "code"), kept)
        finally:
            served.stop()
    return took, [worked.count(name) for name in devices]


def spread(args):
    one, both = [f"{args.kind}:0"], [f"{args.kind}:0", f"{args.kind}:1"]
    rows = {}
    with tempfile.TemporaryDirectory(prefix="ft.") as scratch:
        for code in ("cold", "kept"):
            kept = pathlib.Path(scratch, "code") if code == "kept" else None
            if kept:
                sweep_all(args, both, kept)
            runs = {"one": [], "both": []}
            for turn in range(args.repeats):
                # There and back, so that neither always comes first.
                for name, devices in (("one", one), ("both", both))[::1 if turn % 2 == 0 else -1]:
                    took, worked = sweep_all(args, devices, kept)
                    runs[name].append(took)
                    print(f"  {code} {name:>4}: {took:.3f} s, jobs of each {worked}", flush=True)
            medians = {name: statistics.median(values) for name, values in runs.items()}
            rows[code] = {"runs_s": runs, "median_s": medians, "ratio": medians["both"] / medians["one"]}
    print(f"{args.ms * args.ns} problems, fresh store, runners down at the start, median of {args.repeats}:")
    print(f"{'code':>6} {one[0]:>9} {'both':>9} {'ratio':>7}   spread of one, of both")
    for code, row in rows.items():
        low_high = [f"{min(values):.2f} to {max(values):.2f}" for values in row["runs_s"].values()]
        print(f"{code:>6} {row['median_s']['one']:>7.3f} s {row['median_s']['both']:>7.3f} s {row['ratio']:>7.3f}   "
              f"{low_high[0]}, {low_high[1]}", flush=True)
    return rows


def beside(args, wild):
    """The healthy card's 20 problems, beside the other's few, whose runner has the fault or has not."""
    healthy, sick = f"{args.kind}:0", f"{args.kind}:1"
    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        served = Daemon(args, folder, "--device", healthy, "--device", sick, "--runner-idle", "60", "--deadline", "verify=5",
                        "--deadline", "measure=5")
        try:
            served.await_devices(2)
            # Its runner is up before there is a fault to be read.
            served.tune_all([(N[0], [3])], "--device", healthy)
            before = served.device(healthy)["runner_pid"]
            if wild:
                pathlib.Path(served.fault).write_text(WILD)
            others = subprocess.Popen([f"{args.build}/client/flytunectl", "--json", "--socket", served.socket, "tune",
                                       *map(str, daemon.shape(",".join(map(str, range(65, 65 + FAULTS))), N[1])),
                                       "--device", sick], stdout=subprocess.PIPE, text=True)
            told, took = served.tune_all(all_problems(args), "--device", healthy)
            after = served.device(healthy)["runner_pid"]
            lost = json.loads(others.communicate(timeout=daemon.DEADLINE)[0])
            jobs = [served.job(job["job"]) for job in told]
            bad = sum(len(found) for n, ms in all_problems(args) for m in ms
                      for status, found in served.trials(m, n).items() if status not in ("ok", "pruned", "same_code_as"))
            return {"seconds": took, "same_runner": after == before,
                    "restarts": sum(job.get("restarts") or 0 for job in jobs), "bad_trials": bad,
                    "others": [job["state"] for job in lost],
                    "other_restarts": sum(served.job(job["job"]).get("restarts") or 0 for job in lost)}
        finally:
            served.stop()


def wild(args):
    quiet, beside_wild = beside(args, False), beside(args, True)
    print(f"{args.ms * args.ns} problems on one card, beside {FAULTS} of the other whose runner is well, and writes wildly:")
    print(f"{'beside':>9} {'seconds':>8} {'same runner':>12} {'restarts':>9} {'bad trials':>11} {'restarts of the other':>22}")
    for name, row in (("well", quiet), ("wild", beside_wild)):
        print(f"{name:>9} {row['seconds']:>8.3f} {'yes' if row['same_runner'] else 'NO':>12} {row['restarts']:>9} "
              f"{row['bad_trials']:>11} {row['other_restarts']:>22}", flush=True)
    assert beside_wild["other_restarts"] > 0, "the fault did not show"
    for row in (quiet, beside_wild):
        assert row["same_runner"] and row["restarts"] == 0 and row["bad_trials"] == 0, row
    return {"well": quiet, "wild": beside_wild}


CPU_PROBLEMS = [(16, 4096), (256, 4096)]


def cpu(args):
    """The turns alternate; each is a sweep of all configs anew."""
    gpu = f"{args.kind}:0"
    found = {problem: {"alone": [], "beside": []} for problem in CPU_PROBLEMS}
    with tempfile.TemporaryDirectory(prefix="ft.") as folder:
        served = Daemon(args, folder, "--device", gpu, "--device", "cpu:0", "--runner",
                        f"cpu={args.build}/kernels/runner/flytune-runner-cpu", "--runner-idle", "60")
        swept, stop = [0], threading.Event()

        def keep_sweeping():
            while not stop.is_set():
                told, _ = served.tune_all(all_problems(args), "--device", gpu, "--force")
                swept[0] += len(told)

        try:
            served.await_devices(2)
            for turn in range(args.repeats):
                for name in ("alone", "beside")[::1 if turn % 2 == 0 else -1]:
                    stop.clear()
                    other = threading.Thread(target=keep_sweeping)
                    if name == "beside":
                        other.start()
                    for problem in CPU_PROBLEMS:
                        told, took = served.tune_all([(problem[1], [problem[0]])], "--device", "cpu:0", "--force")
                        print(f"  {problem[0]}x{problem[1]} {name}: {took:.2f} s", flush=True)
                        found[problem][name].append({
                            "seconds": took, "sweep_s": told[0]["sweep_s"], "time_us": told[0]["time_us"],
                            "gain": told[0]["gain"], "winner": ",".join(f"{knob}={value}" for knob, value in told[0]["config"].items())})
                    stop.set()
                    if name == "beside":
                        other.join()
        finally:
            stop.set()
            served.stop()
    print(f"the processor's sweeps, {args.repeats} each, alone and beside a GPU that swept {swept[0]} problems meanwhile:")
    print(f"{'m x n':>10} {'':>7} {'winner us':>10} {'low to high':>18} {'gain':>6} {'sweep s':>8} {'waited s':>9}  winners")
    for problem, sides in found.items():
        for name, rows in sides.items():
            times = [row["time_us"] for row in rows]
            winners = collections.Counter(row["winner"] for row in rows).most_common(2)
            print(f"{problem[0]:>5}x{problem[1]:<4} {name:>7} {statistics.median(times):>10.2f} {min(times):>8.2f} to {max(times):<7.2f} "
                  f"{statistics.median(row['gain'] for row in rows):>5.3f} {statistics.median(row['sweep_s'] for row in rows):>8.2f} "
                  f"{statistics.median(row['seconds'] for row in rows):>9.2f}  "
                  + "; ".join(f"{count}: {winner}" for winner, count in winners), flush=True)
    assert swept[0] > 0
    return {"gpu_sweeps": swept[0], "found": {f"{m}x{n}": sides for (m, n), sides in found.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--kind", default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ms", type=int, default=len(M), help="so many m of each n")
    parser.add_argument("--ns", type=int, default=len(N), help="so many n")
    parser.add_argument("parts", nargs="*", default=["spread", "wild"])
    args = parser.parse_args()
    results, failed = {}, 0
    for part in args.parts:
        try:
            results[part] = {"spread": spread, "wild": wild, "cpu": cpu}[part](args)
        except Exception as error:
            failed += 1
            print(f"FAILED {part}: {type(error).__name__} {str(error)[-600:]}", flush=True)
        with open(args.out, "w") as file:
            json.dump(results, file, indent=1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
