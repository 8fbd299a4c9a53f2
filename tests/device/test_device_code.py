"""What the compilers make of the device source, on a machine without a GPU.

hiprtc, as Debian ships it, builds for four of AMD's targets; clang-19 for three newer ones; nvrtc for NVIDIA's. What is not
installed is skipped by name. FLYTUNE_FULL_MATRIX=1 builds every config instead of the twelve plain ones, the default and a
seeded sample of the rest, some 15 minutes of a core. Reports of which knob changed the machine code, and of registers, stay in
build/reports/device/.
"""
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FLYTUNE_BUILD", TOP / "build")).resolve()
REPORTS = BUILD / "reports" / "device"
FULL = os.environ.get("FLYTUNE_FULL_MATRIX") == "1"
SAMPLE = 512 if FULL else 1
KERNELS = ("rmsnorm", "layernorm")
AHEAD = {"rmsnorm": 4, "layernorm": 2}  # vectors in flight, at least, of a row that is read twice
SIZES = [4096, 8192, 16384]
TYPES = ["bf16", "f32"]
ROCM, NEWER = ["gfx906", "gfx908", "gfx90a", "gfx1030"], ["gfx942", "gfx1100", "gfx1201"]
LOADS = re.compile(r"global_load_(dwordx4|b128)")
STORES = re.compile(r"global_store_(dwordx4|b128)")


def runner(kind):
    return BUILD / "kernels" / "runner" / f"flytune-runner-{kind}"


def tool(*names):
    """The first that is there; skips the test if none is."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip(f"none of {', '.join(names)} is installed")
    return None


def has_compiler(kind, arch):
    ran = subprocess.run([runner(kind), "build", KERNELS[0], "--arch", arch, "--n", "64", "--dtype", "f32"], capture_output=True,
                         text=True, check=False)
    return ran.returncode == 0, ran.stderr.strip()


@pytest.fixture(scope="session")
def hiprtc():
    good, why = has_compiler("hip", "gfx90a")
    if not good:
        pytest.skip(f"hiprtc is not installed: {why}")


@pytest.fixture(scope="session")
def nvrtc():
    good, why = has_compiler("cuda", "sm_90")
    if not good:
        pytest.skip(f"nvrtc is not installed: {why}")


def choose(space, seed, kernel="rmsnorm"):
    """Of layernorm one of each way through a row, and some of the rest; of rmsnorm the plain twelve (blocks of 128 to 1,024 threads, a row each, times three values of waves_per_eu), and some of the rest.
    Their hint is one: others of the same threads may have another, and only they ask for two waves."""
    if kernel == "layernorm":
        ways = {(c["PASSES"], c["WEIGHT"]): c for c in space}
        rest = [c for c in space if c not in ways.values()]
        return list(ways.values()) + random.Random(seed).sample(rest, min(SAMPLE, len(rest)))
    hint = next(c["NONTEMPORAL"] for c in space if c["waves_per_eu"] == 2 and c["waves_exact"] == 0)
    plain = [c for c in space if c["BLOCK_THREADS"] in (128, 256, 512, 1024) and c["BLOCK_THREADS"] == c["ROW_THREADS"]
             and c["waves_exact"] == 0 and c["waves_per_eu"] <= 2 and c["NONTEMPORAL"] == hint]
    rest = [c for c in space if c not in plain]
    return plain + random.Random(seed).sample(rest, min(SAMPLE, len(rest)))


def build(kind, arch, n, dtype, folder, kernel="rmsnorm"):
    command = [runner(kind), "build", kernel, "--arch", arch, "--n", str(n), "--dtype", dtype]
    space = [json.loads(line) for line in subprocess.run([*command, "--list"], capture_output=True, text=True,
                                                         check=True).stdout.splitlines()]
    command += ["-o", str(folder), "--config", ""]  # the default
    for config in choose(space, n, kernel):
        command += ["--config", ",".join(f"{knob}={value}" for knob, value in config.items())]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def differences(built):
    """For each knob: in how many pairs that differ in it alone the code was the same, and in how many another."""
    found = {}
    for i, one in enumerate(built):
        for other in built[:i]:
            knobs = [knob for knob in one["config"] if one["config"][knob] != other["config"][knob]]
            if len(knobs) == 1:
                counts = found.setdefault(knobs[0], {"same": 0, "other": 0})
                counts["same" if one["code"] == other["code"] else "other"] += 1
    return found


def report(name, built):
    REPORTS.mkdir(parents=True, exist_ok=True)
    changed = differences(built)
    rows = [{"config": b["config"], "registers": b["registers"], "spills": b["spills"], "shared": b["shared"], "code": b["code"],
             "default": b["default"]} for b in built]
    (REPORTS / f"{name}.json").write_text(json.dumps({"knobs": changed, "configs": rows}, indent=1))
    print(f"{name}: {len(built)} configs, {len({b['code'] for b in built})} codes; "
          + "; ".join(f"{knob}: same code in {c['same']} of {c['same'] + c['other']} pairs" for knob, c in changed.items()))


def check_metadata(built, kernel="rmsnorm"):
    assert any(b["default"] for b in built)
    for b in built:
        assert b["max_threads"] == b["config"]["BLOCK_THREADS"] == b["launch"]["block"], b
        assert b["symbol"] == f"flytune_{kernel}"
        if b["default"]:
            assert b["spills"] == 0, f"the default spills: {b}"
    if kernel != "rmsnorm":
        return
    plain = {(b["config"]["BLOCK_THREADS"], b["config"]["waves_per_eu"]) for b in built
             if b["config"]["BLOCK_THREADS"] == b["config"]["ROW_THREADS"]}
    assert plain >= {(block, waves) for block in (128, 256, 512, 1024) for waves in (0, 1, 2)}


def accesses(text):
    """128-bit loads and stores in a disassembly; hints on either in the same line."""
    return len(LOADS.findall(text)), len(STORES.findall(text))


def check_vectors(text, config, n, dtype, ahead=4):
    """The fast path has a whole vector in every access: as many as a thread takes, and the weight's."""
    width = 4 if dtype == "f32" else 8
    slots = -(-n // width // config["ROW_THREADS"])
    loads, stores = accesses(text)
    # Two passes walk in a loop, which holds some vectors.
    slots = slots if config["PASSES"] == 1 else min(slots, ahead)
    assert loads >= 2 * slots and stores >= slots, f"{loads} loads and {stores} stores of 128 bits, for {slots} vectors: {config}"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("arch", ROCM)
@pytest.mark.parametrize("kernel", KERNELS)
def test_hiprtc_builds_what_a_config_says(hiprtc, kernel, arch, dtype, n, tmp_path):
    built = build("hip", arch, n, dtype, tmp_path, kernel)
    check_metadata(built, kernel)
    report(f"hiprtc-{kernel}-{arch}-{dtype}-{n}", built)
    for b in built:
        assert b["target"].endswith(arch) and b["code_object_version"] == 4 and b["wave"] == (32 if arch == "gfx1030" else 64)
    objdump = tool("llvm-objdump-19", "llvm-objdump-15", "llvm-objdump-14", "llvm-objdump")
    for b in [b for b in built if b["default"]] + built[:2]:
        text = subprocess.run([objdump, "-d", tmp_path / b["code"]], capture_output=True, text=True, check=True).stdout
        check_vectors(text, b["config"], n, dtype, AHEAD[kernel])


def test_the_same_source_builds_the_same_code(hiprtc, tmp_path):
    """Or results could not be compared between builds."""
    codes = []
    for name in ("a", "b"):
        ran = subprocess.run([runner("hip"), "build", "rmsnorm", "--arch", "gfx90a", "--n", "5120", "--dtype", "f16", "-o",
                              tmp_path / name], capture_output=True, text=True, check=True)
        codes.append((json.loads(ran.stdout)["code"], (tmp_path / name).read_bytes()))
    assert codes[0] == codes[1]


def test_options_from_the_environment_change_no_code(hiprtc):
    command = [runner("hip"), "build", "rmsnorm", "--arch", "gfx1030", "--n", "4096", "--dtype", "bf16"]
    noisy = {"HIPRTC_COMPILE_OPTIONS_APPEND": "-O0", "AMD_COMGR_DRIVER_OPTIONS_APPEND": "-O0", "GPU_ENABLE_WGP_MODE": "1"}
    plain, changed = (json.loads(subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True,
                                                check=True).stdout)["code"] for more in ({}, noisy))
    assert plain == changed


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_an_architecture_that_hiprtc_does_not_know_is_named(hiprtc, arch):
    good, why = has_compiler("hip", arch)
    assert good or f"this compiler does not know {arch}" in why


@pytest.mark.parametrize("arch, wave", [("gfx90a", 64), ("gfx1030", 32)])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_source_of_a_folder_is_built(hiprtc, arch, wave, dtype, tmp_path):
    """What has to be launched is in the code: threads, and the function by its name."""
    ran = subprocess.run([runner("hip"), "build", TOP / "tests" / "kernels" / "softmax", "--arch", arch, "--m", "100", "--n", "3000",
                          "--dtype", dtype, "--config", "", "--config", "THREADS=512", "-o", tmp_path],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    built = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {b["config"]["THREADS"] for b in built} == {256, 512} and [b["default"] for b in built].count(True) == 1
    for b in built:
        threads = b["config"]["THREADS"]
        assert (b["symbol"], b["max_threads"], b["wave"], b["spills"]) == ("softmax", threads, wave, 0), b
        assert b["target"].endswith(arch) and (tmp_path / b["code"]).stat().st_size == b["size"]
        assert b["launch"]["steps"] == [{"symbol": "softmax", "grid": [100, 1, 1], "block": [threads, 1, 1],
                                         "dynamic_shared_bytes": 4 * threads}]


ODD = [("n", 1, "f16"), ("n", 7, "bf16"), ("n", 4097, "f32"), ("n", 131072, "bf16"), ("n", 1048576, "f16")]


@pytest.mark.parametrize("n, dtype", [(n, dtype) for _, n, dtype in ODD])
@pytest.mark.parametrize("kernel", KERNELS)
def test_odd_rows_build_too(hiprtc, kernel, n, dtype):
    for arch in ("gfx90a", "gfx1030"):
        ran = subprocess.run([runner("hip"), "build", kernel, "--arch", arch, "--n", str(n), "--dtype", dtype,
                              "--weight-dtype", "f32"], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["spills"] == 0


# ---- clang-19, for what Debian's hiprtc does not know ----


def notes(path):
    """max_threads, registers, spills."""
    text = subprocess.run([tool("llvm-readelf-19"), "--notes", path], capture_output=True, text=True, check=True).stdout
    number = lambda name: int(re.search(rf"\.{name}:\s+(\d+)", text).group(1))
    return number("max_flat_workgroup_size"), number("vgpr_count"), number("vgpr_spill_count")


def code_of(path):
    """The instructions, without where they lie in the file."""
    text = subprocess.run([tool("llvm-objdump-19"), "-d", "--no-leading-addr", path], capture_output=True, text=True,
                          check=True).stdout
    return text[text.index("flytune_"):]


def joined(folder, *parts):
    """Files under kernels/, one behind the other, as the build embeds them."""
    path = Path(folder) / f"{Path(parts[-1]).stem}.hip"
    path.write_text("".join((TOP / "kernels" / part).read_text() for part in parts))
    return path


def clang(arch, n, dtype, config, path, source=None, more=(), kernel="rmsnorm"):
    source = source or joined(Path(path).parent, "rows/rows.hip", f"{kernel}/{kernel}.hip")
    words = [runner("hip"), "build", kernel, "--options", "--arch", arch, "--n", str(n), "--dtype", dtype]
    if config:
        words += ["--config", ",".join(f"{knob}={value}" for knob, value in config.items())]
    options = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    ran = subprocess.run([tool("clang-19"), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
                          "-Wall", "-Werror", *options, *more, source, "-o", path],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return dict(re.findall(r"-DRN_(\w+)=(\d+)", " ".join(options)))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("arch", NEWER)
def test_clang_builds_the_same_for_newer_targets(arch, n):
    tool("clang-19"), tool("ld.lld-19", "ld.lld"), tool("llvm-objdump-19")
    plain = [{"BLOCK_THREADS": block, "ROW_THREADS": block, "waves_per_eu": waves} for block in (128, 256, 512, 1024) for waves in (0, 1, 2)]
    cases = [("bf16", None), ("f32", None)] + [("bf16", config) for config in (plain if FULL else plain[::2])]
    codes = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (dtype, config) in enumerate(cases):
            path = os.path.join(folder, str(number))
            defines = clang(arch, n, dtype, config, path)
            threads, registers, spills = notes(path)
            assert threads == int(defines["BLOCK_THREADS"])
            assert spills == 0 or config is not None, "the default spills"
            text = code_of(path)
            check_vectors(text, {"ROW_THREADS": int(defines["ROW_THREADS"]), "PASSES": int(defines["PASSES"])}, n, dtype)
            if dtype == "bf16":
                codes.setdefault(hash(text), []).append((config or "default", registers, spills))
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"clang-{arch}-{n}.json").write_text(json.dumps(list(codes.values()), indent=1))
    print(f"clang-19 {arch} {n}: {len(cases) - 1} configs, {len(codes)} codes")


@pytest.mark.parametrize("arch", NEWER)
def test_clang_builds_layernorm_for_newer_targets(arch, tmp_path):
    tool("clang-19"), tool("ld.lld-19", "ld.lld"), tool("llvm-objdump-19")
    for n, dtype, config in ((4096, "bf16", None), (8192, "f32", None), (4097, "f16", None), (1048576, "bf16", None),
                             (8192, "bf16", {"BLOCK_THREADS": 512, "ROW_THREADS": 512, "PASSES": 2, "WEIGHT": 0})):
        defines = clang(arch, n, dtype, config, tmp_path / "code", kernel="layernorm")
        threads, _, spills = notes(tmp_path / "code")
        assert threads == int(defines["BLOCK_THREADS"])
        assert spills == 0 or config is not None, "the default spills"
        if n % 8 == 0:
            text = code_of(tmp_path / "code")
            check_vectors(text, {"ROW_THREADS": int(defines["ROW_THREADS"]), "PASSES": int(defines["PASSES"])}, n, dtype,
                          AHEAD["layernorm"])


@pytest.mark.parametrize("arch", ROCM + NEWER)
@pytest.mark.parametrize("kernel", KERNELS)
def test_clang_builds_what_looks_at_outputs_and_the_faults_to_be_found(kernel, arch, tmp_path):
    tool("clang-19"), tool("ld.lld-19", "ld.lld"), tool("llvm-objdump-19")
    check = joined(tmp_path, "runner/gpu/gpu_check.hip", f"{kernel}/reference.hip")
    clang(arch, 4096, "bf16", None, tmp_path / "check", source=check)
    clang(arch, 4096, "bf16", None, tmp_path / "right", kernel=kernel)
    codes = {code_of(tmp_path / "right")}
    for fault in range(1, 7):
        clang(arch, 4096, "bf16", None, tmp_path / "spoilt", more=[f"-DFT_FAULT={fault}"], kernel=kernel)
        codes.add(code_of(tmp_path / "spoilt"))
    assert len(codes) == 7, "a fault changes nothing"


# ---- nvrtc ----


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_nvrtc_builds_what_a_config_says(nvrtc, kernel, dtype, n, tmp_path):
    built = build("cuda", "sm_90", n, dtype, tmp_path, kernel)
    check_metadata(built, kernel)
    report(f"nvrtc-{kernel}-sm_90-{dtype}-{n}", built)
    for b in built:
        assert b["target"] == "sm_90" and 0 < b["registers"] <= 65536 // b["config"]["BLOCK_THREADS"]
