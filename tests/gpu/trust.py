#!/usr/bin/env python3
"""Whether what is chosen on a GPU can be trusted, and what choosing costs.

It speaks to flytune-runner-cuda as the daemon does, and needs no daemon: the runner races with the same function that the
daemon decides with. In five parts, each of which goes on where an earlier call left it (--out):

  agree  fresh processes sweep each problem once, as from an empty store (built code is kept): how many choose the same
         config. In between, other processes time every config of every problem for as many rounds as a race may have and
         drop none: the truth, against which all choices are held. The plain way, the least median of 25 rounds, is played
         on those rounds.
  cost   seconds of a sweep: 12 configs (BLOCK_THREADS x waves_per_eu) beside Triton's search over 12 configs of its own
         kernel, with nothing built and with all built; then the whole space, and the same rounds without dropping any.
  load   sweeps while another process uses the device: whether they notice, and what they choose.
  faults the default of each problem is made wrong in one of 50 launches, in one of 200, or made to write into its input: of so
         many sweeps of it and three that are slower, how many find it wrong, how many choose it, and whether anyone else is
         called wrong. As it is all 12 are swept.
  tell   prints the tables of what is known so far; the other parts print them, too.

Needs nothing but Python; Triton's column needs torch and triton."""
import argparse
import collections
import json
import math
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

AGREE = "1x4096,128x8192,4096x4096,16384x4096,32768x8192"
OTHERS = "16x8192,4096x8192,2048x16384,131072x2048"
COST = "1x4096,16x8192,128x8192,1024x8192,4096x4096"
LOAD = "128x8192,4096x4096"
FAULTS = "1x4096,16x8192,4096x4096"
BAND = 0.005
ROUNDS = 120  # that a race has at the most
TRIM = 5     # a fifth is cut off at either end, as in a decision
BUDGET_NS = 20 * 10**9
USUAL = {"band_ppm": 5000, "min_rounds": 7, "max_rounds": ROUNDS}


# ---- MessagePack, as far as a runner speaks it: the host may have no module for it

def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return (bytes([value]) if 0 <= value < 128 else struct.pack(">BQ", 0xcf, value) if value >= 0
                else struct.pack(">Bq", 0xd3, value))
    if isinstance(value, str):
        data = value.encode()
        return struct.pack(">BI", 0xdb, len(data)) + data
    if isinstance(value, (list, tuple)):
        return struct.pack(">BI", 0xdd, len(value)) + b"".join(map(pack, value))
    return struct.pack(">BI", 0xdf, len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())


WIDTHS = {0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q", 0xca: ">f",
          0xcb: ">d"}
LENGTHS = {0xc4: ">B", 0xc5: ">H", 0xc6: ">I", 0xd9: ">B", 0xda: ">H", 0xdb: ">I", 0xdc: ">H", 0xdd: ">I", 0xde: ">H",
           0xdf: ">I"}


def unpack(data, at):
    """A value and what follows it; IndexError or struct.error where the data ends too soon."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xe0:
        return tag - 256, at
    if tag in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[tag], at
    if tag in WIDTHS:
        return struct.unpack_from(WIDTHS[tag], data, at)[0], at + struct.calcsize(WIDTHS[tag])
    if tag in LENGTHS:
        count = struct.unpack_from(LENGTHS[tag], data, at)[0]
        at += struct.calcsize(LENGTHS[tag])
    else:
        count = tag & (0x1f if 0xa0 <= tag < 0xc0 else 0x0f)
    if tag <= 0x8f or tag in (0xde, 0xdf):
        found = {}
        for _ in range(count):
            key, at = unpack(data, at)
            found[key], at = unpack(data, at)
        return found, at
    if tag <= 0x9f or tag in (0xdc, 0xdd):
        found = []
        for _ in range(count):
            value, at = unpack(data, at)
            found.append(value)
        return found, at
    if at + count > len(data):
        raise IndexError
    raw = bytes(data[at:at + count])
    return raw if tag in (0xc4, 0xc5, 0xc6) else raw.decode(), at + count


# ---- the runner

class Runner:
    """A fresh process of the GPU runner, spoken to as the daemon does."""

    def __init__(self, args, code_dir=None, fault=""):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(["/bin/bash", "-c", f'exec "$0" 3<&{theirs.fileno()}', args.runner],
                                        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                        env={**os.environ, "FLYTUNE_TEST_FAULT": fault})
        theirs.close()
        self.socket, self.held, self.number = ours, b"", 0
        hello, _ = self.ask("hello", min=2, max=2, code_dir=code_dir or args.code_dir)
        if not hello["devices"]:
            sys.exit(f"no device: {hello.get('reason')}")
        self.device = hello["devices"][0]

    def ask(self, method, **params):
        self.number += 1
        self.socket.sendall(pack([0, self.number, method, params]))
        events = []
        while True:
            try:
                message, at = unpack(self.held, 0)
                self.held = self.held[at:]
            except (IndexError, struct.error):
                data = self.socket.recv(1 << 16)
                if not data:
                    raise RuntimeError(f"the runner ended with {self.process.wait()}") from None
                self.held += data
                continue
            if message[0] == 2:
                events.append(message[2])
            elif message[2]:
                raise RuntimeError(f"the runner says: {message[2]['message']}")
            else:
                return message[3], events

    def close(self):
        self.socket.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def problem_of(shape):
    m, n = map(int, shape.split("x"))
    return {"m": m, "n": n, "dtype": "bf16", "weight_dtype": "bf16", "row_stride": n}


def text_of(config):
    return " ".join(f"{name}={value}" for name, value in config.items() if value and (name, value) != ("PASSES", 1))


def sweep(runner, shape, configs=None, rule=None, budget_ns=BUDGET_NS):
    """A sweep of the whole space, or of `configs`: what it chose, and the samples of its rounds."""
    kernel = {"kernel": "rmsnorm", "problem": problem_of(shape), "device": runner.device["id"]}
    begin = time.monotonic()
    if configs is None:
        space, _ = runner.ask("space", **kernel)
        kept = [i for i, member in enumerate(space["members"]) if not member.get("pruned")]
        configs = [space["members"][i]["config"] for i in kept]
        default_index = kept.index(space.get("default_index", 0))
    else:
        default_index = 0
    seed = random.SystemRandom().getrandbits(62)
    reply, events = runner.ask("sweep", job=1, members=[{"config": config} for config in configs], default_index=default_index,
                               seed=seed, budget_ns=budget_ns, **kernel, **(rule or USUAL))
    took = time.monotonic() - begin
    if reply["outcome"] != "decided":
        raise RuntimeError(f"{shape}: {reply}")
    rounds = [dict(map(tuple, event["samples"])) for event in events if event["event"] == "round"]
    same = {event["trial"]: event["other"] for event in events if event["event"] == "same_code"}
    return {
        "chosen": text_of(configs[reply.get("winner", 0)]), "settled": bool(reply.get("conclusive")),
        "reason": reply.get("reason", ""), "method": reply.get("method", ""), "rounds": len(rounds), "seconds": took,
        "configs": len(configs) - len(same), "samples": sum(map(len, rounds)),
        "disturbed": sum(event.get("disturbed", 0) for event in events if event["event"] == "round"),
        "built": sum(event["event"] == "built" and not event.get("cached") for event in events),
        "out": {text_of(configs[event["trial"]]): event["status"] for event in events if event["event"] == "out"},
    }, [text_of(config) for config in configs], same.get(default_index, default_index), rounds


def everything(rounds):
    return {"band_ppm": 1000000, "min_rounds": rounds, "max_rounds": rounds}


def short(result):
    return {key: value for key, value in result.items() if key != "method"}


# ---- what is known so far

class Known:
    def __init__(self, args):
        self.path, self.begin, self.limit = args.out, time.monotonic(), args.seconds
        self.data = {"chosen": {}, "truth": {}, "passes": 0, "longs": 0, "cost": {}, "load": {}, "faults": {}, "device": "",
                     "spent_s": 0}
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.data.update(json.load(file))
        self.before, self.reserve = self.data["spent_s"], 0

    def save(self):
        self.data["spent_s"] = round(self.before + time.monotonic() - self.begin, 1)
        with open(self.path + ".new", "w") as file:
            json.dump(self.data, file)
        os.replace(self.path + ".new", self.path)

    def over(self, needs=0):
        """Whether so many seconds more would be too many, with those that are kept for later parts."""
        return time.monotonic() - self.begin + self.reserve + needs > self.limit


# ---- agree

def measure_truth(runner, shape, rounds):
    """Of one process: each config's ratio to the default, and what the plain way chooses of 25 rounds at a time."""
    _, names, default_index, table = sweep(runner, shape, rule=everything(rounds), budget_ns=10 * BUDGET_NS)
    alive = sorted(set(table[0]).intersection(*table[1:]))
    ratios, plain = {}, []
    for index in alive:
        found = sorted(row[index] / row[default_index] for row in table)
        cut = len(found) // TRIM
        ratios[names[index]] = statistics.fmean(found[cut:len(found) - cut])
    for start in range(0, len(table) - 24, 25):
        part = table[start:start + 25]
        plain.append(names[min(alive, key=lambda index: statistics.median(row[index] for row in part))])
    return {"ratio": ratios, "plain": plain, "us": statistics.median(row[default_index] for row in table) / 1e6,
            "default": names[default_index]}


def agree(args, known):
    data = known.data
    while data["passes"] < args.passes or data["longs"] < args.longs:
        if known.over(6):
            return print(f"out of time after {data['passes']} of {args.passes} passes")
        is_long = data["longs"] < args.longs and data["longs"] * args.passes <= data["passes"] * args.longs
        shapes = args.agree if not is_long and data["passes"] >= args.others_passes else args.agree + args.others
        shapes = random.sample(shapes, len(shapes))
        with Runner(args) as runner:
            data["device"] = runner.device["name"]
            for shape in shapes:
                if is_long:
                    data["truth"].setdefault(shape, []).append(measure_truth(runner, shape, args.rounds))
                else:
                    data["chosen"].setdefault(shape, []).append(short(sweep(runner, shape)[0]))
        data["longs" if is_long else "passes"] += 1
        known.save()
    return None


class Truth:
    """Of all long measurements of a problem."""

    def __init__(self, longs):
        names = set(longs[0]["ratio"]).intersection(*(one["ratio"] for one in longs))
        self.us = statistics.median(one["us"] for one in longs)
        ratio = {name: statistics.fmean(one["ratio"][name] for one in longs) for name in names}
        self.best = min(ratio, key=ratio.get)
        self.default = longs[0]["default"]
        self.slower, self.error = {}, {}
        for name in names:
            each = [one["ratio"][name] / one["ratio"][self.best] for one in longs]
            self.slower[name] = statistics.fmean(each) - 1
            # Of one process with as many rounds as a race may have; its scatter over the processes.
            self.error[name] = statistics.stdev(each) if len(each) > 1 else math.nan
        self.best_us = self.us * ratio[self.best]
        self.edge = [name for name in names if abs(self.slower[name] - BAND) <= 3 * self.error[name]]
        self.tied = sum(slower <= BAND for slower in self.slower.values())
        self.plain = [choice for one in longs for choice in one["plain"]]

    def regret(self, name):
        return 100 * self.slower.get(name, math.nan)


def tell_choices(shape, sweeps, truth):
    print(f"{shape}: the best is {truth.best}")
    for choice, count in collections.Counter(one["chosen"] for one in sweeps).most_common(4):
        print(f"    {count:3} x {choice}{' (the default)' if choice == truth.default else ''}: "
              f"+{truth.regret(choice):.2f} % +-{100 * truth.error.get(choice, math.nan):.2f}")
    edge = sorted(truth.edge, key=lambda name: abs(truth.slower[name] - BAND))
    for name in edge[:2]:
        print(f"        at the edge: {name}: +{truth.regret(name):.2f} % +-{100 * truth.error[name]:.2f}")


def tell_agree(args, known):
    data = known.data
    truth = {shape: Truth(longs) for shape, longs in data["truth"].items() if longs}
    print("\nchosen by the sweeps, with what each is slower than the best by the long measurements")
    for shape, sweeps in data["chosen"].items():
        if shape in truth:
            tell_choices(shape, sweeps, truth[shape])
    print(f"\nagree: {data['passes']} fresh processes, {data['longs']} that measured everything for {args.rounds} rounds; "
          f"{data['device']}")
    print(f"{'m x n':>13} {'best us':>8} {'configs':>7} {'tied':>4} {'edge':>4} {'same':>9} {'settled':>7} {'regret %':>8} "
          f"{'worst':>6} {'rounds':>6} {'s':>6} {'plain':>8} {'worst':>6}")
    for shape in [shape for shape in args.agree + args.others if data["chosen"].get(shape)]:
        sweeps, known_truth = data["chosen"][shape], truth.get(shape)
        counted = collections.Counter(one["chosen"] for one in sweeps)
        mean = lambda key: statistics.fmean(one[key] for one in sweeps)
        if not known_truth:
            print(f"{shape:>13} {counted.most_common(1)[0][1]:>3} of {len(sweeps)}, truth not yet measured")
            continue
        regret = [known_truth.regret(one["chosen"]) for one in sweeps]
        plain = collections.Counter(known_truth.plain)
        plain_regret = [known_truth.regret(choice) for choice in known_truth.plain]
        print(f"{shape:>13} {known_truth.best_us:8.2f} {len(known_truth.slower):7} {known_truth.tied:4} "
              f"{len(known_truth.edge):4} {counted.most_common(1)[0][1]:3} of {len(sweeps):2} "
              f"{sum(one['settled'] for one in sweeps):7} {statistics.fmean(regret):8.2f} {max(regret):6.2f} "
              f"{mean('rounds'):6.1f} {mean('seconds'):6.3f} "
              + (f"{plain.most_common(1)[0][1]:2} of {len(known_truth.plain):2} {max(plain_regret):6.2f}"
                 if known_truth.plain else ""))
    print("tied: within 0.5 % of the best by all long measurements; edge: within 3 default_index errors (of one process's long "
          "measurement) of that;\nregret: of the choice to the best, mean and worst over the sweeps; plain: least median of "
          "25 of the long rounds")


# ---- cost

def twelve(runner, shape):
    """The plain blocks, a row each, with the default's hints for the rest."""
    space, _ = runner.ask("space", kernel="rmsnorm", problem=problem_of(shape), device=runner.device["id"])
    default_config = space["members"][space.get("default_index", 0)]["config"]
    return [{**default_config, "BLOCK_THREADS": block, "ROW_THREADS": block, "waves_per_eu": waves}
            for block in (256, 128, 512, 1024) for waves in (0, 1, 2)]


class Triton:
    """speed.py's search over its own 12 configs."""

    def __init__(self):
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        try:
            import speed
        except (ImportError, OSError) as error:
            print(f"Triton is left out: {error}")
            self.speed = None
            return
        self.speed = speed
        self.cache = speed.torch.cuda.get_device_properties(0).L2_cache_size
        # What only the first compilation of a process pays is nobody's search time.
        self.seconds("2x2048")

    def seconds(self, shape):
        """With nothing compiled, and with all compiled; None where there is no Triton."""
        if not self.speed:
            return None, None
        m, n = map(int, shape.split("x"))
        try:
            bench = self.speed.Bench(m, n, self.cache)
            kernel = self.speed.triton_fresh()
            found = [self.speed.triton_search(m, n, bench, kernel) for _ in range(2)]
            del bench
            self.speed.torch.cuda.empty_cache()
            return found
        except Exception as error:
            self.speed.complain(f"{shape} triton.autotune", error)
            return None, None


def cost_of(args, shape, triton):
    row = {"triton": triton.seconds(shape), "new": [], "up": [], "kept": []}
    for _ in range(2):
        folder = tempfile.mkdtemp(prefix="flytune-trust-")
        begin = time.monotonic()
        with Runner(args, folder) as runner:
            configs = twelve(runner, shape)
            row["own"] = sweep(runner, shape, configs)[0]["configs"]
            row["new"].append(time.monotonic() - begin)
            shutil.rmtree(folder)
            os.mkdir(folder)
            row["up"].append(sweep(runner, shape, configs)[0]["seconds"])
            for _ in range(3):
                row["kept"].append(sweep(runner, shape, configs)[0]["seconds"])
        shutil.rmtree(folder)
    return row


def full_cost(args, shape):
    with Runner(args) as runner:
        sweep(runner, shape)
        races = [sweep(runner, shape)[0] for _ in range(3)]
        race = sorted(races, key=lambda one: one["seconds"])[1]
        whole = sweep(runner, shape, rule=everything(race["rounds"]), budget_ns=10 * BUDGET_NS)[0]
    return {"race": short(race), "whole": short(whole)}


def cost(args, known):
    rows = known.data["cost"]
    for shape in args.agree:
        if "full " + shape not in rows and not known.over(5):
            rows["full " + shape] = full_cost(args, shape)
            known.save()
    triton = None
    for shape in args.cost:
        if shape in rows:
            continue
        if known.over(20):
            return print(f"out of time before the cost of {shape}")
        triton = triton or Triton()
        rows[shape] = cost_of(args, shape, triton)
        known.save()
    return None


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def tell_cost(args, known):
    rows = known.data["cost"]
    print(f"\ncost: seconds of a sweep over 12 configs, and of Triton's over its 12\n{'m x n':>13} {'own':>3} "
          f"{'process':>8} {'nothing':>8} {'built':>7} {'Triton':>7} {'built':>7} {'times: process':>14} {'nothing':>8} "
          f"{'built':>6} {'built/built':>11}")
    ratios = collections.defaultdict(list)
    for shape in [shape for shape in args.cost if shape in rows]:
        row = rows[shape]
        new, up, kept = (statistics.median(row[key]) for key in ("new", "up", "kept"))
        theirs, compiled = row["triton"]
        told = {}
        if theirs:
            told = {"process": theirs / new, "nothing": theirs / up, "built": theirs / kept, "both": compiled / kept}
        for key, value in told.items():
            ratios[key].append(value)
        get = lambda key: told.get(key, math.nan)
        print(f"{shape:>13} {row['own']:3} {new:8.3f} {up:8.3f} {kept:7.3f} {theirs or math.nan:7.3f} "
              f"{compiled or math.nan:7.3f} {get('process'):14.1f} {get('nothing'):8.1f} {get('built'):6.1f} "
              f"{get('both'):11.1f}")
    print(f"geometric means: {geometric(ratios['process']):.1f} with the process, its context among it, still to start; "
          f"{geometric(ratios['nothing']):.1f} with nothing built; {geometric(ratios['built']):.1f} with all built, against "
          f"Triton with nothing compiled; {geometric(ratios['both']):.1f} against Triton with all compiled\nown: configs of "
          f"their own code")
    print(f"\n{'the space':>13} {'configs':>7} {'rounds':>6} {'s':>7} {'ms/config':>9} {'no dropping s':>13} {'times':>6} "
          f"{'samples':>8} {'no dropping':>11}")
    for shape in [shape for shape in args.agree if "full " + shape in rows]:
        race, whole = rows["full " + shape]["race"], rows["full " + shape]["whole"]
        print(f"{shape:>13} {race['configs']:7} {race['rounds']:6} {race['seconds']:7.3f} "
              f"{1e3 * race['seconds'] / race['configs']:9.2f} {whole['seconds']:13.3f} "
              f"{whole['seconds'] / race['seconds']:6.2f} {race['samples']:8} {whole['samples']:11}")
    print("all built, runner up; no dropping: every config for as many rounds as the race took")


# ---- load

class Load:
    """Another process that keeps the device busy: tests/gpu/explore, timing a large problem for ever."""

    def __init__(self, args):
        self.command = [args.explore, "rmsnorm", "--m", str(args.load_m), "--n", "8192", "--dtype", "bf16",
                        "--code-dir", args.code_dir, "--rounds"]
        subprocess.run(self.command + ["1"], stdout=subprocess.DEVNULL, check=True)  # builds
        self.process = subprocess.Popen(["/bin/sh", "-c", 'while :; do "$0" "$@" >/dev/null || exit; done', *self.command,
                                         "999"], start_new_session=True)

    def stop(self):
        os.killpg(self.process.pid, 15)
        self.process.wait()


def load(args, known):
    rows = known.data["load"]
    for shape in args.load:
        if shape in rows:
            continue
        if known.over(3 * args.load_budget + 10):
            return print(f"out of time before {shape} under load")
        row = rows[shape] = {"quiet": [], "loaded": []}
        with Runner(args) as runner:
            row["quiet"].append(short(sweep(runner, shape)[0]))
        other = Load(args)
        try:
            with Runner(args) as runner:
                until = time.monotonic() + 5
                while time.monotonic() < until:  # the other one has a context to make
                    told, _ = runner.ask("load", device=runner.device["id"])
                    if told.get("percent", 0) > 50:
                        break
                    time.sleep(0.2)
                row["percent"] = told.get("percent") if told.get("known") else None
                for _ in range(3):
                    result = sweep(runner, shape, budget_ns=int(args.load_budget * 1e9))[0]
                    row["loaded"].append(short(result))
                    row["method"] = result["method"]
        finally:
            other.stop()
        with Runner(args) as runner:
            row["quiet"].append(short(sweep(runner, shape)[0]))
        known.save()
    return None


def tell_load(args, known):
    data = known.data
    print("\nload: sweeps beside another process that keeps the device busy")
    for shape in [shape for shape in args.load if shape in data["load"]]:
        row = data["load"][shape]
        truth = Truth(data["truth"][shape]) if data["truth"].get(shape) else None
        usual = collections.Counter(one["chosen"] for one in data["chosen"].get(shape, []) + row["quiet"]).most_common(1)
        print(f"{shape}: the system says {row['percent']} % used; undisturbed winner {usual[0][0]}")
        for word in ("quiet", "loaded"):
            for one in row[word]:
                print(f"    {word:7} {one['disturbed']:4} of {one['samples']:4} samples disturbed, {one['rounds']:2} rounds, "
                      f"{one['seconds']:6.2f} s, {'the same winner' if one['chosen'] == usual[0][0] else one['chosen']}"
                      + (f" (+{truth.regret(one['chosen']):.2f} %)" if truth else "")
                      + ("" if one["settled"] else ", not settled"))
        print(f"    method: {row['method']}")


# ---- faults

def faults(args, known):
    rows = known.data["faults"]
    few = min(9, args.fault_sweeps)
    for shape in args.faults:
        with Runner(args) as runner:
            configs = twelve(runner, shape)
        default = text_of(configs[0])
        match = ",".join(f"{name}={value}" for name, value in configs[0].items())
        for fault, wanted in (("", few), ("hurt", few), ("race", args.fault_sweeps), ("rare", args.fault_sweeps)):
            row = rows.setdefault(f"{shape} {fault}", {"sweeps": 0, "found": 0, "chosen": 0, "innocent": 0, "seconds": []})
            swept = [configs[0], *(config for config in configs if config["BLOCK_THREADS"] == 1024)] if fault else configs
            with Runner(args, fault=f"{fault}:{match}" if fault else "") as runner:
                sweep(runner, shape, swept)  # builds
                while row["sweeps"] < wanted:
                    if known.over(2):
                        return print(f"out of time in {shape} {fault}")
                    result = sweep(runner, shape, swept)[0]
                    wrong = [config for config, status in result["out"].items() if status == "wrong"]
                    row["sweeps"] += 1
                    row["found"] += default in wrong
                    row["chosen"] += result["chosen"] == default
                    row["innocent"] += len(set(wrong) - {default})
                    row["seconds"].append(result["seconds"])
                    row["method"] = result["method"]
            known.save()
    return None


def tell_faults(args, known):
    rows = known.data["faults"]
    if not rows:
        return
    words = {"": "as it is", "hurt": "writes into its input", "race": "wrong in 1 of 50", "rare": "wrong in 1 of 200"}
    print(f"\nfaults: sweeps, code kept, whose default is spoilt; as it is of 12 configs, else of 4\n"
          f"{'m x n':>13} {'default':>21} {'sweeps':>6} {'found':>5} {'chosen':>6} {'others wrong':>12} {'s':>6}")
    for name, row in rows.items():
        shape, fault = name.split(" ")
        if row["sweeps"]:
            print(f"{shape:>13} {words[fault]:>21} {row['sweeps']:6} {row['found']:5} {row['chosen']:6} "
                  f"{row['innocent']:12} {statistics.median(row['seconds']):6.3f}")
    print(f"method: {row.get('method', '')}")


PARTS = {"agree": agree, "cost": cost, "load": load, "faults": faults}


def shapes(text):
    return [shape for shape in text.split(",") if shape]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["load", "agree", "cost"], help="agree, cost, load, faults, tell")
    parser.add_argument("--runner", required=True)
    parser.add_argument("--explore", help="the program that keeps a device busy, for load")
    parser.add_argument("--code-dir", required=True, help="where built code is kept")
    parser.add_argument("--out", required=True, help="what is known so far; it goes on from there")
    parser.add_argument("--seconds", type=float, default=225, help="of this call")
    parser.add_argument("--passes", type=int, default=60, help="fresh processes")
    parser.add_argument("--others-passes", type=int, default=10, help="of them, those that sweep --others, too")
    parser.add_argument("--longs", type=int, default=8, help="processes that measure everything")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which each is")
    parser.add_argument("--agree", type=shapes, default=AGREE)
    parser.add_argument("--others", type=shapes, default=OTHERS, help="whose choice is held against the truth as well")
    parser.add_argument("--cost", type=shapes, default=COST)
    parser.add_argument("--load", type=shapes, default=LOAD)
    parser.add_argument("--faults", type=shapes, default=FAULTS)
    parser.add_argument("--fault-sweeps", type=int, default=100, help="of each kind and problem")
    parser.add_argument("--load-m", type=int, default=16384, help="rows of the problem that makes the load")
    parser.add_argument("--load-budget", type=float, default=5, help="seconds of a sweep under load")
    args = parser.parse_args()
    for name in ("agree", "others", "cost", "load", "faults"):
        if isinstance(getattr(args, name), str):
            setattr(args, name, shapes(getattr(args, name)))
    if unknown := set(args.parts) - {*PARTS, "tell"}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)} and tell")
    os.makedirs(args.code_dir, exist_ok=True)
    known = Known(args)
    status = 0
    # what was kept for the cost and not needed goes to the passes that are left
    for place, part in enumerate(args.parts + ["agree"] * ("agree" in args.parts)):
        if part == "tell":
            continue
        rows = known.data["cost"]
        unknown_cost = any(shape not in rows for shape in args.cost)
        known.reserve = 75 if "cost" in args.parts[place + 1:] and unknown_cost else 0
        try:
            PARTS[part](args, known)
        except Exception as error:  # what is known is told all the same
            print(f"{part} FAILED: {type(error).__name__}: {error}")
            status = 1
        known.save()
    tell_faults(args, known)
    tell_load(args, known)
    tell_cost(args, known)
    tell_agree(args, known)
    print(f"\n{known.data['spent_s']:.0f} s in all calls, {time.monotonic() - known.begin:.0f} s in this one")
    sys.exit(status)


if __name__ == "__main__":
    main()
