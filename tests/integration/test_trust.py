"""What the code of a kernel folder can reach: compiled and run for real, by the real runner, for the real daemon."""
import json

import pytest

import harness
from test_kernel_folder import ADD, SHAPE, add_json, install_add, statuses

needs_landlock = pytest.mark.skipif(harness.LANDLOCK < 1, reason="this system's kernel has no Landlock")

# Each attempt is a line in TMPDIR/report: its name, and the error's number, 0 if it was let through.
PROBE = r"""
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRY(name, call) (errno = 0, say(name, (call) < 0 ? errno : 0))
static FILE *report;
static void say(const char *name, int error)
{
	fprintf(report, "%s %d\n", name, error);
}
static int opened(const char *path, int flags)
{
	int file = open(path, flags, 0600);
	int error = errno;
	if (file >= 0)
		close(file);
	errno = error;
	return file;
}
static int listed(const char *path)
{
	DIR *all = opendir(path);
	return all ? 0 : -1;
}
static int reached(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof(at));
}
static void probe_files(void)
{
	TRY("store-read", opened(STATE "/data.mdb", O_RDONLY));
	TRY("store-write", opened(STATE "/data.mdb", O_RDWR));
	TRY("store-truncate", truncate(STATE "/data.mdb", 0));
	TRY("store-mode", chmod(STATE "/data.mdb", 0666));
	TRY("store-remove", unlink(STATE "/data.mdb"));
	TRY("store-move", rename(STATE "/data.mdb", STATE "/code/x"));
	TRY("state-list", listed(STATE));
	TRY("state-mode", chmod(STATE, 0777));
	TRY("kept-code", opened(STATE "/code/x.code", O_WRONLY | O_CREAT));
	TRY("sources", opened(STATE "/kernels/x", O_WRONLY | O_CREAT));
	TRY("secret-read", opened(SECRET, O_RDONLY));
	TRY("secret-write", opened(SECRET, O_WRONLY));
	TRY("secret-mode", chmod(SECRET, 0666));
	TRY("tmp", opened(SHORT "/x", O_WRONLY | O_CREAT));
	TRY("socket-connect", reached(SHORT "/s"));
	TRY("socket-remove", unlink(SHORT "/s"));
	TRY("network", socket(AF_INET, SOCK_STREAM, 0));
}
static void probe_daemon(pid_t daemon)
{
	char path[64], where[256], byte;
	struct iovec here = {&byte, 1}, there = {(void *)&errno, 1};
	struct rlimit none = {0, 0};
	int number, handle = (int)syscall(SYS_pidfd_open, daemon, 0);
	TRY("kill", kill(daemon, SIGUSR2));
	TRY("kill-all", kill(-1, 0));
	TRY("kill-group", kill(-getpgid(daemon), 0));
	TRY("tgkill", syscall(SYS_tgkill, daemon, daemon, SIGUSR2));
	TRY("pidfd", syscall(SYS_pidfd_send_signal, handle, SIGUSR2, NULL, 0));
	snprintf(path, sizeof(path), "/proc/%d/task", (int)daemon);
	DIR *all = opendir(path);
	for (struct dirent *one; all && (one = readdir(all)) != NULL;) {
		if (one->d_name[0] != '.') {
			TRY("thread", kill(atoi(one->d_name), SIGUSR2));
			TRY("thread", syscall(SYS_tkill, atoi(one->d_name), SIGUSR2));
		}
	}
	TRY("owner", fcntl(0, F_SETOWN, daemon));
	TRY("limit", syscall(SYS_prlimit64, daemon, RLIMIT_NOFILE, &none, NULL));
	TRY("ptrace", ptrace(PTRACE_SEIZE, daemon, 0, 0));
	TRY("memory", syscall(SYS_process_vm_readv, daemon, &here, 1, &there, 1, 0));
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)daemon);
	TRY("proc-mem", opened(path, O_RDWR));
	snprintf(path, sizeof(path), "/proc/%d/fd/2", (int)daemon);
	TRY("proc-fd", opened(path, O_RDWR));
	for (number = 0; number < 256; number++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)daemon, number);
		if (opened(path, O_RDONLY) >= 0)
			say("daemon's", 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
		ssize_t length = readlink(path, where, sizeof(where) - 1);
		where[length > 0 ? length : 0] = '\0';
		if (strstr(where, ".mdb"))
			say("inherited", 0);
	}
}
static void probe_child(void)
{
	pid_t child = fork();
	int status = 0;
	if (child == 0)
		_exit(open(STATE "/data.mdb", O_RDONLY) < 0 ? errno : 0);
	waitpid(child, &status, 0);
	say("child", WEXITSTATUS(status));
}
__attribute__((constructor)) static void probe(void)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/report", getenv("TMPDIR"));
	if (access(path, F_OK) == 0)
		return;
	report = fopen(path, "w");
	probe_files();
	probe_daemon(getppid());
	probe_child();
	fclose(report);
}
"""


@pytest.fixture
def place(daemons, tmp_path):
    """A daemon that is not yet started, its folder of kernels, and a file that is none of theirs."""
    secret = tmp_path / "home" / ".ssh" / "id"
    secret.parent.mkdir(parents=True)
    secret.write_text("int key = 1;\n")
    folder = tmp_path / "kernels.d"
    folder.mkdir()
    return daemons(arguments=("--kernels", folder)), folder, secret


def confined(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        facts = dict(line.rstrip("\n").split(":\t", 1) for line in status)
    return facts["Seccomp"] == "2" and facts["NoNewPrivs"] == "1"


@needs_landlock
def test_code_of_a_folder_reaches_nothing_of_the_daemon_and_works_otherwise(place):
    daemon, folder, secret = place
    paths = "".join(f"#define {name} {json.dumps(str(path))}\n" for name, path in
                    (("STATE", daemon.state), ("SECRET", secret), ("SHORT", daemon.short)))
    where = install_add(folder)
    (where / "add.c").write_text(paths + PROBE + ADD % "")
    daemon.start().await_device()
    job, = daemon.ctl("tune", *SHAPE).json
    assert job["state"] == "done", job
    assert daemon.ctl("lookup", *SHAPE).json["source"] == "tuned"
    report, = daemon.state.glob("code/build-*/report")
    attempts = [line.split() for line in report.read_text().splitlines()]
    refused = {"1", "13"}  # EPERM, EACCES
    let = [attempt for attempt in attempts if attempt[1] not in refused]
    assert not let, let
    assert len({name for name, _ in attempts}) == 30, attempts
    assert daemon.process.poll() is None and secret.read_text() == "int key = 1;\n"
    # What is built in is measured by that very process.
    rmsnorm = ("rmsnorm", "--m", "4", "--n", "64", "--dtype", "f32")
    pid, = daemon.runner_pids()
    assert confined(pid)
    job, = daemon.ctl("tune", *rmsnorm).json
    assert job["state"] == "done" and daemon.runner_pids() == [pid], job


@needs_landlock
def test_the_compiler_reads_nothing_for_a_folder_that_is_not_the_toolchains(place):
    daemon, folder, secret = place
    ways = (f"#include <{secret}>", f"#define WHERE <{secret}>\n#include WHERE", f'__asm__(".incbin \\"{secret}\\"");')
    knob = {"name": "HOW", "help": "what it reads", "values": list(range(len(ways) + 1))}
    install_add(folder, document=add_json(knobs=[knob]),
                extra="".join(f"\n#if HOW == {i}\n{way}\n#endif\n" for i, way in enumerate(ways, 1)))
    daemon.start().await_device()
    job, = daemon.ctl("tune", *SHAPE).json
    assert job["state"] == "done", job
    verdicts = statuses(daemon, *SHAPE)
    assert verdicts.pop(0)[0] == "ok"
    for status, reason in verdicts.values():
        assert status == "failed" and any(
            said in reason for said in (f"{secret}: Permission denied", f"file not found: {secret}")), verdicts


def test_what_a_system_cannot_confine_is_said(place):
    daemon, folder, _ = place
    install_add(folder)
    daemon.start().await_device()
    reason = daemon.status()["devices"][0]["reason"] or ""
    assert ("Landlock" in reason) == (harness.LANDLOCK < harness.LANDLOCK_WHOLE), reason
    assert daemon.log().count("not confined kind=cpu") == (harness.LANDLOCK < harness.LANDLOCK_WHOLE), daemon.log()


def test_a_runner_of_built_in_kernels_alone_is_not_confined(place):
    daemon, _, _ = place
    daemon.start().await_device()
    job, = daemon.ctl("tune", "rmsnorm", "--m", "4", "--n", "64", "--dtype", "f32").json
    pid, = daemon.runner_pids()
    assert job["state"] == "done" and not confined(pid)
