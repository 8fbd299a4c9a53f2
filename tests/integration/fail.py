"""Runs programs in which one call fails (tests/fail/fail.c): each allocation in turn, and each call to the system."""
import os
import subprocess

import harness

MODULE = harness.BUILD / "tests" / "fail" / "fail.so"
KINDS = ("alloc", "io")
LONG = os.environ.get("FLYTUNE_LONG") == "1"
SAMPLE = 16


def environment(count, kind=None, number=None, **more):
    """What has call `number` of that kind fail, and the counts added to the file `count`."""
    env = {"LD_PRELOAD": str(MODULE), "FLYTUNE_FAIL_COUNT": str(count)}
    if kind:
        env[f"FLYTUNE_FAIL_{kind.upper()}"] = str(number)
    return {**env, **more}


def counts(path):
    """Of each program that ended: its name, how many calls of each kind it made, and whether one was failed."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(words[0], {"alloc": int(words[3]), "io": int(words[5])}, words[-1] == "hit") for words in lines]


def points(count, most=SAMPLE):
    """Which calls of so many to fail: all of them with FLYTUNE_LONG=1, else some, the first and the last among them."""
    if LONG or count <= most:
        return range(1, count + 1)
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


def run(command, env, timeout=2 * harness.DEADLINE):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="surrogateescape", timeout=timeout,
                          env={**os.environ, **env}, check=False)
    return harness.Ctl(done.returncode, done.stdout, done.stderr)
