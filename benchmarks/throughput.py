"""Benchmark of the data path against a bare callback pull and ack loop on nats-py, in one run: only ratios count.

    python -m benchmarks.throughput [--messages N] [--queues N] [--pinned N] [--partitions P] [--rounds R] [--json]
    python -m benchmarks.throughput --record        # later runs are compared with the ratios of this run

One process, empty handler, 100-byte bodies. Arms, interleaved over the rounds:

bare    nats-py: one durable pull consumer, callback, `ack()` for each message
again   `bare` once more, after `node`: the noise of identical code on this machine
fetch   nats-py: `fetch(500)` and `ack()`
node    this engine: feed, index, schedule, handle, settle
pinned  `node` with N messages of a paused tenant at the head of every partition: no watermark can move
puts    `put_many` of one Producer, and `publish`: nats-py, a pipelined loop that only counts acknowledgements
decision  one decision of the scheduler alone with 3,000 busy queues, in us: `next` and `finish`
idle    CPU of a node whose feeds have no messages
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import psutil
import uvloop

from benchmarks.nats_py_loops import fetch_and_ack, publish_and_count, pull_and_ack
from benchmarks.result import Result
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.proof.scenarios.scale.decisions import SLOTS, Crowd
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import Accepted, complete, parse_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

BODY = b"x" * 100
WINDOW = 2_000
TIMEOUT_S = 300
DECISIONS = 20_000


class Topics:
    """Two tenants: `busy`, whose messages are handled, and `still`, which is paused."""

    def __init__(self, cluster_config: ClusterConfig, groups: int) -> None:
        qps = 1_000_000  # more than the node can handle
        specs = {
            "busy": b'{"qps": %d, "groups": %d, "spread": %d}' % (qps, groups, cluster_config.partitions),
            "still": b'{"qps": 100, "state": "paused"}',
        }
        topics = {name: complete(parse_spec(spec), cluster_config) for name, spec in specs.items()}
        # an accepted topic stays the same object until it changes, as in the topic cache
        self.get = {name: Accepted(topic=topic, active=topic.groups, revision=1) for name, topic in topics.items()}.get


class Bench:
    def __init__(self, url: str, server_pid: int, options: argparse.Namespace) -> None:
        self.url, self.options = url, options
        self.server = psutil.Process(server_pid)
        self.cluster_config = ClusterConfig(partitions=options.partitions, max_group_qps=1_000_000)
        self.groups = max(1, options.queues // 3)
        self.topics = Topics(self.cluster_config, self.groups)
        self.figures: dict[str, list[float]] = {}
        self._env = 0

    async def run(self) -> None:
        arms: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("bare", lambda: self.bare("bare")), ("node", lambda: self.node("node", 0)),
            ("again", lambda: self.bare("again")), ("fetch", self.fetch),
            ("pinned", lambda: self.node("pinned", self.options.pinned)), ("puts", self.puts),
            ("decision", self.decision),
        ]  # fmt: skip
        only = self.options.only.split(",") if self.options.only else None
        for number in range(self.options.rounds):
            for name, arm in arms:
                if only is not None and name not in only:
                    continue
                gc.collect()
                await arm()
                last = {key: f"{values[-1]:,.0f}" for key, values in self.figures.items() if key.startswith(name)}
                print(f"round {number + 1}: {name} {last}", file=sys.stderr)
        if only is None or "idle" in only:
            await self.idle()

    def note(self, figure: str, value: float) -> None:
        self.figures.setdefault(figure, []).append(value)

    # ---- the controls

    @asynccontextmanager
    async def _fill_stream(self, count: int) -> AsyncIterator[tuple[nats.NATS, str]]:
        self._env += 1
        name = f"BARE{self._env}"
        client = await nats.connect(self.url)
        await client.jetstream().add_stream(name=name, subjects=[f"bare{self._env}.*"])
        store = await self._store(f"bare{self._env}", prepared=False)
        await self._publish(store, ((f"bare{self._env}.{n % 3000}", n) for n in range(count)))
        await store.close()
        yield client, name
        await client.jetstream().delete_stream(name)
        await client.close()

    async def bare(self, figure: str) -> None:
        count = self.options.messages // 2
        async with self._fill_stream(count) as (client, stream):
            rate, cpu_us = await pull_and_ack(client, stream, count)
        self.note(figure, rate)
        self.note(f"{figure} us of CPU a message", cpu_us)

    async def fetch(self) -> None:
        count = self.options.messages // 4
        async with self._fill_stream(count) as (client, stream):
            self.note("fetch", await fetch_and_ack(client, stream, count))

    # ---- the engine

    async def _store(self, env: str, *, prepared: bool = True) -> JetStreamStore:
        store = JetStreamStore(NatsOptions((self.url,)), env)
        await store.open()
        if prepared:
            await store.prepare(
                [LaneId(k, p) for k in ("lanes", "later") for p in range(self.cluster_config.partitions)]
            )
        return store

    async def _publish(self, store: JetStreamStore, messages) -> None:
        waiting = []
        for subject, number in messages:
            waiting.append(store.put(subject, h.encode({h.ID: f"b:{number:x}"}), BODY))
            if len(waiting) >= WINDOW:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)

    def _busy_subjects(self, env: str, count: int):
        for n in range(count):
            group, priority = n // 3 % self.groups, self.cluster_config.priorities[n % 3]
            yield lane_subject(env, group % self.cluster_config.partitions, "busy", group, priority), n

    async def node(self, figure: str, pinned: int) -> None:
        """Measure a node. Feeds are closed while the messages are put, so that only the engine's work is timed."""
        self._env += 1
        env, count = f"e{self._env}", self.options.messages
        store = await self._store(env)
        done, seen = asyncio.Event(), 0

        async def handle(_message) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                done.set()

        if pinned:
            heads = (lane_subject(env, p, "still", 0, "low") for p in range(self.cluster_config.partitions))
            await self._publish(store, ((s, ((p + 1) << 32) + n) for p, s in enumerate(heads) for n in range(pinned)))
        node = await self._start_node(store, env, handle)
        partitions = list(node.partitions.values())
        while node.backlog < pinned * len(partitions):
            await asyncio.sleep(0.05)
        await asyncio.gather(*(partition.close() for partition in partitions))
        await self._publish(store, self._busy_subjects(env, count))
        gc.collect()
        processor, start = time.process_time(), time.perf_counter()
        for partition in partitions:
            feeds, lane = partition._lane_feeds, partition.lane
            feeds.feeds = [store.feed(lane.id, lane.position + 1, lane.take_in, feeds._resume)]
        await asyncio.wait_for(done.wait(), TIMEOUT_S)
        took = time.perf_counter() - start
        self.note(figure, count / took)
        self.note(f"{figure} us of CPU a message", (time.process_time() - processor) / count * 1e6)
        await node.stop(10)
        await self._remove(store, env)

    async def _start_node(self, store: JetStreamStore, env: str, handle) -> Node:
        def topic_of(project: str):
            accepted = self.topics.get(project)
            return accepted.topic if accepted else None

        limits = MemoryBudget(payload_bytes=256 << 20, index=1 << 20)
        node = Node(store, self.cluster_config, Handler.of(handle), topic_of, env=env, limits=limits)
        await node.start()
        await node.take_over(range(self.cluster_config.partitions), 1)
        return node

    async def _remove(self, store: JetStreamStore, env: str) -> None:
        await store.close()
        client = await nats.connect(self.url)
        js = client.jetstream()
        for info in await js.streams_info():
            if f"_{env}" in info.config.name:
                await js.delete_stream(info.config.name)
        await client.close()

    async def puts(self) -> None:
        self._env += 1
        env, count = f"e{self._env}", self.options.messages // 2
        store = await self._store(env)
        client, subjects = await nats.connect(self.url), [subject for subject, _ in self._busy_subjects(env, 3_000)]
        self.note("publish", await publish_and_count(client, subjects, BODY, count, WINDOW))
        await client.close()
        async with Producer(env=env, store=store, topics=self.topics, facts=self.cluster_config) as producer:
            puts = [Put("busy", BODY, priority="mid") for _ in range(count)]
            start = time.perf_counter()
            outcomes = await producer.put_many(puts)
            self.note("puts", count / (time.perf_counter() - start))
        assert not [o for o in outcomes if isinstance(o, Exception)]
        await self._remove(store, env)

    async def decision(self) -> None:
        crowd = Crowd(FairScheduler(SLOTS), 3_000, 3_000)
        self.note("decision", crowd.cost(DECISIONS))

    async def idle(self) -> None:
        self._env += 1
        env = f"e{self._env}"
        store = await self._store(env)

        async def handle(_message) -> None:
            """Receive nothing."""

        node = await self._start_node(store, env, handle)
        await asyncio.sleep(3)
        processor, server, start = time.process_time(), sum(self.server.cpu_times()[:2]), time.perf_counter()
        await asyncio.sleep(self.options.idle)
        took = time.perf_counter() - start
        self.note("idle node % of a core", 100 * (time.process_time() - processor) / took)
        self.note("idle server % of a core", 100 * (sum(self.server.cpu_times()[:2]) - server) / took)
        await node.stop(5)
        await self._remove(store, env)


async def measure(options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
        server = NatsServer(Path(folder))
        await server.start()
        try:
            bench = Bench(server.url, server.pid, options)
            await bench.run()
        finally:
            await server.stop()
    return Result(options, bench.figures)


def main() -> None:
    parser = argparse.ArgumentParser(description="The data path against a bare loop on nats-py.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--queues", type=int, default=3_000)
    parser.add_argument("--pinned", type=int, default=5_000, help="paused messages at the head of each partition")
    parser.add_argument("--partitions", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--only", help="arms to run, separated by commas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the ratios to benchmarks/recorded.json")
    tune_gc()
    result = uvloop.run(measure(options := parser.parse_args()))
    if options.json:
        print(json.dumps(result.document(), indent=2))
    else:
        result.show()
    if options.record:
        result.record()


if __name__ == "__main__":
    main()
