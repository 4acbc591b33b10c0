"""The contents of settle logs and streams, read through the store port."""

import asyncio
import contextlib
from dataclasses import dataclass

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import Kind, LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.ports import LaneState, Lost, Store
from evenlane.engine.node.settle.settle_log_reader import read_settle_log

_KINDS: tuple[Kind, Kind] = ("lanes", "later")
_READS = 5


@dataclass
class Log:
    """The state of one stream, its folded settle log, and the sequences of its waiting messages."""

    state: LaneState
    log: LogState
    waiting: set[int]

    def settled(self) -> set[int]:
        """All settled sequences."""
        spans = [(1, self.log.settled.watermark), *self.log.settled.above()]
        return {sequence for first, last in spans for sequence in range(first, last + 1)}


async def read(settings: Settings, partitions: int) -> dict[str, Log]:
    """All logs, by the name of the stream."""
    store = connections.store(settings, "ledger test")
    await store.open()
    gate = asyncio.Semaphore(32)

    async def one(lane: LaneId) -> Log:
        async with gate:
            return await _read(store, lane)

    lanes = [LaneId(kind, number) for kind in _KINDS for number in range(partitions)]
    try:
        logs = await asyncio.gather(*(one(lane) for lane in lanes))
    finally:
        await store.close()
    return {names.stream(settings.env, lane): log for lane, log in zip(lanes, logs, strict=True)}


async def _read(store: Store, lane: LaneId) -> Log:
    log = await _state(store, lane)
    state = await store.state(lane)
    # A message deleted behind a pinned watermark is neither stored nor named by the log's next checkpoint.
    maybe = [seq for seq in range(max(1, state.first), state.last + 1) if seq not in log.settled]
    found = await store.get(lane, maybe)
    return Log(state, log, {stored.sequence for stored in found if stored is not None})


async def _state(store: Store, lane: LaneId) -> LogState:
    """Read the log again if a running node writes a checkpoint meanwhile, as a takeover does."""
    for _ in range(_READS - 1):
        with contextlib.suppress(Lost):
            return (await read_settle_log(store, lane)).state
    return (await read_settle_log(store, lane)).state
