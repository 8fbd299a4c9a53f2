"""Crashes at random moments under random requests: what was acknowledged is there, and what is stored is not done again.

Eight clients ask for whatever can be asked, while daemon, runner or both are killed at moments that a seed chose. Between
two lives of the daemon the store is read by other hands (stored.py), and all that the clients were told in that life is
held against what stood there before and what stands there now (history.py). What runners did is in their log."""
import contextlib
import itertools
import os
import random
import signal
import statistics
import threading
import uuid

import pytest

import harness
from harness import problem
from history import NEVER, Act, look, one_story, tell
from stored import Reader

pytest.importorskip("lmdb", reason="needs python3-lmdb, to read a store without flytune")

CLIENTS, KEYS, PARTS = 8, 10, 4
ROUNDS = 12 if harness.INSTRUMENTED else 1000 // PARTS if os.environ.get("FLYTUNE_LONG") else 200 // PARTS
ENDED_KEPT = 256  # jobs that have ended and are still listed
OVER = ("done", "failed", "cancelled")
# What an honest question may be answered with while devices, jobs and imports come and go.
REFUSALS = {"wait": ("unknown_job",), "cancel": ("unknown_job",), "import_rows": ("bad_request",),
            "import_commit": ("bad_request",)}
NOTHING = (None, None, None)


def whole(n):
    """A problem with all its fields, to be compared with what is stored."""
    return tuple(sorted({**problem(n=n), "weight_dtype": "bf16", "row_stride": n}.items()))


def short(key):
    """The same as a client asks for it."""
    return problem(n=dict(key)["n"])


class Ask:
    def __init__(self, method, params, key, asked):
        self.method, self.params, self.key, self.asked = method, params, key, asked
        self.answered, self.result, self.error = NEVER, None, None
        self.rows = ()  # of an import, what its commit applies
        self.floor = 0  # the newest generation that anyone was told of when this was asked
        self.told = None  # of a question about the past, what was answered then

    def __repr__(self):
        return f"{self.method} {self.params} -> {self.error or self.result}"


class Life:
    """What clients asked and were told between a start of the daemon and its end."""

    def __init__(self, world, number):
        self.world, self.number = world, number
        self.clock = itertools.count(1)
        self.asks, self.events, self.faults = [], [], []
        self.told = 0
        self.newest = world.before.generation
        self.struck = 0  # runners killed while the daemon lived on
        self.enough = False
        self.threads = [Client(self, client) for client in range(CLIENTS)] + [Watcher(self)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join(2 * harness.DEADLINE)
            assert not thread.is_alive(), "a client hangs"
        assert not self.faults, self.faults[0]


class Talker(threading.Thread):
    def __init__(self, life):
        super().__init__(daemon=True)
        self.life = life

    def run(self):
        try:
            with self.life.world.daemon.peer() as self.peer:
                self.talk()
        except (EOFError, ConnectionError):
            pass  # the daemon was killed
        except BaseException as fault:  # told by whoever joins
            self.life.faults.append(fault)


class Watcher(Talker):
    """Hears of all jobs; what an event tells is on disk."""

    def talk(self):
        self.peer.call("watch")
        while (message := self.peer.message()) is not None:
            self.life.events.append(message[2])


class Client(Talker):
    def __init__(self, life, number):
        super().__init__(life)
        self.chance = random.Random(f"{life.world.seed} {life.number} {number}")
        self.depth = self.chance.randrange(1, 7)
        self.open = {}

    def talk(self):
        while True:
            busy = sum(ask.method != "wait" for ask in self.open.values())
            if self.life.enough and busy == 0:
                return
            if not self.life.enough and busy < self.depth and (busy == 0 or self.chance.random() < 0.6):
                self.act()
            elif (message := self.peer.message()) is None:
                return
            else:
                self.hear(message)

    def ask(self, method, key=None, **params):
        if key is not None:
            params.update(kernel="rmsnorm", problem=short(key))
        ask = Ask(method, params, key, next(self.life.clock))
        ask.floor = self.life.newest
        self.life.asks.append(ask)
        self.open[self.peer.next] = ask
        self.peer.ask(method, **params)
        return ask

    def act(self):
        world, chance = self.life.world, self.chance
        key = chance.choice(world.keys)
        (act,) = chance.choices(*zip(
            ("look", 30), ("tune", 14), ("force", 3), ("wait", 6), ("cancel", 3), ("pin", 10), ("unpin", 5), ("forget", 3),
            ("import", 4), ("pause", 1), ("resume", 3), ("past", 8), ("trials", 2), ("list", 3)))
        if act == "look":
            self.ask("lookup", key)
        elif act == "tune":
            self.ask("tune", key)
        elif act == "force":
            self.ask("tune", key, force=True)
        elif act in ("wait", "cancel"):
            self.ask(act, job=chance.choice(world.jobs))
        elif act == "pin":
            self.ask("pin", key, config=dict(chance.choice(world.configs)))
        elif act == "past":
            generation, asked, told = chance.choice(world.past)
            self.ask("lookup", asked, generation=f"{world.before.uuid}:{generation}").told = told
        elif act == "list":
            self.ask(chance.choice(("jobs", "misses", "status", "devices", "export", "metrics")))
        elif act == "import":
            self.bring()
        else:
            self.ask(act, key if act in ("unpin", "forget", "trials") else None)

    def bring(self):
        world, chance = self.life.world, self.chance
        if any(ask.method.startswith("import") for ask in self.open.values()):
            return  # a new one would drop the one that is under way
        origin = str(uuid.UUID(int=chance.getrandbits(128)))
        rows = [(key, chance.choice(world.configs)) for key in chance.sample(world.keys, chance.randrange(1, 5))]
        self.ask("import_begin")
        self.ask("import_rows", rows=[{**world.row, "problem": dict(key), "config": dict(config), "origin": origin}
                                      for key, config in rows])
        self.ask("import_commit").rows = [(key, (origin, config)) for key, config in rows]

    def hear(self, message):
        world = self.life.world
        assert message[0] == 1, message
        ask = self.open.pop(message[1])
        ask.error, ask.result = message[2], message[3]
        ask.answered = next(self.life.clock)
        self.life.told += 1
        if ask.error is not None:
            assert ask.error["code"] in REFUSALS.get(ask.method, ()), ask
            return
        answer = ask.result
        if ask.method == "lookup":
            said = (answer["source"], tuple(sorted(answer["config"].items())))
            if ask.told is not None:
                assert said == ask.told, f"generation {answer['generation']} has changed: {ask.told} was told, now {said}"
            else:
                assert answer["generation"] >= ask.floor, f"{ask.floor} was known: {ask}"
                world.past[self.chance.randrange(len(world.past))] = (answer["generation"], ask.key, said)
        elif ask.method == "tune" and "job" in answer:
            world.jobs[self.chance.randrange(len(world.jobs))] = answer["job"]
        elif ask.method == "wait":
            assert answer["state"] in OVER, ask
        if "generation" in answer and ask.told is None:
            self.life.newest = max(self.life.newest, answer["generation"])


class World:
    """One store through all its lives."""

    def __init__(self, daemon, runner, seed):
        self.daemon, self.runner, self.seed = daemon, runner, seed
        self.chance = random.Random(seed)
        self.next_n = 1024
        self.keys = [self.fresh() for _ in range(KEYS)]
        self.begun = set()  # jobs of which a round is known to be stored
        self.owner = {}  # of jobs: the problem
        self.checked = {"asks": 0, "told": 0, "work": 0, "jobs": 0, "past": 0}
        self.starts = []
        self.read_log = 0
        self.prepare()

    def fresh(self):
        self.next_n += 8
        return whole(self.next_n)

    def prepare(self):
        """Learns what pins and rows may say, and leaves a store that knows its device."""
        self.runner.write("time 3 100550000", "pace_us 300", "problems named")
        self.daemon.start()
        key = self.keys[0]
        with self.daemon.peer() as peer:
            job = peer.call("tune", kernel="rmsnorm", problem=short(key))["job"]
            assert peer.call("wait", job=job)["state"] == "done"
            answer = peer.call("lookup", kernel="rmsnorm", problem=short(key))
            trials = peer.call("trials", kernel="rmsnorm", problem=short(key))["trials"]
            self.row = {name: value for name, value in peer.call("export")["rows"][0].items() if not name.startswith("pin")}
        self.configs = [tuple(sorted(trial["config"].items())) for trial in trials if trial["status"] == "ok"][:6]
        self.jobs = [job] * 16
        self.past = [(answer["generation"], key, (answer["source"], tuple(sorted(answer["config"].items()))))] * 64
        self.daemon.stop()
        self.reader = Reader(self.daemon.state)
        self.before = self.reader.read()
        self.new_work()

    def new_work(self):
        """The lines of the runners' log since the last call."""
        lines = self.runner.did()
        fresh, self.read_log = lines[self.read_log:], len(lines)
        return [line.split(" ") for line in fresh]

    # ---- what is held against what

    def check(self, life):
        after = self.reader.read()
        self.checked["asks"] += len(life.asks)
        self.checked["told"] += life.told
        self.checked["past"] += sum(ask.told is not None and ask.answered != NEVER for ask in life.asks)
        assert after.uuid == self.before.uuid and after.generation >= life.newest
        self.check_jobs(life, after)
        self.check_answers(life, after)
        self.check_imports(life, after)
        self.check_pause(life, after)
        self.check_events(life, after)
        self.check_work(life, after)
        self.before = after

    def check_jobs(self, life, after):
        crowded = sum(job["state"] in OVER for job in after.jobs.values()) >= ENDED_KEPT - 8
        for number, job in {**self.before.jobs, **after.jobs}.items():
            self.owner[number] = tuple(sorted(job["problems"][0].items()))
        for number, job in self.before.jobs.items():
            now = after.jobs.get(number)
            assert now is not None or crowded, f"job {number} is lost: {job}"
            assert now is None or job["state"] not in OVER or now["state"] == job["state"], f"{job} became {now}"
        for ask in life.asks:
            if ask.result is None:
                continue
            if ask.method == "tune" and "job" in ask.result:
                number = ask.result["job"]
                self.owner[number] = ask.key
                assert number in after.jobs or crowded, f"{ask} was acknowledged and is lost"
                assert self.owner[number] == ask.key, ask
            elif ask.method in ("wait", "cancel"):
                now = after.jobs.get(ask.params["job"])
                assert now["state"] == ask.result["state"] if now else crowded, f"{ask}, and stored is {now}"
                self.checked["jobs"] += 1

    def wins(self, life, after):
        """Sweeps that ended in this life, each at a moment between its question and its end."""
        known = {number for number, job in self.before.jobs.items() if job["state"] not in OVER}
        asked = {}
        for ask in life.asks:
            if ask.method == "tune":
                asked.setdefault(ask.key, ask.asked)
                if ask.result is not None and "job" in ask.result:
                    known.add(ask.result["job"])
        known |= {number for number in after.jobs if number not in self.before.jobs}
        told = {}
        for ask in life.asks:
            if ask.method in ("wait", "cancel") and ask.result is not None and ask.result["state"] == "done":
                told[ask.params["job"]] = min(told.get(ask.params["job"], NEVER), ask.answered)
        end = next(life.clock)
        for number in known:
            job = after.jobs.get(number)
            if job is not None and job["state"] != "done":
                continue
            key = self.owner[number]
            yield key, Act(f"job {number} wins", lambda state, number=number: (state[0], number, state[2]),
                           0 if number in self.before.jobs else asked.get(key, 0), told.get(number, end),
                           must=job is not None)

    def acts(self, life, after):
        """What was asked about each problem."""
        won = {number: tuple(sorted(job["answer"]["config"].items())) for number, job in after.jobs.items()
               if job.get("answer")}
        acts = {}

        def fits(answer):
            source, config = answer["source"], tuple(sorted(answer["config"].items()))

            def check(state):
                pin, job, brought = state
                if pin is not None:
                    return (source, config) == ("pinned", pin)
                if job is not None:
                    return (source, config) == ("tuned", won.get(job, config))
                if brought is not None:
                    return (source, config) == ("imported", brought[1])
                return source == "default"
            return check

        def add(key, act):
            acts.setdefault(key, []).append(act)
        effects = {"unpin": lambda state: (None, *state[1:]), "forget": lambda state: NOTHING}
        for ask in life.asks:
            if ask.error is not None:
                continue  # then nothing was done
            when = (ask.asked, ask.answered)
            if ask.method == "lookup" and ask.told is None and ask.result:
                add(ask.key, look(f"looks: {ask.result['source']} {ask.result['config']}", fits(ask.result), *when))
            elif ask.method == "tune" and ask.result and "answer" in ask.result:
                check = fits(ask.result["answer"])
                add(ask.key, look(f"was tuned: {ask.result['answer']['source']}",
                                  lambda state, check=check: state[1] is not None and check(state), *when))
            elif ask.method == "pin":
                config = tuple(sorted(ask.params["config"].items()))
                add(ask.key, Act(f"pins {config}", lambda state, config=config: (config, *state[1:]), *when))
            elif ask.method in effects:
                add(ask.key, Act(ask.method, effects[ask.method], *when))
            for key, row in ask.rows:
                add(key, Act(f"imports {row}", lambda state, row=row: (*state[:2], row), *when))
        for key, act in self.wins(life, after):
            add(key, act)
        return acts

    @staticmethod
    def state(stored, key):
        answer = stored.answers.get(key)
        return (answer.pin, answer.winner and answer.winner[0], answer.brought) if answer else NOTHING

    def check_answers(self, life, after):
        acts = self.acts(life, after)
        for key in {*self.before.answers, *after.answers, *acts}:
            was, now = self.state(self.before, key), self.state(after, key)
            done = acts.get(key, [])
            assert one_story(was, done, lambda state, now=now: state == now), \
                f"{dict(key)}: no order of what was done explains what was seen\n{tell(was, done, now)}"
        for key, answer in after.answers.items():
            if answer.winner and answer.winner[0] in after.jobs:
                assert after.jobs[answer.winner[0]]["state"] == "done", f"{dict(key)}: a winner of a job that has not ended"

    def check_imports(self, life, after):
        """All rows of an import are there, or none: one that is missing must have been taken away since."""
        commits = [ask for ask in life.asks if ask.rows and ask.error is None]
        for ask in commits:
            there = [self.state(after, key)[2] == row for key, row in ask.rows]
            for (key, _), is_there in zip(ask.rows, there):
                covered = any(other is not ask and any(key == touched for touched, _ in other.rows) for other in commits) \
                    or any(other.key == key and other.method == "forget" for other in life.asks)
                assert is_there or covered or not any(there), f"only a part of it is there: {ask} {ask.rows}"

    def check_pause(self, life, after):
        was, now = (stored.notes.get("paused") == b"\xc3" for stored in (self.before, after))
        acts = [Act(ask.method, lambda state, to=ask.method == "pause": to, ask.asked, ask.answered)
                for ask in life.asks if ask.method in ("pause", "resume")]
        assert one_story(was, acts, lambda state: state == now), tell(was, acts, now)

    def restarted(self, life):
        """Problems whose times, or all they have, may have been let go in this life."""
        forgotten = {ask.key for ask in life.asks if ask.method == "forget"}
        forced = {ask.key for ask in life.asks if ask.method == "tune" and ask.params.get("force")}
        # A forced job lets go of the times once, when it begins.
        forced |= {self.owner[number] for number, job in self.before.jobs.items()
                   if job.get("force") and job["state"] not in OVER and number not in self.begun}
        return forgotten, forgotten | forced

    def check_events(self, life, after):
        _, restarted = self.restarted(life)
        for event in life.events:
            key = self.owner.get(event["job"])
            if event["event"] == "round" and key not in restarted:
                trials = after.trials.get(key)
                assert trials and trials.rounds >= event["round"], f"{event} was told, and is not stored"

    def check_work(self, life, after):
        """No build, verification, drop or round that was stored when this life began, and none twice in it."""
        forgotten, restarted = self.restarted(life)
        seen = {}
        twice = 0
        for words in self.new_work():
            if words[0] not in ("build", "verify", "drop", "round", "sweep"):
                continue
            key = tuple(sorted((name, value if not value.isdigit() else int(value))
                               for name, value in (field.split("=") for field in words[-1].split(","))))
            if key in (forgotten if words[0] == "build" else restarted):
                continue
            self.checked["work"] += 1
            stored = self.before.trials.get(key)
            about = f"{' '.join(words)}, in life {life.number} with {life.struck} runners killed"
            if words[0] == "sweep":
                assert not stored or stored.winner < 0, f"a sweep that was decided: {about}"
                continue
            what = (words[0], key, words[1])
            seen[what] = seen.get(what, 0) + 1
            if words[0] == "round":
                assert not stored or int(words[1]) >= stored.rounds, f"{stored.rounds} rounds were stored: {about}"
                assert seen[what] <= 1 + life.struck, f"a round that was told of is repeated: {about}"
                continue
            config = tuple(sorted((name, int(value)) for name, value in (knob.split("=") for knob in words[1].split(","))))
            trial = stored.trial.get(config) if stored else None
            # A timed config that goes out lets those that were slower than it back in.
            if words[0] != "drop" or not life.struck:
                twice += seen[what] > 1
                # Of a runner that is killed the last may be done and not yet told.
                assert twice <= life.struck, f"done twice: {about}"
            if trial is None:
                continue
            assert trial.status not in ("wrong", "failed", "timeout"), f"it was {trial.status}: {about}"
            is_stored = {"build": trial.built, "verify": trial.verified, "drop": trial.dropped and not life.struck}
            assert not is_stored[words[0]], f"it was stored: {about}"
        self.begun |= {event["job"] for event in life.events if event["event"] == "round"}
        # Whoever asks with force for a job that is queued makes it begin anew, whatever it did in an earlier life.
        self.begun -= {number for number, job in after.jobs.items()
                       if job.get("force") and not self.before.jobs.get(number, job).get("force")}

    # ---- the rounds

    def live(self, number):
        life = Life(self, number)
        self.daemon.start()
        self.starts.append(self.daemon.ready_s)
        life.start()
        return life

    def wait_for(self, life, answers):
        goal = life.told + answers
        harness.until(lambda: life.told >= goal or life.faults, f"{answers} answers")

    def strike(self, life):
        """Kills at a random moment; true if the daemon is among what was killed."""
        self.wait_for(life, self.chance.randrange(2, 200))
        blow = self.chance.choices(("daemon", "both", "runner"), (50, 20, 30))[0]
        for _ in range(self.chance.randrange(0, 20000)):
            pass  # a moment that has nothing to do with an answer
        if blow != "runner":
            self.daemon.kill(runners=blow == "both")
            return True
        for pid in self.daemon.runner_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            life.struck += 1
        return False

    def run(self, rounds):
        life = self.live(1)
        for number in range(rounds):
            if self.strike(life):
                life.join()
                self.check(life)
                life = self.live(life.number + 1)
            for _ in range(2):
                self.keys[self.chance.randrange(KEYS)] = self.fresh()
        life.enough = True
        with self.daemon.peer() as peer:
            peer.call("resume")
            harness.until(lambda: peer.call("status").get("jobs_queued", 0) + peer.call("status").get("jobs_running", 0) == 0
                          or life.faults, "all jobs end")
            assert peer.call("status").get("damaged", 0) == 0
        self.daemon.stop()
        life.join()
        life.asks.append(resumed := Ask("resume", {}, None, 0))
        resumed.answered = next(life.clock)
        self.check(life)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_acknowledged_outlives_any_crash_and_nothing_stored_is_done_again(daemons, runner, part, record_property):
    seed = os.environ.get("FLYTUNE_SEED") or f"{random.SystemRandom().getrandbits(48):x}"
    print(f"FLYTUNE_SEED={seed} part {part}, {ROUNDS} rounds")
    record_property("seed", seed)
    world = World(daemons(runner), runner, f"{seed} {part}")
    world.run(ROUNDS)
    checked, start = world.checked, statistics.median(world.starts)
    print(f"{len(world.starts)} lives, median start {start * 1000:.0f} ms, checked {checked}")
    assert checked["told"] > 20 * ROUNDS and checked["work"] > 20 * ROUNDS and checked["past"] > ROUNDS
