#!/usr/bin/env python3
"""Has the runner build, verify and time the configs of each shape, and writes what won: the winner, the default and the
worst for speed.py. Takes the space that a sweep tries; with --wide a far wider product of knob values, to see which knobs
matter; with --new what is not in the space and may belong there, beside what is; with --fit what a rule for the default could
say, beside the space, on the shapes that the default was not fitted to, and which rule is best over all. Every config is held
against float64 on the way."""
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
# what --fit looks for one rule for, and what it looks at beside
FIT = [(512, 4096), (1024, 4096), (1024, 8192), (4096, 2880), (2048, 5120)]
BESIDE = [(2048, 16384), (3000, 4096), (700, 8192)]
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


# Vectors that a thread takes, nearly: the rule's terms for each row length.
RULE = {2880: {64: 8, 96: 4, 192: 2, 384: 1}, 4096: {64: 8, 128: 4, 256: 2, 512: 1}, 5120: {96: 8, 160: 4, 320: 2, 640: 1},
        8192: {128: 8, 256: 4, 512: 2, 1024: 1}, 16384: {256: 8, 512: 4, 1024: 2}}


def fit_products(m, n):
    teams = ",".join(map(str, RULE[n]))
    rows, blocks = f"ROW_THREADS={teams}", f"BLOCK_THREADS={teams}"
    return [[], [rows, blocks, "WEIGHT=1,3", "NONTEMPORAL=0,3", "waves_per_eu=0,8"],
             [rows, blocks, "PASSES=2", "WEIGHT=0", "NONTEMPORAL=0,8", "waves_per_eu=0,16"],
             [rows, blocks, "WEIGHT=0,1", "NONTEMPORAL=0", "waves_per_eu=0,12,16"]]


def rule_of(n, config):
    """A config in terms that hold for any row length; None if it has none."""
    vectors = RULE.get(n, {}).get(config["ROW_THREADS"])
    if not vectors or config["WEIGHT"] == 2 or config["BLOCKS_PER_UNIT"] or config["PREFETCH"]:
        return None
    rows = config["BLOCK_THREADS"] // config["ROW_THREADS"]
    return (f"v{vectors} r{rows} w{config['WEIGHT']} h{config['NONTEMPORAL']} e{config['waves_per_eu']}"
            + (" twice" if config["PASSES"] == 2 else ""))


def print_rules(rules, best, lines):
    """The rules that were timed on every shape of FIT, the best in the mean first, and how much each is off on each."""
    names = [f"{m}x{n}" for m, n in FIT]
    whole = [rule for rule, times in rules.items() if all(name in times for name in names)]
    mean = lambda rule: math.exp(sum(math.log(rules[rule][name] / best[name]) for name in names) / len(names))
    lines.append("rules (vectors a thread, rows a block, weight, hint, waves_per_eu), mean, and on " + " ".join(names))
    for rule in sorted(whole, key=mean)[:14]:
        lines.append(f"  {rule:22} {mean(rule):.3f}  " + " ".join(f"{rules[rule][name] / best[name]:.3f}" for name in names))


def products(args, m, n):
    if args.fit:
        return fit_products(m, n)
    if args.new:
        return new_products(m, n)
    if args.wide:
        return [[f"ROW_THREADS={TEAMS[n]}"] + product for product in PRODUCTS.values()]
    return [[]]


def short(trial):
    """A line."""
    knobs = " ".join(f"{k}={v}" for k, v in trial["config"].items() if v and k != "PASSES")
    twice = " twice" if trial["config"]["PASSES"] == 2 else ""
    return f"{trial['median_us']:.3f} min {trial['min_us']:.3f} r{trial['registers']} s{trial['spills']} {knobs}{twice}"


def family(config):
    """What a config has that the space long had not, to see which of it helps."""
    hint = config["NONTEMPORAL"]
    return " ".join(filter(None, ["twice" if config["PASSES"] == 2 else "",
                                  f"weight{config['WEIGHT']}", f"hint{hint}" if hint in (1, 8) else ""]))


def explore(args, m, n, knobs):
    path = os.path.join(args.code_dir, "trial.json")
    command = [args.explore, "rmsnorm", "--m", str(m), "--n", str(n), "--dtype", "bf16", "--rounds", args.rounds,
               "--json", path, "--code-dir", args.code_dir]
    for knob in knobs:
        command += ["--knob", knob]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        print(f"{m}x{n}: not done after 30 s: {' '.join(knobs) or 'the space'}", flush=True)
        return None
    if ran.returncode:
        print(f"{m}x{n}: {ran.stderr.strip()[-400:]}")
        return None
    with open(path) as file:
        found = json.load(file)
    found["summary"] = ran.stdout.strip().splitlines()[-1]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--explore", required=True, help="the program")
    parser.add_argument("--out", required=True, help="folder for what was measured")
    parser.add_argument("--code-dir", required=True)
    parser.add_argument("--rounds", default="15")
    parser.add_argument("--seconds", type=float, default=160)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--brief", action="store_true", help="a line a shape, at the end")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(args.code_dir, exist_ok=True)
    begin = time.time()
    choices, lines, everything, gaps, rules, best = {}, [], {}, {}, {}, {}
    kept = os.path.join(args.out, "choices.json")
    if args.fit and os.path.exists(kept):
        with open(kept) as file:
            choices = json.load(file)
    for m, n in FIT + BESIDE if args.fit else SHAPES + ([] if args.wide or args.new else MORE):
        trials, default = {}, None
        for knobs in products(args, m, n):
            if time.time() - begin > args.seconds:
                print(f"out of time at {m}x{n}")
                break
            found = explore(args, m, n, knobs)
            if not found:
                continue
            if not args.brief:
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
        best[f"{m}x{n}"] = ranked[0]["median_us"]
        for t in ranked:
            rule = rule_of(n, t["config"])
            if rule:
                rules.setdefault(rule, {})[f"{m}x{n}"] = t["median_us"]
        ran = "the same code as another"
        if default in trials:
            gap = trials[default]["median_us"] / ranked[0]["median_us"]
            ran = f"{trials[default]['median_us']:.3f} ({gap:.3f})"
            gaps[m, n] = gap
        shown = [short(t) for t in ranked[:1 if args.brief and not args.fit else 2 if args.brief else 5]]
        lines.append(f"{m}x{n}: {len(ranked)} configs, default {ran}, worst {ranked[-1]['median_us']:.3f}, best"
                     + (": " + shown[0] if len(shown) == 1 else ""))
        lines.extend(["   " + text for text in shown] if len(shown) > 1 else [])
        if args.new:
            found = {}
            for t in ranked:
                found.setdefault(family(t["config"]), t["median_us"])
            lines.append("   " + ", ".join(f"{name} {us:.3f}" for name, us in found.items()))
        with open(os.path.join(args.out, "choices.json"), "w") as file:
            json.dump(choices, file, indent=1)
        with open(os.path.join(args.out, "explored.json"), "w") as file:
            json.dump(everything, file)
    if args.fit:
        print_rules(rules, best, lines)
    print("\n".join(lines))
    for name, of in (("promised", SHAPES), ("other", MORE)):
        some = [gap for of_shape, gap in gaps.items() if of_shape in of]
        if some:
            mean = math.exp(sum(map(math.log, some)) / len(some))
            print(f"default / winner, {name} shapes: geometric mean {mean:.4f}, at most {max(some):.4f}, over {len(some)}")
    print(f"explored in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
