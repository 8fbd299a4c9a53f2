#!/usr/bin/env python3
"""Holds every config of the spaces of some 50 problems against float64, on the device: relative error, every element
written, nothing written outside. Keeps what is done in a file and goes on from there, as long as neither the device code
nor the space changed; then compute-sanitizer over three small problems, where it is installed."""
import argparse
import glob
import hashlib
import json
import os
import shutil
import subprocess
import time

CAP = 8 << 30
SIZES = [1, 7, 64, 127, 1000, 2880, 4096, 4097, 5120, 8192, 11008, 16384, 65536, 131072, 1048576]
ROWS = [1, 2, 3, 17, 128, 4096, 100000]
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# One rounding, and the f32 arithmetic before it, as kernels/compare.h says and why.
ROUNDING = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}
BOUND = {dtype: rounding + 1e-6 for dtype, rounding in ROUNDING.items()}
SANITIZED = [(3, 1000, "bf16", "bf16", 1000), (5, 4097, "f16", "f32", 4100), (2, 8192, "f32", "f32", 8192)]


def problems():
    """What is new or promised first; then every n in every type, where rows, weights and strides take turns so that each value
    meets many others."""
    found, turn = [], 0
    # long rows, an odd number of them
    found += [(2047, 16384, "bf16", "bf16", 16384), (1025, 32768, "f16", "f32", 32776), (1537, 16384, "f32", "f32", 16384)]
    # the shapes whose speed is promised, and one for each rest modulo a vector
    found += [(4096, 4096, "bf16", "bf16", 4096), (16384, 4096, "bf16", "bf16", 4096), (131072, 2048, "bf16", "bf16", 2048)]
    found += [(133, 2040 + rest, "bf16", "bf16", 2048 + rest) for rest in range(1, 8)]
    for n in SIZES:
        for dtype in ("bf16", "f16", "f32"):
            stride = n + (0, 0, 8, 3)[turn % 4]
            m = ROWS[turn % len(ROWS)]
            m = max(1, min(m, (CAP - (64 << 20)) // (2 * stride * BYTES[dtype])))
            weight = "f32" if (turn + turn // 3) % 2 else dtype
            found.append((m, n, dtype, weight, stride))
            turn += 1
    return found


def options(problem):
    m, n, dtype, weight, stride = problem
    return ["--m", str(m), "--n", str(n), "--dtype", dtype, "--weight-dtype", weight, "--row-stride", str(stride)]


def source(kernel):
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    digest = hashlib.sha256()
    for name in ("rows/rows.hip", "rows/gpu.c", f"{kernel}/{kernel}.hip", f"{kernel}/reference.hip", f"{kernel}/space_gpu.c",
                 f"{kernel}/gpu.c", "runner/gpu/gpu_check.hip"):
        with open(os.path.join(top, "kernels", name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def check(args, problem):
    path = os.path.join(args.code_dir, "correct.json")
    command = [args.explore, args.kernel, *options(problem), "--verify-only", "--all", "--json", path,
               "--memory-cap", str(CAP), "--code-dir", args.code_dir]
    begin = time.time()
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        return {"wrong": ["it took more than 90 s"], "configs": 0}
    if ran.returncode:
        return {"wrong": [(ran.stderr or ran.stdout).strip()[-300:]], "configs": 0}
    with open(path) as file:
        trials = json.load(file)["trials"]
    wrong = [f"{trial['config']}: {trial['reason']}" for trial in trials
             if not trial["ok"] and not trial["reason"].startswith("same code")]
    errors = [trial["error"] for trial in trials if trial["ok"]]
    if not errors or max(errors) > BOUND[problem[2]]:
        wrong.append(f"error {max(errors, default=None)}")
    return {"wrong": wrong, "configs": len(trials), "codes": len(errors), "error": max(errors, default=None),
            "seconds": round(time.time() - begin, 2)}


def sanitize(args):
    tool = shutil.which("compute-sanitizer") or next(iter(sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer") + glob.glob(
        "/usr/local/cuda*/compute-sanitizer/compute-sanitizer"))), None)
    if not tool:
        print("compute-sanitizer: not installed")
        return True, {"skipped": "not installed"}
    good, results, begin = True, {}, time.time()
    for name, problem in [(each, p) for each in ("memcheck", "racecheck") for p in SANITIZED] + [("synccheck", SANITIZED[1])]:
        command = [tool, "--tool", name, "--target-processes", "application-only", "--error-exitcode", "9", args.explore,
                   args.kernel, *options(problem), "--verify-only", "--memory-cap", str(1 << 30), "--code-dir",
                   args.code_dir]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, begin + 60 - time.time()))
            told = ran.stdout.splitlines() + ran.stderr.splitlines()
            words = [line for line in told if "SUMMARY" in line]
            if ran.returncode:  # what it found, not only that it did
                words += [line for line in told if line.startswith("=========")][:40]
            status = ran.returncode
            if status and not words:
                words = [(ran.stdout + ran.stderr).strip()[-300:]]
        except subprocess.TimeoutExpired:
            status, words = 124, ["out of time"]
        print(f"compute-sanitizer {name} {problem}: status {status}: {' '.join(words)}", flush=True)
        results[f"{name} {problem}"] = {"status": status, "words": words}
        good = good and status == 0
    return good, results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--explore", required=True, help="the program")
    parser.add_argument("--code-dir", required=True)
    parser.add_argument("--kernel", default="rmsnorm")
    parser.add_argument("--state", required=True, help="what is done already, and where it is written to")
    parser.add_argument("--seconds", type=float, default=150)
    args = parser.parse_args()
    os.makedirs(args.code_dir, exist_ok=True)
    begin, of, state = time.time(), source(args.kernel), {}
    if os.path.exists(args.state):
        with open(args.state) as file:
            state = json.load(file)
    if state.get("source") != of:
        state = {"source": of, "done": {}}
    left, wrong, configs, codes = 0, 0, 0, 0
    for problem in problems():
        name = "m={} n={} {} weight {} stride {}".format(*problem)
        if name not in state["done"] or state["done"][name]["wrong"]:
            if time.time() - begin > args.seconds:
                left += 1
                continue
            state["done"][name] = check(args, problem)
            with open(args.state + ".new", "w") as file:
                json.dump(state, file, indent=1)
            os.replace(args.state + ".new", args.state)
        result = state["done"][name]
        configs += result["configs"]
        codes += result.get("codes", 0)
        if result["wrong"]:
            wrong += 1
            print(f"WRONG {name}:", *result["wrong"][:4], sep="\n    ", flush=True)
    print(f"{len(problems())} problems, {wrong} wrong, {left} left for another time; {configs} configs, {codes} of them of "
          f"their own code; {time.time() - begin:.0f} s", flush=True)
    for dtype, bound in BOUND.items():
        errors = [r["error"] for name, r in state["done"].items() if f" {dtype} weight" in name and r.get("error") is not None]
        if errors:
            beyond = "" if dtype == "f32" else (f"; {sum(e > ROUNDING[dtype] for e in errors)} of {len(errors)} problems above "
                                                f"one rounding alone, {ROUNDING[dtype]:.6e}")
            print(f"  {dtype}: largest relative error {max(errors):.6e}, bound {bound:.6e}{beyond}")
    good = True
    if not left and not state.get("sanitized_clean"):
        good, state["sanitizer"] = sanitize(args)
        state["sanitized_clean"] = good
        with open(args.state, "w") as file:
            json.dump(state, file, indent=1)
    raise SystemExit(1 if wrong or left or not good else 0)


if __name__ == "__main__":
    main()
