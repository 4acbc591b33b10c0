"""A small load with a hot tenant, and a tenant for each other case that a dashboard distinguishes.

The expected figures follow from the constants below: rates are those of the beat or of a quota, and handlers follow the
header `order` (tests/ledger/handlers.py).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Self

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.ledger.world import ProcessWorld
from tests.prometheus.trouble import Trouble, each

PARTITIONS = 8
SLOTS = 16  # of each node
LABELS = 40  # of each node
READ_AHEAD = 128  # messages of a queue in memory
BEAT_S = 0.5
PACE = 0.95  # share of beats that must have been put in time for the rates to hold

HOT_QPS = 50.0
HOT_PUT = 9_000  # this and the other backlogs last for more than two minutes, if the machine is busy
VICTIMS = {"victim-0": "high", "victim-1": "high", "victim-2": "mid", "victim-3": "mid", "victim-4": "low"}
VICTIM_QPS = 10.0
BULK_S = 0.2  # how long the two competing projects hold a slot
BULK_PUT, GOLD_PUT = 3_000, 8_000
PAUSED = 20
DELAYED = 7
AGED, AGED_QPS, AGED_S = 50, 0.01, 7_200.0
RANKED_QPS, RANKED_HIGH, RANKED_LOW = 5.0, 1_000, 20
CROWD, CROWD_QPS = 200, 1.0  # too little to move a partition
CROWDED = tuple(f"crowd-{number:03}" for number in range(CROWD))

BULK = "bulk"
# In the same partition as `bulk`, so that they compete on one node; with three times the weight.
GOLD = next(
    name
    for name in (f"gold-{number}" for number in range(1_000))
    if partition_of(name, 0, 1, PARTITIONS, "hashed") == partition_of(BULK, 0, 1, PARTITIONS, "hashed")
)

SLOW = (BULK, GOLD, "ordered", "capped")
"""Projects whose handlers hold a slot for `BULK_S`."""

# Puts per second, in addition to the backlogs.
ONE_A_BEAT = 1 / BEAT_S
EXPIRING_A_SECOND, EXPIRING_QPS = 10.0, 1.0
HOLES, HOLES_QPS = 160, 16.0  # the constant backlog: above READ_AHEAD, so vanishing messages are unread
ACK_WAIT_S = 0.3
PURGED_A_SECOND = 4.0

TENANTS = (
    "hot", *VICTIMS, BULK, GOLD, "paused", "delayed", "aged", "ranked", "ordered", "capped", "rejected", "failing",
    "expiring", "holes", "hanging", "purged",
)  # fmt: skip
"""All projects except the crowd."""

_FREE: dict[str, object] = {"qps": 1_000}
_TOPICS: dict[str, dict[str, object]] = {
    "hot": {"qps": HOT_QPS, "groups": 4, "spread": 4, "weight": 1_000},
    **{victim: {"qps": 100} for victim in VICTIMS},
    BULK: {**_FREE, "weight": 1_000},
    GOLD: {**_FREE, "weight": 3_000},
    "paused": {"state": "paused", "qps": 10},
    "delayed": _FREE,
    "aged": {"qps": AGED_QPS, "burst": 1},
    "ranked": {"qps": RANKED_QPS},
    "ordered": {**_FREE, "ordered": True},
    "capped": {**_FREE, "concurrency": 1},
    "rejected": _FREE,
    "failing": {**_FREE, "max_attempts": 2},
    "expiring": {"qps": EXPIRING_QPS, "burst": 1, "ttl": 1},
    "holes": {"qps": HOLES_QPS, "weight": 1_000},
    "hanging": {**_FREE, "ack_wait": ACK_WAIT_S},
    "purged": {"state": "paused", "qps": 10},
}


class Load:
    """`async with Load(world) as load:` puts a beat twice a second until the block ends. `put` counts by project and
    priority; `began_at` is when the backlogs were complete, ns since boot. Putting them took `putting_s` seconds.
    """

    def __init__(self, world: ProcessWorld) -> None:
        self._world = world
        self._end = asyncio.Event()
        self._open = AsyncExitStack()
        self.put: Counter[tuple[str, str]] = Counter()
        self.began_at, self.putting_s = 0, 0.0
        self._beats: deque[int] = deque(maxlen=1_000)  # times at which beats had been put, ns since boot
        self._noted = self._holes_begun = 0  # ledger entries read so far; messages of `holes` begun

    def keeps_pace(self, seconds: float) -> bool:
        """Whether it put all beats in time for the last `seconds`: on a busy machine it may fall behind."""
        since = now_ns() - int(seconds * 1e9)
        return sum(at >= since for at in self._beats) >= PACE * seconds / BEAT_S

    async def __aenter__(self) -> Self:
        for project, fields in _TOPICS.items():
            await self._world.topics(project, **fields)
        self._producer = await self._world.producer()
        self._trouble = await self._open.enter_async_context(Trouble(self._world, PARTITIONS))
        before = now_ns()
        await self._send(list(_backlogs()))
        await self._trouble.aged("aged", AGED, AGED_S)
        self.put += self._trouble.put
        self.began_at = now_ns()
        self.putting_s = (self.began_at - before) / 1e9
        await self._trouble.bad_spec()
        tasks = await self._open.enter_async_context(asyncio.TaskGroup())
        self._open.callback(self._end.set)
        tasks.create_task(each(BEAT_S, self._end, self._beat))
        tasks.create_task(each(2 * BEAT_S, self._end, self._mishaps))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def crowd(self) -> None:
        """Put one message for each of many more projects than there are labels."""
        await self._world.topics(*CROWDED, qps=CROWD_QPS)
        await self._send([Put(project, b"x") for project in CROWDED])

    async def _beat(self) -> None:
        vanishing = self._trouble.vanishing("holes")
        await self._send([*_beat(), *_puts("holes", self._holes_due()), vanishing])
        self._beats.append(now_ns())
        await self._trouble.vanish(vanishing)
        await self._trouble.put_unroutable()

    def _holes_due(self) -> int:
        """The number of messages that restores the backlog of `holes`, also after the load fell behind its node."""
        entries = self._world.entries()
        self._holes_begun += sum(each.project == "holes" and each.what == "begin" for each in entries[self._noted :])
        self._noted = len(entries)
        waiting = self.put["holes", "mid"] - self._trouble.vanished - self._holes_begun
        return max(0, HOLES - waiting)

    async def _mishaps(self) -> None:
        """Cause the troubles of each second."""
        await self._trouble.drop("purged")
        await self._trouble.bad_spec()

    async def _send(self, puts: list[Put]) -> None:
        before = len(self._world.refused)
        await self._world.put(self._producer, puts)
        assert before == len(self._world.refused), f"not put: {self._world.refused[-1]!r}"
        self.put.update((put.project, put.priority or "mid") for put in puts)


def _backlogs() -> Iterator[Put]:
    """Puts at the beginning."""
    yield from _puts("hot", HOT_PUT)
    yield from _puts(BULK, BULK_PUT, order=f"sleep {BULK_S}")
    yield from _puts(GOLD, GOLD_PUT, order=f"sleep {BULK_S}")
    yield from _puts("paused", PAUSED)
    yield from _puts("delayed", DELAYED, delay=3_600.0)
    yield from _puts("ranked", RANKED_HIGH, priority="high")
    yield from _puts("ranked", RANKED_LOW, priority="low")
    yield from _puts("holes", HOLES)
    yield from _puts("ordered", 2_000, key="one", order=f"sleep {BULK_S}")
    yield from _puts("capped", 2_000, order=f"sleep {BULK_S}")


def _beat() -> Iterator[Put]:
    """Puts of each half second."""
    for victim, priority in VICTIMS.items():
        yield from _puts(victim, int(VICTIM_QPS * BEAT_S), priority=priority)
    yield from _puts("rejected", 1, order="reject")
    yield from _puts("failing", 1, order="fail 99")
    yield from _puts("failing", 1, order="fail 1")
    yield from _puts("expiring", int(EXPIRING_A_SECOND * BEAT_S))
    yield from _puts("delayed", 1, delay=1.0)
    yield from _puts("hanging", 1, order="first sleep 600")
    yield from _puts("hanging", 1)  # so fewer than half of its attempts fail
    yield from _puts("purged", int(PURGED_A_SECOND * BEAT_S))


def _puts(project: str, count: int, *, order: str = "", **fields: object) -> Iterator[Put]:
    headers = {"order": order} if order else None
    return (Put(project, b"x", headers=headers, **fields) for _ in range(count))
