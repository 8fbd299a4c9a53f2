"""A store that is damaged, at rest or in use: it is mended or rescued and served again, no answer is wrong, and a named
generation is answered as it was or refused. FLYTUNE_LONG=1 changes every bit of the header, and many others."""
import os
import random
import signal
import socket
import struct

import pytest

import harness
from harness import shape

PAGE, META = 4096, 152
MAIN_ROOT, NUMBER = 16 + 72 + 40, 16 + 128  # in a meta page


def words(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def newest_header(path):
    """Where in the file the meta page that counts is."""
    with open(path, "rb") as data:
        image = data.read(2 * PAGE)
    return max((0, PAGE), key=lambda at: struct.unpack_from("=Q", image, at + NUMBER))


def point_nowhere(path):
    """The root of all records, in the file that a daemon has mapped."""
    with open(path, "r+b", buffering=0) as data:
        data.seek(newest_header(path) + MAIN_ROOT)
        data.write(struct.pack("=Q", 1 << 40))


@pytest.fixture
def tuned(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    daemon.ctl("pin", *shape(m=7), "--config", words(daemon.lookup()["config"]))
    daemon.ctl("pin", *shape(m=9), "--config", words(daemon.lookup()["config"]))
    return daemon


def served(daemon, uuid):
    """It answers again, from another store."""
    done = daemon.ctl("status", check=False)
    return done.status == 0 and done.json["store"] != uuid and done.json["degraded"] == ""


def refused(daemon, token):
    done = daemon.ctl("--generation", token, "lookup", *shape(), check=False)
    return done.status == 1 and "generation_unavailable" in done.output + done.complaint


@pytest.mark.parametrize("by", ["commit", "lookup"])
def test_a_store_damaged_in_use_is_repaired_by_the_running_daemon(tuned, by):
    pid, uuid, token = tuned.pid, tuned.status()["store"], tuned.lookup()["token"]
    config = words(tuned.lookup()["config"])
    point_nowhere(tuned.state / "data.mdb")
    if by == "commit":
        assert tuned.ctl("pin", *shape(m=8), "--config", config, check=False).status != 0
    else:
        tuned.ctl("lookup", *shape(m=12345), check=False)
        assert refused(tuned, token)
    harness.until(lambda: served(tuned, uuid), "the store is repaired")
    assert tuned.pid == pid and tuned.process.poll() is None
    assert (tuned.lookup()["source"], tuned.lookup(m=7)["source"]) == ("tuned", "pinned")
    assert refused(tuned, token), "a generation of the store that was"
    tuned.ctl("pin", *shape(m=8), "--config", config)
    assert tuned.log().count("was found damaged while in use") == 1
    assert len(list(tuned.state.glob("data.mdb.damaged-*"))) == 1
    tuned.restart()
    assert tuned.lookup(m=8)["source"] == "pinned"


def test_a_job_goes_on_after_the_repair(tuned, runner):
    gate = runner.gate("round")
    runner.write("time 3 100550000", f"at round 3 once gate {gate}")
    job = tuned.tune("--no-wait", m=11)[0]["job"]
    gate.arrived()
    tuned.ctl("pin", *shape(m=8), "--config", words(tuned.lookup()["config"]))

    def seen():
        """A commit that is just under way may write over the damage."""
        if "was found damaged while in use" in tuned.log():
            return True
        point_nowhere(tuned.state / "data.mdb")
        tuned.ctl("lookup", *shape(m=12345), check=False)
        return False

    harness.until(seen, "the damage is met")
    harness.until(lambda: tuned.log().count("ready version=") == 2, "it begins again")
    harness.until(lambda: tuned.path.exists() and tuned.lookup(m=11)["source"] == "tuned", "the job goes on")
    assert tuned.ctl("jobs", job).json["jobs"][0]["state"] == "done"


LIVES = harness.BUILD / "tests/integration/lives.so"


@pytest.mark.skipif(harness.INSTRUMENTED, reason="a sanitizer wants to be loaded first")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_between_two_lives_waits_for_the_second(tuned, number):
    tuned.stop()
    tuned.env = {"LD_PRELOAD": str(LIVES), "LIVES_SIGNAL": str(int(number))}
    tuned.start()
    uuid = tuned.status()["store"]
    point_nowhere(tuned.state / "data.mdb")
    tuned.ctl("pin", *shape(m=8), "--config", words(tuned.lookup(m=10)["config"]), check=False)
    if number == signal.SIGHUP:
        tuned.heard("configuration reloaded")
        harness.until(lambda: served(tuned, uuid), "the store is repaired")
        tuned.process.kill()  # the signal comes at its end as well
        tuned.wait()
    else:
        assert tuned.wait() == 0
        end = tuned.log().rindex("info: ready version=")
        assert tuned.log().count("ready version=") == 3 and "stopping signal=15" in tuned.log()[end:]


@pytest.mark.skipif(harness.INSTRUMENTED, reason="a sanitizer wants to be loaded first")
def test_the_watchdog_is_fed_while_the_store_is_checked(tuned, tmp_path):
    tuned.stop()
    where = tuned.short / "notify"
    tuned.env = {"LD_PRELOAD": str(LIVES), "LIVES_STOPS": "1"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(where))
        notify.settimeout(harness.DEADLINE)
        tuned.spawn(where)
        for _ in range(2):
            assert notify.recv(4096) == b"WATCHDOG=1\nEXTEND_TIMEOUT_USEC=30000000"
        [child] = tuned.runner_pids()
        os.kill(child, signal.SIGCONT)
        while b"READY=1" not in notify.recv(4096):
            pass
    assert tuned.lookup()["source"] == "tuned"


def test_a_bit_changed_at_rest_is_no_fault_of_any_answer(tuned):
    """With the real daemon; the unit tests change many more."""
    chance = random.Random(10)
    answers = {m: tuned.lookup(m=m) for m in (64, 7, 9)}
    long = os.environ.get("FLYTUNE_LONG") == "1"
    tuned.stop()
    data, seal = tuned.state / "data.mdb", tuned.state / "sealed"
    whole, sealed = data.read_bytes(), seal.read_bytes()
    header = [page * 8 * PAGE + bit for page in (0, 1) for bit in range(8 * META)]
    others = range(2 * 8 * PAGE, 8 * len(whole))
    bits = header if long else chance.sample(header, 12)
    counts = {"mended": 0, "rescued": 0, "unseen": 0}
    for bit in [*bits, *chance.sample(others, 1000 if long else 8)]:
        image = bytearray(whole)
        image[bit // 8] ^= 1 << bit % 8
        data.write_bytes(image)
        seal.write_bytes(sealed)
        if tuned.log_path.exists():
            tuned.log_path.unlink()
        tuned.start()
        log = tuned.log()
        rescued = "is damaged" in log
        counts["mended" if "was mended" in log else "rescued" if rescued else "unseen"] += 1
        assert bit in others or "was mended" in log, (bit, log)
        for m, before in answers.items():
            now = tuned.lookup(m=m)
            assert now["source"] == before["source"] or (bit in others and "damaged" in tuned.log()), (bit, now)
            assert now["source"] not in ("tuned", "pinned") or now["config"] == before["config"], (bit, now)
        done = tuned.ctl("--generation", answers[64]["token"], "lookup", *shape(), check=False)
        assert done.json["source"] == "tuned" if done.status == 0 else refused(tuned, answers[64]["token"]), (bit, done)
        assert data.stat().st_size <= 2 * len(whole)
        tuned.stop()
        for aside in tuned.state.glob("data.mdb.damaged-*"):
            aside.unlink()
    print("bits changed:", counts)
