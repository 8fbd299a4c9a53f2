"""What a store holds, read without flytune and while no daemon runs, as daemon/store/STORE.md describes it."""
import msgpack

STATUS = ("waiting", "wrong", "failed", "timeout", "same_code_as", "pruned", "suspect")
VERIFIED, DROPPED = 1, 2


def pairs(flat):
    """A flat list of name, value, name, value: as a tuple that can be compared and hashed."""
    return tuple(sorted(zip(flat[::2], flat[1::2])))


class Trial:
    def __init__(self, config, status, flags, code, samples):
        self.config = config
        self.status = STATUS[status]
        self.verified = bool(flags & VERIFIED)
        self.dropped = bool(flags & DROPPED)
        self.built = code != ""
        self.timed = samples is not None


class Trials:
    def __init__(self, body):
        (_, problem, _, self.rounds, _, self.winner, _, _, _, _, names, trials) = body
        self.problem = pairs(problem)
        self.trial = {}
        for config, status, flags, _, _, code, _, _, _, _, _, samples in trials:
            named = tuple(sorted((names[at], value) for at, value in zip(config[::2], config[1::2])))
            self.trial[named] = Trial(named, status, flags, code, samples)


class Answer:
    """Pin: a config. Winner: a job and a config. Import: an origin and a config. Each None where there is none."""

    def __init__(self, body):
        self.generation, problem, pin, winner, brought = body
        self.problem = pairs(problem)
        self.pin = pin and pairs(pin[0])
        self.winner = winner and (winner[8], pairs(winner[0]))
        self.brought = brought and (brought[1], pairs(brought[0]))


class Reader:
    """Reads one state directory again and again; what has not changed since is not decoded anew."""

    def __init__(self, state):
        import lmdb  # Debian's python3-lmdb; only these tests want it
        self.lmdb = lmdb
        self.state = state
        self.known = {}

    def decode(self, key, value):
        before = self.known.get(key)
        if before is not None and before[0] == value:
            return before[1]
        assert value[0] == 1, f"a value of version {value[0]}"
        body = bytes(value[1:-8])
        if key[:1] != b"O":
            body = msgpack.unpackb(body, raw=False, strict_map_key=False)
        made = {b"T": Trials, b"A": Answer}.get(key[:1], lambda it: it)(body)
        self.known[key] = (bytes(value), made)
        return made

    def read(self):
        """The store as it is now. Locks nothing, writes nothing."""
        stored = Stored()
        environment = self.lmdb.open(str(self.state), readonly=True, lock=False, create=False, max_dbs=0)
        with environment, environment.begin(buffers=True) as transaction:
            for key, value in transaction.cursor():
                stored.take(bytes(key), self.decode(bytes(key), value))
        self.known = {key: value for key, value in self.known.items() if key in stored.keys}
        return stored


class Stored:
    def __init__(self):
        self.keys = set()
        self.answers, self.trials, self.jobs, self.notes = {}, {}, {}, {}
        self.uuid, self.generation = None, 0

    def take(self, key, made):
        self.keys.add(key)
        kind = key[:1]
        if kind == b"A":
            self.answers[made.problem] = made
        elif kind == b"T":
            self.trials[made.problem] = made
        elif kind == b"J":
            self.jobs[int.from_bytes(key[1:9], "big")] = made
        elif kind == b"O":
            self.notes[key[1:].decode()] = made
        elif kind == b"M":
            self.uuid, self.generation = made[1], made[2]
