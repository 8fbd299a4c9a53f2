"""flytunectl kernel: the folder that `new` writes works, and `check` says what is wrong with one. Neither needs a daemon."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

import harness
from test_kernel_folder import add_json, install_add

TEMPLATE = harness.TOP / "client" / "ctl" / "template"
FILES = {"README.md", "kernel.json", "mine.c", "mine.cu", "reference.c"}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Runs `flytunectl kernel` where there is no daemon; what it prints is held to the page."""
    monkeypatch.chdir(tmp_path)

    def run(*words, status=0, as_json=True):
        done = harness.ctl(tmp_path / "nobody", "kernel", *words, as_json=as_json, check=False)
        assert done.status == status, done
        return done
    return run


@pytest.fixture
def folder(kernel, tmp_path):
    kernel("new", "mine")
    return tmp_path / "mine"


def change(folder, edit):
    document = json.loads((folder / "kernel.json").read_text())
    edit(document)
    (folder / "kernel.json").write_text(json.dumps(document))


def findings(done, level):
    return [one["message"] for one in done.json["findings"] if one["level"] == level]


# ---- new

def test_a_new_folder_is_the_template_under_its_own_name(kernel, tmp_path):
    said = kernel("new", "mine").json
    assert set(said["files"]) == FILES == {path.name for path in (tmp_path / said["folder"]).iterdir()}
    for path in TEMPLATE.iterdir():
        written = tmp_path / "mine" / path.name.replace("my_kernel", "mine")
        assert written.read_text() == path.read_text().replace("my_kernel", "mine")
        assert written.stat().st_mode & 0o777 == 0o644 & ~umask()
    said = kernel("new", "other", as_json=False).output
    assert "flytunectl kernel check other" in said and "other.cu" in said


def umask():
    old = os.umask(0)
    os.umask(old)
    return old


@pytest.mark.parametrize("words, status, said", [
    (["mine"], 1, "cannot make the folder mine: File exists"),
    (["rmsnorm"], 2, "rmsnorm is a built-in kernel"), (["reference"], 2, "choose another name"),
    (["a/b"], 2, "the name is a/b; it must be up to 31 letters"), (["triton.attention"], 2, "it must be up to 31 letters"),
    (["../up"], 2, "it must be"), (["x" * 32], 2, "it must be"), (["1st"], 2, "a letter or _ first"), (["\x1b[2J"], 2, "it must be"),
    ([""], 2, "kernel new needs the name of a kernel"), ([], 2, "kernel new needs"), (["a", "b"], 2, "'b' is one word too many"),
    (["--force", "a"], 2, "kernel has no option --force"),
])
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(kernel, folder, tmp_path, words, status, said):
    before = sorted(tmp_path.rglob("*"))
    done = kernel("new", *words, status=status)
    assert said in done.complaint and "\x1b" not in done.complaint and done.json["error"]["message"] in done.complaint
    assert sorted(tmp_path.rglob("*")) == before
    assert folder.is_dir()


@pytest.mark.parametrize("words, said", [([], "kernel needs new, check or try"), (["chekc"], "did you mean check?"),
                                         (["check"], "kernel check needs a folder"), (["try"], "kernel try needs a folder"),
                                         (["try", "--m"], "kernel has no option --m")])
def test_a_verb_is_needed(kernel, words, said):
    assert said in kernel(*words, status=2).complaint


def test_what_new_cannot_write_it_takes_away_again(kernel, tmp_path):
    done = subprocess.run(["prlimit", "--fsize=100", harness.FLYTUNECTL, "kernel", "new", "mine"], cwd=tmp_path, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 1 and "cannot write into the folder mine: File too large" in done.stderr, done
    assert list(tmp_path.iterdir()) == []


# ---- check: a good one

def test_a_new_folder_checks_clean(kernel, folder):
    said = kernel("check", "mine").json
    assert said["kernel"] == "mine" and said["errors"] == said["warnings"] == 0 and said["problems"] == 200
    assert {device["kind"] for device in said["devices"]} == {"cpu", "cuda", "hip"}
    for device in said["devices"]:
        assert device["problems"] == 200 and 1 <= device["configs_least"] < device["configs_most"], device
    assert any(rule["excluded"] > 0 for rule in said["devices"][0]["rules"])
    assert kernel("check", folder).json["hash"] == said["hash"]
    text = kernel("check", "mine", as_json=False).output
    assert "0 errors, 0 warnings" in text and "cuda: 1 (m=1 n=1 dtype=f32) to " in text


def test_the_same_is_said_each_time(kernel, folder):
    assert kernel("check", folder).output == kernel("check", folder).output


def test_the_kernels_of_the_tests_check_without_errors(kernel):
    for path in (harness.TOP / "tests" / "kernels").iterdir():
        if (path / "kernel.json").exists():
            assert kernel("check", path).json["errors"] == 0, path


def test_a_new_kernel_is_tuned_as_it_stands(kernel, folder, daemons, tmp_path):
    (tmp_path / "kernels.d").mkdir()
    shutil.copytree(folder, tmp_path / "kernels.d" / "mine")
    daemon = daemons(arguments=("--kernels", tmp_path / "kernels.d", "--budget", harness.BUDGET)).start().await_device()
    for dtype in ("f32", "f64"):
        words = ("mine", "--m", "48", "--n", "33", "--dtype", dtype)
        job, = daemon.ctl("tune", *words).json
        assert job["state"] == "done" and job["source"] == "tuned", job
        trials = daemon.ctl("trials", *words).json["trials"]
        assert {trial["status"] for trial in trials} <= {"ok", "same_code_as", "pruned"}, trials


def test_a_folder_of_another_name_is_noted(kernel, folder):
    folder.rename(folder.parent / "other")
    done = kernel("check", "other/")
    assert "kernel.json: name: the folder has to be called mine, too, where it is installed" in findings(done, "note")
    assert findings(kernel("check", "other/../other/."), "note") == findings(done, "note")


# ---- check: bad ones

def knob(document, name):
    return next(one for one in document["knobs"] if one["name"] == name)


def put(**members):
    return lambda document: document.update(members)


UNUSED = {"name": "SPARE", "values": [1, 2]}

# What is changed; what is said of it, and of which level.
BAD = {
    "a member is missing": (lambda d: d.pop("launch"), "error", "kernel.json: launch is missing"),
    "a member is unknown": (put(colour=1), "error", "kernel.json: colour: there is no such member"),
    "a type is wrong": (put(fields=7), "error", "kernel.json: fields is 7; it must be"),
    "a cycle": (lambda d: d["fields"][0].update(same_as="n"), "error", "kernel.json: fields[0].same_as"),
    "a name that is taken": (put(name="rmsnorm"), "error", "kernel.json: name: rmsnorm is a built-in kernel"),
    "an expression of 1 MB": (lambda d: d["default"].update(ROWS="1+" * 500000 + "1"), "error", "kernel.json"),
    "an expression that overflows": (lambda d: d["buffers"][0].update(length="n * 9223372036854775807"), "error",
                                     "kernel.json: buffers[0].length: "),
    "an expression that divides by zero": (lambda d: d["default"].update(ITEMS="64 / (m - 1)"), "error",
                                           "kernel.json: default.ITEMS: "),
    "a check that divides by zero": (lambda d: d["checks"].append({"rule": "1 / (n - 1) >= 0", "why": "w"}), "error",
                                     "kernel.json: checks[1].rule: "),
    "sizes that are too large": (lambda d: d["buffers"].append({"name": "room", "role": "scratch", "type": "f64", "rows": "m",
                                                                "length": "n * 65536"}), "note", "more than 2^46 bytes"),
    "a default that is no value": (lambda d: d["default"].update(THREADS="m > 4 ? 65 : 64"), "error",
                                   "kernel.json: default.THREADS: it is 65; it must be 64, 128, 256, 512 or 1024"),
    "a default that is not in the space": (lambda d: d["default"].update(THREADS="1024"), "error",
                                           "is no config of this problem of mine"),
    "a rule that excludes everything": (lambda d: d["space"].append({"rule": "n < 5000", "why": "no room"}), "error",
                                        "this problem has no config on this device: no room (n < 5000)"),
    "a rule that excludes nothing": (lambda d: d["space"].append({"rule": "THREADS < 2000", "why": "w"}), "note",
                                     "kernel.json: space[4]: of the problems that were tried the rule leaves out nothing"),
    "a knob that nothing uses": (lambda d: d["knobs"].append(UNUSED) or d["default"].update(SPARE=1), "error",
                                 "no rule, define or launch uses SPARE"),
    "a knob that only rules use": (lambda d: d["knobs"].append(UNUSED) or d["default"].update(SPARE=1) or
                                   d["space"].append({"rule": "SPARE < 2", "why": "w"}), "warning", "only rules use SPARE"),
    "a macro that no source has": (lambda d: d["sources"]["cpu"]["defines"].update(SPARE=1), "warning",
                                   "kernel.json: sources.cpu.defines.SPARE: no file of the source has this word"),
    "a function that no source has": (lambda d: d["launch"]["cuda"][0].update(symbol="my"), "warning",
                                      "kernel.json: launch.cuda: no file of the source has a function my"),
    "a buffer that nobody writes": (lambda d: d["launch"]["cpu"][0].update(arguments=["x", "scale"]), "error",
                                    "kernel.json: launch.cpu: nobody writes y"),
    "a buffer that the reference leaves": (lambda d: d["reference"].update(arguments=["x"]), "error",
                                           "the reference does not compute y"),
    "a buffer that nobody uses": (lambda d: d["buffers"].append({"name": "room", "role": "scratch", "type": "f32", "length": "n"}),
                                  "warning", "nobody uses room"),
    "a field that nothing uses": (lambda d: d["fields"].append({"name": "eps", "min": 0, "max": 9, "default": 1}), "warning",
                                  "kernel.json: fields: nothing uses eps"),
    "a default beyond the device": (lambda d: d["launch"]["cuda"][0].update(shared="n * 8"), "error",
                                    "the bytes of shared memory are"),
    "a config beyond the device": (lambda d: knob(d, "THREADS").update(values=[64, 128, 256, 2048]), "warning",
                                   "config THREADS=2048 ITEMS=1: kernel.json: launch.cuda[0].block[0]"),
    "checks that take nothing": (lambda d: d["checks"].append({"rule": "m == 12345", "why": "w"}), "error",
                                 "kernel.json: checks: they take none of"),
    "a space of 10^9": (lambda d: d["knobs"].extend({"name": f"K{i}", "values": list(range(32))} for i in range(6)) or
                        d["default"].update({f"K{i}": 0 for i in range(6)}), "error", "there is too much to try"),
    "a space that is too large": (lambda d: knob(d, "ROWS").update(values=list(range(1, 33))) or
                                  knob(d, "VECTOR").update(values=list(range(1, 33))) or
                                  d["knobs"].extend({"name": f"K{i}", "values": list(range(32))} for i in range(2)) or
                                  d["default"].update({f"K{i}": 0 for i in range(2)}), "error",
                                  "configs; there may be 65536 at the most"),
}


@pytest.mark.parametrize("edit, level, said", BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_found_and_named(kernel, folder, edit, level, said):
    change(folder, edit)
    done = kernel("check", folder, status=1 if level == "error" else 0)
    assert any(said in message for message in findings(done, level)), done
    assert (done.json["errors"] > 0) == (level == "error")
    text = kernel("check", folder, as_json=False, status=done.status).output
    assert f"{level}: " in text and said in text, text


def test_a_default_outside_of_the_space_comes_with_the_problem(kernel, folder):
    change(folder, lambda d: d["default"].update(ROWS="m >= 1024 ? 16 : m == 3 ? 64 : 1"))
    found = [one for one in kernel("check", folder, status=1).json["findings"] if one["level"] == "error"]
    assert [(one["device"], one["problem"]["m"]) for one in found] == [("cpu", 3)] and found[0]["problems"] > 1, found
    assert "ROWS=64" in found[0]["message"] and "half as many rows are all rows already" in found[0]["message"], found


# What is written in which file; what is said.
SPOILT = {
    "a source that does not compile": ("mine.c", "int64_t i = 0;", "int64_t i = 0", "it does not compile: mine.c:19:"),
    "a reference that does not compile": ("reference.c", "int64_t i = 0", "i = 0", "it does not compile: reference.c:14:"),
    "a function that nobody has": ("mine.c", "= from[i] * scale[i]", "= twice(from[i])", "error: implicit declaration of function"),
    "a function of another name": ("mine.c", "mine_run(", "run_mine_run(", "error: implicit declaration of function 'mine_run'"),
    "arguments that do not fit": ("mine.c", ", int64_t n)", ", int64_t n, int64_t o)", "kernel.json: launch.cpu: it does not compile: "),
    "arguments in another order": ("kernel.json", '["x", "scale", "y", {"i64": "m"}', '["x", "scale", {"i64": "m"}, "y"',
                                   "kernel.json: launch.cpu: it does not compile: "),
    "arguments that the reference has not": ("kernel.json", '"y", {"i64": "n"}]},\n\t"tol', '"y"]},\n\t"tol',
                                             "kernel.json: reference: it does not compile: "),
}


@pytest.mark.parametrize("name, old, new, said", SPOILT.values(), ids=SPOILT.keys())
def test_the_compilers_first_error_is_said_once(kernel, folder, name, old, new, said):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    done = kernel("check", folder, status=1)
    errors = findings(done, "error")
    assert len(errors) == 1 and said in errors[0] and done.json["compiled"], done


def test_without_a_compiler_the_rest_is_checked(kernel, folder, monkeypatch):
    assert kernel("check", folder).json["compiled"]
    monkeypatch.setenv("PATH", str(folder))
    done = kernel("check", folder)
    assert not done.json["compiled"] and done.json["problems"] == 200
    assert "the sources were not compiled: there is no C compiler: no cc in PATH" in findings(done, "note")


def test_nothing_is_left_of_compiling(kernel, folder, tmp_path, monkeypatch):
    (tmp_path / "room").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "room"))
    assert kernel("check", folder).json["compiled"]
    assert list((tmp_path / "room").iterdir()) == []
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert any("the sources were not compiled: cannot make a folder to compile in" in note
               for note in findings(kernel("check", folder), "note"))


# ---- check: hostile ones

def link(folder, name, target):
    (folder / name).unlink()
    (folder / name).symlink_to(target)


HOSTILE = {
    "no folder": (lambda folder: shutil.rmtree(folder), "cannot open the folder"),
    "no kernel.json": (lambda folder: (folder / "kernel.json").unlink(), "kernel.json is not in the folder"),
    "no JSON": (lambda folder: (folder / "kernel.json").write_text('{"name": }'), "kernel.json:1:"),
    "a link": (lambda folder: link(folder, "mine.c", "/etc/passwd"), "mine.c is a link"),
    "a linked kernel.json": (lambda folder: link(folder, "kernel.json", "/dev/zero"), "kernel.json is a link"),
    "a pipe": (lambda folder: (folder / "mine.c").unlink() or os.mkfifo(folder / "mine.c"), "mine.c is no regular file"),
    "an include of others": (lambda folder: (folder / "mine.c").write_text('#include "/etc/shadow"\n'), "/etc/shadow"),
    "an include above": (lambda folder: (folder / "mine.c").write_text('#include "../other.h"\n'), "../other.h"),
    "a world-writable file": (lambda folder: (folder / "mine.c").chmod(0o666), "mine.c has mode 0666"),
    "a world-writable folder": (lambda folder: folder.chmod(0o777), "has mode 0777"),
    "a source that is not there": (lambda folder: (folder / "reference.c").unlink(), "reference.c is not in the folder"),
}


@pytest.mark.parametrize("edit, said", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_folder_is_refused_by_a_message_of_its_own(kernel, folder, edit, said):
    edit(folder)
    done = kernel("check", folder, status=1)
    assert any(said in message for message in findings(done, "error")), done


def test_a_folder_of_somebody_else_is_refused(kernel, folder):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a folder away")
    os.chown(folder / "mine.c", 12345, 12345)
    done = kernel("check", folder, status=1)
    assert findings(done, "error") == ["mine.c belongs to user 12345; it must belong to root or user 0"]
    assert done.json["problems"] == 200, "the rest is looked at all the same"
    assert not done.json["compiled"]


# ---- try

SHAPE = ("--m", "16", "--n", "64", "--budget", str(harness.BUDGET))
ENDLESS = "for (volatile int forever = 1; forever;) {}"


@pytest.fixture
def room(monkeypatch):
    """Where attempts have their files: short, as a socket's name has to be, and nobody else's."""
    with tempfile.TemporaryDirectory(prefix="try-", dir="/tmp") as where:
        monkeypatch.setenv("TMPDIR", where)
        yield Path(where)


def attempts(room):
    """Processes of this room's attempts: those whose command line names it."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(str(room).encode() in word for word in words) and harness.alive(int(path.parent.name)):
            found[int(path.parent.name)] = Path(words[0].decode()).name
    return found


def begin(room, *words):
    """An attempt at the kernel in the room, which is at work once its runner is there."""
    return subprocess.Popen(harness.ctl_command(room / "nobody", "kernel", "try", room / "add", *SHAPE, *words, as_json=False),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pids(room, name):
    return [pid for pid, own in attempts(room).items() if own == name]


def await_runner(room):
    harness.until(lambda: pids(room, "flytune-runner-cpu"), "a runner is at work")


def left(room):
    return [path for path in room.iterdir() if path.name != "add"]


def test_a_kernel_is_tried_where_it_lies_and_nothing_is_left(kernel, room):
    install_add(room, extra="if (HOW && block[0] == 3) y[3 * n] += 1;")
    one, = kernel("try", room / "add", *SHAPE).json
    assert one["tuned"]["state"] == "done" and one["tuned"]["config"] == {"HOW": 0}, one
    assert one["explained"]["winner"]["config"] == {"HOW": 0} and one["explained"]["configs"]["failed"] == 1, one
    assert left(room) == [] and attempts(room) == {}
    said = kernel("try", room / "add", *SHAPE, "--device", "cpu:0", as_json=False).output
    assert "HOW=0 wins with" in said and "HOW=1: wrong: " in said and "row 3, column 0" in said, said
    assert left(room) == [] and attempts(room) == {}


@pytest.mark.skipif(harness.INSTRUMENTED, reason="what it would look at is looked at with other kernels")
@pytest.mark.parametrize("name, words", [("silu_mul", ("--m", "2", "--n", "9")), ("transpose", ("--m", "8", "--n", "9")),
                                         ("scaled_add", ("--m", "2", "--n", "9", "--factor", "-3"))])
def test_the_examples_are_tuned_and_each_config_is_right(kernel, room, name, words):
    """Two inputs, a grid of two dimensions, a buffer that is changed in place."""
    one, = kernel("try", harness.TOP / "tests" / "kernels" / name, *words, "--budget", harness.BUDGET).json
    assert one["tuned"]["state"] == "done" and one["tuned"]["trials"] == 4, one
    assert one["explained"]["winner"] and one["explained"]["configs"]["failed"] == 0, one
    assert left(room) == []


def test_a_broken_folder_is_told_as_check_tells_it(kernel, room):
    install_add(room, document=add_json(colour=1))
    for as_json in (True, False):
        checked = kernel("check", room / "add", status=1, as_json=as_json)
        tried = kernel("try", room / "add", *SHAPE, status=1, as_json=as_json)
        assert (tried.output, tried.complaint) == (checked.output, checked.complaint) and "colour" in tried.output
    assert left(room) == []


@pytest.mark.parametrize("words, field, value, bound", [
    (["--m", "0"], "m", "0", "between 1 and 4096"), (["--m", "4097"], "m", "4097", "between 1 and 4096"), (["--m", "8", "--n", "x"], "", "", "integer"),
    (["--m", "8"], "n", "", ""), (["--m", "8", "--n", "8", "--k", "1"], "k", "", "m, n"),
    (["--m", "8", "--n", "8", "--device", "cuda:0"], "device", "cuda:0", "cpu"), (["--m", "8", "--n", "8", "--budget", "0"], "", "", "86400"),
    (["--m", "8", "--n", "8", "--device"], "", "", "needs an id"), (["--m", "8", "--n", "8", "again"], "", "", "one word too many"),
])
def test_bad_words_are_refused_before_anything_is_started(kernel, room, words, field, value, bound):
    install_add(room)
    error = kernel("try", room / "add", *words, status=2).json["error"]
    assert (error["field"] or "", error["value"] or "") == (field, value) and bound in error["message"], error
    assert left(room) == []


def test_a_kernel_of_which_nothing_is_right_fails_the_job(kernel, room):
    install_add(room, extra="y[0] = 7;")
    one, = kernel("try", room / "add", *SHAPE, status=4).json
    assert one["tuned"]["state"] == "failed" and one["tuned"]["reason"] and one["explained"]["winner"] is None, one
    assert left(room) == [] and attempts(room) == {}


def test_whatever_ends_an_attempt_leaves_no_process_and_the_next_has_its_turn(room):
    install_add(room, extra=ENDLESS)
    killed = begin(room)
    await_runner(room)
    killed.kill()
    killed.communicate()
    harness.until(lambda: attempts(room) == {}, "all that it started is gone")
    assert left(room)

    first = begin(room)
    await_runner(room)
    base, = left(room)
    assert len(list(base.iterdir())) == 1  # what the killed one left is gone
    second = begin(room)
    assert "waits for another `kernel try`" in second.stderr.readline()
    first.terminate()
    first.communicate()
    assert first.returncode == -signal.SIGTERM

    await_runner(room)
    os.kill(pids(room, "flytuned")[0], signal.SIGKILL)
    said = second.communicate()[1]
    assert second.returncode == 3 and said, said
    harness.until(lambda: attempts(room) == {}, "all that it started is gone")
    assert left(room) == []
