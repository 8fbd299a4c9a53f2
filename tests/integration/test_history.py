"""The checker of histories: it must find what is wrong, or the crash tests prove nothing."""
import itertools
import random

import pytest

from history import NEVER, Act, look, one_story


def put(value, asked, answered=NEVER):
    return Act(f"puts {value}", lambda state: value, asked, answered)


def saw(value, asked, answered):
    return look(f"saw {value}", lambda state: state == value, asked, answered)


@pytest.mark.parametrize("acts,end,good", [
    ([], 0, True), ([], 1, False),
    ([put(1, 1, 2)], 1, True), ([put(1, 1, 2)], 0, False),  # acknowledged, and lost
    ([put(1, 1)], 0, True), ([put(1, 1)], 1, True), ([], 1, False),
    ([put(1, 1, 2), put(2, 3, 4)], 1, False), ([put(1, 1, 4), put(2, 2, 3)], 1, True),
    ([put(1, 1, 2), saw(0, 3, 4)], 1, False), ([put(1, 1, 4), saw(0, 2, 3)], 1, True),
    ([put(1, 1, 10), saw(1, 2, 3), saw(0, 4, 5)], 1, False),  # seen, and gone again
    ([put(1, 1), saw(1, 2, 3)], 0, False), ([put(1, 2), saw(1, 1, 3)], 1, True), ([put(1, 4), saw(1, 1, 3)], 1, False),
    # The second of two equal acts comes after another: it must not be taken for done at once.
    ([put(1, 1, 2), put(1, 3, 12), put(2, 4, 5), saw(1, 6, 7), saw(1, 13, 14)], 1, True)], ids=str)
def test_a_story_is_found_if_there_is_one(acts, end, good):
    assert one_story(0, acts, lambda state: state == end) == good


def any_order(acts, end):
    """The same by trying every order."""
    certain, maybe = [act for act in acts if act.must], [act for act in acts if not act.must]
    for extra in itertools.chain.from_iterable(itertools.combinations(maybe, count) for count in range(len(maybe) + 1)):
        for order in itertools.permutations([*certain, *extra]):
            if any(later.answered < earlier.asked for at, earlier in enumerate(order) for later in order[at:]):
                continue
            state = 0
            for act in order:
                state = act.effect(state)
                if state is None:
                    break
            if state == end:
                return True
    return False


def test_it_says_the_same_as_trying_every_order():
    chance = random.Random(1)
    told = {True: 0, False: 0}
    for _ in range(1500):
        times = chance.sample(range(1, 20), 12)
        acts = []
        for at in range(chance.randrange(1, 6)):
            asked, answered = sorted(times[2 * at:2 * at + 2])
            act = chance.choice((put, put, saw))(chance.randrange(3), asked, answered)
            if not act.only_looks and chance.random() < 0.3:
                act = put(act.effect(0), asked)
            acts.append(act)
        end = chance.randrange(3)
        said = one_story(0, acts, lambda state, end=end: state == end)
        assert said == any_order(acts, end), acts
        told[said] += 1
    assert min(told.values()) > 100, told
