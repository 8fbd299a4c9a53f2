"""Runs programs in which one call fails (tests/fail/fail.c)."""
import os
import subprocess

import harness

MODULE = harness.BUILD / "tests" / "fail" / "fail.so"
KINDS = ("alloc", "io")


def environment(count, kind=None, number=None, **more):
    """What has call `number` of that kind fail, and the counts added to the file `count`."""
    env = {"LD_PRELOAD": str(MODULE), "FLYTUNE_FAIL_COUNT": str(count)}
    if kind:
        env[f"FLYTUNE_FAIL_{kind.upper()}"] = str(number)
    return {**env, **more}


def counts(path):
    """Of each program that ended: its name, how many calls of each kind it made, and whether one was failed."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("hit ")]
    return [(words[0], {"alloc": int(words[3]), "io": int(words[5])}, words[-1] == "hit") for words in lines]


def run(command, env, timeout=2 * harness.DEADLINE):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="surrogateescape", timeout=timeout,
                          env={**os.environ, **env}, check=False)
    return harness.Ctl(done.returncode, done.stdout, done.stderr)
