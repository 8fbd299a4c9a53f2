#!/usr/bin/env python3
"""Has the runner build, verify and time the configs of each shape, and writes what won: the winner, the default and the
worst for speed.py. Takes the space that a sweep tries; with --wide a far wider product of knob values, to see which knobs
matter; with --new what is not in the space and may belong there, beside what is. Every config is held against float64 on
the way."""
import argparse
import json
import math
import os
import subprocess
import time

SHAPES = [(4096, 4096), (32768, 8192), (131072, 2048), (2048, 16384), (128, 8192), (1, 4096), (16, 8192), (4096, 8192),
          (16384, 4096)]
# where hints begin to cost, other rows, and the short ones of heads
MORE = [(512, 4096), (1024, 4096), (1024, 8192), (4096, 2880), (2048, 5120), (40960, 128), (64, 7168), (1, 8192)]
# threads a row and threads a block that are worth trying for each n
TEAMS = {2048: "32,64,96,128,256", 4096: "32,64,96,128,192,256,512", 8192: "64,128,160,192,224,256,512,1024",
         16384: "128,256,352,512,1024"}
PRODUCTS = {
    "hints": ["BLOCK_THREADS=32,64,96,128,160,192,224,256,512,1024", "NONTEMPORAL=0,2,3,8", "WEIGHT=0,1"],
    "waves": ["BLOCK_THREADS=64,128,192,256,512,1024", "waves_per_eu=8,10,12,16", "WEIGHT=0,1", "NONTEMPORAL=0,3"],
}

ROWS = {2048: "32,64,128,256", 4096: "64,128,256,512", 8192: "128,256,512,1024", 16384: "256,512,1024"}


def new_products(m, n):
    """For few rows what hides latency, for many what keeps memory busy; what might break is in a product of its own."""
    rows = f"ROW_THREADS={ROWS[n]}"
    blocks = f"BLOCK_THREADS={ROWS[n]}"
    if m * n < 1 << 22:
        return [[rows, blocks, "WEIGHT=0,1,3", "NONTEMPORAL=0,3,8"], [rows, blocks, "WEIGHT=1,3", "waves_per_eu=1,8"]]
    return [[rows, blocks, "WEIGHT=0,1,3", "NONTEMPORAL=0,1,8"],
            [rows, blocks, "PASSES=2", "WEIGHT=0", "NONTEMPORAL=0,8"]]


def products(args, m, n):
    if args.new:
        return new_products(m, n)
    if args.wide:
        return [[f"ROW_THREADS={TEAMS[n]}"] + product for product in PRODUCTS.values()]
    return [[]]


def family(config):
    """What a config has that the space long had not, to see which of it helps."""
    hint = config["NONTEMPORAL"]
    return " ".join(filter(None, ["twice" if config["PASSES"] == 2 else "",
                                  f"weight{config['WEIGHT']}", f"hint{hint}" if hint in (1, 8) else ""]))


def explore(args, m, n, knobs):
    path = os.path.join(args.code_dir, "trial.json")
    command = [args.runner, "explore", "rmsnorm", "--m", str(m), "--n", str(n), "--dtype", "bf16", "--rounds", args.rounds,
               "--json", path, "--code-dir", args.code_dir]
    for knob in knobs:
        command += ["--knob", knob]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        print(f"{m}x{n}: {ran.stderr.strip()[-400:]}")
        return None
    with open(path) as file:
        found = json.load(file)
    found["summary"] = ran.stdout.strip().splitlines()[-1]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--out", required=True, help="folder for what was measured")
    parser.add_argument("--code-dir", required=True)
    parser.add_argument("--rounds", default="15")
    parser.add_argument("--seconds", type=float, default=160)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--new", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(args.code_dir, exist_ok=True)
    begin = time.time()
    choices, lines, everything, gaps = {}, [], {}, []
    for m, n in SHAPES + ([] if args.wide or args.new else MORE):
        trials, default = {}, None
        for knobs in products(args, m, n):
            if time.time() - begin > args.seconds:
                print(f"out of time at {m}x{n}")
                break
            found = explore(args, m, n, knobs)
            if not found:
                continue
            print(f"{m}x{n}: {found['summary']}; {found['method']}")
            default = json.dumps(found["trials"][found["default"]]["config"])
            for trial in found["trials"]:
                if trial["ok"]:
                    trials[json.dumps(trial["config"])] = trial
                elif "same code" not in trial["reason"] and "pruned" not in trial["reason"]:
                    print(f"  out: {trial['config']}: {trial['reason']}")
        if not trials:
            continue
        ranked = sorted(trials.values(), key=lambda t: t["median_us"])
        choices[f"{m}x{n}"] = {"winner": ranked[0]["config"], "second": ranked[min(1, len(ranked) - 1)]["config"],
                               "third": ranked[min(2, len(ranked) - 1)]["config"], "worst": ranked[-1]["config"], "default": json.loads(default)}
        everything[f"{m}x{n}"] = [[t["median_us"], t["min_us"], t["registers"], t["spills"], t["error"],
                                   list(t["config"].values())] for t in ranked]
        ran = "the same code as another"
        if default in trials:
            ran = f"{trials[default]['median_us']:.3f}"
            if (m, n) in SHAPES:
                gaps.append(trials[default]["median_us"] / ranked[0]["median_us"])
        lines.append(f"{m}x{n}: {len(ranked)} configs, default {ran}, worst {ranked[-1]['median_us']:.3f}, best:")
        for t in ranked[:5 if args.new else 4]:
            short = " ".join(f"{k}={v}" for k, v in t["config"].items() if v and k != "PASSES")
            lines.append(f"   {t['median_us']:9.3f} min {t['min_us']:9.3f} r{t['registers']} s{t['spills']} {short}")
        if args.new:
            found = {}
            for t in ranked:
                found.setdefault(family(t["config"]), t["median_us"])
            lines.append("   " + ", ".join(f"{name} {us:.3f}" for name, us in found.items()))
        with open(os.path.join(args.out, "choices.json"), "w") as file:
            json.dump(choices, file, indent=1)
        with open(os.path.join(args.out, "explored.json"), "w") as file:
            json.dump(everything, file)
    print("\n".join(lines))
    if gaps:
        mean = math.exp(sum(map(math.log, gaps)) / len(gaps))
        print(f"default / winner: geometric mean {mean:.4f}, at most {max(gaps):.4f}, over {len(gaps)} shapes")
    print(f"explored in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
