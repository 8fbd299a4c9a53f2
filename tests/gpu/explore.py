#!/usr/bin/env python3
"""Has the runner build, verify and time a wide product of knob values for each shape, far wider than its space, and
writes what won: to see which knobs matter. Every config is held against float64 on the way."""
import argparse
import json
import os
import subprocess
import time

SHAPES = [(4096, 4096), (32768, 8192), (131072, 2048), (2048, 16384), (128, 8192), (1, 4096), (16, 8192), (4096, 8192),
          (16384, 4096)]
# threads a row and threads a block that are worth trying for each n
TEAMS = {2048: "32,64,128,256", 4096: "32,64,128,256,512", 8192: "64,128,256,512,1024", 16384: "128,256,512,1024"}
PRODUCTS = {
    "hints": ["BLOCK_THREADS=32,64,128,256,512,1024", "NONTEMPORAL=0,2,3,4,6", "WEIGHT=0,1"],
    "waves": ["BLOCK_THREADS=64,128,256,512,1024", "waves_per_eu=8,10,12,16", "WEIGHT=0,1", "NONTEMPORAL=3"],
    "walk": ["BLOCK_THREADS=128,256,512,1024", "WEIGHT=2", "PREFETCH=0,1", "BLOCKS_PER_UNIT=1,2,3,4,6,8",
             "NONTEMPORAL=3"],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--out", required=True, help="folder for what was measured")
    parser.add_argument("--code-dir", required=True)
    parser.add_argument("--rounds", default="5")
    parser.add_argument("--seconds", type=float, default=160)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(args.code_dir, exist_ok=True)
    begin = time.time()
    choices, lines, everything = {}, [], {}
    for m, n in SHAPES:
        trials = {}
        for name, knobs in PRODUCTS.items():
            if name == "walk" and m < 2048:
                continue
            if time.time() - begin > args.seconds:
                print(f"out of time at {m}x{n} {name}")
                break
            path = os.path.join(args.code_dir, "trial.json")
            command = [args.runner, "explore", "rmsnorm", "--m", str(m), "--n", str(n), "--dtype", "bf16", "--rounds",
                       args.rounds, "--json", path, "--code-dir", args.code_dir, "--knob", f"ROW_THREADS={TEAMS[n]}"]
            for knob in knobs:
                command += ["--knob", knob]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                print(f"{m}x{n} {name}: {ran.stderr.strip()[-400:]}")
                continue
            with open(path) as file:
                found = json.load(file)
            print(f"{m}x{n} {name}: {ran.stdout.strip().splitlines()[-1]}")
            if name == "hints":
                print("  " + found["method"])
            default = json.dumps(found["trials"][0]["config"])
            for trial in found["trials"]:
                key = json.dumps(trial["config"])
                if trial["ok"]:
                    trials[key] = trial
                elif "same code" not in trial["reason"]:
                    print(f"  out: {trial['config']}: {trial['reason']}")
        if not trials:
            continue
        ranked = sorted(trials.values(), key=lambda t: t["median_us"])
        choices[f"{m}x{n}"] = {"winner": ranked[0]["config"], "second": ranked[1]["config"],
                               "third": ranked[2]["config"], "worst": ranked[-1]["config"],
                               "default": json.loads(default)}
        everything[f"{m}x{n}"] = [[t["median_us"], t["min_us"], t["registers"], t["spills"], t["error"],
                                   list(t["config"].values())] for t in ranked]
        ran = f"{trials[default]['median_us']:.3f}" if default in trials else "the same code as another"
        lines.append(f"{m}x{n}: {len(ranked)} configs, default {ran}, worst {ranked[-1]['median_us']:.3f}, best:")
        for t in ranked[:6]:
            short = " ".join(f"{k}={v}" for k, v in t["config"].items() if v)
            lines.append(f"   {t['median_us']:9.3f} min {t['min_us']:9.3f} r{t['registers']} s{t['spills']} {short}")
        with open(os.path.join(args.out, "choices.json"), "w") as file:
            json.dump(choices, file, indent=1)
        with open(os.path.join(args.out, "explored.json"), "w") as file:
            json.dump(everything, file)
    print("\n".join(lines))
    print(f"explored in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
