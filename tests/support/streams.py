"""Reads and deletes streams on real servers."""

import asyncio

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Stored
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore


async def all_stored(url: str, env: str, partitions: int) -> list[Stored]:
    """All messages of all lanes, as feeds deliver them."""
    store = JetStreamStore(NatsOptions((url,)), env)
    await store.open()
    try:
        lanes = [LaneId(kind, number) for kind in ("lanes", "later") for number in range(partitions)]
        parts = await asyncio.gather(*(_of_lane(store, lane) for lane in lanes))
        return [message for part in parts for message in part]
    finally:
        await store.close()


async def delete_stream(url: str, stream: str) -> None:
    connection = Connection(NatsOptions((url,)), "test")
    await connection.open()
    await connection.api(f"STREAM.DELETE.{stream}")
    await connection.close()


async def delete_streams(url: str, env: str) -> None:
    """Delete all streams of an environment."""
    connection = Connection(NatsOptions((url,)), "test")
    await connection.open()
    for stream in (await connection.api("STREAM.NAMES"))["streams"] or ():
        if env in stream.split("_"):
            await connection.api(f"STREAM.DELETE.{stream}")
    await connection.close()


async def _of_lane(store: JetStreamStore, lane: LaneId) -> list[Stored]:
    state = await store.state(lane)
    if not state.last:
        return []
    found, ended = [], asyncio.Event()

    def sink(subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        found.append(Stored(sequence, at, subject.decode(), headers, body))

    async def again(last: int) -> int:
        return last + 1

    feed = store.feed(lane, 1, sink, again, until=state.last, on_end=ended.set)
    await asyncio.wait_for(ended.wait(), 60)
    await feed.close()
    return found
