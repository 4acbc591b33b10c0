"""Known loads on several projects at once, and what the ledger counts of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from tests.ledger.world import TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.producer.producer import Producer
    from tests.ledger.entries import Entry
    from tests.ledger.world import ProcessWorld
    from tests.support.figures import Figures

_SECOND = 1_000_000_000
_TICK_S = 0.05
_ATTEMPTS = int(str(TOPIC["max_attempts"]))
BACKOFF_NS = _SECOND // 5
"""TOPIC's backoff."""


@dataclass(frozen=True)
class FlowLoad:
    """A load on one project: `rate` messages per second, or `at_once` messages at the start. `topic` has fields of
    its topic. `orders` are given to its messages in turn: see `handlers.obey`. Messages that no
    handler ever begins count as `unbegun`: a figure of the ledger. `keys` is the number of keys.
    """

    project: str
    rate: float = 0.0
    at_once: int = 0
    topic: Mapping[str, object] = field(default_factory=dict)
    orders: tuple[str, ...] = ("",)
    delay_s: float | None = None
    unbegun: str = "backlog"
    keys: int = 0

    def puts_until(self, seconds: float, before: int) -> list[Put]:
        """The puts that are due `seconds` after the start, without the first `before` ones. Each has its own due time,
        so a busy machine delays puts and loses none.
        """
        return [self._put(number) for number in range(before, self.at_once + int(self.rate * seconds))]

    def _put(self, number: int) -> Put:
        order = self.orders[number % len(self.orders)]
        key = f"key-{number % self.keys}" if self.keys else None
        headers = {"order": order} if order else None
        return Put(self.project, b"", key=key, delay=self.delay_s, id=f"{self.project}-{number}", headers=headers)


class AcknowledgedPut(NamedTuple):
    """A put. `arrives` is when it is due, in ns since boot."""

    id: str
    arrives: int


class FlowLedger:
    """The ledger of loads: what the test has put, and what handlers have noted. `unbegun` may be changed for a project
    when what waits there is dropped.
    """

    def __init__(self, world: ProcessWorld, loads: Iterable[FlowLoad]) -> None:
        self._world = world
        self.loads = {load.project: load for load in loads}
        self.unbegun = {load.project: load.unbegun for load in self.loads.values()}
        self.puts: defaultdict[str, list[AcknowledgedPut]] = defaultdict(list)

    async def put(self, producer: Producer, puts: list[Put]) -> None:
        """Put all, and note them. Fails if one is refused."""
        at = now_ns()
        await self._world.put(producer, puts)
        assert [] == self._world.refused
        for put in puts:
            arrives = at + round((put.delay or 0.0) * _SECOND)
            self.puts[put.project].append(AcknowledgedPut(str(put.id), arrives))

    # ---- counts, and the times of what is counted

    def counts(self, project: str) -> Figures:
        """Return all counts by now."""
        now = now_ns()
        due = [put for put in self.puts[project] if put.arrives <= now]
        ends, begun = self._ends(project), self._begun(project)
        found = {"expired": 0, "dropped": 0, "backlog": 0, **{name: len(ends[name]) for name in _ENDS}}
        found[self.unbegun[project]] += sum(put.id not in begun for put in due)
        cancelled = sum(entry.what == "cancelled" for entry in self._world.of(project))
        running = len(self._world.begins(project)) - sum(len(ends[name]) for name in _ENDS) - cancelled
        return {
            **found,
            "in_flight": running,
            "arrived": len(due) + len(ends["retried"]),
            "attempts": sum(len(ends[name]) for name in _ENDS),
            "delayed": len(self.puts[project]) - len(due),
            "first_puts": len(due),
        }

    def events(self, project: str, ttl_ns: int | None = None) -> dict[str, list[int]]:
        """Return the sorted times of what rates count. `ttl_ns` is the `ttl` of messages that expire."""
        puts, ends, begun = self.puts[project], self._ends(project), self._begun(project)
        failed = [*ends["retried"], *ends["dead"]]
        expired = [put.arrives + ttl_ns for put in puts if put.id not in begun] if ttl_ns is not None else []
        return {
            "arriving": sorted([*(put.arrives for put in puts), *(at + BACKOFF_NS for at in ends["retried"])]),
            "handled": sorted(ends["handled"]),
            "failed": sorted(failed),
            "dead": sorted(ends["dead"]),
            "expired": sorted(expired),
            "leaving": sorted([*ends["handled"], *failed, *expired]),
        }

    def is_at_rest(self, project: str) -> bool:
        """Whether all attempts have ended that will be made."""
        counts, ends = self.counts(project), self._ends(project)
        final = len(ends["handled"]) + len(ends["dead"])
        return not counts["in_flight"] and final == len(self._begun(project))

    def ended_in(self, project: str, pid: int) -> Figures:
        """Return the counts of attempts in one process."""
        return {name: len(times) for name, times in self._ends(project, pid).items()}

    def _ends(self, project: str, pid: int | None = None) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {name: [] for name in _ENDS}
        for entry in self._world.of(project):
            if entry.what in {"ok", "fail"} and pid in {None, entry.pid}:
                found[_end_of(entry)].append(entry.at)
        return found

    def _begun(self, project: str) -> set[str]:
        return {entry.id for entry in self._world.begins(project)}


_ENDS = ("handled", "retried", "dead")


def _end_of(entry: Entry) -> str:
    if entry.what == "ok":
        return "handled"
    return "dead" if entry.attempt >= _ATTEMPTS else "retried"


class RunningLoads:
    """`async with RunningLoads(ledger, producer) as running:` puts all loads while the block runs."""

    def __init__(self, ledger: FlowLedger, producer: Producer) -> None:
        self._ledger, self._producer = ledger, producer
        self._sent = dict.fromkeys(ledger.loads, 0)
        self._running = set(ledger.loads)
        self._putting = asyncio.Lock()
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def end(self, *projects: str) -> None:
        """Put no more to these: all that was put is acknowledged then."""
        async with self._putting:
            self._running -= set(projects)

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._task

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        start, ticks = clock(), 0
        while not self._stop.is_set():
            async with self._putting:
                await self._put_due(clock() - start)
            ticks += 1
            await asyncio.sleep(max(0.0, start + ticks * _TICK_S - clock()))

    async def _put_due(self, seconds: float) -> None:
        puts: list[Put] = []
        for project in self._running:
            fresh = self._ledger.loads[project].puts_until(seconds, self._sent[project])
            self._sent[project] += len(fresh)
            puts += fresh
        if puts:
            await self._ledger.put(self._producer, puts)
