"""A program that has rights which its caller lacks does not do what the caller's environment says."""
import os
import shutil
import socket
import subprocess

import pytest

import harness

PROGRAMS = ["flytuned", "flytunectl", "flytune-runner-cpu", "flytune-runner-hip", "flytune-runner-cuda"]


@pytest.fixture
def set_uid(tmp_path):
    """Copies a program so that who runs it becomes root; without that, a plain copy."""
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("programs here cannot be set-uid")

    def make(name, mode=0o4755):
        copy = tmp_path / f"{name}-{mode:o}"
        shutil.copy(harness.program(name), copy)
        copy.chmod(mode)
        return str(copy)

    return make


def ask(path, command, **env):
    """What a program that uses the library is told of m=64; or its complaint."""
    done = subprocess.run(command, input="64\n", text=True, capture_output=True, timeout=harness.DEADLINE, check=False,
                          env={**os.environ, "FLYTUNE_SOCKET": str(path), **env})
    return done.stdout or done.stderr


def test_a_set_uid_program_asks_no_daemon_that_its_caller_names(owned, nobody, set_uid):
    owned.short.chmod(0o777)
    owned.start()
    owned.tune()
    plain, secure = [*nobody, set_uid("ask-static", 0o755)], [*nobody, set_uid("ask-static")]
    # The caller's daemon is obeyed by the caller's own program, and by no other.
    assert ask(owned.path, plain).startswith("tuned ")
    assert ask(owned.path, secure).startswith("default ")
    for name, value in (("FLYTUNE_AUTOTUNE", "maybe"), ("FLYTUNE_GENERATION", "x" * 99)):
        assert f" is {value[:40]}" in ask(owned.path, plain, **{name: value})
        assert ask(owned.path, secure, **{name: value}).startswith("default ")


def test_a_set_uid_daemon_tells_and_takes_nothing_where_its_caller_says(owned, set_uid, tmp_path):
    owned.short.chmod(0o777)
    heard = []
    for mode in (0o755, 0o4755):
        where = tmp_path / f"notify-{mode:o}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(where))
            where.chmod(0o777)
            command = owned.command()
            command[command.index(str(harness.FLYTUNED))] = set_uid("flytuned", mode)
            with open(owned.log_path, "ab") as log:
                owned.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 env={**os.environ, "NOTIFY_SOCKET": str(where)})
            harness.until(lambda: owned.path.exists() and owned.ctl("status", check=False).status == 0, "it serves")
            owned.stop()
            notify.setblocking(False)
            try:
                heard.append(b"READY=1" in notify.recv(4096))
            except BlockingIOError:
                heard.append(False)
    assert heard == [True, False]


@pytest.mark.parametrize("name", [*PROGRAMS, "libflytune-client.so.1"])
def test_what_is_shipped_reads_the_environment_in_the_secure_way_only(name):
    folder = "client" if name.startswith("lib") else None
    path = harness.BUILD / folder / name if folder else harness.program(name)
    taken = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in taken.splitlines()}
    assert "malloc" in names or "calloc" in names
    assert not names & {"getenv", "uv_os_getenv", "uv_os_environ"}
