"""Subscriptions: who is told what, how often, what one who does not read costs, and what the library makes of it."""
import contextlib
import itertools
import os
import re
import signal
import subprocess

import msgpack
import pytest

import harness
from harness import RpcError, problem, shape

PLACES_MAX, LIST_MAX, ALL_MAX = 4096, 1024, 65536


def ask(m=64, n=4096, **more):
    return {"kernel": "rmsnorm", "problem": problem(m=m, n=n), **more}


def words(config):
    return ",".join(f"{name}={value}" for name, value in config.items())


class Subscriber(harness.Peer):
    """A peer that keeps what it is told of each place."""

    def __init__(self, path, lookups=(), **options):
        super().__init__(path, **options)
        self.told = {}
        for start in range(0, len(lookups), LIST_MAX):
            reply = self.call("subscribe", lookups=lookups[start:start + LIST_MAX])
            assert (reply["first"], reply["count"]) == (start + 1, min(LIST_MAX, len(lookups) - start))

    def take(self, message):
        assert message is not None, "the daemon hung up"
        assert message[0] == 2 and message[1] == "answer", message
        said = message[2]
        assert said["digest"] != 0
        assert self.told.get(said["place"], {}).get("digest") != said["digest"], "nothing changed"
        self.told[said["place"]] = said
        return said["place"], said.get("answer") or said["error"]

    def news(self):
        """The next place that is told of, and what."""
        return self.take(self.notices.pop(0) if self.notices else self.message())

    def all_news(self, count):
        return dict(self.news() for _ in range(count))

    def catch_up(self):
        """All that is on its way: a request is answered after it, unless more becomes due meanwhile."""
        self.call("status")
        while self.notices:
            self.take(self.notices.pop(0))


def sources(news):
    return {place: answer["source"] for place, answer in news.items()}


def ready(daemon):
    harness.until(lambda: daemon.status()["devices"][0]["state"] == "ready" and daemon.status()["generation"] > 1,
                  "the device is known")
    return daemon


def other_config(daemon):
    """A config that is not the answer for the problem."""
    now = daemon.lookup()["config"]
    return {**now, "unroll": 2 if now["unroll"] != 2 else 4}


def figures(daemon):
    page = daemon.ctl("metrics", as_json=False).output
    return {name: float(value) for name, value in re.findall(r"^flytune_(subscription\w*) (\S+)$", page, re.M)}


# ---- what is told ----

def test_answers_are_told_at_once_and_after_every_change(daemon, tmp_path):
    ready(daemon)
    config = other_config(daemon)
    with Subscriber(daemon.path, [ask(), ask(n=8192)]) as subscriber, daemon.peer() as peer:
        assert sources(subscriber.all_news(2)) == {1: "default", 2: "default"}

        def told(source, **more):
            place, answer = subscriber.news()
            assert (place, answer["source"]) == (1, source)
            now = peer.call("lookup", **ask())
            for member in ("stripe", "version"):
                now.pop(member, None)
            assert answer == now and all(answer[name] == value for name, value in more.items())
        daemon.tune()
        told("tuned")
        daemon.ctl("pin", *shape(), "--config", words(config))
        told("pinned", config=config)
        daemon.ctl("unpin", *shape())
        told("tuned")
        daemon.ctl("export", tmp_path / "answers.json")
        daemon.ctl("forget", *shape())
        told("default", reason="no result yet")
        daemon.ctl("import", tmp_path / "answers.json")
        told("imported")
        daemon.ctl("pin", *shape(n=8192), "--config", words(config))
        assert subscriber.news()[0] == 2


def test_a_neighbour_that_is_tuned_or_forgotten_is_told(daemon):
    ready(daemon)
    with Subscriber(daemon.path, [ask(m=64)]) as subscriber:
        assert subscriber.news()[1]["source"] == "default"
        daemon.tune(m=96)
        answer = subscriber.news()[1]
        assert (answer["source"], answer["tuned_scale"]) == ("nearest", 96)
        daemon.ctl("forget", *shape(m=96))
        assert subscriber.news()[1]["source"] == "default"


def test_what_does_not_change_an_answer_is_not_told(daemon):
    config = words(other_config(ready(daemon)))
    with Subscriber(daemon.path, [ask(m=64), ask(m=65), ask(m=64)]) as subscriber:
        subscriber.all_news(3)
        daemon.ctl("pin", *shape(n=1024), "--config", config)
        daemon.ctl("pin", *shape(m=100000), "--config", config)  # of the same stripe
        daemon.ctl("unpin", *shape(m=64))  # there is no pin
        daemon.ctl("pin", *shape(m=64), "--config", config)
        # Both places of the problem that changed, and nothing else before or between.
        assert sources(subscriber.all_news(2)) == {1: "pinned", 3: "pinned"}
        assert figures(daemon) == {"subscriptions": 3, "subscription_notices_total": 5}


def test_another_compiler_is_told(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    daemon.tune()
    with Subscriber(daemon.path, [ask()]) as subscriber, daemon.peer() as peer:
        assert subscriber.news()[1]["source"] == "tuned"
        harness.until(lambda: not daemon.runner_pids(), "the runner is let go")
        runner.write("identity compiler=another")
        peer.call("tune", **ask(n=1024))
        answer = subscriber.news()[1]
        if answer["reason"] == "probing":  # it may be told before the runner has said hello
            answer = subscriber.news()[1]
        assert answer["source"] == "default" and answer["reason"].startswith("stale")


def test_a_device_that_is_still_to_be_heard_is_told_when_it_is(daemons, runner):
    gate = runner.gate("hello")
    runner.write(f"at hello once gate {gate}")
    daemon = daemons(runner).start()
    gate.arrived()
    with Subscriber(daemon.path, [ask(), ask(device="cpu:3")]) as subscriber:
        news = subscriber.all_news(2)
        assert news[1]["reason"] == news[2]["reason"] == "probing"
        gate.release()
        news = subscriber.all_news(2)
        assert (news[1]["reason"], news[1]["device"]) == ("no result yet", "cpu:0")
        assert news[2]["code"] == "unknown_device"


def test_each_place_has_its_own_error(daemon):
    ready(daemon)
    lookups = [ask(), ask(m=0), {"kernel": "softmax", "problem": {"m": 1}}, ask(generation="nonsense"), ask(n=-1)]
    with Subscriber(daemon.path, lookups) as subscriber:
        news = subscriber.all_news(5)
        assert news[1]["source"] == "default" and news[2]["field"] == "m"
        assert [news[place]["code"] for place in (3, 4, 5)] == ["unknown_kernel", "generation_unavailable", "bad_value"]
        daemon.tune()
        assert subscriber.news()[1]["source"] == "tuned"


def test_what_is_known_already_is_not_told_again(daemon):
    ready(daemon)
    config = words(other_config(daemon))
    with Subscriber(daemon.path, [ask(m=1), ask(m=2), ask(m=3)]) as subscriber:
        subscriber.all_news(3)
        seen = [subscriber.told[place]["digest"] for place in (1, 2, 3)]
    daemon.ctl("pin", *shape(m=2), "--config", config)
    with Subscriber(daemon.path) as subscriber:
        assert subscriber.call("subscribe", lookups=[ask(m=1), ask(m=2), ask(m=3), ask(m=4)],
                               seen=[seen[0], seen[1], seen[2], 0]) == {"first": 1, "count": 4}
        assert sources(subscriber.all_news(2)) == {2: "pinned", 4: "default"}
        daemon.ctl("pin", *shape(m=3), "--config", config)
        assert subscriber.news()[0] == 3


def test_a_digest_outlives_the_daemon(daemon):
    daemon.tune()
    with Subscriber(daemon.path, [ask(), ask(n=8192)]) as subscriber:
        subscriber.all_news(2)
        seen = [subscriber.told[place]["digest"] for place in (1, 2)]
    daemon.restart()
    with Subscriber(daemon.path) as subscriber:
        subscriber.call("subscribe", lookups=[ask(), ask(n=8192), ask(n=1024)], seen=[*seen, 0])
        assert subscriber.news()[0] == 3


def test_the_answer_of_a_generation_is_told_once(daemon):
    token = daemon.ctl("lookup", *shape()).json["token"] if ready(daemon) else None
    with Subscriber(daemon.path, [ask(generation=token), ask()]) as subscriber:
        assert sources(subscriber.all_news(2)) == {1: "default", 2: "default"}
        daemon.tune()
        daemon.ctl("forget", *shape())
        daemon.tune()
        assert {place for place, _ in (subscriber.news() for _ in range(2))} == {2}


# ---- who reads slowly ----

def test_one_who_does_not_read_costs_a_fixed_amount_and_ends_up_with_the_last_answer(daemon):
    first = words(ready(daemon).lookup()["config"])
    second = words(other_config(daemon))
    places = 512
    changes = 40
    with daemon.peer() as peer, Subscriber(daemon.path) as slow:
        slow.socket.setsockopt(harness.socket.SOL_SOCKET, harness.socket.SO_RCVBUF, 4096)
        slow.ask("subscribe", lookups=[ask(m=64, n=2048 + place) for place in range(places)])
        before, bounded = harness.memory_kb(daemon.pid), []
        config = {word.split("=")[0]: int(word.split("=")[1]) for word in first.split(",")}
        other = {word.split("=")[0]: int(word.split("=")[1]) for word in second.split(",")}
        for turn in range(changes):
            numbers = [peer.ask("pin", config=config if turn % 2 == 0 else other, **ask(n=2048 + place))
                       for place in range(places)]
            for number in numbers:
                peer.answer(number)
            bounded.append(harness.memory_kb(daemon.pid))
        assert harness.INSTRUMENTED or max(bounded) - before < 8 << 10
        answers = {place + 1: peer.call("lookup", **ask(n=2048 + place)) for place in range(places)}
        told = 0
        while any(slow.told.get(place, {}).get("answer", {}).get("config") != answer["config"]
                  for place, answer in answers.items()):
            message = slow.message()
            if message[0] == 2:
                slow.take(message)
                told += 1
        slow.catch_up()
        for place, answer in answers.items():
            assert slow.told[place]["answer"]["config"] == answer["config"]
        assert told < changes * places // 2, "states in between are passed over"


def test_one_who_does_not_read_holds_up_no_other(daemon):
    config = other_config(ready(daemon))
    with Subscriber(daemon.path) as slow, Subscriber(daemon.path, [ask(n=2048)]) as quick, daemon.peer() as peer:
        slow.ask("subscribe", lookups=[ask(n=2048 + i) for i in range(1000)])
        quick.news()
        for turn in range(4 if harness.INSTRUMENTED else 30):
            for n in range(2048, 2148):
                peer.call("unpin" if turn % 2 else "pin", **ask(n=n), **({} if turn % 2 else {"config": config}))
            assert quick.news()[1]["source"] == ("default" if turn % 2 else "pinned")


def test_a_half_closed_subscriber_is_still_told(daemon):
    config = words(other_config(ready(daemon)))
    with Subscriber(daemon.path, [ask()]) as subscriber:
        subscriber.news()
        subscriber.socket.shutdown(harness.socket.SHUT_WR)
        for source in ("pinned", "default"):
            daemon.ctl(*(["pin", *shape(), "--config", config] if source == "pinned" else ["unpin", *shape()]))
            assert subscriber.news()[1]["source"] == source
    harness.until(lambda: figures(daemon)["subscriptions"] == 0, "its end is seen")


def test_subscribers_come_and_go_while_answers_change(daemon):
    config = other_config(ready(daemon))
    lookups = [ask(n=2048 + i) for i in range(200)]
    with daemon.peer() as peer:
        for turn in range(60):
            numbers = [peer.ask("unpin" if turn % 2 else "pin", **ask(n=2048 + i),
                                **({} if turn % 2 else {"config": config})) for i in range(20)]
            subscribers = [Subscriber(daemon.path) for _ in range(5)]
            for way, subscriber in enumerate(subscribers):
                subscriber.ask("subscribe", lookups=lookups)
                if way == 1:
                    subscriber.message()
                if way == 2:
                    subscriber.send(b"\xc1")
                if way == 3:
                    subscriber.socket.shutdown(harness.socket.SHUT_RD)
            for number in numbers:
                peer.answer(number)
            for subscriber in subscribers:
                subscriber.close()
        harness.until(lambda: figures(daemon)["subscriptions"] == 0, "all are gone")
        with Subscriber(daemon.path, [ask(n=2048)]) as subscriber:
            assert subscriber.news()[1]["source"] == "default"


def test_an_idle_daemon_with_subscribers_sleeps(daemon):
    with Subscriber(daemon.path, [ask(n=1 + i) for i in range(1000)]) as subscriber:
        subscriber.all_news(1000)
        subscriber.catch_up()
        harness.await_sleep(daemon.pid, 1, most=20)


# ---- bounds ----

@pytest.mark.parametrize("params, field", [
    ({"lookups": []}, "lookups"), ({"lookups": [ask()] * (LIST_MAX + 1)}, "lookups"), ({"lookups": 7}, "lookups"), ({}, "lookups"),
    ({"lookups": [ask(), 7]}, None), ({"lookups": [{"problem": {}}]}, "kernel"),
    ({"lookups": [ask()], "seen": [1, 2]}, "seen"), ({"lookups": [ask()], "seen": ["x"]}, "seen"),
    ({"lookups": [ask()], "seen": [-1]}, "seen"), ({"lookups": [ask()], "seen": 3}, "seen"),
], ids=["none", "too many", "no list", "nothing", "no lookup", "no kernel", "too many seen", "no number", "negative", "no list seen"])
def test_a_list_that_makes_no_sense_is_refused_whole(daemon, params, field):
    with daemon.peer() as peer:
        with pytest.raises(RpcError) as refusal:
            peer.call("subscribe", **params)
        assert field is None or refusal.value.error["field"] == field
        assert figures(daemon)["subscriptions"] == 0
        assert peer.call("subscribe", lookups=[ask()]) == {"first": 1, "count": 1}


def test_a_connection_has_a_bound(daemon):
    with Subscriber(daemon.path, [ask(n=1 + i) for i in range(PLACES_MAX)]) as subscriber:
        with pytest.raises(RpcError) as refusal:
            subscriber.call("subscribe", lookups=[ask()])
        assert refusal.value.code == "busy" and str(PLACES_MAX) in str(refusal.value)
        assert figures(daemon)["subscriptions"] == PLACES_MAX
        while len(subscriber.told) < PLACES_MAX:
            subscriber.news()
        # What does not belong to a lookup is not kept, however much of it comes.
        with daemon.peer() as peer:
            before = harness.memory_kb(daemon.pid)
            for _ in range(40):
                peer.call("subscribe", lookups=[ask(other="x" * 100000)] * 10)
            assert harness.INSTRUMENTED or harness.memory_kb(daemon.pid) - before < 4 << 10


def test_the_daemon_has_a_bound(daemon):
    lists = [[ask(n=1 + i) for i in range(start, start + LIST_MAX)] for start in range(0, PLACES_MAX, LIST_MAX)]
    with contextlib.ExitStack() as stack:
        before = harness.memory_kb(daemon.pid)
        for _ in range(ALL_MAX // PLACES_MAX):
            peer = stack.enter_context(daemon.peer())
            for each in lists:
                peer.call("subscribe", lookups=each)
            peer.notices.clear()
        assert harness.INSTRUMENTED or harness.memory_kb(daemon.pid) - before < 24 << 10
        with daemon.peer() as peer:
            with pytest.raises(RpcError) as refusal:
                peer.call("subscribe", lookups=[ask()])
            assert refusal.value.code == "busy" and str(ALL_MAX) in str(refusal.value)
            assert peer.call("lookup", **ask())
    harness.until(lambda: figures(daemon)["subscriptions"] == 0, "all are gone")


def as_user(daemon, user, act):
    """Runs act(path) in a child that is another user, and gives what it printed."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    daemon.short.chmod(0o755)
    daemon.path.chmod(0o666)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(theirs, act(daemon.path).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with open(ours, encoding="utf-8") as said:
        return said.read()


def test_a_user_has_half_of_them_at_most(daemon):
    def act(path):
        peers = [harness.Peer(path) for _ in range(ALL_MAX // PLACES_MAX)]
        with contextlib.suppress(RpcError):
            for total, peer in enumerate(itertools.chain.from_iterable([peer] * 4 for peer in peers)):
                peer.call("subscribe", lookups=[ask(n=1 + i) for i in range(LIST_MAX)])
                peer.notices.clear()
                said = f"{total + 1}"
        try:
            peers[-1].call("subscribe", lookups=[ask()])
        except RpcError as refusal:
            said += f" {refusal.code} {refusal}"
        return said
    said = as_user(daemon, 65534, act)
    assert said.split()[:2] == [str(ALL_MAX // 2 // LIST_MAX), "busy"] and "65534" in said


def test_who_may_not_look_up_may_not_subscribe(daemons, runner):
    daemon = daemons(runner, arguments=["--group", "games"]).start()

    def act(path):
        with harness.Peer(path) as peer:
            try:
                peer.call("subscribe", lookups=[ask()])
            except RpcError as refusal:
                return refusal.code
        return "allowed"
    assert as_user(daemon, 65534, act) == "denied"


def test_a_subscription_is_packed_as_any_client_would(daemon):
    """What is documented, byte by byte."""
    with daemon.peer() as peer:
        peer.send(msgpack.packb([0, 9, "subscribe", {"lookups": [ask()], "seen": [0]}]))
        assert peer.message() == [1, 9, None, {"first": 1, "count": 1}]
        notice = peer.message()
        assert notice[:2] == [2, "answer"] and set(notice[2]) == {"place", "digest", "answer"}


# ---- the library ----

class Follower:
    """The C program that subscribes to rmsnorm of some m."""

    def __init__(self, path, *places):
        self.process = subprocess.Popen(
            [str(harness.program("follow")), *map(str, places)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            env={**os.environ, "FLYTUNE_SOCKET": str(path)})
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(harness.DEADLINE) == 0
        self.process.stdout.close()

    def say(self, word):
        self.process.stdin.write(f"{word}\n".encode())

    def line(self, deadline=None):
        """The next line; None if none comes in that time."""
        while b"\n" not in self.rest:
            if not harness.select.select([self.process.stdout], [], [], harness.DEADLINE if deadline is None else deadline)[0]:
                if deadline is None:
                    raise harness.Late("the follower says nothing")
                return None
            self.rest += os.read(self.process.stdout.fileno(), 65536)
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def told(self, who=""):
        """The next answer of which it is told: place, source, config."""
        while True:
            line = self.line()
            if line.startswith(who) and not line.startswith(f"{who}status"):
                place, source, *config = line[len(who):].split()
                return int(place), source, ",".join(config)

    def status(self, wanted):
        while self.line() != f"status {wanted}":
            pass

    def idle(self):
        """That nothing more was told before a word is answered."""
        self.say("ping")
        return self.line() == "pong"


def pin(daemon, config, m=64):
    daemon.ctl("pin", *shape(m=m), "--config", config)


def two_configs(daemon):
    return words(ready(daemon).lookup()["config"]), words(other_config(daemon))


def test_a_program_is_told_of_every_kind_of_change(daemon):
    one, other = two_configs(daemon)
    with Follower(daemon.path, 64, 65) as follower:
        assert {follower.told()[:2] for _ in range(2)} == {(0, "default"), (1, "default")}
        daemon.tune()
        assert {follower.told()[:2] for _ in range(2)} == {(0, "tuned"), (1, "nearest")}
        pin(daemon, other)
        assert follower.told() == (0, "pinned", other)
        pin(daemon, one)
        assert follower.told() == (0, "pinned", one)
        daemon.ctl("unpin", *shape())
        assert follower.told()[:2] == (0, "tuned")
        daemon.ctl("forget", *shape())
        assert {follower.told()[:2] for _ in range(2)} == {(0, "default"), (1, "default")}
        assert follower.idle()


def test_a_program_that_dispatches_late_ends_up_with_the_last_answer(daemon):
    one, other = two_configs(daemon)
    with Follower(daemon.path, *range(1, 101)) as follower:
        for _ in range(100):
            follower.told()
        follower.say("hold")
        assert follower.idle()
        with daemon.peer() as peer:
            for turn in range(21):
                config = {name: int(value) for name, value in (pair.split("=") for pair in (one, other)[turn % 2].split(","))}
                for number in [peer.ask("pin", config=config, **ask(m=m)) for m in range(1, 101)]:
                    peer.answer(number)
        follower.say("go")
        last = {}
        while len(last) < 100 or any(said != ("pinned", one) for said in last.values()):
            place, *said = follower.told()
            last[place] = tuple(said)


@pytest.mark.parametrize("way", ["restart", "kill"])
def test_no_change_is_lost_across_daemons(daemon, way):
    one, other = two_configs(daemon)
    pin(daemon, other, m=1)  # so that the next is a change
    with Follower(daemon.path, 1, 2, 3) as follower:
        for _ in range(3):
            follower.told()
        for life in range(10 if os.environ.get("FLYTUNE_LONG") else 4):
            if way == "kill":
                daemon.kill()
            else:
                daemon.stop()
            daemon.start()
            # Most likely before the follower has noticed.
            pin(daemon, (one, other)[life % 2], m=1)
            assert follower.told() == (0, "pinned", (one, other)[life % 2])
            pin(daemon, (one, other)[life % 2], m=3)
            assert follower.told() == (2, "pinned", (one, other)[life % 2]), "what is as it was is not told again"


def test_a_change_while_nobody_was_connected_is_told(daemon):
    one, other = two_configs(daemon)
    with Follower(daemon.path, 1, 2) as follower:
        for _ in range(2):
            follower.told()
        follower.say("hold")
        assert follower.idle()
        daemon.restart()
        pin(daemon, one, m=2)
        daemon.restart()
        follower.say("go")
        assert follower.told() == (1, "pinned", one)


def test_a_program_that_came_before_the_daemon_is_told(daemon):
    one, _ = two_configs(daemon)
    daemon.stop()
    with Follower(daemon.path, 1) as follower:
        follower.status("daemon_away")
        daemon.start()
        follower.status("ok")
        pin(daemon, one, m=1)
        while follower.told() != (0, "pinned", one):
            pass


def test_a_stopped_daemon_holds_up_no_event_loop(daemon):
    one, _ = two_configs(daemon)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        with Follower(daemon.path, 1) as early:
            assert early.idle()
            daemon.process.send_signal(signal.SIGCONT)
            assert early.told()[:2] == (0, "default")
            daemon.process.send_signal(signal.SIGSTOP)
            assert early.idle()
            daemon.process.send_signal(signal.SIGCONT)
            pin(daemon, one, m=1)
            assert early.told() == (0, "pinned", one)
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def test_parent_and_child_are_told_each_for_itself(daemon):
    one, other = two_configs(daemon)
    with Follower(daemon.path, 1, 2) as follower:
        for _ in range(2):
            follower.told()
        follower.say("fork")
        assert {follower.told("child ")[0] for _ in range(2)} == {0, 1}, "a child is told anew"
        harness.until(lambda: figures(daemon)["subscriptions"] == 4, "both subscribe")
        for turn in range(10):
            config = (one, other)[turn % 2]
            pin(daemon, config, m=2)
            assert {follower.line() for _ in range(2)} == {f"{who}1 pinned {config.replace(',', ' ')}" for who in ("", "child ")}
        assert follower.idle()


def test_one_too_many_is_told_when_there_is_room(daemons, runner):
    daemon = daemons(runner, arguments=["--max-clients", "2"]).start()
    with daemon.peer() as one, daemon.peer() as two:
        assert one and two
        with Follower(daemon.path, 1) as follower:
            follower.status("busy")
            two.close()
            assert follower.told()[0] == 0
