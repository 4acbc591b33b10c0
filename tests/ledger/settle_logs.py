"""What the settle logs say, and what the streams hold, read through the store port while no node runs."""

import asyncio
from dataclasses import dataclass

from engine import clients, names, settlelog
from engine.names import Kind, LaneId
from engine.ports import LaneState
from engine.settings import Settings

_KINDS: tuple[Kind, Kind] = ("lanes", "later")


@dataclass
class Log:
    """Of one stream: its state, and its settle log folded."""

    state: LaneState
    log: settlelog.LogState

    def settled(self) -> set[int]:
        """All sequences that count as ended."""
        spans = [(1, self.log.settled.watermark), *self.log.settled.above()]
        return {sequence for first, last in spans for sequence in range(first, last + 1)}


async def read(settings: Settings, partitions: int) -> dict[str, Log]:
    """By the name of the stream."""
    store = clients.jetstream(settings, "ledger test")
    await store.open()
    gate = asyncio.Semaphore(32)

    async def one(lane: LaneId) -> Log:
        async with gate:
            records, _ = await store.read_log(lane)
            return Log(await store.state(lane), settlelog.fold(records))

    lanes = [LaneId(kind, number) for kind in _KINDS for number in range(partitions)]
    try:
        logs = await asyncio.gather(*(one(lane) for lane in lanes))
    finally:
        await store.close()
    return {names.stream(settings.env, lane): log for lane, log in zip(lanes, logs, strict=True)}
