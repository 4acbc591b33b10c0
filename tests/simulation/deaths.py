"""Scripts with deaths: messages that kill their process in various situations, drawn from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.events import GROUPS, KEYS, PROJECTS, Action, PutAt
from tests.support.promises.history import Rules

if TYPE_CHECKING:
    from random import Random


_SETTLED = 2.0  # s after which a failed attempt is settled; before that, its copy would be one more message


class Life(NamedTuple):
    topics: dict[str, Rules]
    partitions: int
    puts: list[PutAt]
    actions: list[Action]


def life(chance: Random) -> Life:
    """Killers and neighbours on few partitions. Each topic has its own number of attempts. Killers come together or one
    after another, in lanes or in delay streams. Neighbours fail, too, and so reach their last attempts.
    """
    topics = {project: _rules(chance) for project in PROJECTS}
    delayed = chance.choice((0.0, 0.0, 0.3, 1.0))  # of the messages
    killers = chance.choice((1, 1, 1, 2, 2, 3, 4))
    apart, takes = chance.choice((0.2, 3.0, 8.0)), chance.choice((0.0, 0.05, 0.5, 1.5))
    alternate = chance.random() < 0.2
    puts = [
        _put(chance, f"p{n}", topics, delayed, 0.5 + apart * chance.random(), takes)._replace(
            kills=True, alternates=alternate, fails=0 if alternate else chance.choice((0, 0, 0, 1, 2)), way="retry",
            after=_SETTLED + chance.random(),
        )
        for n in range(killers)
    ]  # fmt: skip
    spread, longest = chance.choice((0.5, 4.0, 12.0)), chance.choice((0.05, 0.5, 2.0))
    puts += [
        _put(chance, f"n{n}", topics, delayed, 0.2 + spread * chance.random(), longest)._replace(
            fails=chance.choice((0, 0, 0, 1))
        )
        for n in range(chance.randint(5, 16))
    ]
    return Life(topics, chance.choice((1, 1, 2, 4)), puts, _actions(chance))


def _rules(chance: Random) -> Rules:
    return Rules(ordered=chance.random() < 0.3, max_attempts=chance.choice((1, 2, 2, 3, 3, 4)))


def _put(
    chance: Random, uid: str, topics: dict[str, Rules], delayed: float, at: float, longest: float
) -> PutAt:  # fmt: skip
    project, group, key = chance.choice(PROJECTS), chance.randrange(GROUPS), None
    if topics[project].ordered and chance.random() < 0.5:
        key = chance.choice([*KEYS])
        group = KEYS[key]
    due = at + chance.choice((0.1, 1.0)) * chance.random() if key is None and chance.random() < delayed else None
    return PutAt(at, uid, project, group, "mid", key, due, takes=longest * chance.random())


def _actions(chance: Random) -> list[Action]:
    """Often there are no other faults: no actions, or handoffs while killers run. Else other processes die, too."""
    kinds = chance.choice(((), (), ("stop",), ("stop", "join"), ("crash",), ("crash", "stop", "pause")))
    if not kinds:
        return []
    return [
        Action(
            0.5 + 12 * chance.random(), chance.choice(kinds), chance.randrange(64), 1.0 + 3 * chance.random(),
            0.05 + 2 * chance.random(), chance.random() < 0.5,
        )
        for _ in range(chance.choice((2, 5, 12)))
    ]  # fmt: skip
