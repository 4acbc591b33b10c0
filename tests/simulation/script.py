"""Scripts of simulations: all that happens in one is drawn from its seed before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.audits import Audit, draw_audit, draw_resets
from tests.simulation.deaths import life
from tests.simulation.events import GROUPS, KEYS, PRIORITIES, PROJECTS, Action, PutAt
from tests.simulation.network import FAR, NEAR, UNSTEADY, Delays
from tests.support.promises.fault_kinds import ETCD_BACK, GRACEFUL, KINDS, OF_A_NODE, OF_ALL, OF_ETCD_BACK, weights
from tests.support.promises.history import Bounds, Rules

_WAYS = ("raise", "raise", "retry", "reject")
ORDERED = 0.4  # of the topics
POISONED = 0.08  # of the scripts
MOVED = 0.5  # of those
LOST = 0.05  # of the others
SINGLE = 0.5  # of those: their messages are recorded from the first death on
DEADLY = 0.06  # of the rest
BACK = 0.12  # of the scripts without poison: etcd goes back
ALONE = 0.3  # of these: nothing else goes wrong
OLD = 0.2  # of these: etcd is thousands of revisions old
NO_NODE = 0.25  # of these: no node runs then
_SECOND = 1_000_000_000
_HOUR = 3_600 * _SECOND
_NOON = 500_000 * _HOUR  # the server's unix time at the start, in ns


@dataclass(frozen=True)
class Script:
    seed: int
    nodes: int
    partitions: int
    ttl: int
    concurrency: int
    read_ahead: int
    index_limit: int
    delays: Delays
    epoch_ns: int
    revision: int  # etcd's, at the start
    first_joins: tuple[float, ...]
    topics: dict[str, Rules]
    puts: tuple[PutAt, ...]
    actions: tuple[Action, ...]
    ends: float  # when the last fault is over
    audit: Audit | None = None

    @property
    def bounds(self) -> Bounds:
        """The times within which promises hold on links as slow as these."""
        slow = self.delays.slow
        return Bounds(
            settle=int((0.3 + 4 * slow) * _SECOND),
            aftermath=int((3 + 4 * slow) * _SECOND),
            recovery=int((3 * self.ttl + 4 + 4 * slow) * _SECOND),
            unowned=int((3 + 6 * slow) * _SECOND),
            waiting=int((3 + 6 * slow) * _SECOND),
        )

    @property
    def graceful(self) -> bool:
        """Whether nothing goes wrong."""
        graceful = {kind.name for kind in GRACEFUL}
        return all(action.kind in graceful for action in self.actions) and not self.poison

    @property
    def unsteady(self) -> set[str]:
        """The messages in `poison` that fail at first, or by turns."""
        return {put.uid for put in self.puts if put.kills and (put.alternates or put.fails)}

    @property
    def poison(self) -> dict[str, str]:
        """The messages that kill their process, with their projects."""
        return {put.uid: put.project for put in self.puts if put.kills}


def written(seed: int) -> Script:
    """The same for the same seed, on any machine."""
    chance = Random(f"script {seed}")
    poisoned = chance.random() < POISONED
    ttl = 2 if poisoned else chance.choice((2, 2, 2, 3, 4))
    partitions = chance.choice((4, 4, 5, 6, 8))
    nodes = chance.choice((2, 2, 3, 3, 4))
    topics = {project: _rules(chance, poisoned) for project in PROJECTS}
    puts = [_put(chance, number, topics) for number in range(chance.randint(15, 45))]
    if poisoned:
        puts += _poison(chance, topics)
    actions = _actions(chance, ttl, seldom=poisoned)
    revision = 1
    apart = Random(f"hand-overs {seed}")
    if poisoned and apart.random() < MOVED:
        puts, stops = _moved(apart, puts)
        actions += stops
    if not poisoned and apart.random() < LOST:
        more, losses = _lost(apart, topics, nodes, partitions)
        puts, actions = puts[: len(puts) // 3] + more, losses
        if Random(f"single attempts {seed}").random() < SINGLE:
            topics = {project: replace(rules, max_attempts=1) for project, rules in topics.items()}
    elif not poisoned and (deaths := Random(f"deaths {seed}")).random() < DEADLY:
        ttl = 2
        topics, partitions, puts, actions = life(deaths)
    if not any(put.kills for put in puts) and (back := Random(f"etcd back {seed}")).random() < BACK:
        actions = _back(back, actions, ttl, nodes)
        revision = 10_000 if Random(f"revision {seed}").random() < OLD else 1
    puts.sort(key=lambda put: put.at)
    actions.sort()
    return Script(
        seed=seed,
        nodes=nodes,
        partitions=partitions,
        ttl=ttl,
        concurrency=chance.choice((2, 4, 4)),
        read_ahead=chance.choice((2, 256)),
        index_limit=chance.choice((2, 4, 65_536)),
        delays=chance.choice((NEAR, NEAR, FAR, UNSTEADY)),
        revision=revision,
        epoch_ns=_NOON + chance.choice((0, _HOUR - chance.randint(1_000, 1_008) * _SECOND)),
        first_joins=tuple(0.0 if chance.random() < 0.5 else chance.random() * 2 for _ in range(nodes)),
        topics=topics,
        puts=tuple(puts),
        actions=tuple(actions),
        ends=max([put.at for put in puts] + [action.at + action.lasts for action in actions]),
        audit=_audit(seed, actions),
    )


def _audit(seed: int, actions: list[Action]) -> Audit | None:
    """The subscription. An etcd that goes back may lose a reset that is acknowledged, so there is none then."""
    audit = draw_audit(seed)
    if audit is None or any(action.kind in ETCD_BACK for action in actions):
        return audit
    return audit._replace(resets=draw_resets(seed))


def _rules(chance: Random, poisoned: bool) -> Rules:
    """`ack_wait` is seldom short: a node that is paused for longer must not look hung."""
    return Rules(
        ordered=chance.random() < ORDERED,
        max_attempts=chance.choice((1, 2, 2, 3, 3, 4, 5)) if poisoned else 3,
        ack_wait=chance.choice((2.0, 20.0, 20.0, 20.0)),
        dead_letter_expired=chance.random() < 0.5,
    )


def _put(chance: Random, number: int, topics: dict[str, Rules]) -> PutAt:
    at = chance.random() * 4
    project, group, priority = chance.choice(PROJECTS), chance.randrange(GROUPS), chance.choice(PRIORITIES)
    ordered, key = topics[project].ordered, None
    if chance.random() < (0.85 if ordered else 0.1):
        key = chance.choice([*KEYS])
        group, priority = KEYS[key], chance.choice((priority, "mid", "mid"))
    kind = chance.random()
    takes = 5.0 if kind < 0.02 else chance.random() * 1.5 if kind < 0.2 else chance.random() * 0.05
    fails = chance.choice((1, 1, 2, 9)) if takes < 5 and chance.random() < (0.2 if ordered else 0.1) else 0
    after = 6.0 if fails == 1 and chance.random() < 0.1 else chance.random()
    pauses = 1 if chance.random() < 0.04 else 0
    due = at + chance.random() * 3 if chance.random() < 0.1 else None
    return PutAt(
        at, f"m{number}", project, group, priority, key, due,
        expires=(due or at) + chance.random() * 3 if chance.random() < 0.06 else None,
        takes=takes, fails=fails, way=chance.choice(_WAYS), after=after, pauses=pauses,
    )  # fmt: skip


def _poison(chance: Random, topics: dict[str, Rules]) -> list[PutAt]:
    """One to three messages that kill their process, and neighbours."""
    puts, started = [], 0.5 + chance.random() * 2
    for number in range(chance.choice((1, 1, 2, 3))):
        at = started + chance.choice((0.0, 0.0, 1.0)) * chance.random() * 3
        project = chance.choice(PROJECTS)
        key = chance.choice([*KEYS]) if topics[project].ordered and chance.random() < 0.5 else None
        group = chance.randrange(GROUPS) if key is None else KEYS[key]
        takes = chance.choice((0.0, 0.0, 0.02, 0.5)) * chance.random()
        puts.append(PutAt(at, f"p{number}", project, group, "mid", key, takes=takes, kills=True))
    for number in range(chance.randint(3, 10)):  # in flight at the first kill, and at later ones
        at = max(0.0, started + chance.random() - 0.8) + chance.choice((0.0, 8.0)) * chance.random()
        project, group = chance.choice(PROJECTS), chance.randrange(GROUPS)
        puts.append(PutAt(at, f"n{number}", project, group, "mid", takes=chance.random()))
    return puts


def _moved(chance: Random, puts: list[PutAt]) -> tuple[list[PutAt], list[Action]]:
    """Slow killers, whose partitions are handed over again and again while they run."""
    puts = [put._replace(takes=0.2 + chance.random()) if put.kills else put for put in puts]
    stops = [_action(chance, "stop", 1)._replace(at=0.5 + chance.random() * 15) for _ in range(chance.randint(5, 20))]
    return puts, stops


def _lost(chance: Random, topics: dict[str, Rules], nodes: int, partitions: int) -> tuple[list[PutAt], list[Action]]:
    """All nodes die with messages in flight; the streams then lose these, and other messages get their sequences."""
    at = 2 + chance.random()
    puts = [
        _put(chance, 100 + n, topics)._replace(at=at + 0.2 * chance.random(), due=None, takes=2.0) for n in range(9)
    ]
    later = [_put(chance, 200 + n, topics)._replace(at=at + 0.6 + 3 * chance.random(), due=None) for n in range(20)]
    deaths = [_action(chance, "crash", 1)._replace(at=at + 0.3) for _ in range(nodes)]
    losses = [
        _action(chance, "lane rolled back", 1)._replace(at=at + 0.4 + chance.random(), target=n)
        for n in range(partitions)
    ]
    return puts + later, deaths + losses


def _back(chance: Random, actions: list[Action], ttl: int, nodes: int) -> list[Action]:
    """etcd goes back, once or twice, perhaps while no node runs."""
    if chance.random() < ALONE:
        actions = []
    for _ in range(chance.choice((1, 1, 1, 2))):
        kind = _draw(chance, weights(OF_ETCD_BACK))
        away = chance.choice((0.0, 0.0, 0.2, 0.6, 1.5)) * ttl * chance.random()
        what = _action(chance, kind, ttl)._replace(back=away, lasts=away + 1.5 * ttl + 2)
        actions = [*actions, what]
        if chance.random() < NO_NODE:
            end = chance.choice(("crash", "stop"))
            actions += [_action(chance, end, ttl)._replace(at=what.at - 0.01, back=0.2 + away) for _ in range(nodes)]
    return actions


def _actions(chance: Random, ttl: int, *, seldom: bool) -> list[Action]:
    """One to five actions. With `seldom`, half of the scripts have no fault among them."""
    if chance.random() < (0.5 if seldom else 0.2):
        kinds = weights(GRACEFUL)
    else:
        kinds = weights(OF_A_NODE) | weights(OF_ALL) | {kind.name: 2 * kind.weight for kind in GRACEFUL}
    return [_action(chance, _draw(chance, kinds), ttl) for _ in range(chance.randint(1, 5))]


def _draw(chance: Random, kinds: dict[str, int]) -> str:
    return chance.choices([*kinds], [*kinds.values()])[0]


def _action(chance: Random, kind: str, ttl: int) -> Action:
    lasts = 0.0 if KINDS[kind].is_momentary else _lasts(chance, ttl)
    back = chance.choice((0.05, 0.5, 2.0)) * (0.5 + chance.random())
    return Action(0.3 + chance.random() * 5, kind, chance.randrange(64), lasts, back, chance.random() < 0.5)


def _lasts(chance: Random, ttl: int) -> float:
    """Between a tenth and three times the lease's TTL; shorter times more often."""
    return float(
        ttl * chance.choice((0.1, 0.3, 0.3, 0.6, 0.6, 0.9, 1.1, 1.1, 1.5, 3.0)) * (0.8 + 0.4 * chance.random())
    )
