"""What others do to the daemon's files while it runs: nothing is acknowledged that the next start would not find, and the
socket is where its clients look for it."""
import os
import shutil
import signal
import subprocess
import threading

import pytest

import harness
from harness import shape


@pytest.fixture
def tuned(daemons, runner):
    daemon = daemons(runner).start()
    daemon.tune()
    return daemon


def config_of(daemon, **fields):
    return ",".join(f"{knob}={value}" for knob, value in daemon.lookup(**fields)["config"].items())


def pin(daemon, config, m=7):
    """Pins it, however busy the store is with being put back."""
    def pinned():
        done = daemon.ctl("pin", *shape(m=m), "--config", config, check=False)
        assert done.status == 0 or "the store is being opened again" in done.complaint, done
        return done.status == 0
    harness.until(pinned, "the store is open again")


def expect_kept(daemon, *sources):
    """After kill -9, which leaves nobody to tidy up."""
    daemon.kill()
    daemon.start()
    for m, source in sources:
        assert daemon.lookup(m=m)["source"] == source
    assert not list(daemon.state.glob("*.damaged*"))


# ---- the state directory


@pytest.mark.parametrize("how", ["removed", "swapped", "directory removed", "directory moved", "directory swapped"])
def test_what_is_acknowledged_is_found_again_whatever_became_of_the_files(tuned, tmp_path, how):
    daemon, state = tuned, tuned.state
    if "swapped" in how:
        other = tmp_path / "other"
        other.mkdir()
        (other / "data.mdb").write_bytes(b"something else")
    if how == "removed":
        (state / "data.mdb").unlink()
    elif how == "swapped":
        (other / "data.mdb").rename(state / "data.mdb")
    elif how == "directory removed":
        shutil.rmtree(state, ignore_errors=True)  # it may be noticed before all is gone
    else:
        state.rename(tmp_path / "away")
        if how == "directory swapped":
            other.rename(state)
    pin(daemon, config_of(daemon))
    daemon.tune(m=8)
    assert daemon.status()["degraded"] == ""
    assert daemon.log().count("stop the daemon before its state is touched") == 1
    expect_kept(daemon, (64, "tuned"), (7, "pinned"), (8, "tuned"))
    assert len(list(state.glob("data.mdb.replaced-*"))) == ("swapped" in how)
    assert (state / "code").is_dir()


def test_a_store_of_another_format_that_took_the_place_is_left_as_it_is(tuned, tmp_path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "data.mdb").write_bytes(b"an older flytune's")
    (other / "initialised").write_text("flytune store, format 1\n")
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    config = config_of(tuned)
    tuned.state.rename(tmp_path / "away")
    other.rename(tuned.state)
    tuned.heard("leads to a store of format 1 now, which is left as it is")
    assert "left as it is" in tuned.ctl("pin", *shape(m=7), "--config", config, check=False).complaint
    assert tuned.lookup()["source"] == "tuned"
    there = {path.name: path.read_bytes() for path in tuned.state.iterdir() if path.name in before}
    assert there == before, "it was written to"
    # Once it is gone again, all is put back.
    tuned.state.rename(tmp_path / "gone")
    harness.until(lambda: tuned.status()["degraded"] == "", "it is put back")
    pin(tuned, config)
    expect_kept(tuned, (64, "tuned"), (7, "pinned"))


@pytest.mark.parametrize("directory", [False, True])
def test_it_is_noticed_though_nothing_is_written(tuned, directory):
    if directory:
        shutil.rmtree(tuned.state, ignore_errors=True)
    else:
        (tuned.state / "data.mdb").unlink()
    tuned.heard("it was put back, with all that was acknowledged")
    harness.until(lambda: (tuned.state / "code").is_dir(), "the directory of code is there again")
    expect_kept(tuned, (64, "tuned"))


def test_what_cannot_be_put_back_is_not_acknowledged(tuned, tmp_path):
    daemon, state = tuned, tuned.state
    config = config_of(daemon)
    state.rename(tmp_path / "away")
    state.write_text("in the way")
    done = daemon.ctl("pin", *shape(m=7), "--config", config, check=False)
    assert done.status == 1 and str(state) in done.complaint
    assert str(state) in daemon.status()["degraded"]
    assert daemon.lookup()["source"] == "tuned"
    assert daemon.ctl("tune", *shape(m=8), "--no-wait", check=False).status != 0
    state.unlink()
    harness.until(lambda: daemon.status()["degraded"] == "", "it is put back by itself")
    pin(daemon, config)
    expect_kept(daemon, (64, "tuned"), (7, "pinned"))


@pytest.fixture
def unprivileged(daemons):
    """A daemon of another user, with a pin."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    daemon = daemons(prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"])
    home = daemon.short / "home"
    home.mkdir()
    daemon.state = home / "state"
    for folder in (daemon.short, home):
        os.chown(folder, 65534, 65534)
    try:
        daemon.start()
        pin(daemon, config_of(daemon), m=64)
        yield daemon
    finally:
        home.chmod(0o700)
        if daemon.process is not None:
            daemon.kill()
        shutil.rmtree(home)


def test_what_another_user_put_in_its_place_is_no_obstacle(unprivileged):
    """Root copies a file there: the daemon may rename it in its own directory, and may not link to it."""
    daemon = unprivileged
    other = daemon.state / "backup"
    other.write_bytes(b"of another user")
    other.chmod(0o600)
    other.rename(daemon.state / "data.mdb")
    pin(daemon, config_of(daemon))
    assert daemon.status()["degraded"] == ""
    expect_kept(daemon, (64, "pinned"), (7, "pinned"))
    [aside] = daemon.state.glob("data.mdb.replaced-*")
    assert aside.read_bytes() == b"of another user" and aside.stat().st_uid == 0


def test_what_cannot_be_looked_at_is_not_taken_for_removed(unprivileged):
    daemon, home = unprivileged, unprivileged.state.parent
    config = config_of(daemon)
    home.chmod(0)
    done = daemon.ctl("pin", *shape(m=7), "--config", config, check=False)
    assert done.status == 1 and "cannot be looked at" in done.complaint and "removed" not in done.complaint
    assert daemon.lookup()["source"] == "pinned"
    home.chmod(0o700)
    pin(daemon, config)
    assert daemon.status()["degraded"] == ""
    assert "was put back" not in daemon.log()
    expect_kept(daemon, (64, "pinned"), (7, "pinned"))


@pytest.mark.parametrize("now", ["gone", "empty", "damaged", "another store"])
def test_a_copy_that_was_not_yet_in_its_place_is_found(tuned, daemons, runner, now):
    """As a kill -9 leaves it between the copy and its rename."""
    state = tuned.state
    tuned.kill()
    (state / "data.mdb").rename(state / "data.mdb.new")
    (state / "data.mdb.partial").write_bytes(b"the first bytes of another")
    if now == "empty":
        (state / "data.mdb").touch()
    elif now == "damaged":
        (state / "data.mdb").write_bytes(b"no store" * 4096)
    elif now == "another store":
        other = daemons(runner).start()
        other.ctl("pin", *shape(m=7), "--config", config_of(other))
        other.stop()
        shutil.copy(other.state / "data.mdb", state)
    tuned.start()
    assert not (state / "data.mdb.partial").exists() and not (state / "data.mdb.new").exists()
    if now == "another store":
        assert tuned.lookup(m=7)["source"] == "pinned"
        [aside] = state.glob("data.mdb.replaced-*")
        tuned.stop()
        aside.rename(state / "data.mdb")
        tuned.start()
    assert tuned.lookup()["source"] == "tuned"


def test_what_is_not_whole_is_no_copy(tuned):
    state = tuned.state
    tuned.kill()
    (state / "data.mdb.new").write_bytes((state / "data.mdb").read_bytes()[:100])
    tuned.start()
    assert tuned.lookup()["source"] == "tuned" and not (state / "data.mdb.new").exists()


def keep_from_copying(state):
    (state / "data.mdb.partial").mkdir()


def test_an_end_at_which_it_could_not_be_put_back_is_no_clean_one(tuned, tmp_path):
    state = tuned.state
    tuned.restart()
    assert not (state / "sealed").exists(), "while a daemon runs it says nothing"
    keep_from_copying(state)
    other = tmp_path / "other"
    shutil.copy(state / "data.mdb", other)
    other.rename(state / "data.mdb")
    tuned.heard("the store cannot be written")
    tuned.stop()
    assert (state / "open").exists() and not (state / "sealed").exists()
    (state / "data.mdb.partial").rmdir()
    tuned.start()
    tuned.stop()
    assert not (state / "open").exists() and (state / "sealed").exists()


def test_a_marker_that_was_removed_is_made_anew(tuned):
    marker = tuned.state / "open"
    text = marker.read_text()
    marker.unlink()
    harness.until(lambda: marker.exists() and marker.read_text() == text, "the marker is there again")
    tuned.stop()
    assert not marker.exists()


def test_a_daemon_that_knows_only_the_lock_file_is_kept_out_and_keeps_out(tuned):
    lock = tuned.state / "lock"
    take = ["flock", "--nonblock", str(lock), "true"]
    assert subprocess.run(take, check=False).returncode == 1
    tuned.stop()
    with subprocess.Popen(["flock", str(lock), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdin.write(b"held\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AssertionError, match="ended with 1"):
            tuned.start()
        assert "in use by process" in tuned.log()
        holder.stdin.close()
        holder.wait()
    tuned.start()
    assert tuned.lookup()["source"] == "tuned"


def test_no_second_daemon_starts_on_a_store_whose_lock_file_is_gone(tuned, daemons, runner):
    (tuned.state / "lock").unlink()
    other = daemons(runner, state=tuned.state)
    with pytest.raises(AssertionError, match="ended with 1"):
        other.start()
    assert "in use by another process" in other.log()
    tuned.ctl("pin", *shape(m=7), "--config", config_of(tuned))


# ---- the socket


def answers(daemon):
    return daemon.path.is_socket() and daemon.ctl("lookup", *shape(), check=False).status == 0


@pytest.mark.parametrize("how", ["removed", "moved", "directory"])
def test_a_socket_whose_file_is_gone_is_made_anew(tuned, how):
    with tuned.peer() as before:
        if how == "removed":
            tuned.path.unlink()
        elif how == "moved":
            tuned.path.rename(tuned.short / "elsewhere")
        else:
            shutil.rmtree(tuned.short)
            tuned.short.mkdir()
        harness.until(lambda: answers(tuned), "the socket is there again")
        assert tuned.path.stat().st_mode & 0o777 == 0o660
        before.call("status")  # who was connected stays so
    tuned.heard("it was made anew")
    tuned.restart()
    assert answers(tuned)


def test_what_is_in_the_sockets_place_is_left_and_said_once(tuned):
    tuned.path.unlink()
    tuned.path.write_text("mine")
    tuned.heard("cannot be made anew yet")
    tuned.process.send_signal(signal.SIGHUP)
    tuned.heard("configuration reloaded")
    assert tuned.path.read_text() == "mine"
    tuned.path.unlink()
    tuned.process.send_signal(signal.SIGHUP)
    harness.until(lambda: answers(tuned), "the socket is there again")
    assert tuned.log().count("cannot be made anew yet") == 1


def test_who_asks_while_the_socket_is_made_anew_is_answered(tuned):
    """Nobody who got as far as the queue of the old one is lost."""
    failed = []

    def ask():
        for _ in range(50):
            done = tuned.ctl("status", check=False)
            if done.status not in (0, 3):  # 3: there was no file just then
                failed.append(done)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    for _ in range(5):
        harness.until(tuned.path.exists, "the socket is there again")
        tuned.path.unlink()
    for asker in askers:
        asker.join()
    assert not failed
    harness.until(lambda: answers(tuned), "the socket is there again")
