"""Kernels that an operator installed: folders with kernel.json, tuned on the real CPU runner, compiled for real."""
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import harness

SOFTMAX = Path(__file__).resolve().parents[1] / "kernels" / "softmax"

ADD = """#include <stdint.h>
void add(const int64_t *block, const float *x, float *y, int64_t n)
{
\tfor (int64_t i = 0; i < n; i++)
\t\ty[block[0] * n + i] = x[block[0] * n + i] + 1;
\t%s
}
"""
REFERENCE = """#include <stdint.h>
void add_reference(int64_t first, int64_t last, const double *x, double *y, int64_t n)
{
\tfor (int64_t i = first * n; i < last * n; i++)
\t\ty[i] = x[i] + 1;
}
"""
BUFFER = {"type": "f32", "rows": "m", "length": "n"}


def add_json(**changes):
    """A kernel that adds one, with a knob that its source may do something with."""
    return {
        "name": "add", "help": "adds one",
        "fields": [{"name": "m", "help": "rows", "min": 1, "max": 4096, "scale": True},
                   {"name": "n", "help": "elements of a row", "min": 1, "max": 4096}],
        "knobs": [{"name": "HOW", "help": "what it does besides", "values": [0, 1]}],
        "default": {"HOW": 0},
        "buffers": [{"name": "x", "role": "in", **BUFFER}, {"name": "y", "role": "out", **BUFFER}],
        "sources": {"cpu": {"file": "add.c", "defines": {"HOW": "HOW"}}},
        "launch": {"cpu": [{"symbol": "add", "grid": ["m"], "arguments": ["x", "y", {"i64": "n"}]}]},
        "reference": {"file": "reference.c", "symbol": "add_reference", "arguments": ["x", "y", {"i64": "n"}]},
        **changes}


def install_add(folder, extra="", document=None, reference=REFERENCE):
    where = folder / "add"
    where.mkdir(parents=True, exist_ok=True)
    (where / "kernel.json").write_text(json.dumps(document or add_json()))
    (where / "add.c").write_text(ADD % extra)
    (where / "reference.c").write_text(reference)
    return where


SHAPE = ("add", "--m", "16", "--n", "64")


@pytest.fixture
def folder(tmp_path):
    where = tmp_path / "kernels.d"
    where.mkdir()
    return where


def start(daemons, folder, *arguments):
    return daemons(arguments=("--kernels", folder, *arguments)).start().await_device()


def reload(daemon):
    before = daemon.log().count("configuration reloaded")
    daemon.process.send_signal(signal.SIGHUP)
    harness.until(lambda: daemon.log().count("configuration reloaded") > before, "the configuration is read anew")
    return daemon.await_device()


def source(daemon, *words):
    return daemon.ctl("lookup", *words).json["source"]


def complete(daemon, line):
    return harness.complete(harness.TOP / "client" / "completion" / "flytunectl", f"flytunectl --socket {daemon.path} {line}")


def listed(daemon, *name):
    return daemon.ctl("kernels", *name).json["kernels"]


def statuses(daemon, *words):
    return {trial["config"]["HOW"]: (trial["status"], trial.get("reason", ""))
            for trial in daemon.ctl("trials", *words).json["trials"]}


def test_a_folders_kernel_is_tuned_served_and_explained_as_any_other(daemons, folder):
    shutil.copytree(SOFTMAX, folder / "softmax")
    daemon = start(daemons, folder)
    words = ("softmax", "--m", "48", "--n", "64", "--dtype", "f32")
    untuned = daemon.ctl("lookup", *words).json
    assert untuned["source"] == "default" and untuned["config"]["PASSES"] == "three"
    job, = daemon.ctl("tune", *words).json
    assert job["state"] == "done", job
    answer = daemon.ctl("lookup", *words).json
    assert answer["source"] == "tuned" and answer["time_us"] > 0
    near = daemon.ctl("lookup", "softmax", "--m", "50", "--n", "64", "--dtype", "f32").json
    assert near["source"] == "nearest" and near["config"] == answer["config"]
    assert "PASSES" in daemon.ctl("explain", *words, as_json=False).output
    verified = [trial for trial in daemon.ctl("trials", *words).json["trials"] if trial["status"] == "ok"]
    assert verified
    refused = daemon.ctl("lookup", "softmax", "--m", "4", "--n", "64", "--dtype", "f32", "--stride", "63", check=False)
    assert refused.status != 0 and "rows may not overlap" in refused.complaint
    # It is found again after a restart, without another sweep.
    daemon.restart().await_device()
    assert daemon.ctl("lookup", *words).json["config"] == answer["config"]
    assert source(daemon, *words) == "tuned"


def test_what_is_served_is_listed_with_its_fields_and_knobs(daemons, folder):
    shutil.copytree(SOFTMAX, folder / "softmax")
    daemon = start(daemons, folder)
    assert [one["name"] for one in listed(daemon)] == ["layernorm", "rmsnorm", "softmax"]
    softmax, = listed(daemon, "softmax")
    described = json.loads((SOFTMAX / "kernel.json").read_text())
    assert softmax["help"] == described["help"] and softmax["scale"] == "m" and softmax["reason"] == ""
    assert set(softmax["kinds"]) == set(described["sources"]) and softmax["devices"] == ["cpu:0"]
    assert [(one["name"], one["help"]) for one in softmax["fields"]] == [(one["name"], one["help"]) for one in described["fields"]]
    knobs = {one["name"]: one for one in softmax["knobs"]}
    assert {name: one["values"] for name, one in knobs.items()} == {one["name"]: one["values"] for one in described["knobs"]}
    text = daemon.ctl("kernels", "softmax", as_json=False).output
    told = daemon.ctl("tune", "softmax", "--help", as_json=False).output
    for field in described["fields"]:
        assert f"--{field['name'].replace('_', '-')} " in text and f"--{field['name'].replace('_', '-')} " in told
    assert "Fields of rmsnorm" in daemon.ctl("lookup", "--help", as_json=False).output
    unknown = daemon.ctl("kernels", "softmin", check=False)
    assert unknown.status == 2 and unknown.json["error"]["field"] == "kernel" and unknown.json["error"]["value"] == "softmin"
    assert "There is no kernel softmin" in daemon.ctl("tune", "softmin", "--help", as_json=False).output
    # What bash offers is what the daemon knows, and while it is away what is built in.
    assert complete(daemon, "tune ") == {"layernorm", "rmsnorm", "softmax"}
    choices = next(field["choices"] for field in described["fields"] if field["name"] == "dtype")
    assert complete(daemon, "lookup softmax --dtype ") == set(choices)
    daemon.stop()
    assert complete(daemon, "tune ") == {"layernorm", "rmsnorm"}
    assert "are not known here" in daemon.ctl("tune", "softmax", "--help", as_json=False).output


def test_an_edited_folder_makes_its_results_stale(daemons, folder):
    install_add(folder)
    daemon = start(daemons, folder)
    daemon.ctl("tune", *SHAPE)
    assert source(daemon, *SHAPE) == "tuned"
    reload(daemon)
    assert source(daemon, *SHAPE) == "tuned"
    install_add(folder, extra="if (HOW) y[0] = y[0];")
    assert source(daemon, *SHAPE) == "tuned"  # until it is read
    reload(daemon)
    stale = daemon.ctl("lookup", *SHAPE).json
    assert stale["source"] == "default", stale
    daemon.ctl("tune", *SHAPE)
    assert source(daemon, *SHAPE) == "tuned"
    assert len(list((daemon.state / "kernels").iterdir())) == 1


@pytest.mark.parametrize("spoil, says", [
    (lambda where: (where / "kernel.json").write_text("{"), "kernel.json"),
    (lambda where: (where / "add.c").unlink(), "add.c"),
    (lambda where: (where / "kernel.json").write_text(json.dumps(add_json(knob=[]))), "knob"),
    (lambda where: where.chmod(0o777), "write"),
], ids=["not JSON", "no source", "unknown member", "everybody may write"])
def test_a_broken_folder_is_named_and_its_last_good_copy_serves_on(daemons, folder, spoil, says):
    shutil.copytree(SOFTMAX, folder / "softmax")
    where = install_add(folder)
    daemon = start(daemons, folder)
    daemon.ctl("tune", *SHAPE)
    spoil(where)
    reload(daemon)
    line, = [line for line in daemon.log().splitlines() if "kernel broken" in line]
    assert str(where) in line and says in line and "last good copy serves on" in line, line
    assert source(daemon, *SHAPE) == "tuned"
    kept = listed(daemon, "add")[0]
    assert kept["state"] == "kept" and says in kept["reason"] and kept["path"] == str(where), kept
    assert [field["name"] for field in kept["fields"]] == ["m", "n"] and kept["devices"] == ["cpu:0"]
    assert listed(daemon, "softmax")[0]["state"] == "serving"
    daemon.restart().await_device()
    assert source(daemon, *SHAPE) == "tuned"
    assert source(daemon, "softmax", "--m", "4", "--n", "4", "--dtype", "f32") == "default"


def test_a_folder_that_never_was_whole_is_named_and_the_others_serve(daemons, folder):
    install_add(folder, document=add_json(name="rmsnorm")).rename(folder / "rmsnorm")
    install_add(folder)
    daemon = start(daemons, folder)
    assert "kernel broken" in daemon.log() and "rmsnorm" in daemon.log()
    built_in, refused = listed(daemon, "rmsnorm")
    assert built_in["origin"] == "built-in" and built_in["state"] == "serving" and built_in["path"] is None
    assert refused["state"] == "refused" and refused["path"] == str(folder / "rmsnorm") and "built-in" in refused["reason"]
    assert not refused["fields"] and not refused["knobs"] and not refused["devices"]
    assert source(daemon, *SHAPE) == "default"
    assert source(daemon, "rmsnorm", "--m", "4", "--n", "64", "--dtype", "f32") == "default"


STRANGER = 65533
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")


@pytest.mark.parametrize("spoil, says", [
    (lambda where: (where / "add.c").rename(where / "x") and (where / "add.c").symlink_to("x"), "add.c is a link"),
    (lambda where: where.rename(where.with_name("x")) and where.symlink_to("x"), "is a link; it must be the folder"),
    pytest.param(lambda where: os.chown(where / "add.c", STRANGER, -1), f"add.c belongs to user {STRANGER}", marks=ROOT),
    pytest.param(lambda where: os.chown(where, STRANGER, -1), f"belongs to user {STRANGER}", marks=ROOT),
    (lambda where: (where / "reference.c").chmod(0o666), "reference.c has mode 0666"),
    (lambda where: (where / "add.c").write_text('#include "/etc/shadow"\n'), 'add.c:1: "/etc/shadow" is no file of the folder'),
    (lambda where: (where / "add.c").unlink() or os.mkfifo(where / "add.c"), "add.c is no regular file"),
], ids=["a link in it", "a link to it", "a file of another", "another's", "everybody's to write", "leads out", "a pipe"])
def test_a_hostile_folder_is_refused_for_what_is_wrong_with_it(daemons, folder, spoil, says):
    spoil(install_add(folder))
    daemon = daemons(arguments=("--kernels", folder)).start()
    line, = [line for line in daemon.log().splitlines() if "kernel broken" in line and "/add:" in line]
    assert says in line and "serves on" not in line, line
    assert daemon.ctl("lookup", *SHAPE, check=False).status != 0


def test_a_space_without_end_is_refused_before_anything_is_compiled(daemons, folder):
    knobs = [{"name": f"K{i}", "help": "any", "values": list(range(32))} for i in range(6)]
    install_add(folder, document=add_json(knobs=add_json()["knobs"] + knobs, default={"HOW": 0, **{knob["name"]: 0 for knob in knobs}}))
    daemon = start(daemons, folder)
    refused = daemon.ctl("tune", *SHAPE, check=False, as_json=False)
    assert refused.status != 0 and "kernel.json: space" in refused.complaint, refused


def test_where_everybody_may_install_kernels_none_is_read(daemons, folder):
    install_add(folder)
    folder.chmod(0o777)
    daemon = start(daemons, folder)
    assert "kernels not read" in daemon.log() and "nobody else's to write" in daemon.log()
    assert daemon.ctl("lookup", *SHAPE, check=False).status != 0


@pytest.mark.parametrize("extra, status, says", [
    ("if (HOW && block[0] == 3) y[3 * n] += 1;", "wrong", "row 3, column 0"),
    ("if (HOW) y[-1] = 0;", "wrong", "before the first row"),
    ("if (HOW) *(float *)&x[2] = 9;", "wrong", "changed its x"),
    ("\n#if HOW\n  nonsense;\n#endif\n", "failed", "add.c:"),
    ("if (HOW) *(volatile int *)8 = 1;", "failed", "signal 11"),
    ("for (volatile int forever = 1; HOW && forever;) {}", "timeout", ""),
    ("for (volatile int i = 0; !HOW && i < 3000; i++) {}\n"  # so that the other one wins, and is looked at
     "\tstatic int launch;\n\tif (HOW && block[0] == 3) y[3 * n] += __atomic_fetch_add(&launch, 1, 0) % 50 == 49;",
     "wrong", "row 3, column 0"),
], ids=["wrong", "outside", "its input", "does not compile", "crashes", "hangs", "is right in 49 of 50 launches"])
def test_a_bad_config_is_out_for_what_it_did(daemons, folder, extra, status, says):
    install_add(folder, extra=extra)
    daemon = start(daemons, folder, "--deadline", "verify=3")
    job, = daemon.ctl("tune", *SHAPE).json
    assert job["state"] == "done", job
    verdicts = statuses(daemon, *SHAPE)
    assert verdicts[1][0] == status and says in verdicts[1][1], verdicts
    answer = daemon.ctl("lookup", *SHAPE).json
    assert answer["source"] == "tuned" and answer["config"] == {"HOW": 0}


@pytest.mark.parametrize("reference, says", [
    ("nonsense\n", "reference.c:"),
    ("#include <stdlib.h>\n" + REFERENCE.replace("{\n\tfor", "{\n\tabort();\n\tfor"), "signal 6"),
    (REFERENCE.replace("+ 1", "+ 2"), "nothing was right"),
], ids=["does not compile", "crashes", "disagrees with all"])
def test_a_bad_reference_fails_the_job_and_the_others_serve(daemons, folder, reference, says):
    install_add(folder, reference=reference)
    daemon = start(daemons, folder)
    job, = daemon.ctl("tune", *SHAPE, check=False).json
    assert job["state"] == "failed", job
    assert says in job["reason"] or says == "nothing was right", job
    assert source(daemon, "rmsnorm", "--m", "4", "--n", "64", "--dtype", "f32") == "default"


def test_another_compiler_makes_results_of_folders_stale(daemons, folder, tmp_path):
    """One that says otherwise of itself, and is put where the first one was."""
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()

    def put(version):
        fresh = compiler.with_name("fresh")
        fresh.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "cc {version}" && exit\nexec {shutil.which("gcc")} "$@"\n')
        fresh.chmod(0o755)
        fresh.rename(compiler)

    put(1)
    install_add(folder)
    daemon = daemons(arguments=("--kernels", folder, "--runner-idle", "0.1"),
                     env={"PATH": f"{compiler.parent}:{os.environ['PATH']}"}).start().await_device()
    rmsnorm = ("rmsnorm", "--m", "4", "--n", "64", "--dtype", "f32")
    daemon.ctl("tune", *SHAPE)
    daemon.ctl("tune", *rmsnorm)
    assert source(daemon, *SHAPE) == "tuned"
    harness.until(lambda: not daemon.runner_pids(), "the runner is let go")
    put(2)
    harness.until(lambda: source(daemon, *SHAPE) == "default", "the change is seen")
    daemon.await_device()
    assert source(daemon, *SHAPE) == "default"
    assert source(daemon, *rmsnorm) == "tuned"  # which no compiler made anew
