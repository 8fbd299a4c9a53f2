"""Every built-in kernel the whole way, beside the others, on the real CPU runner: nothing of the daemon is one kernel's."""
import json

import pytest

import harness

KERNELS = ("layernorm", "rmsnorm")


def shape(kernel, m=16, n=1024, dtype="bf16", **more):
    return [kernel, *harness.shape(m, n, dtype, **more)[1:]]


def words(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def lookup(daemon, kernel, **fields):
    answer = daemon.ctl("lookup", *shape(kernel, **fields)).json
    assert answer["kernel"] == kernel
    return answer


@pytest.fixture
def daemon(daemons):
    return daemons(arguments=["--budget", harness.BUDGET]).start().await_device()


def test_kernels_are_tuned_verified_and_served_beside_each_other(daemon, daemons, tmp_path):
    assert {lookup(daemon, kernel)["source"] for kernel in KERNELS} == {"default"}
    misses = daemon.ctl("misses").json["misses"]
    assert {miss["kernel"] for miss in misses} == set(KERNELS)
    lines = daemon.ctl("misses", as_json=False).output.splitlines()
    assert {line.split()[0] for line in lines} == set(KERNELS)
    tuned = {}
    for kernel in KERNELS:
        tuned[kernel], = daemon.ctl("tune", *shape(kernel)).json
        assert tuned[kernel]["kernel"] == kernel and tuned[kernel]["source"] == "tuned" and tuned[kernel]["trials"] >= 12
        trials = daemon.ctl("trials", *shape(kernel)).json["trials"]
        assert "ok" in {trial["status"] for trial in trials}
        assert not {trial["status"] for trial in trials} & {"wrong", "failed", "timeout"}
        found = lookup(daemon, kernel)
        assert (found["source"], found["config"]) == ("tuned", tuned[kernel]["config"])
        # Along the scale field a neighbour serves, and only one of the same kernel.
        near = lookup(daemon, kernel, m=24)
        assert near["source"] == "nearest" and near["tuned_scale"] == 16 and near["config"] == found["config"]
        assert lookup(daemon, kernel, dtype="f32")["source"] == "default"
        told = daemon.ctl("explain", *shape(kernel), as_json=False).output
        assert told.startswith(f"{kernel} m=16 ") and words(found["config"]).replace(",", " ") in told
    assert daemon.status()["answers"] == len(KERNELS)
    assert {job["kernel"] for job in daemon.ctl("jobs").json["jobs"]} == set(KERNELS)

    # A pin of one says nothing of the other.
    other = next(trial["config"] for trial in daemon.ctl("trials", *shape("layernorm")).json["trials"]
                 if trial["status"] == "ok" and not trial["winner"])
    daemon.ctl("pin", *shape("layernorm"), "--config", words(other))
    assert lookup(daemon, "layernorm")["source"] == "pinned" and lookup(daemon, "rmsnorm")["source"] == "tuned"
    daemon.ctl("unpin", *shape("layernorm"))

    # To another host of the same kind, and through a restart there.
    path = tmp_path / "answers.json"
    daemon.ctl("export", path)
    assert {row["kernel"] for row in json.loads(path.read_text())["answers"]} == set(KERNELS)
    daemon.stop()
    there = daemons(arguments=["--budget", harness.BUDGET]).start()
    there.ctl("devices")
    harness.until(lambda: there.ctl("devices").json["devices"][0]["state"] == "ready", "the device is known")
    assert there.ctl("import", path).json["usable"] == len(KERNELS)
    there.restart()
    for kernel in KERNELS:
        assert lookup(there, kernel)["config"] == tuned[kernel]["config"]

    # Gone is gone, of one of them.
    assert there.ctl("forget", *shape("layernorm")).json["was_set"]
    assert lookup(there, "layernorm")["source"] == "default" and lookup(there, "rmsnorm")["source"] == "imported"


def test_misses_of_each_become_background_work_and_an_upgrade_measures_each_anew(daemons, tmp_path):
    relay = harness.write_relay(tmp_path / "runner", b"compiler=")
    daemon = daemons(relay, arguments=["--budget", harness.BUDGET, "--background", "always", "--background-wait", "0.05"]).start()

    def asked(kernel, causes):
        with daemon.peer() as peer:
            return peer.call("lookup", kernel=kernel, problem=harness.problem(m=2, n=256), tune_on_miss="miss" in causes)

    def done(*causes):
        """Whether each kernel's problem was tuned for such a cause, and is served. To ask is what lets the daemon begin."""
        served = {kernel for kernel in KERNELS if asked(kernel, causes)["source"] == "tuned"}
        swept = {job["kernel"] for job in daemon.ctl("jobs").json["jobs"] if job["cause"] in causes and job["state"] == "done"}
        return served == swept == set(KERNELS)

    harness.until(lambda: done("miss"), "the misses are tuned", 12 * harness.BUDGET)
    daemon.stop()
    harness.write_relay(tmp_path / "runner", b"compilex=")
    daemon.start()
    # One that was disturbed before is to be measured again for that.
    harness.until(lambda: done("upgrade", "busy"), "both are measured anew", 12 * harness.BUDGET)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_bad_problem_or_config_is_refused_whatever_kernel(daemon, kernel):
    for fields, field, bound in ((dict(n=0), "n", "1048576"), (dict(row_stride=8), "row_stride", "at least n, 1024"),
                                 (dict(dtype="f64"), "dtype", "f32, f16 or bf16"),
                                 (dict(weight_dtype="f16"), "weight_dtype", "the dtype, bf16, or f32")):
        refused = daemon.ctl("tune", *shape(kernel, **fields), as_json=False, check=False)
        assert refused.status == 2 and field in refused.complaint and bound in refused.complaint, refused
    refused = daemon.ctl("pin", *shape(kernel), "--config", "threads=3,rows=1,unroll=2,stream=0,prefetch=0,split=0", check=False)
    assert refused.status != 0 and refused.json["error"]["field"] == "threads"


def test_each_kernels_help_and_completion_name_its_fields(daemon):
    for kernel in KERNELS:
        told = daemon.ctl("tune", kernel, "--help", as_json=False).output
        assert all(f"--{field}" in told for field in ("m", "n", "dtype", "weight-dtype", "row-stride")), told
