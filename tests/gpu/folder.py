#!/usr/bin/env python3
"""A kernel of a folder on a real GPU: the softmax of tests/kernels under the daemon. Every config has to be right, and one to win; what
they take stands beside what a launch has to move. Needs nothing but Python."""
import argparse
import os
import shutil
import sys
import tempfile

from daemon import Daemon

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHAPES = [(1, 4096, "f32"), (64, 1000, "bf16"), (4096, 3001, "f32"), (4096, 8192, "bf16"), (16384, 1024, "f32")]
BAD = {"wrong", "failed", "timeout", "suspect"}


def sweep(daemon, m, n, dtype):
    """What went wrong, in a list."""
    words = ("softmax", "--m", m, "--n", n, "--dtype", dtype)
    job, = daemon.ctl("tune", *words)
    trials = daemon.ctl("trials", *words)["trials"]
    bad = [f"{trial['config']}: {trial['status']}: {trial.get('reason', '')}" for trial in trials if trial["status"] in BAD]
    answer = daemon.ctl("lookup", *words)
    if job["state"] != "done" or answer["source"] != "tuned":
        return bad + [f"{job}"]
    default, = [trial for trial in trials if trial["default"]]
    size = 2 * m * n * (4 if dtype == "f32" else 2)
    print(f"{m:6} x {n:5} {dtype:4}: {answer['time_us']:9.2f} us, {size / answer['time_us'] / 1e3:7.1f} GB/s, the default takes "
          f"{default['time_us'] / answer['time_us']:.3f} of it; {len(trials)} configs; {answer['config']}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--kind", default="cuda")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="so many of them")
    args = parser.parse_args()
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        kernels = os.path.join(folder, "kernels")
        shutil.copytree(os.path.join(TOP, "tests", "kernels", "softmax"), os.path.join(kernels, "softmax"))
        daemon = Daemon(args, folder, ("--kernels", kernels))
        try:
            for shape in SHAPES[:args.shapes]:
                bad += sweep(daemon, *shape)
        finally:
            daemon.stop()
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
