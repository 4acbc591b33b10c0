"""The ledger: the fate of each acknowledged message, each column counted where it can be observed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.aio.cancellation import cancellable
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from evenlane.engine.proof.broker.environment import lanes, plain_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import Store

_READ_AT_ONCE = 8  # streams


@dataclass
class Ledger:
    """Numbers of messages. `put` were acknowledged; `handled` have reached the end of their handler at least once;
    `duplicates` counts further times; `dead` are among the dead letters; `waiting` are in the streams and not settled.
    """

    put: int = 0
    handled: int = 0
    duplicates: int = 0
    dead: int = 0
    waiting: int = 0
    lost: int = 0

    @classmethod
    def of(cls, put: set[int], handled: set[int], dead: set[int], left: set[int], duplicates: int = 0) -> Ledger:
        """Count the numbers in each column. A message in none is lost; a duplicate doesn't make up for it."""
        lost = put - handled - dead - left
        return cls(len(put), len(handled), duplicates, len(dead), len(left), len(lost))

    def add(self, other: Ledger) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def document(self) -> dict[str, int]:
        return asdict(self)


async def find_waiting(store: Store, partitions: int) -> set[int]:
    """Return the numbers (the bodies) of the messages in the streams that the settle log doesn't settle.

    It reads no counter: as no node runs, the next node would find exactly these messages.
    """
    gate = asyncio.Semaphore(_READ_AT_ONCE)

    async def one(lane: LaneId) -> set[int]:
        async with gate:
            return await _find_in_lane(store, lane)

    return set().union(*await asyncio.gather(*map(one, lanes(partitions))))


async def _find_in_lane(store: Store, lane: LaneId) -> set[int]:
    settled = (await read_settle_log(store, lane)).state.settled
    state = await store.state(lane)
    maybe = [sequence for sequence in range(max(1, state.first), state.last + 1) if sequence not in settled]
    found = await store.get(lane, maybe)  # messages deleted above a pinned watermark are gone
    return {int(stored.body) for stored in found if stored is not None}


class DeadLetters:
    """Listens to the dead letters as they are put, with a client that shares no code with the product."""

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self._client, self._subscription = client, subscription

    async def numbers(self) -> set[int]:
        """The numbers of the dead letters that have come since the last call."""
        await cancellable(self._client.flush())  # everything that the server sent before has arrived afterwards
        count = self._subscription.pending_msgs
        return {int((await cancellable(self._subscription.next_msg())).data) for _ in range(count)}


@asynccontextmanager
async def dead_letters(url: str, env: str) -> AsyncIterator[DeadLetters]:
    async with plain_client(url) as client:
        listener = DeadLetters(client, await client.subscribe(names.dead_subject(env, "*")))
        await cancellable(client.flush())
        yield listener
