"""A mixed load from a seed: puts, with orders for their handlers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from evenlane.engine.producer.put import Put

PRIORITIES = ("high", "mid", "low")
KEYS = 40  # of each ordered project
TTL_S = 1.5  # of the projects whose messages expire
DELAYS_S = (0.3, 6.0)
BACKLOG, MOST_WAITING = 100, 1_000  # max_backlog of `small`, max_queue_backlog of the environment
_KINDS = {"plain": 6, "late": 4, "ordered": 3}  # projects of each kind
SHARES = {"plain": 0.55, "late": 0.25, "ordered": 0.2}
# Order -> one message in N has it. The others are handled at the first attempt.
_ORDERS = {"fail 1": 25, "first retry 0.3": 50, "fail 2": 100, "reject": 300, "stubborn": 300, "first hang": 2_000}

# Projects that aren't part of the mixture, with a few messages each:
TOPICS = {
    "brief": {"qps": 20, "ttl": TTL_S},
    "brief-dead": {"qps": 20, "ttl": TTL_S, "dead_letter_expired": True},
    "poison": {},
    "parked": {"state": "paused"},
    "purged": {"state": "paused"},
    "full": {"state": "paused", "groups": 1},
    "small": {"state": "paused", "max_backlog": BACKLOG},
}


def projects(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(_KINDS[kind])]


@dataclass
class Mixture:
    """`orders`: id -> order for its handler. `keys`: id of an ordered message -> project, key and priority."""

    messages: int
    seed: int
    shares: dict[str, float] = field(default_factory=lambda: SHARES)
    orders: dict[str, str] = field(default_factory=dict)
    keys: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def puts(self) -> Iterator[Put]:
        rng = Random(self.seed)
        kinds, shares = list(self.shares), list(self.shares.values())
        for number in range(self.messages):
            kind = rng.choices(kinds, shares)[0]
            project, priority = rng.choice(projects(kind)), rng.choice(PRIORITIES)
            own, order = f"{kind}-m{number}", self._order(rng)
            key = f"k{rng.randrange(KEYS)}" if kind == "ordered" else None
            if key is not None:
                self.keys[own] = (project, key, priority)
            delay = rng.uniform(*DELAYS_S) if kind == "late" else None
            yield self.noted(Put(project, b"%d" % number, priority, key, delay=delay, id=own), order)

    def _order(self, rng: Random) -> str:
        for order, one_in in _ORDERS.items():
            if rng.randrange(one_in) == 0:
                return order
        return ""

    def some(self, project: str, count: int, order: str = "") -> list[Put]:
        return [self.noted(Put(project, b"", id=f"{project}-{n}", priority="mid"), order) for n in range(count)]

    def noted(self, put: Put, order: str) -> Put:
        """The put with the order in its header."""
        put.headers = {"order": order} if order else None
        self.orders[str(put.id)] = order
        return put

    def ordered(self, *orders: str) -> set[str]:
        """The ids of all messages with one of these orders."""
        return {own for own, order in self.orders.items() if order in orders}

    def keys_as_stored(self, acknowledged: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, str, str]]:
        """`keys` of the acknowledged messages, in the order of their sequences. `acknowledged`: id -> where it is."""
        stored = sorted(self.keys.keys() & acknowledged.keys(), key=lambda own: acknowledged[own][1])
        return {own: self.keys[own] for own in stored}
