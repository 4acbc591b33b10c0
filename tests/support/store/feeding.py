"""Feeds for tests: what a feed delivered, and waiting for it."""

import asyncio
from contextlib import asynccontextmanager

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Store
from tests.support.store.harness import LANE, StoreHarness


def subject(env: str, lane: LaneId = LANE, project: str = "acme", *, hour: int = 0) -> str:
    if lane.kind == "later":
        return names.later_subject(env, lane.partition, project, 0, "mid", hour)
    return names.lane_subject(env, lane.partition, project, 0, "mid")


async def fill(world: StoreHarness, count: int, lane: LaneId = LANE, project: str = "acme", **kind: int) -> list[int]:
    """Put `count` messages with the bodies 0, 1, ...; returns their sequences."""
    to = subject(world.env, lane, project, **kind)
    receipts = await asyncio.gather(*(world.store.put(to, b"", b"%d" % n) for n in range(count)))
    return [receipt.sequence for receipt in receipts]


async def logged(store: Store, lane: LaneId) -> tuple[list[bytes], int]:
    """The bodies of a settle log's records, and its position: the sequence of the last record."""
    records, position = await store.read_log(lane)
    assert position == max([record.sequence for record in records], default=0)
    assert all(record.subject.startswith("settled.") for record in records)
    return [record.body for record in records], position


class Taken:
    """A feed's sink and its other callbacks; `resume_at` decides from where the feed resumes after a break."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, int, int, bytes, bytes]] = []
        self.heads: list[tuple[bytes, int, int, int]] = []  # of messages without bodies: subject, sequence, at, size
        self.order: list[int] = []  # the sequences of both
        self.breaks: list[int] = []
        self.ended = asyncio.Event()
        self.resume_at = lambda last: last + 1
        self._arrived = asyncio.Event()

    def sink(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        self.messages.append((subject, sequence, at, headers, body))
        self.order.append(sequence)
        self._arrived.set()

    def on_head(self, subject: bytes, sequence: int, at: int, _headers: bytes, size: int) -> bool:
        self.heads.append((subject, sequence, at, size))
        self.order.append(sequence)
        self._arrived.set()
        return True

    async def on_break(self, last: int) -> int:
        self.breaks.append(last)
        self._arrived.set()
        return self.resume_at(last)

    @property
    def sequences(self) -> list[int]:
        return [message[1] for message in self.messages]

    async def until(self, condition, timeout: float = 60.0) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    async def got(self, count: int, timeout: float = 60.0) -> list[int]:
        """Wait for `count` messages; returns the sequences of all messages so far."""
        await self.until(lambda: len(self.messages) >= count, timeout)
        return self.sequences


@asynccontextmanager
async def feeding(store: Store, lane: LaneId = LANE, start: int = 1, taken: Taken | None = None, **options):
    taken = taken or Taken()
    feed = store.feed(lane, start, taken.sink, taken.on_break, on_end=taken.ended.set, **options)
    taken.feed = feed
    try:
        yield taken
    finally:
        await feed.close()


async def whole(store: Store, lane: LaneId = LANE, start: int = 1, **options) -> list[int]:
    """The sequences that a feed with an end delivers."""
    async with feeding(store, lane, start, **options) as taken:
        await asyncio.wait_for(taken.ended.wait(), 60)
        return taken.sequences
