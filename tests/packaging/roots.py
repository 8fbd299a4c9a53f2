"""Roots to install packages into: this machine's own file system under an overlay, or a clean Debian; and a systemd to boot
in them."""
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import harness

HERE = Path(__file__).resolve().parent
# What a root of this machine must not show: it is another machine's.
HIDDEN = ("proc", "sys", "dev", "run", "tmp")


def run(*command, check=True, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
    return done


def need_namespaces():
    """Skips where nobody may make a root of their own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a root file system of its own")
    if run("unshare", "--mount", "true", check=False).returncode != 0:
        pytest.skip("needs mount namespaces, which this machine does not give")


class Root:
    """A root file system; every change to it lies in `changes`, if that is not None."""

    def __init__(self, path, changes=None):
        self.path = Path(path)
        self.changes = changes
        self.mounted = []

    def close(self):
        for path in reversed(self.mounted):
            run("umount", "-l", path, check=False)


def overlay(where, lower="/"):
    """A root over another one, which stays as it is. The layers lie in a tmpfs: an overlay cannot lie in itself."""
    where = Path(where)
    where.mkdir()
    done = run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", where, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs to mount a tmpfs: {done.stdout.strip()}")
    changes, work, path = where / "changes", where / "work", where / "root"
    for folder in (changes, work, path):
        folder.mkdir()
    root = Root(path, changes)
    root.mounted.append(where)
    done = run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={changes},workdir={work}", "overlay", path,
               check=False)
    if done.returncode != 0:
        root.close()
        pytest.skip(f"needs an overlay over {lower}: {done.stdout.strip()}")
    root.mounted.append(path)
    for name in HIDDEN:
        (path / name).mkdir(exist_ok=True)
    # Containers forbid packages to start services, and an index of all manual pages takes minutes.
    for name in ("usr/sbin/policy-rc.d", "var/lib/man-db/auto-update"):
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / "var/lib/flytuned", ignore_errors=True)  # a store of this machine's own
    return root


def clean_debian(archive):
    """Makes an archive of a minimal Debian with systemd, from the mirror that this machine uses."""
    if archive.exists():
        return archive
    if run("which", "mmdebstrap", check=False).returncode != 0:
        pytest.skip("needs mmdebstrap, for a clean Debian")
    fresh = archive.with_suffix(".new.tar")
    done = run("mmdebstrap", "--variant=apt", "--include=systemd", "bookworm", fresh, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs a Debian mirror: {done.stdout.strip().splitlines()[-1]}")
    fresh.rename(archive)
    return archive


class Machine:
    """A booted root: systemd is its process 1."""

    def __init__(self, root, folder):
        self.root = root
        self.console = Path(folder) / "console.log"
        self.console.touch()
        self.process = subprocess.Popen(["setpriv", "--pdeathsig=TERM", HERE / "boot", root.path, self.console], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.init = None
        try:
            self.init = harness.until(self.find_init, "systemd runs")
            harness.until(self.is_up, "systemd is up", 3 * harness.DEADLINE)
        except BaseException:
            self.close()
            raise

    def find_init(self):
        """Process 1 in there: the grandchild that is systemd, once it is."""
        if self.process.poll() is not None:
            said = self.process.stdout.read().decode(errors="replace").strip()
            pytest.skip(f"cannot boot systemd here: {said or 'exit %d' % self.process.returncode}")
        for child in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{child}/exe").endswith("/systemd"):
                    return child
        return None

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"systemd ended:\n{self.console.read_text()}")
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def run(self, *command, check=True, **options):
        return run("nsenter", "--target", self.init, "--all", "--wdns=/", "--", *command, check=check, **options)

    def shell(self, script, check=True):
        return self.run("env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-c",
                        f"set -e; {script}", check=check).stdout

    def start(self, *command):
        return subprocess.Popen(["nsenter", "--target", str(self.init), "--all", "--wdns=/", "--", *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def show(self, unit, name):
        return self.run("systemctl", "show", "--value", "--property", name, unit).stdout.strip()

    def journal(self):
        return self.run("journalctl", "--no-pager", "--unit", "flytuned", check=False).stdout

    def close(self):
        if self.process.poll() is None and self.init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.init, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            found = [int(child) for child in children.read().split()]
    except OSError:
        return []
    return [one for child in found for one in (child, *descendants(child))]


def tree(top, skip=()):
    """Every path under a root but those under the skipped ones."""
    found = set()
    for folder, folders, files in os.walk(top):
        inside = "/" + os.path.relpath(folder, top) if folder != str(top) else ""
        folders[:] = [name for name in folders if f"{inside}/{name}" not in skip]
        found.update(f"{inside}/{name}" for name in folders + files)
    return found
