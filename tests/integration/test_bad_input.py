"""What is refused, and how it is said."""
import os
import shutil
import socket
import subprocess

import pytest

import harness
from harness import problem, shape

BAD = [
    # words for the command line, problem on the wire, field at fault, something that the bound must name
    (dict(n=0), "n", "1"),
    (dict(m=0), "m", "1"),
    (dict(n=2000000), "n", "1048576"),
    (dict(dtype="f64"), "dtype", "bf16"),
    (dict(row_stride=4095), "row_stride", "4096"),
    (dict(weight_dtype="f16"), "weight_dtype", "f32"),
    (dict(m=2**40, n=2**20), None, ""),
    (dict(m=2**62, n=2**20, dtype="f32"), None, ""),
    (dict(m=64, n=4096, row_stride=2**45), None, ""),
]


@pytest.mark.parametrize("command", ["lookup", "tune"])
@pytest.mark.parametrize("fields,field,bound", BAD, ids=[str(fields) for fields, _, _ in BAD])
def test_a_bad_problem_is_refused_by_field_and_bound(daemon, runner, command, fields, field, bound):
    done = daemon.ctl(command, *shape(**fields), as_json=False, check=False)
    assert done.status in (1, 2) and not done.output.strip()
    if field:
        assert field in done.complaint and bound in done.complaint.replace(",", "")
    with daemon.peer() as peer:
        with pytest.raises(harness.RpcError) as refusal:
            peer.call(command, kernel="rmsnorm", problem=problem(**fields))
        assert refusal.value.code == "bad_value"
        if field:
            assert refusal.value.error["field"] == field
            assert bound in refusal.value.error["bound"].replace(",", "") + refusal.value.error["message"]
        # The session goes on.
        assert peer.call("lookup", kernel="rmsnorm", problem=problem())["source"] == "default"
        assert peer.call("jobs")["jobs"] == []
    assert not runner.did("sweep")


@pytest.mark.parametrize("command", ["lookup", "tune", "trials"])
def test_unknown_names_are_refused_by_name(daemon, command):
    daemon.await_device()
    with daemon.peer() as peer:
        for params, code, name in (
                (dict(kernel="rmsnrom", problem=problem()), "unknown_kernel", "rmsnrom"),
                (dict(kernel="rmsnorm", problem=problem(colour=1)), "unknown_field", "colour"),
                (dict(kernel="rmsnorm", problem=problem(), device="cpu:7"), "unknown_device", "cpu:7")):
            with pytest.raises(harness.RpcError) as refusal:
                peer.call(command, **params)
            assert refusal.value.code == code and name in str(refusal.value)
    done = daemon.ctl(command, "rmsnrom", "--m", 1, check=False)
    assert done.status in (1, 2) and "rmsnrom" in done.complaint + done.output
    done = daemon.ctl(command, *shape(), "--colour", 1, check=False)
    assert done.status in (1, 2) and "colour" in done.complaint + done.output
    done = daemon.ctl(command, *shape(), "--device", "cpu:7", check=False)
    assert done.status in (1, 2) and "cpu:7" in done.complaint + done.output


@pytest.mark.parametrize("words", [[], ["dance"], ["lookup"], ["lookup", "rmsnorm", "--m"], ["cancel"],
                                   ["cancel", "x"], ["--nonsense", "status"], ["lookup", *shape(m="many")],
                                   ["tune", *shape(m="1,,2")]], ids=str)
def test_bad_usage_exits_2(daemon, words):
    done = daemon.ctl(*words, as_json=False, check=False)
    assert done.status == 2, done
    assert done.complaint


def test_only_devices_that_are_there_are_offered(daemons, runner):
    """The kinds that the host has none of come first among all, and are no part of the list."""
    daemon = daemons(runner, device="auto").start()
    harness.until(lambda: "probing" not in {device["state"] for device in daemon.status()["devices"]}, "all are heard")
    there = [device["id"] for device in daemon.status()["devices"] if device["state"] == "ready"]
    done = daemon.ctl("lookup", *shape(), "--device", "gpu0", as_json=False, check=False)
    assert done.status in (1, 2) and done.complaint.strip().endswith("it must be " + ", ".join(there)), done


def test_a_kernel_that_the_device_lacks_is_refused_with_those_that_it_has(daemons, runner):
    daemon = daemons(runner).start()
    daemon.await_device()
    with daemon.peer() as peer, pytest.raises(harness.RpcError) as refusal:
        peer.call("lookup", kernel="layernorm", problem=problem())
    assert refusal.value.error["bound"] == "a kernel of cpu:0: rmsnorm"


def test_a_runner_without_kernels_is_said_to_have_none(daemons, runner):
    runner.write("at hello lie nokernel")
    daemon = daemons(runner).start()
    daemon.await_device()
    done = daemon.ctl("lookup", *shape(), as_json=False, check=False)
    assert done.status in (1, 2) and "a kernel of cpu:0, whose runner has none" in done.complaint


def test_an_unknown_job_is_said_so(daemon):
    done = daemon.ctl("cancel", 4711, check=False)
    assert done.status == 1 and "4711" in done.complaint + done.output


def refused(daemon, *words, status=None):
    """The daemon must end by itself, soon, with a complaint that has these words."""
    code = daemon.spawn().wait(harness.DEADLINE)
    daemon.process = None
    assert code not in (0, None) and (status is None or code == status)
    assert code > 0, f"flytuned died of signal {-code}"
    said = daemon.log()
    for word in words:
        assert str(word) in said, f"{word!r} is not said in: {said}"
    return said


def test_a_state_directory_that_cannot_be_written_is_named(daemons, nobody, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != folder.parent and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    daemon = daemons("/bin/true", state=locked / "state", prefix=nobody)
    daemon.short.chmod(0o777)
    refused(daemon, locked)


def test_a_socket_in_use_is_named_with_who_holds_it(daemons, daemon):
    other = daemons("/bin/true")
    other.path.unlink(missing_ok=True)
    os.rmdir(other.short)
    mine, other.short = other.short, daemon.short
    other.path = daemon.path
    try:
        refused(other, daemon.path, daemon.pid)
        assert daemon.lookup()["source"] == "default", "the first one serves on"
    finally:
        mine.mkdir()
        other.short = mine


def test_a_state_directory_in_use_is_named_with_who_holds_it(daemons, daemon):
    other = daemons("/bin/true", state=daemon.state)
    refused(other, daemon.state, daemon.pid)
    assert daemon.lookup()["source"] == "default"


def test_a_stale_socket_is_replaced(daemons, runner):
    daemon = daemons(runner)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(daemon.path))
    left.close()
    daemon.start()
    assert daemon.lookup()["source"] == "default"


def test_a_socket_path_that_is_too_long_is_refused_with_its_bound(daemons):
    daemon = daemons("/bin/true")
    daemon.path = daemon.short / ("x" * 120)
    refused(daemon, "107")
    done = harness.ctl(daemon.path, "status", check=False)
    assert done.status in (1, 2, 3) and "107" in done.complaint + done.output


@pytest.mark.parametrize("words", [["--nonsense"], ["--device", "abacus"], ["--deadline", "build=x"],
                                   ["--runner", "abacus"], ["--log-level", "shout"], ["stray"]], ids=str)
def test_a_bad_option_is_named(daemons, words):
    refused(daemons("/bin/true", arguments=words), words[0], words[-1].split("=")[-1])


def data_file(daemon):
    found = list(daemon.state.rglob("data.mdb"))
    assert len(found) == 1, list(daemon.state.rglob("*"))
    return found[0]


def with_results(daemons, runner):
    daemon = daemons(runner).start()
    daemon.ctl("tune", *shape(m="64,512,4096"))
    daemon.stop()
    return daemon


@pytest.mark.parametrize("size", [0, 100, 4096, 8192, 20000])
def test_a_truncated_store_is_moved_aside_and_the_daemon_serves(daemons, runner, size):
    daemon = with_results(daemons, runner)
    path = data_file(daemon)
    if path.stat().st_size <= size:
        pytest.skip("the store is smaller than that")
    os.truncate(path, size)
    daemon.start()
    answer = daemon.lookup()
    assert answer["source"] in ("default", "tuned")
    log = daemon.log()
    assert "damage" in log.lower() or "aside" in log.lower(), log
    assert daemon.tune()[0]["source"] == "tuned"
    daemon.restart()
    assert daemon.lookup()["source"] == "tuned"


@pytest.mark.parametrize("seed", range(6))
def test_a_store_with_damaged_bytes_costs_one_restart_at_most(daemons, runner, seed):
    import random
    chance = random.Random(seed)
    daemon = with_results(daemons, runner)
    path = data_file(daemon)
    data = bytearray(path.read_bytes())
    for _ in range(8):
        page = chance.randrange(2, len(data) // 4096)
        data[page * 4096 + chance.randrange(64 if seed % 2 else 4096)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    restarts = []
    while len(restarts) < 3:
        try:
            daemon.start()
            with daemon.peer() as peer:
                peer.socket.settimeout(10 * harness.PATIENCE)
                for m in (64, 512, 4096):
                    assert peer.call("lookup", kernel="rmsnorm", problem=problem(m=m))["config"]
                job = peer.call("tune", kernel="rmsnorm", problem=problem(m=7)).get("job")
                assert not job or peer.call("wait", job=job)["state"] == "done"
            break
        except (harness.RpcError, harness.Late) as fault:
            # It lives, and lookups are answered; but nothing more can be written to what is damaged.
            assert isinstance(fault, harness.Late) or fault.code == "store"
            assert daemon.lookup(m=5)["source"] in ("default", "tuned")
            daemon.stop(expect=None)
            restarts.append(str(fault))
        except (AssertionError, EOFError, BrokenPipeError, ConnectionError):
            if daemon.process is None:
                restarts.append("at start")
            else:
                restarts.append(daemon.process.wait(harness.DEADLINE))
                daemon.process = None
    assert len(restarts) <= 1, f"{restarts}: damaged pages cost more than one restart"


def test_a_damaged_value_costs_that_record_and_one_line(daemons, runner):
    daemon = with_results(daemons, runner)
    path = data_file(daemon)
    data = path.read_bytes()
    good = daemon.start().lookup(m=64)["config"]
    daemon.stop()
    # Damage every copy of the first knob's name inside values; keys hold none.
    knob = next(iter(good)).encode()
    at = data.find(knob)
    if at < 0:
        pytest.skip("values do not hold names in plain text")
    damaged = bytearray(data)
    while at >= 0:
        damaged[at] ^= 0x01
        at = data.find(knob, at + 1)
    path.write_bytes(damaged)
    daemon.start()
    for _ in range(3):
        for m in (64, 512, 4096):
            assert daemon.lookup(m=m)["source"] == "default"
    assert daemon.status()["damaged"] >= 1
    assert daemon.tune(m=64)[0]["source"] == "tuned"


def test_an_empty_data_file_beside_a_used_store_is_damage_and_not_a_new_start(daemons, runner):
    daemon = with_results(daemons, runner)
    data_file(daemon).write_bytes(b"")
    daemon.start()
    assert "damage" in daemon.log().lower() or "aside" in daemon.log().lower()


def test_an_empty_directory_is_a_new_start(daemons, runner):
    daemon = daemons(runner)
    daemon.state.mkdir()
    daemon.start()
    assert daemon.lookup()["source"] == "default"
    assert "damage" not in daemon.log().lower()
    assert daemon.state.stat().st_mode & 0o777 in (0o700, 0o755)


def test_a_store_of_another_lmdb_format_is_refused_and_left_alone(daemons, runner):
    daemon = with_results(daemons, runner)
    path = data_file(daemon)
    data = bytearray(path.read_bytes())
    # The version of both meta pages: after 16 bytes of page header, 4 of magic.
    for page in (0, 4096):
        data[page + 20:page + 24] = (999).to_bytes(4, "little")
    path.write_bytes(data)
    refused(daemon, "LMDB")
    assert path.read_bytes() == data


def test_check_store_counts_a_sound_store_and_names_a_damaged_one(daemons, runner):
    daemon = with_results(daemons, runner)

    def check():
        return subprocess.run([str(harness.FLYTUNED), "--check-store", "--state-dir", str(daemon.state)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=harness.DEADLINE,
                              check=False)
    assert check().returncode == 0
    path = data_file(daemon)
    os.truncate(path, 8192)
    assert check().returncode != 0


def test_an_upgrade_of_the_state_directory_by_copy_keeps_results(daemons, runner, tmp_path):
    daemon = with_results(daemons, runner)
    copy = tmp_path / "copy"
    shutil.copytree(daemon.state, copy)
    other = daemons(runner, state=copy).start()
    assert other.lookup()["source"] == "tuned"
