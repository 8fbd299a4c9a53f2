#!/usr/bin/env python3
"""Times flytune's rmsnorm beside torch, torch.compile, Triton and a plain copy, all in one process and in one way.

A sample is a CUDA graph of many launches over sets of buffers, after the caches were cleared by reading other memory;
the contenders, flytune's among them, are captured in the same way, take the same buffers in turn, and take turns in
rounds. "floor" is what an empty kernel takes so. Flytune's code objects are built and chosen by the runner (explore.py writes its
choice), loaded with the driver and launched by their launch contract. Needs torch, triton and a GPU. A peer that fails is
left out, and said so; Triton's own search over its configs is timed for each shape, with nothing cached."""
import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import tempfile
import time

# nothing of another run may make Triton's search or torch.compile look faster than they are
CACHE = tempfile.mkdtemp(prefix="flytune-speed-")
os.environ["TRITON_CACHE_DIR"] = os.path.join(CACHE, "triton")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(CACHE, "inductor")

import torch
import triton
import triton.language as tl

SHAPES = [(1, 4096), (16, 8192), (128, 8192), (4096, 4096), (4096, 8192), (16384, 4096), (32768, 8192), (2048, 16384),
          (131072, 2048)]
EPS = 1e-5
TARGET_US = 400.0
LAUNCHES_MAX = 400

cuda = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"CUDA: {text.value}")


class Flytune:
    """A code object of the runner's `build`, launched as its contract says."""

    def __init__(self, runner, m, n, config, folder):
        text = ",".join(f"{k}={v}" for k, v in config.items())
        path = os.path.join(folder, f"{abs(hash((m, n, text)))}.cubin")
        out = subprocess.run([runner, "build", "rmsnorm", "--arch", "sm_%d%d" % torch.cuda.get_device_capability(),
                              "--m", str(m), "--n", str(n), "--dtype", "bf16", "--config", text, "-o", path],
                             check=True, capture_output=True, text=True).stdout
        self.about = json.loads(out)
        launch = self.about["launch"]
        limit = launch["blocks_at_most"]
        each = config.get("BLOCKS_PER_UNIT", 0)
        if each:
            limit = each * torch.cuda.get_device_properties(0).multi_processor_count
        self.block = launch["block"]
        self.grid = min(-(-m // launch["rows_a_block"]), limit)
        with open(path, "rb") as file:
            self.image = file.read()
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), self.image))
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), module, self.about["symbol"].encode()))
        self.m, self.n = m, n

    def __call__(self, y, x, w):
        values = [ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(w.data_ptr()),
                  ctypes.c_int64(self.m), ctypes.c_int64(self.n), ctypes.c_float(EPS)]
        arguments = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        check(cuda.cuLaunchKernel(self.function, self.grid, 1, 1, self.block, 1, 1, 0,
                                  ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), arguments, None))


@triton.jit
def rms_kernel(y, x, w, n, eps, BLOCK: tl.constexpr, EVICT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    if EVICT:
        value = tl.load(x + row * n + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    else:
        value = tl.load(x + row * n + at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / n + eps)
    tl.store(y + row * n + at, (value * scale * weight).to(tl.bfloat16), mask=inside)


TRITON_CONFIGS = [(warps, evict) for warps in (1, 2, 4, 8, 16, 32) for evict in (False, True)]


def complain(who, error):
    print(f"  {who}: left out: {str(error).strip()[-300:]}", flush=True)


def plain_copy(y, x, w):
    y.copy_(x)


def triton_fresh():
    """The kernel, with nothing of it compiled in this process or on disk."""
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="triton-", dir=CACHE)
    return triton.jit(rms_kernel.fn)


def triton_search(m, n, bench, kernel=None):
    """Seconds that triton.autotune takes to choose among the configs, with nothing compiled but what `kernel` has."""
    kernel = kernel or triton_fresh()
    block = triton.next_power_of_2(n)
    configs = [triton.Config({"EVICT": evict}, num_warps=warps) for warps, evict in TRITON_CONFIGS]
    tuned = triton.autotune(configs=configs, key=["n"])(kernel)
    torch.cuda.synchronize()
    begin = time.time()
    tuned[(m,)](bench.y[0], bench.x[0], bench.w[0], n, EPS, BLOCK=block)
    torch.cuda.synchronize()
    return time.time() - begin


def triton_rms(m, n, warps, evict):
    block = triton.next_power_of_2(n)
    return lambda y, x, w: rms_kernel[(m,)](y, x, w, n, EPS, BLOCK=block, EVICT=evict, num_warps=warps)


@triton.jit
def copy_kernel(y, x, count, BLOCK: tl.constexpr, EVICT: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    if EVICT:
        tl.store(y + at, tl.load(x + at, mask=inside, eviction_policy="evict_first"), mask=inside, cache_modifier=".cs")
    else:
        tl.store(y + at, tl.load(x + at, mask=inside), mask=inside)


@triton.jit
def nothing_kernel(y, x, w):
    pass


def triton_copy(m, n, block, warps, evict):
    count = m * n
    return lambda y, x, w: copy_kernel[(-(-count // block),)](y, x, count, BLOCK=block, EVICT=evict, num_warps=warps)


def formula(y, x, w):
    value = x.float()
    y.copy_((value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + EPS) * w.float()).to(torch.bfloat16))


class Bench:
    def __init__(self, m, n, cache):
        self.m, self.n = m, n
        size = 4 * m * n
        self.bytes = size + 2 * n
        wanted = int(TARGET_US / (1.0 + size / 5e6)) + 1
        self.sets = max(1, min(wanted, math.ceil(2.5 * cache / size) + 1, LAUNCHES_MAX))
        self.x = [torch.randn(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(self.sets)]
        self.y = [torch.full_like(x, float("nan")) for x in self.x]
        self.w = [torch.rand(n, device="cuda", dtype=torch.bfloat16) + 0.5 for _ in range(self.sets)]
        self.flush = torch.zeros(int(2.5 * cache) // 4, device="cuda", dtype=torch.int32)
        self.cold = self.sets * size >= 2 * cache
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def graph(self, function, launches):
        """`function` may return its output instead of writing to y; then as many outputs live as there are sets."""
        torch.cuda.synchronize()
        graph, alive = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph):
            for i in range(launches):
                k = i % self.sets
                out = function(self.y[k], self.x[k], self.w[k])
                if isinstance(out, torch.Tensor):
                    alive.append(out)
                    if len(alive) > self.sets:
                        alive.pop(0)
        return graph

    def sample(self, graph, launches):
        self.flush.max()
        self.start.record()
        graph.replay()
        self.stop.record()
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop) * 1e3 / launches

    def launches(self, us):
        count = max(1, math.ceil(TARGET_US / us))
        return min(count, LAUNCHES_MAX) if self.cold else min(count, self.sets)

    def race(self, contenders, rounds):
        graphs, times = {}, {}
        contenders = self.working(contenders)
        first = next(iter(contenders.values()))
        g = self.graph(first, min(self.sets, 16))
        for _ in range(30):
            us = self.sample(g, min(self.sets, 16))
        count = self.launches(us)
        for name, function in contenders.items():
            try:
                graphs[name] = self.graph(function, count)
                self.sample(graphs[name], count)
                times[name] = []
            except Exception as error:
                graphs.pop(name, None)
                complain(f"{self.m}x{self.n} {name}", error)
        for _ in range(rounds):
            for name, graph in graphs.items():
                times[name].append(self.sample(graph, count))
        return {name: statistics.median(values) for name, values in times.items()}, count

    def working(self, contenders):
        """Those that run at all."""
        good = {}
        for name, function in contenders.items():
            try:
                function(self.y[0], self.x[0], self.w[0])
                torch.cuda.synchronize()
                good[name] = function
            except Exception as error:
                complain(f"{self.m}x{self.n} {name}", error)
        return good

    def error(self, function):
        y = torch.full_like(self.x[0], float("nan"))
        out = function(y, self.x[0], self.w[0])
        if isinstance(out, torch.Tensor):
            y = out
        worst = 0.0
        for part in range(0, self.m, 4096):
            value = self.x[0][part:part + 4096].double()
            want = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + EPS) * self.w[0].double()
            got = y[part:part + 4096].double()
            worst = max(worst, ((got - want).abs() / want.abs().clamp_min(1e-30)).max().item())
        return worst


def contenders_of(args, m, n, choice, bench, folder, lean):
    """All that race for a shape: the runner's configs, torch, Triton, and copies."""
    found = {}
    for name in ("winner", "second", "third", "default", "worst"):
        if name in choice or name == "default":
            try:
                found[name] = Flytune(args.runner, m, n, choice.get(name, {}), folder)
            except Exception as error:
                complain(f"{m}x{n} {name}", getattr(error, "stderr", None) or error)
    found["torch"] = lambda y, x, w: torch.nn.functional.rms_norm(x, (n,), w, EPS)
    for mode in args.compile.split(","):
        if lean and mode != "default":
            continue
        try:
            torch._dynamo.reset()
            compiled = torch.compile(formula, dynamic=False, mode=None if mode == "default" else mode)
            compiled(bench.y[0], bench.x[0], bench.w[0])
            found["compile" if mode == "default" else "compile-" + mode] = compiled
        except Exception as error:
            complain(f"{m}x{n} torch.compile {mode}", error)
    for warps, evict in TRITON_CONFIGS:
        if triton.next_power_of_2(n) // (32 * warps) <= 256:
            found[f"triton{warps}{'e' if evict else ''}"] = triton_rms(m, n, warps, evict)
    found["copy"] = plain_copy
    found["floor"] = lambda y, x, w: nothing_kernel[(1,)](y, x, w)
    for block, warps, evict in ((1024, 4, False), (2048, 4, True), (4096, 8, False), (8192, 8, True), (4096, 4, True)):
        found[f"copy{block}.{warps}{'e' if evict else ''}"] = triton_copy(m, n, block, warps, evict)
    return found


def best(times, *prefixes):
    return min((v for k, v in times.items() if k.startswith(prefixes)), default=float("nan"))


def report(table):
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
    print(f"{'m x n':>14} {'default':>8} {'winner':>8} {'worst':>8} {'torch':>8} {'compile':>8} {'triton':>8} "
          f"{'copy':>8} {'floor':>6} {'peer/win':>8} {'copy/win':>8} {'dflt/win':>8} {'GB/s':>5} {'search':>6}")
    ratios, gaps = [], []
    for row in table:
        t = row["times"]
        win = t.get("winner", t.get("default", float("nan")))
        peer, copy = best(t, "triton", "compile", "torch"), best(t, "copy")
        if peer == peer and win == win:
            ratios.append(peer / win)
        if "default" in t and win == win:
            gaps.append(t["default"] / win)
        get = lambda name: t.get(name, float("nan"))
        print(f"{row['m']:>7}x{row['n']:<6} {get('default'):8.3f} {win:8.3f} {get('worst'):8.3f} {get('torch'):8.3f} "
              f"{best(t, 'compile'):8.3f} {best(t, 'triton'):8.3f} {copy:8.3f} {get('floor'):6.3f} {peer / win:8.3f} {copy / win:8.3f} "
              f"{get('default') / win:8.3f} {4 * row['m'] * row['n'] / win / 1e3:5.0f} "
              f"{row.get('triton_search_s') or float('nan'):6.2f}")
    print(f"geometric means: best peer / winner {mean(ratios):.3f} (least {min(ratios, default=float('nan')):.3f}), "
          f"default / winner {mean(gaps):.3f}; search: seconds that Triton takes for its {len(TRITON_CONFIGS)} configs")


def measure(args, m, n, choice, cache, folder, lean):
    bench = Bench(m, n, cache)
    row = {"m": m, "n": n, "sets": bench.sets, "triton_search_s": None}
    if m * n * 4 <= 1 << 27:
        try:
            row["triton_search_s"] = triton_search(m, n, bench)
        except Exception as error:
            complain(f"{m}x{n} triton.autotune", error)
    contenders = contenders_of(args, m, n, choice, bench, folder, lean)
    row["times"], row["launches"] = bench.race(contenders, args.rounds)
    row["error"] = {}
    for name in ("winner", "default", "torch", "compile"):
        if name in row["times"]:
            row["error"][name] = bench.error(contenders[name])
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--choices", help="explore.py's file: the winner and the worst config for each shape")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=190)
    parser.add_argument("--compile", default="default,max-autotune-no-cudagraphs", help="modes of torch.compile")
    parser.add_argument("--shapes", help="MxN,...; else those that speed is promised for")
    args = parser.parse_args()
    begin = time.time()
    choices, table = {}, []
    if args.choices and os.path.exists(args.choices):
        with open(args.choices) as file:
            choices = json.load(file)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    shapes = [tuple(map(int, s.split("x"))) for s in args.shapes.split(",")] if args.shapes else SHAPES
    for m, n in shapes:
        spent = time.time() - begin
        if spent > args.seconds:
            print(f"out of time before {m}x{n}")
            break
        try:
            table.append(measure(args, m, n, choices.get(f"{m}x{n}", {}), cache, CACHE, spent > args.seconds * 0.6))
        except Exception as error:
            complain(f"{m}x{n}", error)
        with open(args.out, "w") as file:
            json.dump({"device": torch.cuda.get_device_properties(0).name, "torch": torch.__version__,
                       "triton": triton.__version__, "rows": table}, file, indent=1)
        torch.cuda.empty_cache()
        print(f"  {m}x{n} done after {time.time() - begin:.0f} s", flush=True)
    report(table)


if __name__ == "__main__":
    main()
