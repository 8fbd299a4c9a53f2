"""Fixtures: daemons and runners that end with their test."""
import contextlib
import os
import signal

import pytest

import harness

SMALL_DISK = 'mkdir -p "$1" && mount -t tmpfs -o size=3m,mode=0700 none "$1" && shift && exec "$@"'

# Ignored where a shell runs this in the background, and the programs that are interrupted here would inherit it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def daemons(tmp_path):
    """Makes daemons that are not yet started."""
    made = []

    def make(runner=None, folder=None, **options):
        where = folder or tmp_path / f"daemon{len(made)}"
        where.mkdir(exist_ok=True)
        made.append(harness.Daemon(where, runner=runner, **options))
        return made[-1]

    yield make
    complaints = [line for daemon in made for line in daemon.clean_up()]
    for daemon in made:
        print(f"--- {daemon.log_path}\n{daemon.log()}")
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def runner(tmp_path):
    """A bad runner, honest until its script is written."""
    folder = tmp_path / "runner"
    folder.mkdir()
    bad = harness.BadRunner(folder)
    yield bad
    for line in bad.did():
        print("runner:", line)


@pytest.fixture
def daemon(daemons, runner):
    """A running daemon whose CPU runner is the bad one."""
    return daemons(runner).start()


def start_or_skip(daemon, why):
    """Starts a daemon behind a mount that only some machines allow."""
    try:
        return daemon.start()
    except AssertionError:
        if "mount" in daemon.log() or "unshare" in daemon.log():
            pytest.skip(f"{why}: {daemon.log().strip()}")
        raise


@pytest.fixture
def small_disk(daemons, runner, tmp_path):
    """A daemon whose state directory is a disk of its own, what fills that but for so many bytes, and what empties it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    state = tmp_path / "disk"
    daemon = daemons(runner, state=state, prefix=["unshare", "-m", "--", "sh", "-c", SMALL_DISK, "sh", str(state)])
    start_or_skip(daemon, "no small disk can be mounted")
    filler = f"/proc/{daemon.pid}/root{state}/filler"

    def fill(left=0):
        with open(filler, "ab", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            file.truncate(max(0, file.tell() - left))

    return daemon, fill, lambda: os.unlink(filler)


@pytest.fixture(scope="session")
def nobody():
    """What to put before a command to run it as an ordinary user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


@pytest.fixture
def owned(daemons, runner, nobody, tmp_path):
    """A daemon of that ordinary user's, not yet started: it can reach its runner, and its state is its own."""
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    for left in (runner.folder, runner.program):
        left.chmod(0o777)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    return daemons(runner, state=state, prefix=nobody)
