"""Fixtures: daemons and runners that end with their test."""
import pytest

import harness


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


@pytest.fixture(scope="session")
def nobody():
    """What to put before a command to run it as an ordinary user."""
    import os
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
