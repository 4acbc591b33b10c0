"""Known loads on several projects at once, and what the ledger counts of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from tests.ledger.world import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlane.engine.producer.producer import Producer
    from tests.ledger.entries import Entry
    from tests.support.figures import Figures

_SECOND = 1_000_000_000
_TICK_S = 0.05
_ATTEMPTS = int(str(TOPIC["max_attempts"]))
BACKOFF_NS = _SECOND // 5
"""TOPIC's backoff."""


@dataclass(frozen=True)
class FlowLoad:
    """A load on one project: `rate` messages per second, or `at_once` messages at its start, which is `starts_s` after
    that of the others. `topic` has fields of its topic. `orders` are given to its messages in turn: see
    `handlers.obey`. Messages that no handler ever begins count as `unbegun`: a figure of the ledger. `keys` is the
    number of keys.
    """

    project: str
    rate: float = 0.0
    at_once: int = 0
    starts_s: float = 0.0
    topic: Mapping[str, object] = field(default_factory=dict)
    orders: tuple[str, ...] = ("",)
    delay_s: float | None = None
    unbegun: str = "backlog"
    keys: int = 0

    def puts_until(self, seconds: float, before: int) -> list[Put]:
        """The puts that are due `seconds` after the start, without the first `before` ones. Each has its own due time,
        so a busy machine delays puts and loses none.
        """
        if seconds < self.starts_s:
            return []
        count = self.at_once + int(self.rate * (seconds - self.starts_s))
        return [self._put(number) for number in range(before, count)]

    def _put(self, number: int) -> Put:
        order = self.orders[number % len(self.orders)]
        key = f"key-{number % self.keys}" if self.keys else None
        headers = {"order": order} if order else None
        return Put(self.project, b"", key=key, delay=self.delay_s, id=f"{self.project}-{number}", headers=headers)


class AcknowledgedPut(NamedTuple):
    """A put. `arrives` is when it is due, in ns since boot."""

    id: str
    arrives: int


class LedgerWorld(Protocol):
    """The part of a world that a ledger uses: see `ProcessWorld`."""

    refused: list[Exception]

    async def put(self, producer: Producer, puts: list[Put]) -> None: ...

    def of(self, project: str) -> list[Entry]: ...

    def begins(self, project: str) -> list[Entry]: ...


class FlowLedger:
    """The ledger of loads: what the test has put, and what handlers have noted. `clock` is that of the handlers (ns).

    Invariant: `_drops` has the time of the last drop by project: all that waited then was dropped.
    """

    def __init__(self, world: LedgerWorld, loads: Iterable[FlowLoad], clock: Callable[[], int] = now_ns) -> None:
        self._world, self._clock = world, clock
        self.loads = {load.project: load for load in loads}
        self.puts: defaultdict[str, list[AcknowledgedPut]] = defaultdict(list)
        self._drops: dict[str, int] = {}

    async def put(self, producer: Producer, puts: list[Put]) -> None:
        """Put all, and note them. Fails if one is refused."""
        at = self._clock()
        await self._world.put(producer, puts)
        assert [] == self._world.refused
        for put in puts:
            arrives = at + round((put.delay or 0.0) * _SECOND)
            self.puts[put.project].append(AcknowledgedPut(str(put.id), arrives))

    def note_drop(self, project: str) -> None:
        """Note that all that waits is dropped now: see `evenlane backlog purge`."""
        self._drops[project] = self._clock()

    # ---- counts, and the times of what is counted

    def counts(self, project: str) -> Figures:
        """Return all counts by now."""
        now = self._clock()
        due = [put for put in self.puts[project] if put.arrives <= now]
        ends, unbegun = self._ends(project), self._unbegun(project)
        dropped, waiting = len(self._dropped(project)), sum(put.arrives <= now for put in unbegun)
        found = {"expired": 0, "backlog": 0, **{name: len(ends[name]) for name in _ENDS}}
        found[self.loads[project].unbegun] += waiting - dropped
        cancelled = sum(entry.what == "cancelled" for entry in self._world.of(project))
        running = len(self._world.begins(project)) - sum(len(ends[name]) for name in _ENDS) - cancelled
        return {
            **found,
            "dropped": dropped,
            "in_flight": running,
            "arrived": len(due) + len(ends["retried"]),
            "attempts": sum(len(ends[name]) for name in _ENDS),
            "delayed": len(self.puts[project]) - len(due),
            "first_puts": len(due),
        }

    def events(self, project: str) -> dict[str, list[int]]:
        """Return the sorted times of what rates count."""
        load, ends = self.loads[project], self._ends(project)
        failed, dropped = [*ends["retried"], *ends["dead"]], self._dropped(project)
        ttl_s = load.topic.get("ttl")
        expired = (
            [put.arrives + round(ttl_s * _SECOND) for put in self._unbegun(project)]
            if isinstance(ttl_s, (int, float))
            else []
        )
        puts = [put.arrives for put in self.puts[project]]
        return {
            "arriving": sorted([*puts, *(at + BACKOFF_NS for at in ends["retried"])]),
            "first_puts": sorted(puts),
            "handled": sorted(ends["handled"]),
            "failed": sorted(failed),
            "dead": sorted(ends["dead"]),
            "expired": sorted(expired),
            "dropped": dropped,
            "leaving": sorted([*ends["handled"], *failed, *expired, *dropped]),
        }

    def _unbegun(self, project: str) -> list[AcknowledgedPut]:
        """Return the puts that no handler has begun."""
        begun = self._begun(project)
        return [put for put in self.puts[project] if put.id not in begun]

    def _dropped(self, project: str) -> list[int]:
        """Return when each dropped message was dropped."""
        dropped_at = self._drops.get(project, 0)
        return [dropped_at for put in self._unbegun(project) if put.arrives <= dropped_at]

    def is_at_rest(self, project: str) -> bool:
        """Whether all attempts have ended that will be made."""
        counts, ends = self.counts(project), self._ends(project)
        final = len(ends["handled"]) + len(ends["dead"])
        return not counts["in_flight"] and final == len(self._begun(project))

    def ended_in(self, project: str, pid: int) -> Figures:
        """Return the counts of attempts in one process."""
        ends = {name: len(times) for name, times in self._ends(project, pid).items()}
        return {**ends, "attempts": sum(ends.values())}

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
    """`async with RunningLoads(ledger, producer) as running:` puts all loads while the block runs, every `tick_s`.
    `load_seconds` turns the time since the start into that of the loads (s).
    """

    def __init__(
        self,
        ledger: FlowLedger,
        producer: Producer,
        *,
        tick_s: float = _TICK_S,
        load_seconds: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        self._ledger, self._producer = ledger, producer
        self._tick_s, self._load_seconds = tick_s, load_seconds
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
                await self._put_due(self._load_seconds(clock() - start))
            ticks += 1
            await asyncio.sleep(max(0.0, start + ticks * self._tick_s - clock()))

    async def _put_due(self, seconds: float) -> None:
        puts: list[Put] = []
        for project in self._running:
            fresh = self._ledger.loads[project].puts_until(seconds, self._sent[project])
            self._sent[project] += len(fresh)
            puts += fresh
        if puts:
            await self._ledger.put(self._producer, puts)
