#!/usr/bin/env python3
"""Times flytune's rmsnorm beside torch, torch.compile, Triton and a plain copy, all in one process and in one way.

A sample is a CUDA graph of many launches over sets of buffers, after the caches were cleared by reading other memory;
the contenders take turns in rounds. Flytune's code objects are built and chosen by the runner (explore.py writes its
choice), loaded with the driver and launched by their launch contract. Needs torch, triton and a GPU."""
import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

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
        first = next(iter(contenders.values()))
        for function in contenders.values():
            function(self.y[0], self.x[0], self.w[0])
        g = self.graph(first, min(self.sets, 16))
        for _ in range(30):
            us = self.sample(g, min(self.sets, 16))
        count = self.launches(us)
        for name, function in contenders.items():
            try:
                graphs[name] = self.graph(function, count)
                self.sample(graphs[name], count)
                times[name] = []
            except Exception as error:  # a peer that does not work is left out
                print(f"  {name}: {error}", file=sys.stderr)
        for _ in range(rounds):
            for name, graph in graphs.items():
                times[name].append(self.sample(graph, count))
        return {name: statistics.median(values) for name, values in times.items()}, count

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--choices", help="explore.py's file: the winner and the worst config for each shape")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=190)
    parser.add_argument("--compile", default="default", help="modes of torch.compile, comma-separated")
    args = parser.parse_args()
    begin = time.time()
    choices = {}
    if args.choices and os.path.exists(args.choices):
        with open(args.choices) as file:
            choices = json.load(file)
    folder = tempfile.mkdtemp(prefix="flytune-speed-")
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    table = []
    for m, n in SHAPES:
        if time.time() - begin > args.seconds:
            print(f"out of time before {m}x{n}")
            break
        bench = Bench(m, n, cache)
        contenders = {}
        choice = choices.get(f"{m}x{n}", {})
        for name in ("winner", "second", "third", "default", "worst"):
            if name in choice:
                contenders[name] = Flytune(args.runner, m, n, choice[name], folder)
        if "default" not in contenders:
            contenders["default"] = Flytune(args.runner, m, n, {}, folder)
        contenders["torch"] = lambda y, x, w: torch.nn.functional.rms_norm(x, (n,), w, EPS)
        for mode in args.compile.split(","):
            torch._dynamo.reset()
            compiled = torch.compile(formula, dynamic=False, mode=None if mode == "default" else mode)
            contenders["compile" if mode == "default" else mode] = compiled
            compiled(bench.y[0], bench.x[0], bench.w[0])
        for warps, evict in TRITON_CONFIGS:
            if triton.next_power_of_2(n) // (32 * warps) <= 256:
                contenders[f"triton{warps}{'e' if evict else ''}"] = triton_rms(m, n, warps, evict)
        contenders["copy"] = lambda y, x, w: y.copy_(x) and None
        for block, warps, evict in ((1024, 4, False), (2048, 4, True), (4096, 8, False), (8192, 8, True), (4096, 4, True)):
            contenders[f"copy{block}.{warps}{'e' if evict else ''}"] = triton_copy(m, n, block, warps, evict)
        times, launches = bench.race(contenders, args.rounds)
        row = {"m": m, "n": n, "launches": launches, "sets": bench.sets, "times": times,
               "error": {name: bench.error(contenders[name]) for name in ("winner", "default", "torch", "compile")
                         if name in contenders}}
        table.append(row)
        with open(args.out, "w") as file:
            json.dump(table, file, indent=1)
        del bench, contenders
        torch.cuda.empty_cache()

    print(f"{'m x n':>14} {'default':>8} {'winner':>8} {'worst':>8} {'torch':>8} {'compile':>8} {'triton':>8} "
          f"{'copy':>8} {'peer/win':>8} {'copy/win':>8} {'win/dflt':>8}  GB/s")
    ratios, gaps = [], []
    for row in table:
        t = row["times"]
        best = lambda prefix: min((v for k, v in t.items() if k.startswith(prefix)), default=float("nan"))
        own = {k: t[k] for k in ("winner", "second", "third") if k in t}
        win = min(own.values()) if own else t["default"]
        peer = min(best("triton"), min(v for k, v in t.items() if k in ("compile", "torch") or k.startswith("max-")))
        copy = best("copy")
        ratios.append(peer / win)
        gaps.append(win / t["default"])
        print(f"{row['m']:>7}x{row['n']:<6} {t['default']:8.3f} {win:8.3f} {t.get('worst', float('nan')):8.3f} "
              f"{t['torch']:8.3f} {t.get('compile', float('nan')):8.3f} {best('triton'):8.3f} {copy:8.3f} {peer / win:8.3f} "
              f"{copy / win:8.3f} {win / t['default']:8.3f}  {(4 * row['m'] * row['n']) / win / 1e3:.0f}")
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
    print(f"geometric mean of peer/winner {mean(ratios):.3f}, of winner/default {mean(gaps):.3f}; "
          f"{time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
