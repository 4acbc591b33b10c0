"""What happens in a simulation: drawn from its seed, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.simulation.network import FAR, NEAR, UNSTEADY, Delays

PROJECTS = ("acme", "blue", "coral")
GROUPS = 12  # of each project
PRIORITIES = ("high", "mid", "low")

# Kind -> how often it is drawn. Those that touch one node, and those that touch all of them or a stream.
OF_A_NODE = {
    "crash": 6, "pause": 6, "etcd cut": 5, "etcd flaky": 2, "lease starved": 3, "nats cut": 5, "nats flaky": 2,
    "watches dropped": 3,
}  # fmt: skip
OF_ALL = {
    "etcd silent": 3, "etcd leader": 2, "compaction": 2, "second leader": 3, "nats down": 3, "acks late": 2,
    "acks never": 2, "copies refused": 1, "lane replaced": 1, "lane rolled back": 1, "corrupt key": 3, "clock jump": 1,
}  # fmt: skip
GRACEFUL = {"stop": 3, "join": 2}
_MOMENTARY = {
    "crash",
    "watches dropped",
    "etcd leader",
    "compaction",
    "second leader",
    "lane replaced",
    "lane rolled back",
    "corrupt key",
    "clock jump",
}
_SECOND = 1_000_000_000
_HOUR = 3_600 * _SECOND
_NOON = 500_000 * _HOUR  # the server's unix time at the start, in ns


class PutAt(NamedTuple):
    """A message: when it is put, for when it is due (None: at once), how long its handler takes, and how often it
    fails before it ends well. Seconds.
    """

    at: float
    uid: str
    project: str
    group: int
    priority: str
    due: float | None
    takes: float
    fails: int


class Action(NamedTuple):
    """One thing that happens; `who` counts the nodes that live then, or is a partition. Seconds. `same_id`: of the node
    that comes back; with what lasts, whether another node joins meanwhile.
    """

    at: float
    kind: str
    who: int
    lasts: float
    back: float  # seconds until a node that was stopped or killed is there again
    same_id: bool


@dataclass(frozen=True)
class Script:
    seed: int
    nodes: int
    partitions: int
    ttl: int
    concurrency: int
    read_ahead: int
    delays: Delays
    epoch_ns: int
    first_joins: tuple[float, ...]
    puts: tuple[PutAt, ...]
    actions: tuple[Action, ...]
    ends: float  # when the last fault is over

    @property
    def graceful(self) -> bool:
        return all(action.kind in GRACEFUL for action in self.actions)


def written(seed: int) -> Script:
    """The same for the same seed, on any machine."""
    chance = Random(f"script {seed}")
    ttl = chance.choice((2, 2, 2, 3, 4))
    partitions = chance.choice((4, 4, 5, 6, 8))
    nodes = chance.choice((2, 2, 3, 3, 4))
    puts = tuple(sorted(_put(chance, number) for number in range(chance.randint(15, 45))))
    actions = tuple(sorted(_actions(chance, ttl)))
    return Script(
        seed=seed,
        nodes=nodes,
        partitions=partitions,
        ttl=ttl,
        concurrency=chance.choice((2, 4, 4)),
        read_ahead=chance.choice((2, 256)),
        delays=chance.choice((NEAR, NEAR, FAR, UNSTEADY)),
        epoch_ns=_NOON + chance.choice((0, _HOUR - chance.randint(1_000, 1_008) * _SECOND)),
        first_joins=tuple(0.0 if chance.random() < 0.5 else chance.random() * 2 for _ in range(nodes)),
        puts=puts,
        actions=actions,
        ends=max([put.at for put in puts] + [action.at + action.lasts for action in actions]),
    )


def _put(chance: Random, number: int) -> PutAt:
    at = chance.random() * 4
    kind = chance.random()
    takes = 5.0 if kind < 0.02 else chance.random() * 1.5 if kind < 0.2 else chance.random() * 0.05
    fails = chance.choice((1, 1, 2, 9)) if takes < 5 and chance.random() < 0.1 else 0
    due = at + chance.random() * 3 if chance.random() < 0.1 else None
    project, group, priority = chance.choice(PROJECTS), chance.randrange(GROUPS), chance.choice(PRIORITIES)
    return PutAt(at, f"m{number}", project, group, priority, due, takes, fails)


def _actions(chance: Random, ttl: int) -> list[Action]:
    if chance.random() < 0.2:
        kinds: dict[str, int] = GRACEFUL
    else:
        kinds = {**OF_A_NODE, **OF_ALL, **{kind: 2 * weight for kind, weight in GRACEFUL.items()}}
    names, weights = list(kinds), list(kinds.values())
    return [_action(chance, chance.choices(names, weights)[0], ttl) for _ in range(chance.randint(1, 5))]


def _action(chance: Random, kind: str, ttl: int) -> Action:
    lasts = 0.0 if kind in _MOMENTARY or kind in GRACEFUL else _lasts(chance, ttl)
    back = chance.choice((0.05, 0.5, 2.0)) * (0.5 + chance.random())
    return Action(0.3 + chance.random() * 5, kind, chance.randrange(64), lasts, back, chance.random() < 0.5)


def _lasts(chance: Random, ttl: int) -> float:
    """A tenth of the lease's time to three times as long: shorter ones more often."""
    return float(
        ttl * chance.choice((0.1, 0.3, 0.3, 0.6, 0.6, 0.9, 1.1, 1.1, 1.5, 3.0)) * (0.8 + 0.4 * chance.random())
    )
