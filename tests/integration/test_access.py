"""Who may do what: as real other users, by what the kernel says of them."""
import grp
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import harness
from harness import problem, shape

MEMBERS, ADMINS = "games", "staff"  # groups that a Debian has; what matters is that the daemon is told of them
NOBODY = 65534


def someone(*groups, user=NOBODY):
    """What to put before a command to run it as a user with these supplementary groups."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    ids = ",".join(str(grp.getgrnam(group).gr_gid) for group in groups)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", *(["--groups", ids] if ids else ["--clear-groups"]), "--"]


def open_up(daemon):
    """Lets everybody reach the socket: what is tested is the daemon's own refusal."""
    daemon.short.chmod(0o755)
    daemon.path.chmod(0o666)
    daemon.await_device()
    return daemon


@pytest.fixture
def grouped(daemons, runner):
    return open_up(daemons(runner, arguments=["--group", MEMBERS, "--admin-group", ADMINS]).start())


def words(config):
    return ",".join(f"{knob}={value}" for knob, value in config.items())


def acts(config):
    return {"pin": ["pin", *shape(), "--config", words(config)], "unpin": ["unpin", *shape()],
            "forget": ["forget", *shape()], "pause": ["pause"], "resume": ["resume"]}


def test_a_member_looks_up_and_tunes_and_steers_nothing(grouped):
    member = someone(MEMBERS)
    config = grouped.ctl("lookup", *shape(), prefix=member).json["config"]
    assert grouped.ctl("tune", *shape(), prefix=member).json[0]["source"] == "tuned"
    for command in (["jobs"], ["devices"], ["status"], ["misses"], ["trials", *shape()]):
        grouped.ctl(*command, prefix=member)
    for name, command in acts(config).items():
        done = grouped.ctl(*command, prefix=member, check=False)
        assert done.status == 1 and done.json["error"]["code"] == "denied"
        assert ADMINS in done.complaint and name in done.complaint
    assert grouped.lookup()["source"] == "tuned"


def test_an_administrator_does_all(grouped):
    admin = someone(ADMINS)
    config = grouped.ctl("lookup", *shape(), prefix=admin).json["config"]
    for command in acts(config).values():
        grouped.ctl(*command, prefix=admin)
    lines = [line for line in grouped.log().splitlines() if " audit " in line]
    assert len(lines) == 5 and all(f"uid={NOBODY}" in line for line in lines)


@pytest.mark.parametrize("command", [["lookup", *shape()], ["tune", *shape()], ["jobs"], ["misses"], ["pause"],
                                     ["trials", *shape()]], ids=lambda words: words[0])
def test_one_of_neither_group_is_told_which_is_missing(grouped, command):
    done = grouped.ctl(*command, prefix=someone(), check=False)
    assert done.status == 1, done
    assert (ADMINS if command[0] == "pause" else MEMBERS) in done.complaint
    assert str(NOBODY) in done.complaint


def test_one_of_neither_group_may_ask_how_the_daemon_is(grouped):
    status = grouped.ctl("status", prefix=someone()).json
    assert MEMBERS in status["access"] and ADMINS in status["access"]


def test_the_primary_group_counts_as_much_as_the_others(grouped):
    group = grp.getgrnam(MEMBERS).gr_gid
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    grouped.ctl("lookup", *shape(), prefix=["setpriv", f"--reuid={NOBODY}", f"--regid={group}", "--clear-groups", "--"])


def test_a_group_among_hundreds_is_found(grouped):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    many = ",".join(str(group) for group in [*range(50000, 50300), grp.getgrnam(ADMINS).gr_gid])
    grouped.ctl("pause", prefix=["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--groups", many, "--"])


def test_a_lookup_that_is_denied_does_not_pass_for_a_daemon_that_is_away(grouped):
    done = grouped.ctl("lookup", *shape(), prefix=someone(), check=False)
    assert done.status == 1 and "denied" in done.output and "default" not in done.output


def test_without_the_groups_everybody_tunes_and_only_root_steers(daemons, runner):
    daemon = open_up(daemons(runner, arguments=["--group", "no-such-group", "--admin-group", "nor-this"]).start())
    other = someone()
    config = daemon.ctl("lookup", *shape(), prefix=other).json["config"]
    daemon.ctl("tune", *shape(), prefix=other)
    for command in acts(config).values():
        done = daemon.ctl(*command, prefix=other, check=False)
        assert done.status == 1 and "nor-this" in done.complaint and "root" in done.complaint
    for command in acts(config).values():
        daemon.ctl(*command)
    access = daemon.status()["access"]
    assert "everybody" in access and "no-such-group" in access


def test_the_socket_belongs_to_the_group(daemons, runner):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give the socket away")
    daemon = daemons(runner, arguments=["--group", MEMBERS]).start()
    facts = daemon.path.stat()
    assert facts.st_gid == grp.getgrnam(MEMBERS).gr_gid and facts.st_mode & 0o777 == 0o660
    daemon.short.chmod(0o755)
    daemon.ctl("lookup", *shape(), prefix=someone(MEMBERS))
    done = daemon.ctl("lookup", *shape(), prefix=someone(), check=False)
    assert done.status == 3, "others cannot even connect"
    for word in (f"user {NOBODY} may not use", f"group {grp.getgrnam(MEMBERS).gr_gid}", "mode 0660"):
        assert word in done.complaint
    assert "is away" not in done.complaint


def test_without_the_group_the_status_says_who_can_open_the_socket(daemons, runner):
    daemon = daemons(runner, arguments=["--group", "no-such-group"]).start()
    facts = daemon.path.stat()
    access = daemon.status()["access"]
    assert f"of user {facts.st_uid} and group {facts.st_gid}, mode 0660" in access and "no-such-group" in access
    daemon.short.chmod(0o755)
    done = daemon.ctl("status", prefix=someone(), check=False)
    assert done.status == 3 and f"user {NOBODY} may not use" in done.complaint
    daemon.short.chmod(0o700)
    done = daemon.ctl("status", prefix=someone(), check=False)
    assert done.status == 3 and f"user {NOBODY} may not enter" in done.complaint


def test_a_job_is_ended_by_its_owner_or_an_administrator(grouped):
    grouped.ctl("pause")
    jobs = [grouped.ctl("tune", *shape(m=m), "--no-wait", prefix=someone(MEMBERS)).json[0]["job"] for m in (1, 2)]
    done = grouped.ctl("cancel", jobs[0], prefix=someone(MEMBERS, user=1234), check=False)
    assert done.status == 1 and ADMINS in done.complaint
    grouped.ctl("cancel", jobs[0], prefix=someone(MEMBERS))
    grouped.ctl("cancel", jobs[1], prefix=someone(ADMINS, user=1234))


def test_a_user_has_a_bounded_number_of_jobs_and_others_are_not_kept_out(daemons, runner):
    daemon = daemons(runner, arguments=["--group", MEMBERS, "--admin-group", ADMINS, "--jobs-per-user", 3]).start()
    open_up(daemon)
    daemon.ctl("pause")
    member = someone(MEMBERS)
    daemon.ctl("tune", *shape(m="1,2,3"), "--no-wait", prefix=member)
    done = daemon.ctl("tune", *shape(m=4), "--no-wait", prefix=member, check=False)
    assert done.status == 1 and done.json["error"]["code"] == "busy" and "3" in done.complaint
    # To join a job of one's own, or of someone else, takes no place.
    daemon.ctl("tune", *shape(m=3), "--no-wait", prefix=member)
    daemon.ctl("tune", *shape(m=4), "--no-wait", prefix=someone(MEMBERS, user=1234))
    daemon.ctl("tune", *shape(m="5,6,7,8,9"), "--no-wait", prefix=someone(ADMINS, user=1234))
    daemon.ctl("resume")
    harness.until(lambda: daemon.status()["jobs"] == {"queued": 0, "running": 0}, "all jobs end")
    daemon.ctl("tune", *shape(m=10), prefix=member)


def test_refusals_are_logged_once_a_while_with_a_count(grouped):
    prefix = someone()
    for _ in range(5):
        grouped.ctl("pause", prefix=prefix, check=False)
    assert len([line for line in grouped.log().splitlines() if "audit denied" in line]) == 1


def test_the_daemons_own_user_may_steer_it(owned, nobody):
    owned.short.chmod(0o777)
    owned.start()
    owned.ctl("pause", prefix=nobody)
    done = owned.ctl("pause", prefix=["setpriv", "--reuid=1234", f"--regid={NOBODY}", "--clear-groups", "--"], check=False)
    assert done.status == 1 and "denied" in done.output


def test_the_wire_says_denied_with_the_method(grouped):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with grouped.peer() as peer:
                for method in ("pin", "unpin", "forget"):
                    try:
                        peer.call(method, kernel="rmsnorm", problem=problem())
                        break
                    except harness.RpcError as refusal:
                        if refusal.code != "denied" or method not in str(refusal):
                            break
                else:
                    status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


# ---- connections ----

class Crowd:
    """Connections of another user, held until released. What kept a further one out is its `refusal`."""

    def __init__(self, daemon, user, count):
        if os.geteuid() != 0:
            pytest.skip("needs root, to become another user")
        ours, theirs = socket.socketpair()
        self.socket = ours
        self.child = os.fork()
        if self.child == 0:
            status = 1
            try:  # whatever happens, the child must not go on as a second pytest
                ours.close()
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                peers, refusal = [], None
                while len(peers) < count and refusal is None:
                    try:
                        peers.append(daemon.peer())
                    except harness.RpcError as refused:
                        refusal = refused.error
                theirs.sendall(json.dumps([len(peers), refusal]).encode())
                theirs.shutdown(socket.SHUT_WR)
                theirs.recv(1)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        with ours.makefile("rb") as said:
            self.served, self.refusal = json.loads(said.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        assert os.waitpid(self.child, 0)[1] == 0


def crowded(daemons, runner, *arguments):
    return open_up(daemons(runner, arguments=["--group", "no-such-group", *arguments]).start())


OTHER = 1234


def test_a_user_has_a_bounded_number_of_connections(daemons, runner):
    daemon = crowded(daemons, runner, "--max-clients", 40, "--clients-per-user", 10)
    for _ in range(2):  # and gets them back
        with Crowd(daemon, NOBODY, 11) as crowd:
            assert crowd.served == 10 and crowd.refusal["code"] == "busy"
            assert (crowd.refusal["field"], crowd.refusal["value"]) == ("clients_per_user", "10")
            assert crowd.refusal["bound"] == "fewer than 10"
            for word in (str(NOBODY), "10", "clients_per_user"):
                assert word in crowd.refusal["message"]
            done = daemon.ctl("status", prefix=someone(), check=False)
            assert done.status != 0 and "clients_per_user" in done.complaint
        harness.until(lambda: daemon.status()["sessions"] == 1, "they are gone")
    assert f"client refused uid={NOBODY}" in daemon.log()


def test_one_users_crowd_keeps_no_other_out(daemons, runner):
    daemon = crowded(daemons, runner, "--max-clients", 40, "--clients-per-user", 10)
    with Crowd(daemon, NOBODY, 11) as crowd, Crowd(daemon, OTHER, 5) as others:
        assert (crowd.served, others.served, others.refusal) == (10, 5, None)
        assert daemon.ctl("lookup", *shape(), prefix=someone(user=OTHER)).json["source"] == "default"
        assert daemon.lookup()["source"] == "default"


def test_administrators_get_in_when_nobody_else_does(daemons, runner):
    daemon = crowded(daemons, runner, "--max-clients", 16, "--clients-per-user", 100)
    # Three quarters for one, whatever is set; two are kept.
    with Crowd(daemon, NOBODY, 13) as crowd, Crowd(daemon, OTHER, 3) as others:
        assert (crowd.served, crowd.refusal["field"], crowd.refusal["value"]) == (12, "clients_per_user", "12")
        assert (others.served, others.refusal["field"], others.refusal["value"]) == (2, "max_clients", "14")
        assert "administrators" in others.refusal["message"]
        with daemon.peer() as one, daemon.peer() as two:
            assert one.call("status")["busiest_sessions"] == 12 and two.call("status")
            with pytest.raises(harness.RpcError) as refusal:
                daemon.peer()
            assert refusal.value.error["field"] == "max_clients" and refusal.value.error["value"] == "16"
        harness.until(lambda: daemon.ctl("status", check=False).status == 0, "an administrator is let in again")


def test_those_who_are_turned_away_take_no_place_from_others(daemons, runner):
    daemon = crowded(daemons, runner, "--max-clients", 8, "--clients-per-user", 2)
    with Crowd(daemon, NOBODY, 3) as crowd:
        assert crowd.served == 2
        # None of these has read that it was refused: they are there, and count for nothing.
        idle = [subprocess.Popen([*someone(), sys.executable, "-c",
                                  "import socket, sys\n"
                                  "all = [socket.socket(socket.AF_UNIX) for _ in range(50)]\n"
                                  "[one.connect(sys.argv[1]) for one in all]\n"
                                  "print(flush=True)\n"
                                  "sys.stdin.read()", str(daemon.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                for _ in range(2)]
        try:
            for one in idle:
                assert one.stdout.readline() == b"\n"
            with Crowd(daemon, OTHER, 2) as others:
                assert others.served == 2
            assert daemon.lookup()["source"] == "default"
        finally:
            for one in idle:
                one.communicate(timeout=harness.DEADLINE)


def test_the_status_and_the_metrics_show_who_has_the_connections(daemons, runner):
    daemon = crowded(daemons, runner, "--max-clients", 40, "--clients-per-user", 10)
    with Crowd(daemon, NOBODY, 11), Crowd(daemon, OTHER, 3):
        status = daemon.status()
        assert (status["sessions_limit"], status["user_sessions_limit"]) == (40, 10)
        assert status["busiest_user"] == {"uid": NOBODY, "sessions": 10} and status["sessions_refused"] == 1
        assert f"user {NOBODY} has 10 of 10, 1 refused" in daemon.ctl("status", as_json=False).output
        page = daemon.ctl("metrics", as_json=False).output
        for line in (f'flytune_user_sessions{{uid="{NOBODY}"}} 10', f'flytune_user_sessions{{uid="{OTHER}"}} 3',
                     'flytune_sessions_refused_total{short="clients_per_user"} 1', "flytune_sessions_limit 40"):
            assert line in page.splitlines()


def test_the_bound_of_a_user_changes_with_a_reload(daemons, runner, tmp_path):
    path = tmp_path / "flytuned.conf"
    path.write_text("[daemon]\nclients_per_user = 2\n")
    daemon = crowded(daemons, runner, "--config", path)
    with Crowd(daemon, NOBODY, 3) as crowd:
        assert crowd.served == 2
        path.write_text("[daemon]\nclients_per_user = 4\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.heard("configuration reloaded")
        with Crowd(daemon, NOBODY, 3) as more:
            assert more.served == 2 and more.refusal["value"] == "4"
