"""Benchmark of a takeover: how soon the node serves the partitions, and its requests to JetStream.

    python -m benchmarks.takeover [--partitions P] [--lanes 0,5200,100000] [--rounds R] [--requests] [--json]

One node and one nats-server. The previous owner of the P partitions is gone. Each lane has the number of messages in
`--lanes`, for each size in turn. The first half of a lane belongs to one tenant, the rest to 199 other queues. Quotas
are so low that hardly any message is handled meanwhile. Times in s from the start of the takeover:

first   until a handler gets the first message of each partition: the median over the partitions, and the last
small   the same for the head of the most urgent queue of each group of the small tenants
fed     until the last backlog has arrived

With `--requests`, another client listens to the requests; it takes time itself, so times come from the other rounds.
Requests are counted from the node's start to its end, for each partition: the two records of its clean end are among
the four appends to the settle log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import structlog
import uvloop

from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import Topic, complete, parse_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from evenlane.engine.core.message.message import Message

BODY = b"x" * 100
QUEUES = 200  # of a lane: that of the large tenant, and those of the small ones
WINDOW = 4_000
TIMEOUT_S = 60
ENV = "takeover"


class Topics:
    """One large tenant, and 67 small ones. Each small one has three queues in every lane, except for the last one,
    which has one. Each tenant gets one message per second in each group.
    """

    def __init__(self, cluster_config: ClusterConfig) -> None:
        self.cluster_config = cluster_config
        spec = b'{"qps": %d, "groups": %d, "spread": %d}' % ((cluster_config.partitions,) * 3)
        self.topic: Topic = complete(parse_spec(spec), cluster_config)

    def of(self, _project: str) -> Topic:
        return self.topic

    def subjects(self, partition: int, count: int) -> Iterator[str]:
        """The subjects of the messages of a lane, in order."""
        hot = lane_subject(ENV, partition, "large", partition, "mid")
        small = [
            lane_subject(
                ENV, partition, f"small-{number // 3}", partition, self.cluster_config.priorities[2 - number % 3]
            )
            for number in range(QUEUES - 1)
        ]
        for number in range(count):
            yield hot if number < count // 2 else small[number % len(small)]


class Figures:
    """The times, in s since the start, at which handlers got messages."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.first: dict[int, float] = {}
        self.small: dict[tuple[str, int], float] = {}

    async def handle(self, message: Message) -> None:
        now = time.perf_counter() - self.start
        self.first.setdefault(message.partition, now)
        if message.project != "large":
            self.small.setdefault((message.project, message.group), now)


class Bench:
    def __init__(self, url: str, options: argparse.Namespace) -> None:
        self.url, self.options = url, options
        self.cluster_config = ClusterConfig(partitions=options.partitions)
        self.topics = Topics(self.cluster_config)
        self.lanes = [LaneId(kind, p) for kind in ("lanes", "later") for p in range(options.partitions)]
        self.figures: dict[str, list[float]] = {}
        self.requests: dict[int, dict[str, float]] = {}

    async def run(self) -> None:
        for count in self.options.lanes:
            await self._fill(count)
            for number in range(self.options.rounds):
                await self._round(count, number + 2)
                print(f"{count:,} a lane, round {number + 1}: {self._last(count)}", file=sys.stderr)
            if self.options.requests:
                self.requests[count] = await self._listen(count, self.options.rounds + 2)
            await self._remove()

    def _last(self, count: int) -> dict[str, str]:
        return {name: f"{values[-1]:.2f}" for name, values in self.figures.items() if name.startswith(f"{count:,} ")}

    async def _fill(self, count: int) -> None:
        """Make the streams that a previous owner left, with the messages that arrived since."""
        store = await self._store()
        await self._node(store, Figures(), 1, then=0)
        waiting: list[asyncio.Future] = []
        for partition in range(self.options.partitions):
            for number, subject in enumerate(self.topics.subjects(partition, count)):
                waiting.append(store.put(subject, h.encode({h.ID: f"b:{partition}:{number}"}), BODY))
                if len(waiting) >= WINDOW:
                    await asyncio.gather(*waiting)
                    waiting.clear()
        await asyncio.gather(*waiting)
        await store.close()

    async def _round(self, count: int, epoch: int) -> None:
        store, figures = await self._store(), Figures()
        fed = await self._node(store, figures, epoch, then=count)
        await store.close()
        if count:
            self._note(count, "first, p50", statistics.median(figures.first.values()))
            self._note(count, "first, last", max(figures.first.values()))
            self._note(count, "small, p50", statistics.median(figures.small.values()))
            self._note(count, "small, last", max(figures.small.values()))
        self._note(count, "fed", fed)

    def _note(self, count: int, name: str, value: float) -> None:
        self.figures.setdefault(f"{count:,} {name}", []).append(value)

    async def _node(self, store: JetStreamStore, figures: Figures, epoch: int, *, then: int) -> float:
        """Take all partitions over, and wait until all backlogs have arrived and each queue was handled."""
        node = Node(store, self.cluster_config, RouteTable.of(figures.handle), self.topics.of, cluster=ENV)
        await node.start()
        figures.start = time.perf_counter()
        await node.take_over(range(self.options.partitions), epoch)
        partitions = list(node.partitions.values())
        async with asyncio.timeout(TIMEOUT_S):
            while any(p.lane.is_catching_up or p.lane.position < p.lane.high for p in partitions):
                await asyncio.sleep(0.005)
            fed = time.perf_counter() - figures.start
            groups = self.options.partitions * (QUEUES // 3) if then else 0
            while len(figures.small) < groups or (then and len(figures.first) < len(partitions)):
                await asyncio.sleep(0.005)
        await asyncio.sleep(1.0 if self.options.requests else 0.2)
        await node.stop(5)
        return fed

    # ---- requests

    async def _listen(self, count: int, epoch: int) -> dict[str, float]:
        """Kind of request -> number for each partition."""
        asked: Counter[str] = Counter()
        client = await nats.connect(self.url)

        async def on_message(message) -> None:
            words = message.subject.split(".")
            asked[".".join(words[2:4] if words[0] == "$JS" else words[:1])] += 1

        store = await self._store()
        for subject in ("$JS.API.>", f"settled.{ENV}.>", f"busy.{ENV}.>"):
            await client.subscribe(subject, cb=on_message, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        await self._node(store, Figures(), epoch, then=count)
        await store.close()
        await client.close()
        return {name: number / self.options.partitions for name, number in sorted(asked.items())}

    async def _store(self) -> JetStreamStore:
        store = JetStreamStore(NatsOptions((self.url,)), ENV)
        await store.open()
        await store.prepare(self.lanes)
        return store

    async def _remove(self) -> None:
        client = await nats.connect(self.url)
        streams = client.jetstream()
        async for name in _names(streams):
            await streams.delete_stream(name)
        await client.close()

    def result(self) -> dict[str, object]:
        median = {name: statistics.median(values) for name, values in self.figures.items()}
        return {"options": vars(self.options), "median": median, "all": self.figures, "requests": self.requests}


async def _names(streams) -> AsyncIterator[str]:
    for info in await streams.streams_info():
        yield info.config.name


def show(result: dict) -> None:
    print(f"\n{'messages a lane, time':34}{'median, s':>12}   each round")
    for name, value in result["median"].items():
        each = "  ".join(f"{one:.2f}" for one in result["all"][name])
        print(f"{name:34}{value:12.2f}   {each}")
    for count, asked in result["requests"].items():
        print(f"\nasked for each partition, {count:,} messages a lane: {sum(asked.values()):.1f}")
        for name, number in asked.items():
            print(f"    {name:30}{number:8.2f}")


async def measure(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
        server = NatsServer(Path(folder), fast=True)
        await server.start()
        try:
            bench = Bench(server.url, options)
            await bench.run()
        finally:
            await server.stop()
    return bench.result()


def _counts(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="The duration and requests of a takeover.")
    parser.add_argument("--partitions", type=int, default=43, help="the share of one of three nodes of 128")
    parser.add_argument("--lanes", type=_counts, default="0,5200,100000", help="messages in each lane, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", action="store_true", help="also count the requests to JetStream")
    parser.add_argument("--json", action="store_true")
    tune_gc()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    result = uvloop.run(measure(options := parser.parse_args()))
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
