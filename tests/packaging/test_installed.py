"""What `meson install` puts into a root: that it is all there, and that each part does its work from there."""
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import harness
import roots

UNITS = ("flytuned.service", "flytuned.socket", "flytuned-devices.service")
DROP_INS = ("amd-apu.conf", "cpu-only.conf", "shared-cpus.conf")
METRICS = ("flytuned-metrics.service", "flytuned-metrics.timer")
PAGES = ("flytuned.8", "flytunectl.1", "flytune.7", "flytune-client.3")


def inside(stage, path):
    return stage / str(path).lstrip("/")


def find(stage, name):
    found = [path for path in stage.rglob(name) if not path.is_dir()]
    assert found, f"{name} is not installed"
    return found[0]


def help_of(*command):
    return roots.run(*command).stdout


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z](?:[a-z-]*[a-z])?\b", text))


def page(name):
    """A manual page as text, without its formatting."""
    where = harness.BUILD / "man" / name
    if not where.exists():
        pytest.skip("the manual pages are not built here (scdoc is missing)")
    done = roots.run("man", "--warnings", "-l", where, env={**os.environ, "MANWIDTH": "1000", "LC_ALL": "C.UTF-8",
                                                           "MANPAGER": "cat"})
    return re.sub(".\b", "", done.stdout)


def test_the_example_of_the_page_is_the_program_to_the_letter():
    program = (harness.TOP / "client" / "examples" / "lookup.c").read_text()
    code = program[program.index("#include"):].split("\n")
    shown = [line.strip() for line in page("flytune-client.3").splitlines()]
    assert [line for line in code if line.strip() not in shown] == []


# ---- places

def test_every_file_has_its_place(stage, prefix):
    top = inside(stage, prefix)
    expected = {
        "bin/flytuned": 0o755, "bin/flytunectl": 0o755,
        "libexec/flytune/flytuned-devices": 0o755, "libexec/flytune/flytune-runner-cpu": 0o755,
        **{f"include/flytune/{name}.h": 0o644 for name in ("admin", "client", "rmsnorm")},
        "lib/sysusers.d/flytune.conf": 0o644, "lib/tmpfiles.d/flytune.conf": 0o644,
        "share/bash-completion/completions/flytunectl": 0o644,
        **{f"share/doc/flytuned/{name}.md": 0o644 for name in ("DECISION", "EXPORT", "HARDENING", "JSON", "LAUNCH", "MODELS", "PROTOCOL", "TRUST")},
        "share/doc/flytuned/board.h": 0o644,
        "share/doc/flytune/examples/lookup.c": 0o644,
        "share/flytune/models.json": 0o644,
        **{f"share/flytune/systemd/{name}": 0o644 for name in DROP_INS + METRICS},
    }
    if (harness.BUILD / "man" / "flytuned.8").exists():
        expected.update({f"share/man/man{name[-1]}/{name}": 0o644 for name in PAGES})
    for path, mode in expected.items():
        where = top / path
        assert where.is_file(), f"{path} is not installed"
        assert stat.S_IMODE(where.stat().st_mode) == mode, path
    for unit in UNITS:
        assert find(stage, unit).parent.parts[-2:] == ("systemd", "system")
    library = find(stage, "libflytune-client.so.1")
    assert library.is_symlink() and library.resolve().name.startswith("libflytune-client.so.1.")
    assert (library.parent / "libflytune-client.so").is_symlink()
    assert (library.parent / "pkgconfig" / "flytune-client.pc").is_file()


def test_what_documentation_names_is_installed(stage, prefix):
    """Every file that an installed text speaks of, by its place where it gives one."""
    top = inside(stage, prefix)
    texts = [path for folder in ("share/doc", "share/flytune", "lib", "include", "etc") for path in (top / folder).rglob("*")
             if path.is_file() and path.suffix in (".md", ".h", ".c", ".conf", ".service", ".socket")]
    texts += [where for where in stage.rglob("*") if where.suffix in (".service", ".socket") and where not in texts]
    told = {path.name: path.read_text() for path in texts}
    told |= {name: page(name) for name in PAGES if (harness.BUILD / "man" / name).exists()}
    told["README.Debian"] = (harness.TOP / "debian/flytuned.README.Debian").read_text()
    for command in commands_of_ctl():
        told[f"flytunectl {command} --help"] = help_of(harness.FLYTUNECTL, command, "--help")
    assert {"PROTOCOL.md", "LAUNCH.md", "flytuned.service"} <= set(told)
    there = {path.name for path in stage.rglob("*")}
    # What a reader makes, or another package has.
    others = {"program.c", "config.json", "linux/futex.h", "kernel.json", "README.md", "my_kernel.c", "reference.c"}
    missing = []
    for where, text in told.items():
        text = re.sub(r"#\s*include\b.*|\b\w+://\S+", "", text)
        for name in re.findall(r"[\w./-]*\w\.(?:md|h|c|conf|json)\b", text):
            if name in others:
                continue
            if Path(name).name not in there:
                missing.append(f"{where}: {name}")
            elif "/" in name and not name.startswith("/") and Path(name).suffix in (".md", ".h") and \
                    not any(str(path).endswith("/" + name) for path in stage.rglob(Path(name).name)):
                missing.append(f"{where}: {name}, which is elsewhere")
    assert not missing, "\n".join(missing)


def test_nothing_is_installed_that_only_the_build_needs(stage):
    strangers = [path.name for path in stage.rglob("*") if path.is_file() and
                 (path.suffix in (".a", ".o", ".scd", ".in", ".py") or "test" in path.name or "fuzz" in path.name or
                  path.name in ("ask", "drill", "follow", "bad_runner"))]
    assert not strangers


def test_programs_find_their_libraries_without_the_build_folder(stage):
    for path in stage.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        dynamic = roots.run("readelf", "-d", path).stdout
        assert "RUNPATH" not in dynamic and "RPATH" not in dynamic, path
        if path.name.startswith("libflytune-client"):
            assert "Library soname: [libflytune-client.so.1]" in dynamic


def test_the_daemon_links_no_gpu_library_and_no_libsystemd(stage):
    needed = re.findall(r"NEEDED.*\[(.*)\]", roots.run("readelf", "-d", find(stage, "flytuned")).stdout)
    assert needed
    assert not [name for name in needed if re.match(r"lib(cuda|nv|hip|amd|hsa|systemd)", name)]


# ---- systemd

def with_systemd(stage, where):
    """A copy of the stage in which systemd's own units, and what units run, can be found."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    root = where / "root"
    shutil.copytree(stage, root, symlinks=True)
    for folder in ("lib/systemd/system", "usr/lib/systemd/system"):
        if Path("/", folder).is_dir() and not Path("/", folder).resolve().is_relative_to(root):
            shutil.copytree(Path("/", folder), root / folder, symlinks=True, dirs_exist_ok=True)
    shell = root / "bin" / "sh"
    shell.parent.mkdir(parents=True, exist_ok=True)
    if not shell.exists():
        shutil.copy("/bin/sh", shell)
    return root


def test_units_verify_clean(stage, prefix, tmp_path):
    root = with_systemd(stage, tmp_path)
    manuals = inside(root, prefix) / "share" / "man"
    done = roots.run("systemd-analyze", "verify", f"--root={root}", f"--man={'yes' if manuals.exists() else 'no'}", *UNITS,
                     check=False, env={**os.environ, "MANPATH": str(manuals)})
    ours = [line for line in done.stdout.splitlines() if "flytune" in line]
    assert done.returncode == 0 and not ours, done.stdout


@pytest.mark.parametrize("drop_in", [None, *DROP_INS])
def test_the_service_scores_one_and_a_half_or_better(stage, prefix, tmp_path, drop_in):
    root = with_systemd(stage, tmp_path)
    if drop_in:
        folder = root / "etc" / "systemd" / "system" / "flytuned.service.d"
        folder.mkdir(parents=True)
        shutil.copy(inside(root, prefix) / "share" / "flytune" / "systemd" / drop_in, folder)
        verified = roots.run("systemd-analyze", "verify", f"--root={root}", "--man=no", "flytuned.service", check=False)
        assert verified.returncode == 0 and "flytune" not in verified.stdout, verified.stdout
    done = roots.run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={root}", "--threshold=15",
                     "flytuned.service", check=False)
    score = re.search(r"Overall exposure level.*: ([\d.]+)", done.stdout)
    print(f"{drop_in or 'flytuned.service'}: {score and score[1]}")
    assert done.returncode == 0, done.stdout


def settings(stage):
    text = find(stage, "flytuned.service").read_text()
    return [line for line in text.splitlines() if line and line[0] not in "#["]


@pytest.mark.parametrize("line, loss", [
    ("PrivateUsers=no", "who asked: every client would be nobody"),
    ("ProcSubset=all", "CUDA, which reads /proc/driver/nvidia"),
    ("PrivateDevices=no", "every GPU"),
    ("DeviceAllow=char-nvidia* rw", "NVIDIA's devices, by their old or their new name"),
    ("DeviceAllow=char-kfd rw", "AMD's compute device"),
    ("DeviceAllow=char-drm rw", "AMD's render nodes"),
    ("SupplementaryGroups=render video", "the right to open the devices"),
    ("OOMPolicy=continue", "the daemon, with a runner that was killed for memory"),
    ("KillMode=mixed", "the verdict of the config that is measured at a stop"),
    ("LimitNICE=-10", "lookups beside whoever computes"),
    ("LimitMEMLOCK=infinity", "allocations of AMD's driver"),
    ("StateDirectoryMode=0700", "the privacy of the store"),
    ("NotifyAccess=main", "readiness that a runner cannot fake"),
])
def test_the_unit_keeps_what_it_cannot_do_without(stage, line, loss):
    assert line in settings(stage), f"without it is lost: {loss}"


@pytest.mark.parametrize("word, harm", [
    ("RuntimeDirectory", "containers would keep the directory of a dead daemon"),
    ("LimitAS", "the store's map and CUDA would not fit"),
    ("LimitDATA", "drivers' allocations would fail"),
    ("DynamicUser", "it turns on what breaks peer credentials, and moves the store"),
    ("MemoryMax", "the daemon would be killed for its runner's memory"),
])
def test_the_unit_does_without_what_would_harm(stage, word, harm):
    assert not [line for line in settings(stage) if line.startswith(f"{word}=")], harm


def test_every_option_of_the_sandbox_is_explained(stage):
    told = find(stage, "HARDENING.md").read_text()
    text = find(stage, "flytuned.service").read_text()
    sandbox = re.findall(r"^([A-Z]\w+)=", text[text.index("# --- devices"):text.index("[Install]")], re.M)
    assert len(sandbox) > 25
    assert not sorted({name for name in sandbox if f"`{name}" not in told})


def test_users_groups_and_the_sockets_directory_are_made(stage, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to make users in a root of its own")
    root = tmp_path / "root"
    shutil.copytree(stage, root, symlinks=True)
    for folder in ("etc", "run", "var/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    for _ in range(2):  # and again, as at every boot
        said = roots.run("systemd-sysusers", f"--root={root}", "flytune.conf")
        roots.run("systemd-tmpfiles", f"--root={root}", "--create", "flytune.conf")
    assert "onflict" not in said.stdout
    groups = {line.split(":")[0]: line.split(":")[3] for line in (root / "etc/group").read_text().splitlines()}
    assert {"flytune", "flytune-admin", "render", "video"} <= set(groups)
    assert groups["render"] == groups["video"] == "flytune"
    user = next(line.split(":") for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("flytune:"))
    assert user[5:] == ["/var/lib/flytuned", "/usr/sbin/nologin"]
    directory = (root / "run/flytuned").stat()
    assert stat.S_IMODE(directory.st_mode) == 0o755 and directory.st_uid == 0


# ---- the devices' service

def devices(stage, tmp_path, pci=(), minors=(), tools=("modprobe", "nvidia-modprobe"), fails=()):
    """Runs the program on a machine with these PCI devices; gives what it called."""
    for number, (vendor, kind) in enumerate(pci):
        folder = tmp_path / "sys/bus/pci/devices" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    for number, minor in enumerate(minors):
        folder = tmp_path / "proc/driver/nvidia/gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")
    log = tmp_path / "calls"
    log.touch()
    programs = tmp_path / "programs"
    programs.mkdir()
    for tool in tools:
        (programs / tool).write_text(f'#!/bin/sh\necho "{tool} $*" >>"{log}"\nexit {int(tool in fails)}\n')
        (programs / tool).chmod(0o755)
    for tool in ("sed", "sh"):
        (programs / tool).symlink_to(shutil.which(tool))
    done = roots.run(find(stage, "flytuned-devices"), check=False,
                     env={"PATH": str(programs), "FLYTUNED_SYS": str(tmp_path / "sys"), "FLYTUNED_PROC": str(tmp_path / "proc")})
    assert done.returncode == 0, done.stdout
    return log.read_text().splitlines(), done.stdout


def test_devices_does_nothing_without_gpus(stage, tmp_path):
    assert devices(stage, tmp_path, pci=[("0x8086", "0x020000"), ("0x10de", "0x040300"), ("0x1002", "0x060400")]) == ([], "")


def test_devices_loads_amds_driver_unless_it_is_blacklisted(stage, tmp_path):
    assert devices(stage, tmp_path, pci=[("0x1002", "0x120000")])[0] == ["modprobe -abq amdgpu"]


def test_devices_makes_every_node_of_nvidia(stage, tmp_path):
    calls, _ = devices(stage, tmp_path, pci=[("0x10de", "0x030200")] * 2, minors=[0, 1])
    assert calls == ["nvidia-modprobe -c 255", "nvidia-modprobe -c 0 -c 1", "nvidia-modprobe -u -c 0"]


def test_devices_loads_nvidias_driver_where_its_helper_is_missing(stage, tmp_path):
    assert devices(stage, tmp_path, pci=[("0x10de", "0x030000")], tools=["modprobe"])[0] == ["modprobe -abq nvidia nvidia_uvm"]


def test_devices_says_what_failed_and_lets_the_daemon_start(stage, tmp_path):
    calls, said = devices(stage, tmp_path, pci=[("0x1002", "0x038000"), ("0x10de", "0x030200")],
                          fails=["modprobe", "nvidia-modprobe"])
    assert len(calls) == 3
    assert "amdgpu was not loaded" in said and "NVIDIA driver was not loaded" in said


# ---- the library

@pytest.fixture(scope="module", params=["c11", "c++17"])
def example(request, stage, prefix, tmp_path_factory):
    """The installed example, compiled against the installed library as someone else's program would be."""
    language = request.param
    compiler = "g++" if "+" in language else "gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    folder = tmp_path_factory.mktemp("example")
    shutil.copy(inside(stage, prefix) / "share/doc/flytune/examples/lookup.c", folder)
    library = find(stage, "libflytune-client.so").parent
    env = {**os.environ, "PKG_CONFIG_PATH": str(library / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(stage)}
    flags = roots.run("pkg-config", "--cflags", "--libs", "flytune-client", env=env).stdout.split()
    roots.run(compiler, "-x", "c++" if "+" in language else "c", f"-std={language}", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
              "lookup.c", "-o", "lookup", *flags, cwd=folder)
    return folder / "lookup", {**os.environ, "LD_LIBRARY_PATH": str(library)}


def test_a_program_of_someone_elses_is_answered(example, daemons):
    program, env = example
    daemon = daemons().start()

    def answered():
        said = roots.run(program, "4096", env={**env, "FLYTUNE_SOCKET": str(daemon.path)}).stdout
        assert said.count("\n") == 4
        return "away" not in said
    # On a busy machine the second that it grants the daemon may be over now and then.
    harness.until(answered, "it is answered by the daemon")


def test_a_program_of_someone_elses_goes_on_without_a_daemon(example, tmp_path):
    program, env = example
    said = roots.run(program, "4096", env={**env, "FLYTUNE_SOCKET": str(tmp_path / "nobody")}).stdout
    assert said.count("(flytuned is away)") == 4 and said.count("default") == 4


def test_pkgconfig_asks_for_nothing_but_the_library(stage):
    library = find(stage, "libflytune-client.so").parent
    env = {**os.environ, "PKG_CONFIG_PATH": str(library / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(stage)}
    libraries = roots.run("pkg-config", "--libs-only-l", "flytune-client", env=env).stdout.split()
    assert libraries == ["-lflytune-client"]


# ---- manual pages and completion

def test_flytuneds_page_knows_its_options_and_no_others():
    synopsis = page("flytuned.8").split("AS A SERVICE")[0]
    assert options_in(synopsis) == options_in(help_of(harness.FLYTUNED, "--help"))


def commands_of_ctl():
    text = help_of(harness.FLYTUNECTL, "--help")
    return re.findall(r"^  ([a-z]+) +\S", text.split("Commands:")[1].split("Options")[0], re.M)


def options_of(command):
    """A command's own options, and the kernel's fields if it takes them."""
    text = help_of(harness.FLYTUNECTL, command, "--help").split("Options for every command")[0]
    own, _, fields = text.partition("Fields of")
    return set(re.findall(r"^  (--[a-z-]+)", own, re.M)), set(re.findall(r"^  (--[a-z-]+)", fields, re.M))


def test_flytunectls_page_knows_its_commands_and_options():
    text = page("flytunectl.1")
    described = text.split("COMMANDS\n")[1].split("FIELDS OF RMSNORM")[0]
    commands = commands_of_ctl()
    assert len(commands) >= 8
    assert set(re.findall(r"^       ([a-z]+)(?: |$)", described, re.M)) == set(commands)
    known = options_in(text)
    for command in commands:
        own, fields = options_of(command)
        assert own | fields <= known, command
    assert options_in(help_of(harness.FLYTUNECTL, "--help")) <= known


def test_the_librarys_page_knows_every_function():
    headers = "".join(path.read_text() for path in (harness.TOP / "client/include/flytune").glob("*.h"))
    headers = re.sub(r"\bFLYTUNE_DEFINE_INIT\((\w+)\)", r"\1_init()", re.sub(r"/\*.*?\*/", "", headers, flags=re.S))
    functions = set(re.findall(r"\b(flytune_\w+)\(", headers))
    assert len(functions) > 30
    text = page("flytune-client.3")
    told = set(re.findall(r"\bflytune_\w+", text.split("FUNCTIONS\n")[1].split("ERRORS\n")[0]))
    assert functions == told


@pytest.mark.parametrize("name", PAGES)
def test_a_page_renders_without_a_warning(name):
    text = page(name)
    assert not re.findall(r"^(?:man|troff|grotty|<standard input>).*", text, re.M)
    assert not re.search(r"@\w+@", text)


def complete(stage, line):
    return harness.complete(next(path for path in stage.rglob("flytunectl") if "completions" in path.parts), line)


def test_completion_offers_every_command(stage):
    offered = complete(stage, "flytunectl ")
    assert {word for word in offered if not word.startswith("-")} == set(commands_of_ctl())


def test_completion_offers_each_commands_options(stage):
    for command in commands_of_ctl():
        own, fields = options_of(command)
        assert own | fields <= complete(stage, f"flytunectl {command} -"), command


def test_completion_offers_the_verbs_of_kernel(stage):
    assert complete(stage, "flytunectl kernel ") == {"new", "check", "try"}
    assert complete(stage, "flytunectl --json kernel ch") == {"check"}


def test_completion_offers_kernels_and_types(stage):
    assert complete(stage, "flytunectl --json tune ") == {"layernorm", "rmsnorm"}
    assert complete(stage, "flytunectl tune rmsnorm --dtype b") == {"bf16"}
