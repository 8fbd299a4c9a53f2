"""The life of the Debian packages: built, installed, used, restarted, upgraded, removed, installed again and purged, under a
systemd that runs as process 1 of a machine of its own. The tests run in this order, each on what the one before left."""
import json
import os
import re
import shutil
import time

import pytest

import harness
import roots

VERSION = re.match(r"flytune \((.*)\)", (harness.TOP / "debian/changelog").read_text())[1]
NEXT = VERSION + "+1"
PACKAGES = ("flytuned", "libflytune-client1", "libflytune-client-dev")
# What changes in any Debian with any package, or with time alone.
OTHERS = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/log", "/var/cache", "/var/lib/systemd", "/var/lib/apt",
          "/var/lib/PackageKit", "/root", "/home", "/packages")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The packages, built from the sources of this tree, and the same again with a higher version."""
    for tool in ("dpkg-buildpackage", "dh", "scdoc", "fakeroot"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "flytune"
    source.mkdir()
    listed = roots.run("git", "-C", harness.TOP, "-c", f"safe.directory={harness.TOP}", "ls-files", "-z", "--cached", "--others",
                       "--exclude-standard").stdout
    for name in filter(None, listed.split("\0")):
        if (harness.TOP / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(harness.TOP / name, source / name)
    env = {**os.environ, "DEB_BUILD_OPTIONS": f"nocheck noautodbgsym parallel={os.cpu_count()}"}
    for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS", "CC", "DESTDIR"):
        env.pop(name, None)
    roots.run("dpkg-buildpackage", "--build=binary", "--unsigned-changes", "--unsigned-buildinfo", cwd=source, env=env)
    first = {name: next(folder.glob(f"{name}_*.deb")) for name in PACKAGES}
    second = {name: raised(path, folder) for name, path in first.items()}
    return first, second


def raised(path, folder):
    """The same package with the next version."""
    content = folder / "raised"
    roots.run("dpkg-deb", "--raw-extract", path, content)
    control = content / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(VERSION, NEXT))
    fresh = folder / path.name.replace(VERSION, NEXT)
    roots.run("dpkg-deb", "--root-owner-group", "-Znone", "--build", content, fresh)
    shutil.rmtree(content)
    return fresh


@pytest.fixture(scope="module")
def machine(kind_of_root, packages, tmp_path_factory):
    """A booted Debian that has none of it yet."""
    roots.need_namespaces()
    folder = tmp_path_factory.mktemp("machine")
    lower = "/"
    if kind_of_root == "clean-debian":
        archive = roots.clean_debian(harness.BUILD / "clean-debian.tar")
        lower = folder / "debian"
        lower.mkdir()
        roots.run("tar", "-C", lower, "-xf", archive)
    root = roots.overlay(folder / "overlay", lower)
    booted = None
    try:
        (root.path / "packages").mkdir()
        for version in packages:
            for path in version.values():
                shutil.copy(path, root.path / "packages")
        if kind_of_root == "clean-debian":
            shutil.copy("/etc/resolv.conf", root.path / "etc" / "resolv.conf")
            install_dependencies(root)
        booted = roots.Machine(root, folder)
        booted.before = roots.tree(root.changes, OTHERS)
        booted.kind = kind_of_root
        yield booted
        print(booted.journal())
    finally:
        if booted:
            booted.close()
        root.close()
        if lower != "/":
            shutil.rmtree(lower, ignore_errors=True)


def install_dependencies(root):
    """What apt has to fetch is fetched before the boot: the machine has no network."""
    script = f"""
        mount -t proc proc /proc
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q
        apt-get install -q -y --no-install-recommends --download-only /packages/*_{VERSION}_*.deb
        apt-get install -q -y --no-install-recommends adduser python3 gcc libc6-dev pkg-config
        umount /proc
    """
    done = roots.run("unshare", "--mount", "chroot", root.path, "sh", "-ec", script, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs a Debian mirror: {done.stdout.strip().splitlines()[-1]}")


def install(machine, version):
    said = machine.shell(f"""
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -q -y --no-install-recommends --allow-downgrades -o Dpkg::Options::=--force-confold \
            /packages/*_{version}_*.deb""")
    print(said)
    return said


def ctl(machine, *words, user=None, groups=(), check=True):
    prefix = []
    if user is not None:
        numbers = [machine.shell(f"getent group {group} | cut -d: -f3").strip() for group in groups]
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={','.join(numbers)}" if groups else "--clear-groups"]
    return machine.run(*prefix, "flytunectl", *words, check=check)


def status(machine):
    return json.loads(ctl(machine, "--json", "status").stdout)


def main_pid(machine):
    return int(machine.show("flytuned.service", "MainPID"))


def wait_for_new(machine, old):
    """The main process of the service, once it is another one and ready."""
    return harness.until(lambda: machine.show("flytuned.service", "ActiveState") == "active" and
                         main_pid(machine) not in (0, old) and main_pid(machine), "the service is back")


def test_the_packages_hold_what_they_should(packages):
    first, _ = packages
    held = {name: roots.run("dpkg-deb", "--contents", path).stdout for name, path in first.items()}
    assert "./usr/bin/flytuned" in held["flytuned"] and "flytune-runner-cpu" in held["flytuned"]
    assert "./lib/systemd/system/flytuned.socket" in held["flytuned"]
    assert "man8/flytuned.8.gz" in held["flytuned"] and "man1/flytunectl.1.gz" in held["flytuned"]
    assert "libflytune-client.so.1 -> libflytune-client.so.1." in held["libflytune-client1"]
    for name in ("DECISION.md", "EXPORT.md", "HARDENING.md", "JSON.md", "LAUNCH.md", "MODELS.md", "PROTOCOL.md", "TRUST.md",
                 "YOUR_KERNEL.md", "board.h"):
        assert f"./usr/share/doc/flytuned/{name}\n" in held["flytuned"], "the manual pages name it by its place"
    for name in ("admin.h", "client.h", "rmsnorm.h", "flytune-client.pc"):
        assert f"/{name}\n" in held["libflytune-client-dev"]
    symbols = roots.run("dpkg-deb", "--info", first["libflytune-client1"], "symbols").stdout
    assert "flytune_lookup@FLYTUNE_0.2 0.2.0" in symbols
    depends = roots.run("dpkg-deb", "--field", first["libflytune-client1"], "Depends").stdout
    assert re.fullmatch(r"libc6 \(>= [\d.]+\)", depends.strip()), "programs that link the library would pull in more"


def test_lintian_finds_no_error(packages):
    if os.environ.get("FLYTUNE_CLEAN_DEBIAN") != "1" or shutil.which("lintian") is None:
        pytest.skip("takes half a minute: only with tests/run --packages, and lintian")
    first, _ = packages
    # The maintainer's address is for who publishes the packages to fill in.
    done = roots.run("lintian", "--fail-on", "none", "--allow-root", "--suppress-tags",
                     "bogus-mail-host,bogus-mail-host-in-debian-changelog", *first.values())
    assert not [line for line in done.stdout.splitlines() if line.startswith("E:")], done.stdout


def test_installed_it_runs_at_once(machine):
    said = install(machine, VERSION)
    assert "rror" not in said
    for unit in ("flytuned.socket", "flytuned.service"):
        assert machine.show(unit, "ActiveState") == "active", machine.journal()
        assert machine.run("systemctl", "is-enabled", unit).stdout.strip() == "enabled"
    assert machine.show("flytuned.service", "StatusText")
    assert status(machine)["pid"] == main_pid(machine)
    assert machine.show("flytuned-devices.service", "Result") == "success"


def test_the_daemon_is_who_and_where_it_should_be(machine):
    facts = machine.shell(f"cat /proc/{main_pid(machine)}/status")
    user = machine.shell("id -u flytune").strip()
    assert re.search(rf"^Uid:\s+{user}\s+{user}\s+{user}\s+{user}$", facts, re.M)
    groups = set(re.search(r"^Groups:\s*(.*)$", facts, re.M)[1].split())
    assert {machine.shell(f"getent group {name} | cut -d: -f3").strip() for name in ("render", "video")} <= groups
    assert re.search(r"^CapBnd:\s+0+$", facts, re.M) and re.search(r"^CapEff:\s+0+$", facts, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", facts, re.M) and re.search(r"^Seccomp:\s+2$", facts, re.M)
    modes = machine.shell("stat -c '%a %U %G %n' /var/lib/flytuned /run/flytuned /run/flytuned/flytuned.sock").splitlines()
    assert modes == ["700 flytune flytune /var/lib/flytuned", "755 root root /run/flytuned",
                     "660 root flytune /run/flytuned/flytuned.sock"]
    environment = machine.shell(f"tr '\\0' '\\n' </proc/{main_pid(machine)}/environ")
    assert "HOME=/var/lib/flytuned" in environment and "CUDA_CACHE_DISABLE=1" in environment


def test_the_sandbox_holds(machine):
    into = ["nsenter", "--target", main_pid(machine), "--mount", "--net", "--"]
    user = ["setpriv", "--reuid=flytune", "--regid=flytune", "--init-groups", "--"]
    for path in ("/usr/bin", "/etc", "/sys", "/var/lib", "/var/cache"):
        assert machine.run(*into, "touch", f"{path}/flytune-was-here", check=False).returncode != 0, f"{path}, even as root"
    assert machine.run(*into, *user, "touch", "/run/flytuned/flytune-was-here", check=False).returncode != 0
    assert machine.run(*into, *user, "mv", "/run/flytuned/flytuned.sock", "/run/flytuned/x", check=False).returncode != 0
    assert machine.run(*into, "ls", "-A", "/root", "/home", check=False).stdout.split() == ["/home:", "/root:"]
    network = machine.run(*into, "cat", "/proc/net/dev").stdout.splitlines()
    assert len(network) == 3 and "lo:" in network[2]
    machine.run(*into, *user, "touch", "/var/lib/flytuned/flytune-was-here")
    machine.shell("rm /var/lib/flytuned/flytune-was-here")


def test_members_of_the_group_are_served_and_known(machine):
    answer = json.loads(ctl(machine, "--json", "lookup", *harness.shape(), user=4711, groups=["flytune"]).stdout)
    assert answer["config"]
    job = json.loads(ctl(machine, "--json", "tune", *harness.shape(m=1, n=512), "--no-wait", user=4711, groups=["flytune"]).stdout)
    listed = ctl(machine, "--json", "jobs", job[0]["job"]).stdout
    assert '"owner": 4711' in listed or '"user": 4711' in listed, "PrivateUsers= would make it 65534: " + listed


def test_strangers_are_told_which_group_they_lack(machine):
    done = ctl(machine, "status", user=4711, check=False)
    assert done.returncode != 0
    assert "flytune" in done.stdout and "group" in done.stdout


def test_a_sweep_of_the_cpu_runs_in_the_sandbox(machine):
    done = json.loads(ctl(machine, "--json", "tune", *harness.shape(m=1, n=1024), "--budget", harness.BUDGET).stdout)
    assert done[0]["source"] == "tuned", done
    machine.answer = done[0]
    assert json.loads(ctl(machine, "--json", "lookup", *harness.shape(m=1, n=1024)).stdout)["source"] == "tuned"


def test_a_kernel_folder_is_tuned_in_the_sandbox_and_confined_as_the_system_can(machine):
    kernel = ("softmax", "--m", "16", "--n", "64", "--dtype", "f32")
    there = machine.root.path / "etc" / "flytuned" / "kernels.d"
    had = there.exists()
    shutil.copytree(harness.TOP / "tests" / "kernels" / "softmax", there / "softmax")
    machine.run("systemctl", "reload", "flytuned")
    harness.until(lambda: ctl(machine, "lookup", *kernel, check=False).returncode == 0, "the kernel is installed")
    done = json.loads(ctl(machine, "--json", "tune", *kernel, "--budget", harness.BUDGET).stdout)
    assert done[0]["source"] == "tuned", done
    device = next(device for device in status(machine)["devices"] if device["id"] == "cpu:0")
    assert ("Landlock" in (device["reason"] or "")) == (harness.LANDLOCK < harness.LANDLOCK_WHOLE), device
    shutil.rmtree(there / "softmax" if had else there)
    machine.run("systemctl", "reload", "flytuned")
    harness.until(lambda: ctl(machine, "lookup", *kernel, check=False).returncode != 0, "the kernel is gone")


def test_a_program_is_built_against_the_package_and_answered(machine):
    if machine.run("sh", "-c", "command -v gcc && command -v pkg-config", check=False).returncode != 0:
        pytest.skip("needs a compiler in the root")
    machine.shell("""
        cd /var/tmp
        gcc -Wall -Werror /usr/share/doc/libflytune-client-dev/examples/lookup.c $(pkg-config --cflags --libs flytune-client) -o ft""")
    # On a busy machine the second that it grants the daemon may be over now and then.
    said = harness.until(lambda: (lambda said: "away" not in said and said)(machine.shell("/var/tmp/ft 1024")), "it is answered")
    assert "tuned" in said
    machine.shell("rm /var/tmp/ft")


def test_a_reload_and_a_restart_keep_everything(machine):
    before = status(machine)
    machine.run("systemctl", "reload", "flytuned")
    assert main_pid(machine) == before["pid"]
    # A broken file changes nothing, and the operator is told so by the exit status.
    machine.shell("cp -p /etc/flytuned/flytuned.conf /run/kept.conf; printf '[daemon]\nlog_level = loud\n' >>/etc/flytuned/flytuned.conf")
    assert machine.run("systemctl", "reload", "flytuned", check=False).returncode != 0
    assert main_pid(machine) == before["pid"] and status(machine)["pid"] == before["pid"]
    machine.shell("mv /run/kept.conf /etc/flytuned/flytuned.conf")
    machine.run("systemctl", "reload", "flytuned")
    socket_before = machine.shell("stat -c %i /run/flytuned/flytuned.sock")
    machine.run("systemctl", "restart", "flytuned")
    after = status(machine)
    assert after["pid"] != before["pid"] and after["store"] == before["store"]
    assert machine.shell("stat -c %i /run/flytuned/flytuned.sock") == socket_before
    assert json.loads(ctl(machine, "--json", "lookup", *harness.shape(m=1, n=1024)).stdout)["config"] == machine.answer["config"]


def test_a_killed_daemon_is_back_while_a_lookup_waits(machine):
    old = main_pid(machine)
    machine.shell(f"kill -KILL {old}")
    began = time.monotonic()
    answer = ctl(machine, "--json", "lookup", *harness.shape(m=1, n=1024), check=False)
    took = time.monotonic() - began
    print(f"answered {took:.3f} s after kill -9: exit {answer.returncode}")
    # 3: the machine was so busy that its patience was over, and the default was given.
    assert answer.returncode in (0, 3) and json.loads(answer.stdout[answer.stdout.index("{"):])["config"]
    assert wait_for_new(machine, old)
    assert status(machine)["pid"] == main_pid(machine)


def test_a_stuck_daemon_is_ended_by_the_watchdog(machine):
    machine.shell("""
        mkdir -p /run/systemd/system/flytuned.service.d
        printf '[Service]\\nWatchdogSec=3s\\n' >/run/systemd/system/flytuned.service.d/watchdog.conf
        systemctl daemon-reload; systemctl restart flytuned""")
    old = main_pid(machine)
    machine.shell(f"kill -STOP {old}")
    assert wait_for_new(machine, old)
    assert "Watchdog timeout" in machine.run("journalctl", "--no-pager", "_PID=1").stdout
    machine.shell("rm -r /run/systemd/system/flytuned.service.d; systemctl daemon-reload; systemctl restart flytuned")


def test_a_refused_command_line_is_not_tried_again_and_repaired_by_one_restart(machine):
    machine.shell("echo 'FLYTUNED_OPTIONS=--no-such-option' >/etc/default/flytuned")
    assert machine.run("systemctl", "restart", "flytuned", check=False).returncode != 0
    assert machine.show("flytuned.service", "ActiveState") == "failed"
    assert machine.show("flytuned.service", "ExecMainStatus") == "2"
    assert "no-such-option" in machine.journal()
    machine.shell("printf 'FLYTUNED_OPTIONS=\"--log-level info\"\\n' >/etc/default/flytuned; systemctl restart flytuned")
    assert status(machine)["pid"] == main_pid(machine)


def test_a_container_that_mounted_the_directory_finds_the_next_daemon(machine):
    container = machine.start("unshare", "--mount", "sh", "-c", """
        mkdir -p /run/inside && mount --bind /run/flytuned /run/inside && echo mounted
        sleep infinity""")
    try:
        assert container.stdout.readline() == "mounted\n"
        inside = [child for child in roots.descendants(container.pid)][-1]
        machine.run("systemctl", "stop", "flytuned.service", "flytuned.socket")
        machine.run("systemctl", "start", "flytuned.socket", "flytuned.service")
        done = roots.run("nsenter", "--target", inside, "--mount", "--pid", "--", "flytunectl", "--socket",
                         "/run/inside/flytuned.sock", "--json", "status")
        assert json.loads(done.stdout)["store"] == status(machine)["store"]
    finally:
        for child in reversed(roots.descendants(container.pid)):
            roots.run("kill", "-KILL", child, check=False)
        container.wait()
        container.stdout.close()


def test_an_upgrade_refuses_no_client(machine):
    before = status(machine)
    socket_before = machine.shell("stat -c %i /run/flytuned/flytuned.sock")
    client = machine.start("sh", "-c", f"""
        while [ ! -e /run/upgraded ]; do
            flytunectl --json lookup {' '.join(map(str, harness.shape(m=1, n=1024)))} >/run/answer || echo failed $?
            echo answered
        done""")
    assert client.stdout.readline() == "answered\n"
    install(machine, NEXT)
    machine.shell("touch /run/upgraded")
    said = client.communicate()[0]
    assert "failed" not in said, said
    after = status(machine)
    assert after["pid"] != before["pid"], "the old daemon is still running"
    assert after["store"] == before["store"]
    assert machine.shell("stat -c %i /run/flytuned/flytuned.sock") == socket_before
    assert "log-level" in machine.shell("cat /etc/default/flytuned"), "the operator's file was replaced"
    assert machine.shell("dpkg-query -W -f '${Version}' flytuned") == NEXT


def test_the_same_version_over_itself_keeps_everything(machine):
    before = status(machine)
    machine.shell(f"DEBIAN_FRONTEND=noninteractive dpkg --install --force-confold /packages/*_{NEXT}_*.deb")
    assert status(machine)["store"] == before["store"]
    assert json.loads(ctl(machine, "--json", "lookup", *harness.shape(m=1, n=1024)).stdout)["config"] == machine.answer["config"]


def test_removed_it_is_gone_but_for_its_data(machine):
    store = status(machine)["store"]
    machine.shell("DEBIAN_FRONTEND=noninteractive apt-get remove -q -y flytuned")
    assert machine.show("flytuned.service", "ActiveState") == "inactive"
    assert machine.show("flytuned.socket", "ActiveState") == "inactive"
    assert machine.shell("ls /var/lib/flytuned; ls /etc/default/flytuned")
    machine.shell(f"DEBIAN_FRONTEND=noninteractive dpkg --install --force-confold /packages/flytuned_{NEXT}_*.deb")
    assert status(machine)["store"] == store


def test_purged_it_leaves_only_the_user_and_the_groups(machine):
    machine.shell(f"DEBIAN_FRONTEND=noninteractive apt-get purge -q -y {' '.join(PACKAGES)}")
    # The upper layer holds what was written, and only that.
    left = sorted(path for path in roots.tree(machine.root.changes, OTHERS) - machine.before
                  if os.path.lexists(f"{machine.root.path}{path}"))
    ours = [path for path in left if "flytune" in path]
    # Files of other packages are not ours: a clean root had to fetch some.
    others = [path for path in left if path not in ours and not path.startswith(("/usr/", "/lib/", "/var/lib/dpkg/")) and
              not (machine.root.path / path[1:]).is_dir()]
    report = harness.BUILD / "reports" / f"left-behind-{machine.kind}.txt"
    report.parent.mkdir(exist_ok=True)
    users = machine.shell("grep -h flytune /etc/passwd /etc/group || true")
    report.write_text("files and folders of flytune:\n" + "".join(f"  {path}\n" for path in ours or ["none"]) +
                      "other files that changed:\n" + "".join(f"  {path}\n" for path in others) +
                      "users and groups:\n" + "".join(f"  {line}\n" for line in users.splitlines()))
    print(report.read_text())
    assert not ours
    accounts = {f"/etc/{name}{end}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid") for end in ("", "-")}
    assert set(others) <= accounts | {"/etc/.pwd.lock", "/etc/ld.so.cache"}, others
    assert not [path for path in ("/run/flytuned", "/var/lib/flytuned") if machine.run("test", "-e", path, check=False).returncode == 0]
    assert machine.run("sh", "-c", "systemctl list-unit-files | grep flytune", check=False).stdout.strip() == ""
