"""Whether what clients saw of some state can be told as one story, each act done at one moment between its question and
its answer. An act without an answer may have been done at any later moment, or never."""

NEVER = float("inf")


class Act:
    """`effect(state)` gives the state after it, or None where it cannot have happened in that state."""
    __slots__ = ("words", "effect", "asked", "answered", "must", "only_looks")

    def __init__(self, words, effect, asked, answered=NEVER, must=None, only_looks=False):
        self.words = words
        self.effect = effect
        self.asked = asked
        self.answered = answered
        self.must = answered != NEVER if must is None else must
        self.only_looks = only_looks

    def __repr__(self):
        return f"[{self.asked}, {self.answered}] {'' if self.must else '(maybe) '}{self.words}"


def look(words, fits, asked, answered):
    return Act(words, lambda state: state if fits(state) else None, asked, answered, only_looks=True)


def one_story(state, acts, ends):
    """Whether the acts lead from a state to one for which ends(state) holds."""
    acts = sorted(acts, key=lambda act: act.asked)
    needed = sum(1 << at for at, act in enumerate(acts) if act.must)
    todo = [(0, state)]
    seen = set(todo)
    while todo:
        done, state = todo.pop()
        # What must have been done before anything that was asked later.
        bound = min((act.answered for at, act in enumerate(acts) if act.must and not done >> at & 1), default=NEVER)
        looked, steps = done, []
        for at, act in enumerate(acts):
            if act.asked > bound:
                break
            if done >> at & 1:
                continue
            after = act.effect(state)
            if after is None:
                continue
            if act.only_looks:  # takes nothing from the others: no need to try it anywhere else
                looked |= 1 << at
            else:
                steps.append((done | 1 << at, after))
        if looked != done:
            steps = [(looked, state)]
        elif done & needed == needed and ends(state):
            return True
        for step in steps:
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return False


def tell(state, acts, final):
    """For a message: what does not fit."""
    return "\n".join([f"before: {state}", *map(repr, sorted(acts, key=lambda act: act.asked)), f"after: {final}"])
