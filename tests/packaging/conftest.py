"""Fixtures: what is installed, and where."""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import harness  # noqa: E402
import roots  # noqa: E402


@pytest.fixture(scope="session")
def prefix():
    """Of the build under test."""
    import json
    with open(harness.BUILD / "meson-info" / "intro-buildoptions.json", encoding="utf-8") as options:
        return next(option["value"] for option in json.load(options) if option["name"] == "prefix")


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """Everything that the build installs, under a root of its own."""
    root = tmp_path_factory.mktemp("stage") / "root"
    roots.run("meson", "install", "-C", harness.BUILD, "--no-rebuild", "--destdir", root)
    return root


@pytest.fixture
def daemons(tmp_path):
    """Makes daemons that are not yet started."""
    made = []

    def make(**options):
        where = tmp_path / f"daemon{len(made)}"
        where.mkdir(exist_ok=True)
        made.append(harness.Daemon(where, **options))
        return made[-1]

    yield make
    complaints = [line for daemon in made for line in daemon.clean_up()]
    for daemon in made:
        print(f"--- {daemon.log_path}\n{daemon.log()}")
    assert not complaints, "\n".join(complaints)


def pytest_generate_tests(metafunc):
    """The package's life is led on this machine's own files, and, if asked for, on a clean Debian."""
    if "kind_of_root" in metafunc.fixturenames:
        kinds = ["this-machine"] + (["clean-debian"] if os.environ.get("FLYTUNE_CLEAN_DEBIAN") == "1" else [])
        metafunc.parametrize("kind_of_root", kinds, scope="module")
