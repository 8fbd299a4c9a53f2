"""The GPU runner's whole road under the daemon, with a CUDA driver and a run-time compiler that pretend.

Code objects, verification, timing by graphs, the code that is kept, and what becomes of a sweep when a kernel never ends
or writes wildly. What the device code itself computes is proven elsewhere."""
import fcntl
import json
import os
import re
import subprocess
import sys

import msgpack
import pytest

import harness

RUNNER = harness.program("flytune-runner-cuda")
EXPLORE = harness.BUILD / "tests" / "gpu" / "explore"
PRETENDED = harness.BUILD / "tests" / "gpu" / "libpretend_cuda.so"
SHAPE = dict(m=3, n=1024)
LOOP = "loop:BLOCK_THREADS=128,ROW_THREADS=128,WEIGHT=3,waves_per_eu=0"

pytestmark = pytest.mark.skipif(harness.INSTRUMENTED, reason="the pretended driver is built without instruments")


@pytest.fixture
def driver(tmp_path):
    """A folder with the pretended libraries, under the names that are looked for."""
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("libcuda.so.1", "libnvrtc.so.13", "libnvidia-ml.so.1"):
        (folder / name).symlink_to(PRETENDED)
    return folder


@pytest.fixture
def gpus(tmp_path, driver, daemons):
    """Daemons on the pretended GPU. Their runners take their fault from a file, and FLYTUNE_PRETEND from another."""
    runner = tmp_path / "runner-cuda"
    runner.write_text(f"""#!/bin/sh
export LD_LIBRARY_PATH={driver} TMPDIR={tmp_path}
[ -f {tmp_path}/fault ] && export FLYTUNE_TEST_FAULT="$(cat {tmp_path}/fault)"
[ -f {tmp_path}/pretend ] && export FLYTUNE_PRETEND="$(cat {tmp_path}/pretend)"
[ -f {tmp_path}/limit ] && ulimit -f "$(cat {tmp_path}/limit)"
exec {RUNNER} "$@"
""")
    runner.chmod(0o755)
    def start(*more):
        return daemons(device="cuda", arguments=["--runner", f"cuda={runner}", "--deadline", "verify=15", "--deadline",
                                                 "measure=15", "--budget", harness.LARGE_BUDGET, *more]).start()
    return start


@pytest.fixture
def gpu(gpus):
    return gpus().await_device()


def by_status(trials):
    found = {}
    for trial in trials:
        found.setdefault(trial["status"], []).append(trial)
    return found


def lost_with_runners(trials, verdict):
    """Those that runners ended with: out for it, or suspects where the budget did not suffice to try them again."""
    found = by_status(trials)
    return found.get(verdict, []) + found.get("suspect", [])


def restart_runner(gpu):
    """The next sweep gets a new runner, which reads its faults anew."""
    for pid in gpu.runner_pids():
        os.kill(pid, 9)
        harness.await_death(pid)


def test_a_gpu_is_tuned_and_its_code_is_kept(gpu):
    first = gpu.tune(**SHAPE)
    assert first[0]["state"] == "done", first
    answer = gpu.lookup(**SHAPE)
    assert answer["source"] == "tuned" and answer["device"].startswith("cuda")
    trials = by_status(gpu.trials(**SHAPE))
    assert len(trials["ok"]) > 2 and not set(trials) - {"ok", "pruned", "same_code_as"}
    for trial in trials["ok"]:
        assert trial["registers"] == 32 and len(trial["code"]) == 32
        code = (gpu.state / "code" / f"{trial['code']}.code").read_bytes()
        assert code.startswith(b"flytune code 3\n")
        unpacker = msgpack.Unpacker()
        unpacker.feed(code[len(b"flytune code 3\n"):])
        about = unpacker.unpack()
        (step,) = about["steps"]
        assert step["symbol"] == "flytune_rmsnorm" and step["block"] == trial["config"]["BLOCK_THREADS"]
    # What is compiled from the same options is compiled once; the checking code has a key, too.
    same = trials["same_code_as"]
    assert [trial["config"]["waves_per_eu"] for trial in same] == [2]
    assert len(list((gpu.state / "code").glob("*.key"))) == len(trials["ok"]) + 1
    kept = {path: path.stat().st_mtime_ns for path in (gpu.state / "code").iterdir()}
    gpu.tune("--force", **SHAPE)
    assert kept == {path: path.stat().st_mtime_ns for path in (gpu.state / "code").iterdir()}, "code was built again"


def test_another_kernel_is_built_verified_and_handed_out_as_well(gpu, tmp_path):
    """Weight and bias: one tensor more in arguments, checks and launch. rmsnorm beside it stays what it is."""
    words = ["layernorm", *harness.shape(m=64, n=1000, dtype="f16", weight_dtype="f32", row_stride=1008)[1:]]
    tuned, = gpu.ctl("tune", *words).json
    assert tuned["source"] == "tuned" and tuned["device"] == "cuda:0"
    trials = by_status(gpu.ctl("trials", *words).json["trials"])
    assert len(trials["ok"]) > 2 and not set(trials) - {"ok", "pruned", "same_code_as"}
    out = tmp_path / "winner"
    told = gpu.ctl("code", *words, "-o", out).json
    assert told["kernel"] == "layernorm" and told["config"] == tuned["config"]
    assert [step["symbol"] for step in told["steps"]] == ["flytune_layernorm"]
    assert "bias: pointer" in json.dumps(told) and out.read_bytes().startswith(b"\x7fELF")
    assert gpu.tune(m=64, n=1000, dtype="f16")[0]["kernel"] == "rmsnorm"
    assert gpu.ctl("lookup", *words).json["config"] == tuned["config"] and gpu.status()["answers"] == 2


def test_another_kernel_that_is_wrong_never_wins(gpu, tmp_path):
    (tmp_path / "pretend").write_text("wrong")
    restart_runner(gpu)
    words = ["layernorm", *harness.shape(m=3, n=2048)[1:]]
    gpu.ctl("tune", *words)
    wrong = by_status(gpu.ctl("trials", *words).json["trials"])["wrong"]
    assert wrong and all(trial["config"]["BLOCK_THREADS"] == 256 and "row 2" in trial["reason"] for trial in wrong)
    assert gpu.ctl("lookup", *words).json["config"]["BLOCK_THREADS"] != 256


def test_a_limit_on_files_costs_the_kept_code_and_no_runner(gpu, tmp_path):
    (tmp_path / "limit").write_text("0")
    answer, = gpu.tune(**SHAPE)
    assert answer["source"] == "tuned" and not any(job["restarts"] for job in gpu.ctl("jobs").json["jobs"])
    assert "died of signal" not in gpu.log()


def test_another_m_is_tuned_with_the_same_code(gpu):
    gpu.tune(m=3, n=512)
    count = len(list((gpu.state / "code").iterdir()))
    gpu.tune(m=5, n=512)
    assert len(list((gpu.state / "code").iterdir())) == count


def test_the_winners_code_is_launched_by_a_program_without_a_compiler(gpu, driver, tmp_path):
    gpu.tune(m=64, n=1024)
    out = tmp_path / "winner"
    told = gpu.ctl("code", *harness.shape(m=64, n=1024), "-o", out).json
    assert told["target"] == "sm_90" and told["bytes"] == out.stat().st_size and out.read_bytes().startswith(b"\x7fELF")
    assert told["config"] == gpu.lookup(m=64, n=1024)["config"]
    assert told["steps"][0]["block"] == told["config"]["BLOCK_THREADS"] and told["builder"].startswith("nvrtc-13.99")
    ran = subprocess.run([harness.program("example-launch"), "64", "1024"], capture_output=True, text=True, check=False,
                         env={**os.environ, "LD_LIBRARY_PATH": str(driver), "FLYTUNE_SOCKET": str(gpu.path)},
                         timeout=harness.DEADLINE)
    assert ran.returncode == 0 and "flytune_rmsnorm for sm_90 on cuda:0: " in ran.stdout, ran


def test_a_gpu_is_named_by_its_pci_address_as_well(gpu):
    device, = gpu.status()["devices"]
    assert device["pci"] == "0000:a1:00.0"
    for name in ("0000:a1:00.0", "0000:A1:00.0", "cuda:0"):
        assert gpu.ctl("lookup", *harness.shape(m=3, n=512), "--device", name).json["device"] == "cuda:0"
    told = gpu.ctl("lookup", *harness.shape(m=3, n=512), "--device", "0000:a1:00.1", check=False)
    assert told.json["error"]["code"] == "unknown_device"


def test_code_that_is_not_there_is_told_plainly(gpu):
    told = gpu.ctl("code", *harness.shape(m=64, n=1024), check=False)
    assert told.status == 1 and "has not been tuned" in told.json["error"]["message"]
    gpu.tune(m=64, n=1024)
    kept = gpu.state / "code" / f"{gpu.ctl('code', *harness.shape(m=64, n=1024)).json['hash']}.code"
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    told = gpu.ctl("code", *harness.shape(m=64, n=1024), check=False)
    assert told.json["error"]["code"] == "store" and "damaged" in told.json["error"]["message"]
    # A damaged file is built anew by the next sweep.
    gpu.tune("--force", m=64, n=1024)
    told = gpu.ctl("code", *harness.shape(m=64, n=1024)).json
    assert told["bytes"]
    # What is a tie may have another winner now.
    kept = gpu.state / "code" / f"{told['hash']}.code"
    kept.unlink()
    os.mkfifo(kept)
    told = gpu.ctl("code", *harness.shape(m=64, n=1024), check=False)
    assert told.json["error"]["code"] == "store"
    kept.unlink()
    told = gpu.ctl("code", *harness.shape(m=64, n=1024), check=False)
    assert told.json["error"]["code"] == "unavailable" and "tune it again" in told.json["error"]["message"]


def test_a_kernel_that_never_ends_costs_one_config(gpu, tmp_path):
    (tmp_path / "fault").write_text(LOOP)
    restart_runner(gpu)
    pid = gpu.pid
    job = gpu.tune(**SHAPE)[0]
    assert job["state"] == "done" and gpu.status()["runner_restarts"] >= 1
    lost = lost_with_runners(gpu.trials(**SHAPE), "timeout")
    assert all(trial["config"]["ROW_THREADS"] == 128 for trial in lost) and len(lost) == 1
    (tmp_path / "fault").unlink()
    restart_runner(gpu)
    # The verdict stands for that problem; the next is as if nothing had been.
    assert gpu.tune(m=5, n=1024)[0]["state"] == "done"
    assert not set(by_status(gpu.trials(m=5, n=1024))) - {"ok", "pruned", "same_code_as"}
    assert gpu.pid == pid and gpu.status()["answers"] == 2


def test_a_wild_write_loses_the_device_and_one_config(gpu, tmp_path):
    (tmp_path / "fault").write_text(LOOP.replace("loop:", "wild:"))
    restart_runner(gpu)
    job = gpu.tune(**SHAPE)[0]
    assert job["state"] == "done" and gpu.status()["runner_restarts"] >= 1
    failed = lost_with_runners(gpu.trials(**SHAPE), "failed")
    assert len(failed) == 1 and "illegal" in failed[0]["reason"]
    (tmp_path / "fault").unlink()
    restart_runner(gpu)
    assert gpu.tune(m=5, n=1024)[0]["state"] == "done"
    assert not set(by_status(gpu.trials(m=5, n=1024))) - {"ok", "pruned", "same_code_as"}


def test_losses_in_a_row_leave_a_sweep_that_has_nothing_left_to_verify(gpu, tmp_path):
    """The last config to be verified is the one that takes the runner down, twice: two hints, one launch."""
    (tmp_path / "fault").write_text("wild:BLOCK_THREADS=128,ROW_THREADS=128,WEIGHT=3,waves_per_eu=0")
    restart_runner(gpu)
    assert gpu.tune(m=16, n=4096)[0]["state"] == "done"
    assert len(lost_with_runners(gpu.trials(m=16, n=4096), "failed")) == 2


@pytest.mark.parametrize("how, words", [("wrong", "row 2"), ("outside", "outside of its rows")])
def test_a_wrong_output_never_wins(gpu, tmp_path, how, words):
    (tmp_path / "pretend").write_text(how)
    restart_runner(gpu)
    gpu.tune(m=3, n=2048)
    wrong = by_status(gpu.trials(m=3, n=2048))["wrong"]
    assert wrong and all(trial["config"]["BLOCK_THREADS"] == 256 and words in trial["reason"] for trial in wrong)
    assert gpu.lookup(m=3, n=2048)["config"]["BLOCK_THREADS"] != 256


def spoil_the_winner(gpu, tmp_path, how):
    """Tunes once, and again with that config so spoilt; gives its trial and the others'. All are equally fast."""
    (tmp_path / "pretend").write_text("cache=1")
    restart_runner(gpu)
    gpu.tune(**SHAPE)
    config = gpu.lookup(**SHAPE)["config"]
    (tmp_path / "fault").write_text(how + ":" + ",".join(f"{name}={value}" for name, value in config.items()))
    restart_runner(gpu)
    assert gpu.tune("--force", **SHAPE)[0]["state"] == "done"
    trials = gpu.trials(**SHAPE)
    assert gpu.lookup(**SHAPE)["config"] != config
    spoilt = [trial for trial in trials if trial["config"] == config]
    return spoilt[0], [trial for trial in trials if trial["config"] != config]


def test_a_config_that_is_wrong_in_few_launches_never_wins(gpu, tmp_path):
    """It would: all are alike, and it is the default."""
    spoilt, others = spoil_the_winner(gpu, tmp_path, "race")
    assert spoilt["status"] == "wrong" and "row 2" in spoilt["reason"], spoilt
    assert not by_status(others).get("wrong")
    told = gpu.ctl("explain", *harness.shape(**SHAPE), as_json=False).output
    assert re.search(r"\d+ of the winner's launches checked", " ".join(told.split())), told


def test_a_config_that_writes_into_its_input_is_out_alone(gpu, tmp_path):
    spoilt, others = spoil_the_winner(gpu, tmp_path, "hurt")
    assert spoilt["status"] == "wrong" and "changed its input" in spoilt["reason"], spoilt
    assert not by_status(others).get("wrong"), by_status(others)["wrong"]


def test_a_full_device_is_told_in_plain_words(gpu, tmp_path):
    (tmp_path / "pretend").write_text("free=270")
    restart_runner(gpu)
    told = gpu.ctl("tune", *harness.shape(m=4000, n=4096), check=False)
    assert told.status == 4 and "MiB may be used" in told.json[0]["reason"]


def test_another_process_on_the_device_is_noticed_and_the_result_marked(gpu, tmp_path):
    (tmp_path / "pretend").write_text("crowd=60")
    restart_runner(gpu)
    gpu.tune(**SHAPE)
    assert "something else used the device" in gpu.lookup(**SHAPE)["reason"]
    told = gpu.ctl("explain", *harness.shape(**SHAPE), as_json=False).output
    assert "waited" in told, told


def test_where_code_happens_to_lie_is_no_configs_speed(gpu, tmp_path):
    """One place of some configs' code is a fifth faster than all else; their samples are of many places."""
    (tmp_path / "pretend").write_text("lucky")
    restart_runner(gpu)
    gpu.tune(**SHAPE)
    trials = by_status(gpu.trials(**SHAPE))["ok"]
    default = next(trial for trial in trials if trial["default"])
    lucky = [trial for trial in trials if trial["config"]["BLOCK_THREADS"] == 128 and trial["rounds"] >= 7]
    assert default["config"]["BLOCK_THREADS"] != 128 and lucky, trials
    assert all(trial["time_us"] > 0.9 * default["time_us"] for trial in lucky), (default, lucky)


@pytest.mark.parametrize("holds, reads, cold", [(1, 2, "cold"), (9, 10, "cold"), (200, 320, "cold"),
                                                (350, 383, "not known to be cold")])
def test_that_the_caches_were_cleared_is_measured(gpu, tmp_path, holds, reads, cold):
    """The driver tells of a cache of 1 MiB, whatever the last one holds."""
    (tmp_path / "pretend").write_text(f"cache={holds}")
    restart_runner(gpu)
    gpu.tune(**SHAPE)
    told = " ".join(gpu.ctl("explain", *harness.shape(**SHAPE), as_json=False).output.split())
    assert f"; {cold}: a launch took" in told and f"reading {reads} MiB" in told, told


def test_a_device_that_others_use_is_left_to_them(gpus, tmp_path):
    (tmp_path / "pretend").write_text("nvml=90,0,0")
    gpu = gpus("--background", "idle", "--background-wait", "0.05")
    harness.until(lambda: gpu.lookup(**SHAPE).get("reason") != "probing", "the device is probed")
    with gpu.peer() as peer:
        peer.call("lookup", kernel="rmsnorm", problem=harness.problem(**SHAPE), tune_on_miss=True)
    harness.until(lambda: "waits" in (gpu.status()["background"].get("state") or ""), "it waits")
    assert not gpu.ctl("jobs").json["jobs"]


@pytest.mark.parametrize("pretend, words", [
    ("nvml=0,64,0", ["clocks down"]), ("nvml=0,4,0", ["power limit"]),
    # One is no reason to be silent about the other.
    ("crowd=60 nvml=0,64,3", ["clocks down", "3 processes had a context", "something else used the device", "waited"]),
    ("crowd=60 nvml=0,4,2", ["power limit", "2 processes had a context", "something else used the device"]),
], ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "")
def test_what_the_system_says_of_the_clocks_is_reported(gpu, tmp_path, pretend, words):
    (tmp_path / "pretend").write_text(pretend)
    restart_runner(gpu)
    gpu.tune(**SHAPE)
    told = gpu.ctl("explain", *harness.shape(**SHAPE), as_json=False).output
    assert all(word in told for word in words), told


def offline(driver, *words, **env):
    return subprocess.run([RUNNER, *words], capture_output=True, text=True, timeout=harness.DEADLINE,
                          env={**os.environ, "LD_LIBRARY_PATH": str(driver), "TMPDIR": str(driver), **env})


def test_a_compiler_that_aborts_is_named(driver, tmp_path):
    ran = offline(driver, "build", "rmsnorm", "--arch", "sm_77", "--n", "4096", "--dtype", "bf16")
    assert ran.returncode == 1 and "this compiler does not know sm_77" in ran.stderr


def test_an_offline_build_tells_its_launch(driver, tmp_path):
    out = tmp_path / "code"
    ran = offline(driver, "build", "rmsnorm", "--arch", "sm_90", "--n", "4096", "--dtype", "bf16", "--config",
                  "BLOCK_THREADS=256,ROW_THREADS=256,waves_per_eu=0", "-o", out)
    told = json.loads(ran.stdout)
    assert told["launch"]["block"] == 256 and out.stat().st_size == told["size"]


def test_options_from_the_environment_do_not_reach_the_compiler(driver):
    ran = offline(driver, "build", "rmsnorm", "--arch", "sm_90", "--n", "64", "--dtype", "f32", NVCC_APPEND_FLAGS="-DX",
                  NVRTC_APPEND_FLAGS="-DX")
    plain = offline(driver, "build", "rmsnorm", "--arch", "sm_90", "--n", "64", "--dtype", "f32")
    assert json.loads(ran.stdout)["code"] == json.loads(plain.stdout)["code"]


def test_the_study_of_spoilt_configs_runs(driver, tmp_path):
    study = subprocess.run(
        [sys.executable, harness.TOP / "tests/gpu/trust.py", "faults", "--runner", RUNNER, "--code-dir", tmp_path / "code",
         "--out", tmp_path / "out.json", "--faults", "2x64", "--fault-sweeps", "1"],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver)}, capture_output=True, text=True, timeout=harness.DEADLINE)
    assert study.returncode == 0 and "wrong in 1 of 200" in study.stdout, study
    rows = json.loads((tmp_path / "out.json").read_text())["faults"]
    assert {name: (row["chosen"], row["innocent"]) for name, row in rows.items() if name != "2x64 "} == {
        "2x64 hurt": (0, 0), "2x64 race": (0, 0), "2x64 rare": (0, 0)}
    assert rows["2x64 hurt"]["found"] == 1 and rows["2x64 "]["found"] == 0


def test_the_study_of_choices_runs_and_goes_on_where_it_left(driver, tmp_path):
    """It is meant for a GPU that is lent for minutes: it must not fail there for the first time."""
    def study(*more):
        return subprocess.run(
            [sys.executable, harness.TOP / "tests/gpu/trust.py", *more, "--runner", RUNNER, "--explore", EXPLORE, "--code-dir", tmp_path / "code",
             "--out", tmp_path / "out.json", "--passes", "2", "--others-passes", "1", "--longs", "2", "--rounds", "8", "--agree",
             "1x64,3x64", "--others", "5x64", "--cost", "2x64", "--load", "3x64", "--load-m", "2", "--load-budget", "1"],
            env={**os.environ, "LD_LIBRARY_PATH": str(driver)}, capture_output=True, text=True, timeout=harness.DEADLINE)
    stopped = study("--seconds", "0")
    assert stopped.returncode == 0 and "out of time after 0 of 2 passes" in stopped.stdout, stopped
    whole = study()
    assert whole.returncode == 0 and "agree: 2 fresh processes, 2 that measured everything" in whole.stdout, whole
    known = json.loads((tmp_path / "out.json").read_text())
    assert [len(known["chosen"][shape]) for shape in ("1x64", "3x64", "5x64")] == [2, 2, 1]
    assert known["cost"]["2x64"]["own"] > 1 and len(known["load"]["3x64"]["loaded"]) == 3


# ---- several, and the host that they share with its processors ----

@pytest.fixture
def pair(gpus, tmp_path):
    """Two pretended GPUs; what makes a context on one is written down."""
    contexts = tmp_path / "contexts"
    wrapper = tmp_path / "runner-cuda"
    daemon = gpus
    def start(*more):
        wrapper.write_text(wrapper.read_text().replace(
            "exec ", f"export FLYTUNE_PRETEND_GPUS=2 FLYTUNE_PRETEND_CONTEXTS={contexts}\nexec "))
        return daemon(*more)
    start.contexts = lambda: {tuple(map(int, line.split())) for line in contexts.read_text().splitlines()}
    return start


def held(gpu):
    return {device["id"]: device for device in gpu.status()["devices"]}


def test_each_of_two_gpus_has_a_process_that_opens_it_alone(pair):
    gpu = pair("--runner-idle", "600")  # which the first has nothing to do for until the second is done
    with gpu.peer() as peer:
        jobs = [peer.call("tune", kernel="rmsnorm", problem=harness.problem(m=m, n=1024), device=device)["job"]
                for m, device in ((3, "cuda:0"), (5, "cuda:1"))]
        assert [peer.call("wait", job=job)["state"] for job in jobs] == ["done", "done"]
    pids = [held(gpu)[device]["runner_pid"] for device in ("cuda:0", "cuda:1")]
    assert pair.contexts() == {(pids[0], 0), (pids[1], 1)}
    # One identity, one set of results, one folder of code.
    for m in (3, 5):
        assert gpu.lookup(m=m, n=1024, device="cuda:1")["source"] == gpu.lookup(m=m, n=1024)["source"] == "tuned"
    ok = [trial for trial in gpu.trials(m=3, n=1024) if trial["status"] == "ok"]
    assert len(list((gpu.state / "code").glob("*.key"))) == len(ok) + 1


def test_a_wild_write_on_one_gpu_costs_the_other_nothing(pair, tmp_path):
    (tmp_path / "pretend").write_text("lost=1")
    gpu = pair()
    with gpu.peer() as peer:
        lost, other = [peer.call("tune", kernel="rmsnorm", problem=harness.problem(m=m, n=1024), device=device)["job"]
                       for m, device in ((3, "cuda:1"), (5, "cuda:0"))]
        told = peer.call("wait", job=other)
        assert told["state"] == "done" and not told.get("restarts"), told
        told = peer.call("wait", job=lost)
        assert told["state"] == "failed" and told["restarts"] > 0, told
    assert not by_status(gpu.trials(m=5, n=1024)).get("failed")


class Host:
    """The host's lock, held in place of a runner (kernels/runner/host_lock.h)."""

    def __init__(self, state, how):
        self.file = open(state / "code" / ".host-lock", "w+b")
        fcntl.lockf(self.file, how, 1, 2)

    def close(self):
        self.file.close()


def stage(peer, number):
    told, = peer.call("jobs", job=number)["jobs"]
    return told.get("stage")


def test_gpu_work_on_the_host_waits_while_its_processors_are_measured(gpu):
    rounds = Host(gpu.state, fcntl.LOCK_EX)
    with gpu.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=harness.problem(m=3, n=1024))["job"]
        harness.until(lambda: stage(peer, job) == "wait", "the sweep waits for the host")
        assert not list((gpu.state / "code").glob("*.key")), "nothing is built meanwhile"
        rounds.close()
        told = peer.call("wait", job=job)
        assert told["state"] == "done" and told["waited_ns"] > 0, told


def test_processors_are_not_measured_while_gpu_work_loads_the_host(daemons):
    cpu = daemons(arguments=["--budget", harness.BUDGET]).start()
    work = Host(cpu.state, fcntl.LOCK_SH)
    with cpu.peer() as peer:
        job = peer.call("tune", kernel="rmsnorm", problem=harness.problem(m=1, n=256, dtype="f32"))["job"]
        harness.until(lambda: stage(peer, job) == "wait", "the sweep waits for the host")
        told, = peer.call("jobs", job=job)["jobs"]
        assert not told.get("rounds"), "no round is measured meanwhile"
        work.close()
        told = peer.call("wait", job=job)
        assert told["state"] == "done" and told["rounds"] > 0, told


def test_the_measurement_of_two_gpus_runs(driver, tmp_path):
    """With pretended ones: its figures say nothing, but that it runs, and that the second takes its part of the jobs."""
    told = tmp_path / "told.json"
    ran = subprocess.run(
        [sys.executable, harness.TOP / "tests" / "gpu" / "two.py", "--build", harness.BUILD, "--out", told, "--repeats", "1",
         "--ms", "1", "--ns", "2", "spread"], capture_output=True, text=True, check=False, timeout=5 * harness.DEADLINE,
        env={**os.environ, "LD_LIBRARY_PATH": str(driver), "FLYTUNE_PRETEND_GPUS": "2"})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "jobs of each [2]" in ran.stdout and "jobs of each [0" not in ran.stdout, ran.stdout
    assert set(json.loads(told.read_text())["spread"]) == {"cold", "kept"}


# ---- kernels of folders: their functions really run, one thread after another ----

KERNELS = """#include "places.h"
extern "C" __global__ void add(const float *x, float *y, long long m, long long n)
{
	const long long i = PLACE;
	if (i < m * n)
		y[i] = x[i] + 1;
#if HOW == 1
	if (i == 1)
		y[i] = 0;
#elif HOW == 2
	if (i == 0)
		y[m * n] = 0;
#elif HOW == 3
	if (i == 0)
		((float *)x)[0] += 1;
#elif HOW == 4
	no_such_function();
#endif
}
/* Twice: what the first step counted is added to each element by the second. */
extern "C" __global__ void count(int *seen, long long m)
{
	if (PLACE < m)
		seen[PLACE] += 1;
}
extern "C" __global__ void more(float *y, const int *seen, long long m, long long n)
{
	if (PLACE < m * n)
		y[PLACE] += (float)seen[PLACE / n];
}
"""
PLACES = "#define PLACE (blockIdx.x * (long long)blockDim.x + threadIdx.x)\n"
REFERENCES = """#include <stdint.h>
void add_reference(int64_t first, int64_t last, const double *x, double *y, int64_t n)
{
	for (int64_t i = first * n; i < last * n; i++)
		y[i] = x[i] + 1;
}
void more_reference(int64_t first, int64_t last, double *y, int64_t n)
{
	for (int64_t i = first * n; i < last * n; i++)
		y[i] += 1;
}
"""


def install(folder, name, buffers, steps, reference, knob):
    shape = {"type": "f32", "rows": "m", "length": "n"}
    where = folder / name
    where.mkdir(parents=True)
    (where / "kernel.json").write_text(json.dumps({
        "name": name,
        "fields": [{"name": "m", "help": "rows", "min": 1, "max": 4096, "scale": True},
                   {"name": "n", "help": "elements of a row", "min": 1, "max": 4096}],
        "knobs": [knob, {"name": "THREADS", "help": "of a block", "values": [32, 64]}],
        "default": {knob["name"]: 0, "THREADS": 32},
        "space": [{"rule": f"THREADS == 32 or {knob['name']} == 0", "why": "it is enough"}],
        "buffers": [{**shape, **buffer} for buffer in buffers],
        "sources": {"cuda": {"file": "kernels.cu", "defines": {knob["name"]: knob["name"]}}},
        "launch": {"cuda": steps}, "reference": {"file": "reference.c", **reference}}))
    (where / "kernels.cu").write_text(KERNELS)
    (where / "places.h").write_text(PLACES)
    (where / "reference.c").write_text(REFERENCES)


def step(symbol, threads, *arguments):
    return {"symbol": symbol, "grid": [f"ceildiv({threads}, THREADS)"], "block": ["THREADS"],
            "arguments": [*arguments, {"i64": "m"}, {"i64": "n"}]}


@pytest.fixture
def folders(gpus, tmp_path):
    """A daemon with the GPU and two kernels of folders: one whose configs are right or bad, each in its way; and one of two steps
    that adds to what is there."""
    where = tmp_path / "kernels.d"
    how = {"name": "HOW", "help": "what it does besides", "values": [0, 1, 2, 3, 4]}
    install(where, "add", [{"name": "x", "role": "in"}, {"name": "y", "role": "out"}], [step("add", "m * n", "x", "y")],
            {"symbol": "add_reference", "arguments": ["x", "y", {"i64": "n"}]}, how)
    count = step("count", "m", "seen")
    count["arguments"].pop()
    install(where, "more", [{"name": "y", "role": "inout"},
                            {"name": "seen", "role": "scratch", "type": "i32", "length": "m", "rows": 1, "fill": "zeros"}],
            [count, step("more", "m * n", "y", "seen")],
            {"symbol": "more_reference", "arguments": ["y", {"i64": "n"}]}, {**how, "values": [0]})
    return gpus("--kernels", where).await_device()


def test_configs_of_a_folder_are_built_judged_and_chosen_each_for_what_it_did(folders):
    words = ("add", "--m", "5", "--n", "30")
    job, = folders.ctl("tune", *words).json
    assert job["state"] == "done", job
    answer = folders.ctl("lookup", *words).json
    assert answer["source"] == "tuned" and answer["config"]["HOW"] == 0 and answer["time_us"] > 0
    found = {}
    for trial in folders.ctl("trials", *words).json["trials"]:
        found.setdefault(trial["config"]["HOW"], []).append(trial)
    assert [trial["status"] for trial in found[0]] == ["ok", "ok"] and found[0][0]["code"] != found[0][1]["code"]
    for how, status, says in ((1, "wrong", "y: row 0, column 1"), (2, "wrong", "y: it writes behind its rows"),
                              (3, "wrong", "changed its inputs"), (4, "failed", "kernels.cu:17:")):
        trial, = found[how]
        assert trial["status"] == status and says in trial["reason"], trial
    told = folders.ctl("code", *words, check=False)
    assert told.json["error"]["code"] == "unavailable" and "folder" in told.json["error"]["message"]


def test_what_a_launch_adds_to_is_as_it_was_before_each(folders):
    words = ("more", "--m", "7", "--n", "40")
    job, = folders.ctl("tune", *words).json
    assert job["state"] == "done", job
    trials = folders.ctl("trials", *words).json["trials"]
    assert {trial["status"] for trial in trials} == {"ok"} and len(trials) == 2, trials
    told = " ".join(folders.ctl("explain", *words, as_json=False).output.split())
    assert "of the winner's launches checked" in told, told


def test_a_folder_is_built_offline_and_its_steps_told(driver, tmp_path):
    install(tmp_path, "add", [{"name": "x", "role": "in"}, {"name": "y", "role": "out"}], [step("add", "m * n", "x", "y")],
            {"symbol": "add_reference", "arguments": ["x", "y", {"i64": "n"}]},
            {"name": "HOW", "help": "what it does besides", "values": [0, 4]})
    ran = offline(driver, "build", f"{tmp_path}/add", "--arch", "sm_90", "--m", "5", "--n", "30", "--config", "THREADS=64")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["launch"]["steps"] == [
        {"symbol": "add", "grid": [3, 1, 1], "block": [64, 1, 1], "dynamic_shared_bytes": 0}]
    ran = offline(driver, "build", f"{tmp_path}/add", "--arch", "sm_90", "--m", "5", "--n", "30", "--config", "HOW=4")
    assert ran.returncode == 1 and "it does not compile: kernels.cu:17:" in ran.stderr
