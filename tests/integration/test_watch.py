"""What `watch` shows: on a terminal a line that moves under those that stay, elsewhere lines alone."""
import os
import pty
import subprocess

import harness
from harness import shape

ESCAPE = "\x1b"


def screen(raw):
    """What a terminal shows in the end: a line taken back is gone."""
    lines = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        shown = line.rsplit(f"\r{ESCAPE}[K", 1)[-1]
        lines.append(shown.replace(f"{ESCAPE}[?7l", "").replace(f"{ESCAPE}[?7h", ""))
    return lines


class Terminal:
    """A command with a terminal for its output."""

    def __init__(self, command, **env):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                        env={**os.environ, "TERM": "xterm", **env})
        os.close(theirs)

    def read(self):
        """All of it, until the command has ended."""
        raw = b""
        while True:
            try:
                part = os.read(self.ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            raw += part
        os.close(self.ours)
        assert self.process.wait(harness.DEADLINE) == 0, raw
        return raw.decode()


def job_of(daemon):
    daemon.ctl("pause")
    job = daemon.ctl("tune", *shape(), "--no-wait").json[0]["job"]
    return job


def watching(daemon):
    return harness.until(lambda: daemon.status()["sessions"] >= 2, "the watcher is there")


def test_on_a_terminal_the_running_job_has_a_line_that_moves(daemon, runner):
    job = job_of(daemon)
    terminal = Terminal(harness.ctl_command(daemon.path, "watch", job, as_json=False))
    watching(daemon)
    daemon.ctl("resume")
    raw = terminal.read()
    shown = screen(raw)
    print("\n".join(shown))
    assert f"job {job}  [" in raw and " of 40 settled" in raw and ", round 2" in raw and ", build" in raw
    # Of all that moved nothing is left; what stays is a line each.
    assert not any("settled" in line for line in shown)
    assert sum("µs" in line for line in shown) >= 30
    assert f"job {job}  started  rmsnorm m=64 n=4096" in "\n".join(shown)
    assert [line for line in shown if line][-1].startswith(f"job {job}  done")
    assert raw.count(f"{ESCAPE}[?7l") == raw.count(f"{ESCAPE}[?7h"), "the terminal is left as it was"


def test_elsewhere_it_is_lines_alone(daemon):
    for command, env in ((lambda job: Terminal(harness.ctl_command(daemon.path, "watch", job, as_json=False), TERM="dumb"),
                          None), (None, None)):
        job = job_of(daemon)
        if command:
            terminal = command(job)
        else:
            process = daemon.ctl_start("watch", job, as_json=False)
        watching(daemon)
        daemon.ctl("resume")
        raw = terminal.read() if command else process.communicate(timeout=harness.DEADLINE)[0]
        assert ESCAPE not in raw and f"job {job}  round 2" in raw and f"job {job}  done" in raw
        daemon.ctl("forget", *shape())
