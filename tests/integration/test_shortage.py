"""What runs out: disk, map, permission to write, descriptors, memory. Lookups go on, the status says what is wrong, and
what can mend itself does."""
import contextlib
import itertools
import os
import resource
import socket
import subprocess
import time

import pytest

import harness
from conftest import start_or_skip
from harness import problem, shape


def words(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def serves(daemon, source="tuned"):
    assert daemon.lookup()["source"] == source


# ---- disk


def use_up(daemon, config):
    """Fills what the store has inside as well: pins, until one is refused."""
    with daemon.peer() as peer, pytest.raises(harness.RpcError) as refusal:
        for m in range(10000, 30000):
            peer.call("pin", kernel="rmsnorm", problem=problem(m=m), config=config)
    assert "disk full" in str(refusal.value) and "disk full" in daemon.status()["degraded"]


def test_a_result_that_does_not_fit_is_told_of_in_one_voice_and_kept_until_it_does(small_disk, runner):
    daemon, fill, free = small_disk
    daemon.tune()
    gate = runner.gate("round")
    runner.write("time 3 100550000", f"at round 3 once gate {gate}")
    job = daemon.tune("--no-wait", m=9)[0]["job"]
    gate.arrived()
    config = daemon.lookup()["config"]
    fill()
    use_up(daemon, config)
    gate.release()
    daemon.heard("result not stored yet")
    fill(left=4096)
    # Small changes still fit now and then, and are no reason to call all well.
    for turn in range(20):
        daemon.ctl("unpin" if turn % 2 else "pin", *shape(m=2), *([] if turn % 2 else ["--config", words(config)]),
                   check=False)
        assert "disk full" in daemon.status()["degraded"]
        serves(daemon)
    # What went before was the small changes that used the disk up, some of which were refused and some not.
    def since():
        return daemon.log().split("result not stored yet", 1)[1]
    assert since().count("the store cannot be written") <= 1
    assert "can be written again" not in since()
    assert daemon.ctl("jobs", job).json["jobs"][0]["state"] == "running", "it has not ended before it is stored"
    # Where a small change had just gone through when the result was refused, that was too soon after to be told again.
    told = daemon.log().rfind("the store cannot be written") > daemon.log().rfind("can be written again")
    free()
    harness.until(lambda: daemon.status()["degraded"] == "", "it recovers by itself")
    with daemon.peer() as peer:
        assert peer.call("wait", job=job)["state"] == "done"
    assert daemon.lookup(m=9)["source"] == "tuned"
    assert since().count("the store cannot be written") <= 1
    assert since().count("can be written again") == told
    assert len(runner.did("sweep")) == 2, "it was measured again"


def test_a_sweep_that_fails_on_a_full_disk_keeps_what_it_measured_and_tells_of_nothing_else(small_disk, runner):
    daemon, fill, free = small_disk
    daemon.tune()
    gate = runner.gate("round")
    runner.write("time 3 100550000", f"at round 3 once gate {gate}", "at reply exit 1")
    with daemon.peer() as peer, daemon.peer() as other:
        job = peer.call("tune", kernel="rmsnorm", problem=problem(m=9))["job"]
        peer.call("watch", job=job)
        gate.arrived()
        config = daemon.lookup()["config"]
        fill()
        use_up(daemon, config)
        gate.release()
        # The sweep has failed then, and only its end is left.
        harness.until(lambda: daemon.log().count("runner gone kind=cpu cause=died") == 2, "both runners died")
        free()
        while True:
            event = peer.event(lambda event: event["job"] == job)
            if event["event"] == "ended":
                break
            if event["event"] == "round":
                assert other.call("trials", kernel="rmsnorm", problem=problem(m=9))["rounds"] >= event["round"], event
        assert event["state"] == "failed"
        last = int(runner.did("round")[-1].split()[0])
        assert other.call("trials", kernel="rmsnorm", problem=problem(m=9))["rounds"] == last + 1 > 4


@contextlib.contextmanager
def unwritable(daemon):
    """No file of the daemon's takes a write meanwhile."""
    before = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, before)
    harness.until(lambda: daemon.status()["degraded"] == "", "it recovers by itself")


def refused(ask):
    with pytest.raises(harness.RpcError) as refusal:
        ask()
    assert refusal.value.code == "store", refusal.value


def test_who_joins_a_job_and_is_refused_leaves_it_as_it_was(daemon):
    with daemon.peer() as peer:
        def tune(**more):
            return peer.call("tune", kernel="rmsnorm", problem=problem(), **more)["job"]

        def listed():
            return peer.call("jobs", job=job)["jobs"]
        peer.call("pause")
        job = tune()
        before = listed()
        with unwritable(daemon):
            refused(lambda: tune(priority=7, force=True, device="cpu:0"))
            assert listed() == before
        assert tune(priority=3) == job
        told, = listed()
        assert told["priority"] == 3 and "force" not in told and "named" not in told


def test_a_job_that_has_ended_is_listed_until_it_has_left_the_store(daemon):
    with daemon.peer() as peer:
        def listed():
            return [job["job"] for job in peer.call("jobs")["jobs"]]
        peer.call("pause")
        asked = [peer.ask("tune", kernel="rmsnorm", problem=problem(m=m)) for m in range(1, 260)]
        jobs = [peer.answer(number)["job"] for number in asked]
        for number in [peer.ask("cancel", job=job) for job in jobs[:250]]:
            peer.answer(number)
        for job in jobs[250:-1]:
            peer.call("cancel", job=job)
        before = listed()
        assert 256 <= len(before) < len(jobs)
        with unwritable(daemon):
            refused(lambda: peer.call("cancel", job=jobs[-1]))
            assert listed() == before
        peer.call("cancel", job=jobs[-1])
        assert listed() == jobs[-256:]


def test_a_start_on_a_full_disk_answers(daemons, runner, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    state, kept = tmp_path / "disk", tmp_path / "kept"
    daemon = daemons(runner, state=kept).start()
    daemon.tune()
    daemon.stop()
    full = ('mkdir -p "$1" && mount -t tmpfs -o size=2m,mode=0700 none "$1" && cp -a "$2"/. "$1" && '
            '{ cat /dev/zero >"$1/filler" 2>/dev/null; shift 2; exec "$@"; }')
    daemon = daemons(runner, state=state, prefix=["unshare", "-m", "--", "sh", "-c", full, "sh", str(state), str(kept)])
    start_or_skip(daemon, "no small disk can be mounted")
    serves(daemon)
    config = daemon.lookup()["config"]
    use_up(daemon, config)
    serves(daemon)
    os.unlink(f"/proc/{daemon.pid}/root{state}/filler")
    harness.until(lambda: daemon.status()["degraded"] == "", "it recovers by itself")
    daemon.ctl("pin", *shape(), "--config", words(config))
    serves(daemon, "pinned")


# ---- what may not be written


def test_a_store_that_may_not_be_written_any_more_is_read_on(daemon):
    daemon.tune()
    data = daemon.state / "data.mdb"
    if os.geteuid() != 0 or subprocess.run(["chattr", "+i", data], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("no file can be made immutable here")
    try:
        done = daemon.ctl("forget", *shape(), check=False)
        if done.status == 0:
            pytest.skip("this file system lets open files be written all the same")
        assert "may not be written" in done.complaint and str(daemon.state) in done.complaint
        assert "may not be written" in daemon.status()["degraded"]
        for _ in range(5):
            serves(daemon)
        done = daemon.ctl("tune", *shape(m=7), check=False)
        assert done.status in (1, 4) and "may not be written" in done.complaint
    finally:
        subprocess.run(["chattr", "-i", data], check=True)
    harness.until(lambda: daemon.status()["degraded"] == "", "it recovers by itself")
    daemon.ctl("forget", *shape())
    serves(daemon, "default")


def test_a_start_in_a_read_only_directory_says_so_and_harms_nothing(daemons, runner, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount something read-only")
    state = tmp_path / "state"
    daemon = daemons(runner, state=state).start()
    daemon.tune()
    daemon.stop()
    only_read = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    other = daemons(runner, state=state, prefix=["unshare", "-m", "--", "sh", "-c", only_read, "sh", str(state)])
    with pytest.raises(AssertionError) as refusal:
        other.start()
    if "mount:" in other.log() or "unshare:" in other.log():
        pytest.skip(f"nothing can be mounted read-only here: {other.log().strip()}")
    assert "ended with 1" in str(refusal.value)
    assert str(state) in other.log() and "Read-only file system" in other.log()
    daemon.start()
    serves(daemon)


# ---- the map


def rows_of(daemon, first, count):
    """Rows for an import, one a problem, after what the daemon itself exports."""
    with daemon.peer() as peer:
        row = peer.call("export")["rows"][0]
    return [{**row, "problem": problem(m=m), "origin": "0f8fad5b-d9cb-469f-a165-70867728950e"}
            for m in range(first, first + count)]


def many(peer, method, problems, **params):
    """Changes that are on their way together."""
    numbers = [peer.ask(method, kernel="rmsnorm", problem=problem(m=m), **params) for m in problems]
    for number in numbers:
        peer.answer(number)


def bring(peer, rows):
    peer.call("import_begin")
    for at in range(0, len(rows), 500):
        peer.call("import_rows", rows=rows[at:at + 500])
    return peer.call("import_commit")


def test_a_full_map_takes_what_is_small_and_recovers_when_there_is_less_in_it(daemons, runner):
    size = (8 if harness.INSTRUMENTED else 64) << 20
    crowd = 1000 if harness.INSTRUMENTED else 8000
    daemon = daemons(runner, arguments=["--map-size", size, "--history-days", 0, "--history-answers", 1]).start()
    daemon.tune()
    with daemon.peer() as peer:
        first = 1000
        with pytest.raises(harness.RpcError) as refusal:
            while first < 1000 + 100 * crowd:
                bring(peer, rows_of(daemon, first, crowd))
                first += crowd
        assert refusal.value.code == "store" and "95 %" in str(refusal.value)
        # Down to the last of what is taken, row by row.
        while crowd > 100:
            crowd //= 2
            with contextlib.suppress(harness.RpcError):
                bring(peer, rows_of(daemon, first, crowd))
                first += crowd
        status = daemon.status()
        assert status["store_bytes"] > 0.9 * status["store_limit"] - 100000
        config = daemon.lookup()["config"]
        last = itertools.count(10 ** 6)
        while "nearly full" not in daemon.status()["degraded"]:
            many(peer, "pin", itertools.islice(last, 200), config=config)  # taken to the last
        serves(daemon)
        assert daemon.lookup(m=1500)["source"] == "imported"
        done = daemon.ctl("tune", *shape(m=3), check=False)
        assert done.status in (1, 4) and "95 %" in done.complaint
        daemon.ctl("pin", *shape(), "--config", words(config))
        serves(daemon, "pinned")
        daemon.ctl("unpin", *shape())
        serves(daemon)

        # What is forgotten is history first, and goes with the commits that follow.
        for m in range(1000, first, 200):
            many(peer, "forget", range(m, m + 200))
            if daemon.status()["degraded"] == "":
                break
        else:
            raise AssertionError("there is no room although all is forgotten")
    assert daemon.tune(m=3)[0]["source"] == "tuned"
    serves(daemon)


def test_stale_trials_make_room_when_the_map_fills(daemons, runner):
    """Trials of a compiler that is gone are let go, and only then."""
    daemon = daemons(runner, arguments=["--map-size", 1 << 20]).start()
    for start in range(1, 33, 8):
        daemon.ctl("tune", *shape(m=",".join(str(m) for m in range(start, start + 8))))
    daemon.stop()
    runner.write("identity compiler=newer")
    daemon.runner.program.write_text(daemon.runner.program.read_text() + "\n")
    daemon.start()
    harness.until(lambda: daemon.lookup(m=1)["reason"] != "probing", "the device is heard")
    used = daemon.status()["store_bytes"]
    for m in range(100, 250):
        daemon.ctl("tune", *shape(m=m))
        status = daemon.status()
        if status["store_bytes"] < used:
            break
        used = status["store_bytes"]
    assert used > 0.75 * status["store_limit"], "they went before the store was filling"
    assert status["store_bytes"] < used, "stale trials are kept although the store is filling"
    assert status["degraded"] == "" and daemon.lookup(m=100)["source"] == "tuned"


# ---- descriptors


@pytest.fixture
def few(daemons, runner):
    """A daemon that may open so few files that clients take them all."""
    return daemons(runner, prefix=["sh", "-c", 'ulimit -n 80 && exec "$@"', "sh"]).start()


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rsplit(b")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def connect(path):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(harness.DEADLINE)
    peer.connect(str(path))
    return peer


def test_more_clients_than_descriptors_are_told_so_and_a_runner_still_starts(few):
    peers = [few.peer() for _ in range(5)]
    extra = [connect(few.path) for _ in range(100)]
    told = [peer.recv(4096) for peer in extra[-20:]]
    assert all(b"busy" in said for said in told), told
    for peer in peers:
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
    # What a sweep needs was kept back.
    job = peers[0].call("tune", kernel="rmsnorm", problem=problem())["job"]
    assert peers[0].call("wait", job=job)["state"] == "done"
    for peer in extra:
        peer.close()
    harness.until(lambda: peers[0].call("status")["sessions"] == 5, "they are gone")
    serves(few)
    for peer in peers:
        peer.close()


def test_without_a_free_descriptor_the_daemon_neither_spins_nor_dies(daemons, runner, tmp_path):
    """As when something else in the process, or the whole machine, has none left."""
    runner.write(f"depends {tmp_path}")  # a folder: it takes a descriptor to see that it is as it was
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune(m=1)
    for pid in set(runner.pids()):
        harness.await_death(pid)
    peers = [daemon.peer() for _ in range(3)]
    folder = f"/proc/{daemon.pid}/fd"
    # Not even what is kept to tell the one too many is of any use.
    kept = max(int(fd) for fd in os.listdir(folder) if os.readlink(f"{folder}/{fd}") == os.devnull)
    before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (kept, before[1]))
    waiting = [connect(daemon.path) for _ in range(10)]
    daemon.heard("cannot accept: Too many open files")
    # For longer than it goes between two looks at what its runner depends on.
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert peers[0].call("lookup", kernel="rmsnorm", problem=problem(m=1))["source"] == "tuned"
    ticks, wakeups = cpu_ticks(daemon.pid), harness.wakeups(daemon.pid)
    for _ in range(100):
        for peer in peers:
            assert peer.call("lookup", kernel="rmsnorm", problem=problem())["reason"] != "probing"
    # A loop that spins takes all the time that there is; this one woke up for the questions, and now and then to look.
    assert harness.INSTRUMENTED or harness.wakeups(daemon.pid) - wakeups < 1000
    assert harness.INSTRUMENTED or cpu_ticks(daemon.pid) - ticks < 50
    assert daemon.log().count("cannot accept") == 1
    assert "device in doubt" not in daemon.log(), "what cannot be read did not change"
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
    # Who waited is let in, when there is room again.
    for peer in waiting:
        with contextlib.suppress(BrokenPipeError):  # of one that was told before that there is none, and closed
            peer.sendall(b"\x94\x00\x01\xa5hello\x82\xa3min\x02\xa3max\x02")
        said = peer.recv(4096)
        assert b"flytuned" in said or b"busy" in said
        peer.close()
    with daemon.peer() as peer:
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
    for peer in peers:
        peer.close()


# ---- memory


def test_a_runner_is_what_the_kernel_takes_first_and_its_death_is_told(daemon, runner):
    gate = runner.gate("measure")
    runner.write(f"at measure 5 once gate {gate}")
    with daemon.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=problem())["job"]
        gate.arrived()
        (pid,) = daemon.runner_pids()

        def score(process):
            with open(f"/proc/{process}/oom_score_adj", encoding="ascii") as adjusted:
                return int(adjusted.read())
        assert score(pid) == min(1000, score(daemon.pid) + 500)
        os.kill(pid, 9)
        assert peer.call("wait", job=job)["state"] == "done"
        assert peer.call("status")["runner_restarts"] == 1
    daemon.heard("it was killed (signal 9): by the kernel when memory ran out, or by hand")
    assert not [trial for trial in daemon.trials() if trial["status"] in ("failed", "suspect")]
    serves(daemon)


# ---- a limit on the size of files ----

def limited(blocks):
    return ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "bash"]


def test_a_limit_on_files_that_no_store_fits_in_is_told(daemons, runner):
    daemon = daemons(runner, prefix=limited(8))
    assert daemon.spawn().wait(harness.DEADLINE) == 1, "it died of the signal, without a word"
    daemon.process = None
    assert "File too large" in daemon.log()


def test_a_store_that_meets_the_limit_is_served_on(daemons, runner):
    daemon = daemons(runner, prefix=limited(40)).start()
    daemon.ctl("tune", *shape(m=",".join(map(str, range(1000, 1016)))), "--no-wait", check=False)
    daemon.heard("the store cannot be written")
    assert "ulimit -f" in daemon.log()
    assert daemon.lookup()["source"] == "default"
    harness.until(lambda: daemon.status()["degraded"], "the status says so")


def test_an_export_that_meets_the_limit_says_so_and_leaves_the_file(daemon, tmp_path):
    daemon.tune()
    path = tmp_path / "answers.json"
    path.write_text("old")
    done = daemon.ctl("export", path, prefix=limited(0), check=False)
    assert done.status == 1 and "File too large" in done.complaint
    assert path.read_text() == "old" and [one.name for one in tmp_path.iterdir() if "answers" in one.name] == ["answers.json"]


# ---- a small stack ----

@pytest.mark.skipif(harness.INSTRUMENTED, reason="an instrumented program needs more stack")
@pytest.mark.parametrize("may_raise", [True, False], ids=["raised", "kept"])
@pytest.mark.parametrize("real", [True, False], ids=["real", "made-up"])
def test_64_kb_of_stack_are_enough(daemons, runner, tmp_path, real, may_raise):
    prefix = ["bash", "-c", 'ulimit -s 64; exec "$@"', "bash"]
    if os.geteuid() == 0 and not may_raise:
        prefix = ["setpriv", "--bounding-set=-sys_resource", "--", *prefix]
    # With an environment of 8 KB, which is a part of it.
    daemon = daemons(None if real else runner, arguments=["--background", "always", "--budget", harness.BUDGET], env={"FILLER": "x" * 8000},
                     prefix=prefix).start()
    with daemon.peer() as peer:
        peer.call("watch")
        peer.call("subscribe", lookups=[{"kernel": "rmsnorm", "problem": harness.problem(m=64, n=1024)}])
    daemon.ctl("pin", *shape(m=3, n=1024), "--config", ",".join(
        f"{name}={value}" for name, value in daemon.lookup(m=3, n=1024)["config"].items()))
    daemon.tune(m="64,128", n=1024)
    daemon.ctl("check", *shape(m=64, n=1024))
    for command in ("explain", "trials", "lookup"):
        daemon.ctl(command, *shape(m=64, n=1024))
    for command in ("list", "jobs", "misses", "status", "devices"):
        daemon.ctl(command)
    daemon.ctl("export", tmp_path / "answers.json")
    daemon.ctl("import", tmp_path / "answers.json")
    daemon.kill()  # so that the store is examined
    runner.write("identity compiler=made-up-2")
    daemon.start()
    harness.until(lambda: real or [job for job in daemon.ctl("jobs").json["jobs"]
                                   if (job["cause"], job["state"]) == ("upgrade", "done")], "an upgrade is done")
    assert daemon.lookup(m=64, n=1024)["source"] == "tuned"
    daemon.stop()
