"""Fills the stream `METER_<env>` of a real NATS server with meter records as nodes write them.

    python -m benchmarks.meter_load [--nats URL] [--env ENV] [--records N] [--queues Q]

Four nodes in turn write a record every 10 s of event time. Each record has Q queues, whose counters grow and whose
backlogs swing at random, the same in each run. So reports can be tried without any node.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from evenlane.engine.base import names
from evenlane.engine.core.records.meter_record import LaneRow, QueueRow, RecordHead, TopicRow, encode
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.stream_configs import meter_config
from evenlane.engine.store.jetstream.streams import ensure

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = 4
BEGAN = 1_767_225_600  # unix s
_SECOND = 1_000_000_000
_INTERVAL = 10 * _SECOND
_PRIORITIES = ("high", "mid", "low")
_PARTITIONS = 32  # of a node
_AT_ONCE = 500  # publishes that aren't acknowledged yet
_KEPT_S = 604_800


class Loaded(NamedTuple):
    """The result that a reader must find: the number of rows, and the sum of their column `handled`. `bytes`: of all
    records.
    """

    rows: int
    handled: int
    bytes: int


class Node:
    """A node with queues and their counters."""

    def __init__(self, number: int, queues: int, began: int = BEGAN, *, own_tenants: bool = False) -> None:
        self.name = f"node-{number}"
        self._chance = random.Random(number)
        self._began = began * _SECOND
        self._lanes = [LaneRow(number * _PARTITIONS + n, 1, self._began, False) for n in range(_PARTITIONS)]
        del self._lanes[queues:]
        tenants = -(-queues // len(_PRIORITIES))
        first = number * tenants if own_tenants else 0
        self._topics = [TopicRow(f"tenant-{first + n:04d}", 50.0, 12.5, 1.0, None, None, 1.0) for n in range(tenants)]
        self.handled = [0] * queues
        self._ran = [0] * queues
        self._number = 0

    def record(self, at: int) -> bytes:
        """The next record, made at `at` (unix ns)."""
        self._number += 1
        steps = self._chance.randbytes(len(self.handled))
        head = RecordHead(
            self.name, self._began, self._number, self._number - 1, at, _INTERVAL, 64, _PRIORITIES
        )  # fmt: skip
        return encode(head, self._lanes, self._topics, [self._queue(place, step) for place, step in enumerate(steps)])

    def _queue(self, place: int, step: int) -> QueueRow:
        """The row of a queue. `step` is a random byte, which decides the work done and the backlog."""
        handled = self.handled[place] = self.handled[place] + (step & 15)
        ran = self._ran[place] = self._ran[place] + step * 7
        waits = step & 31
        counters = (handled + waits, handled, step >> 7, 0, 0, 0, handled, ran * 3, ran)
        bucket = 20 + step % 40
        return QueueRow(
            place % len(self._lanes), place // len(_PRIORITIES), 0, place % len(_PRIORITIES), counters,
            waits, waits * 37, step & 1, step * 20, {"quota": ran // 100, "handlers_busy": handled},
            ((bucket, handled), (bucket + 2, handled // 2 + 1)),
        )  # fmt: skip


class Publisher:
    """Puts records into the stream, many at the same time. Raises if one isn't acknowledged."""

    def __init__(self, connection: Connection, env: str) -> None:
        self._connection, self._env = connection, env
        self._waiting: list[asyncio.Future[object]] = []
        self.bytes = 0

    async def put(self, node: str, body: bytes) -> None:
        subject = names.meter_subject(self._env, node)
        self._waiting.append(self._connection.ask(subject, body))  # type: ignore[arg-type]
        self.bytes += len(body)
        if len(self._waiting) >= _AT_ONCE:
            await self.flush()

    async def flush(self) -> None:
        for reply in await asyncio.gather(*self._waiting):
            assert b'"seq"' in reply.body, reply  # type: ignore[attr-defined]
        self._waiting.clear()


def record_stream(
    records: int, nodes: list[Node], began: int = BEGAN, *, ends_now: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Nodes and their records, in the order of time, from `began` (unix s) on. `ends_now`: each node's last record is
    made when it is put. Otherwise a node's clock counts as slow if filling the stream takes long.
    """
    for number in range(records):
        node = nodes[number % len(nodes)]
        at = began * _SECOND + number // len(nodes) * _INTERVAL
        yield node.name, node.record(time.time_ns() if ends_now and number >= records - len(nodes) else at)


async def load(
    url: str,
    records: int,
    queues: int,
    env: str = "online",
    *,
    nodes: int = NODES,
    began: int = BEGAN,
    own_tenants: bool = False,
    ends_now: bool = False,
) -> Loaded:
    """Create the stream if needed, and fill it. All nodes have queues of the same tenants, or each has its own. Raises
    Unreachable, EvenlaneError.
    """
    connection = Connection(NatsOptions((url,)), "meter load")
    await connection.open()
    try:
        await ensure(connection, [meter_config(env, "file", 1, _KEPT_S)])
        writers = [Node(number, queues, began, own_tenants=own_tenants) for number in range(nodes)]
        publisher, handled = Publisher(connection, env), 0
        for number, (name, body) in enumerate(record_stream(records, writers, began, ends_now=ends_now)):
            handled += sum(writers[number % nodes].handled)
            await publisher.put(name, body)
        await publisher.flush()
    finally:
        await connection.close()
    return Loaded(records * queues, handled, publisher.bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--env", default="online")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=100)
    options = parser.parse_args()
    loaded = uvloop.run(load(options.nats, options.records, options.queues, options.env))
    print(f"{loaded.rows:,} rows in {options.records:,} records of {loaded.bytes // options.records:,} bytes")


if __name__ == "__main__":
    main()
