"""The loop's priority: raised where that is allowed, and the loop's alone."""
import os
import subprocess
from pathlib import Path

import pytest

import harness

NICE, POLICY = 16, 38  # fields of /proc/PID/stat, counted behind the name
BATCH = 3
WITHOUT = ["setpriv", "--bounding-set=-sys_nice"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a capability that can be given up")


def scheduling(pid):
    """For each thread its name, nice value and policy; the main thread is first."""
    told = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
        fields = rest.split()
        told.append((name, int(fields[NICE]), int(fields[POLICY])))
    return told


def started(folder, runner, prefix):
    """However nice the tests are, the daemon begins as a service would."""
    daemon = harness.Daemon(folder, runner, prefix=["nice", "-n", str(-os.nice(0)), *prefix])
    daemon.start()
    return daemon


@pytest.mark.parametrize("prefix, nice", [
    ([], -10),
    (["nice", "-n", "5"], 5),
    (["prlimit", "--nice=25:25", *WITHOUT], -5),
    (["prlimit", "--nice=0:0", *WITHOUT], 0),
], ids=["as root", "another was asked for", "as far as the limit", "not allowed"])
def test_only_the_loop_goes_first(tmp_path, runner, prefix, nice):
    if "--nice=25:25" in prefix and subprocess.run([*prefix, "true"], check=False).returncode != 0:
        pytest.skip("the limit cannot be raised here")
    daemon = started(tmp_path, runner, prefix)
    try:
        daemon.tune()
        loop, *others = scheduling(daemon.pid)
        assert loop[1:] == (nice, 0)
        assert {thread[1] for thread in others} == {max(nice, 0)}
        assert [thread[2] for thread in others if thread[0] == "store-writer"] == [BATCH]
        runner = runner.pids()[-1]
        assert {thread[1:] for thread in scheduling(runner)} == {(max(nice, 0), 0)}
        limits = Path(f"/proc/{runner}/limits").read_text().splitlines()
        assert [line.split()[3:5] for line in limits if line.startswith("Max nice priority")] == [["0", "0"]]
    finally:
        daemon.clean_up()
