"""flytunectl where its output cannot be taken: it says so; never another output with status 0. Memory that is short, and calls that
fail: test_campaign.py."""
import subprocess

import pytest

import campaign
import harness
from harness import shape


@pytest.fixture
def filled(daemon):
    return campaign.fill(daemon)


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("tune", "--help"), ("export", "-"), ("list",),
                                   ("lookup", *shape()), ("lookup", *shape(m="16,64")), ("trials", *shape()),
                                   ("explain", *shape()), ("status",), ("devices",), ("jobs",), ("misses",), ("metrics",), ("kernels",),
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
        daemon.await_device()
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
