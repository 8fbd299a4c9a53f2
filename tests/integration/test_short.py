"""flytunectl when memory is short or a call fails: its output is whole, or it says that it is not; never another output
with status 0."""
import json
import re
import subprocess

import pytest

import fail
import harness
from harness import shape

pytestmark = pytest.mark.skipif(harness.INSTRUMENTED, reason="a sanitizer and valgrind have allocators of their own")


@pytest.fixture
def filled(daemon):
    """Answers of each kind: tuned, pinned, of another stride, of another dtype."""
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready", "the device is known")
    daemon.ctl("tune", *shape(m="16,64"))
    daemon.ctl("tune", *shape(m=64, row_stride=8192))
    daemon.ctl("tune", *shape(m=64, dtype="f32"))
    config = daemon.ctl("lookup", *shape(m=16)).json["config"]
    daemon.ctl("pin", *shape(m=32), "--config", ",".join(f"{name}={value}" for name, value in config.items()))
    return daemon


# What changes from run to run, whoever is asked.
VOLATILE = re.compile(r'"at": "[^"]*"|("uptime_s": |, up )[\d.]+( s)?|("(first|last)_ago_s": )[\d.]+|"misses": \d+|'
                      r"(?<=\d )\w+ nearest, \w+ default")


def steady(command, text):
    text = VOLATILE.sub("…", text)
    if command[0] in ("status", "metrics", "misses"):
        text = re.sub(r" +", " ", re.sub(r"\d+", "0", text))
    return text


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


COMMANDS = [
    ("export", "FILE"), ("export", "-"), ("--json", "export", "FILE"),
    ("lookup", *shape()), ("--json", "lookup", *shape()), ("--json", "lookup", *shape(m="16,64", dtype="bf16,f32")),
    ("lookup", *shape(m="16,64")), ("list",), ("--json", "list"),
    ("trials", *shape()), ("--json", "trials", *shape()), ("explain", *shape()), ("--json", "explain", *shape()),
    ("--json", "explain", *shape(m=32)), ("tune", *shape(m="16,64")), ("--json", "tune", *shape(m="16,64")),
    ("jobs",), ("--json", "jobs"), ("watch", "1"), ("--json", "watch", "1"), ("--json", "cancel", "1"),
    ("status",), ("--json", "status"), ("devices",), ("--json", "devices"), ("misses",), ("--json", "misses"), ("metrics",),
    ("--json", "metrics"), ("import", "--dry-run", "EXPORTED"), ("--json", "import", "EXPORTED"),
    ("--help",), ("tune", "--help"), ("--version",),
]


@pytest.mark.parametrize("group", range(4))
def test_what_is_printed_is_whole_or_the_status_says_so(filled, tmp_path, group):
    exported, file, count = tmp_path / "exported", tmp_path / "file", tmp_path / "count"
    filled.ctl("export", exported)
    filled.lookup(m=4096)
    tried = hits = 0
    for words in COMMANDS[group::4]:
        as_json = words[0] == "--json"
        words = [{"FILE": file, "EXPORTED": exported}.get(word, word) for word in words if word != "--json"]
        command = harness.ctl_command(filled.path, *words, as_json=as_json)

        def outcome(**failing):
            count.unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            done = fail.run(command, fail.environment(count, **failing))
            return done, steady(words, done.output), steady(words, file.read_text()) if file.exists() else None

        whole, output, written = outcome()
        assert whole.status == 0, whole
        (_, calls, _), = fail.counts(count)
        for kind in fail.KINDS:
            for number in fail.points(calls[kind]):
                done, said, wrote = outcome(kind=kind, number=number)
                where = f"{kind} {number} of {' '.join(map(str, words))}: {done}"
                tried += 1
                hits += count.exists() and fail.counts(count)[0][2]
                assert done.status >= 0, where
                if done.status == 0 and words[0] == "watch" and "away" in said:
                    assert "back" in said and "is the only one left" in said, where
                elif done.status == 0:
                    assert (said, wrote) == (output, written), where
                else:
                    assert done.complaint, where
                    assert wrote is None or wrote == written, where
                    if as_json and said and "standard output:" not in done.complaint:
                        lines = done.output.splitlines() if words[0] == "watch" else [done.output]
                        assert all(map(is_json, lines)), where
                assert not [left for left in tmp_path.iterdir() if left.name.startswith("file.")], where
    print(f"{tried} failures, {hits} met")
    assert hits > 0.9 * tried


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("tune", "--help"), ("export", "-"), ("list",),
                                   ("lookup", *shape()), ("lookup", *shape(m="16,64")), ("trials", *shape()),
                                   ("explain", *shape()), ("status",), ("devices",), ("jobs",), ("misses",), ("metrics",),
                                   ("tune", *shape()), ("tune", *shape(m=128)), ("tune", *shape(m=256), "--force"),
                                   ("check", *shape()), ("watch", "1"), ("cancel", "1"), ("forget", *shape(m=999)),
                                   ("unpin", *shape(m=999)), ("pause",), ("resume",), ("import", "--dry-run", "EXPORTED")],
                         ids=lambda words: " ".join(map(str, words)))
def test_a_standard_output_that_takes_nothing_is_told(filled_once, words):
    daemon, exported = filled_once
    words = [exported if word == "EXPORTED" else word for word in words]
    for as_json in (False, True):
        command = harness.ctl_command(daemon.path, *words, as_json=as_json)
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=harness.DEADLINE, check=False)
        assert done.returncode == 1 and "standard output: No space left on device" in done.stderr, (command, done)
        # Closed: what the program opens next must not be taken for it.
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, timeout=harness.DEADLINE, check=False)
        assert done.returncode == 1 and "standard output: Bad file descriptor" in done.stderr, (command, done)


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    daemon = harness.Daemon(folder, runner=harness.BadRunner(folder)).start()
    try:
        harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready", "the device is known")
        daemon.ctl("tune", *shape())
        daemon.lookup(m=4096)
        daemon.ctl("export", folder / "exported")
        yield daemon, folder / "exported"
    finally:
        complaints = daemon.clean_up()
    assert not complaints, complaints


def test_a_full_disk_leaves_no_half_of_a_file(filled, tmp_path):
    for words in (("export", "/dev/full"), ("--json", "export", "/dev/full")):
        done = filled.ctl(*words, as_json=False, check=False)
        assert done.status == 1 and "cannot write /dev/full: No space left on device" in done.complaint
        if words[0] == "--json":
            assert done.json["error"]["code"] == "system"
    assert filled.ctl("export", tmp_path, check=False).status == 1
    limited = filled.ctl("export", tmp_path / "limited", check=False, prefix=["prlimit", "--fsize=1024", "--"])
    assert limited.status == 1 and "File too large" in limited.complaint
    assert [path.name for path in tmp_path.iterdir() if "limited" in path.name] == []
