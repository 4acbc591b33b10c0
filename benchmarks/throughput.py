"""Benchmark of the data path against a bare callback pull and ack loop on nats-py, in one run: only ratios count.

    python -m benchmarks.throughput [--messages N] [--queues N] [--pinned N] [--partitions P] [--rounds R] [--json]
    python -m benchmarks.throughput --record        # later runs are compared with the ratios of this run

One process, empty handler, 100-byte bodies. Arms, interleaved over the rounds:

bare    nats-py: one durable pull consumer, callback, `ack()` for each message
again   `bare` once more, after `node`: the noise of identical code on this machine
fetch   nats-py: `fetch(500)` and `ack()`
node    this engine: feed, index, schedule, handle, settle
routed  `node` with an application of eleven handlers, each for a pattern of projects
typed   `node` with an application whose handler takes bodies as a msgspec Struct
pinned  `node` with N messages of a paused tenant at the head of every partition: no watermark can move
puts    `put_many` of one Producer, and `publish`: nats-py, a pipelined loop that only counts acknowledgements
          `single puts`: `put`, one after another
documented  nats-py and FastStream as their documentation shows them (benchmarks/documented_ways.py)
decision  one decision of the scheduler alone with 3,000 busy queues, in us: `next` and `finish`
idle    CPU of a node whose feeds have no messages
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import psutil
import uvloop

from benchmarks.busy_cluster import BODY, BusyCluster, TimedNode, running_server
from benchmarks.documented_ways import HANDLING, PUTTING, Stream, rate_of
from benchmarks.nats_py_loops import fetch_and_ack, publish_and_count, pull_and_ack
from benchmarks.result import Result
from evenlane import Evenlane
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.names import lane_subject
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.node.handlers.application import application_of
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.producer.producer import WINDOW_MESSAGES, Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.proof.scenarios.scale.decisions import SLOTS, Crowd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from evenlane.engine.store.jetstream.store import JetStreamStore

DECISIONS = 20_000


class Bench:
    def __init__(self, url: str, server_pid: int, options: argparse.Namespace) -> None:
        self.url, self.options = url, options
        self.server = psutil.Process(server_pid)
        self.cluster = BusyCluster(url, options.partitions, options.queues)
        self.figures: dict[str, list[float]] = {}
        self._env = 0

    async def run(self) -> None:
        arms: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("bare", lambda: self.bare("bare")), ("node", lambda: self.node("node", 0)),
            ("routed", lambda: self.node("routed", 0, routed)), ("typed", lambda: self.node("typed", 0, typed)),
            ("again", lambda: self.bare("again")), ("fetch", self.fetch),
            ("pinned", lambda: self.node("pinned", self.options.pinned)), ("puts", self.puts),
            ("decision", self.decision), ("documented", self.documented),
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

    @asynccontextmanager
    async def _filled_stream(self, count: int, *, subjects: int = 3_000) -> AsyncIterator[Stream]:
        self._env += 1
        name, prefix = f"BARE{self._env}", f"bare{self._env}"
        client = await nats.connect(self.url)
        await client.jetstream().add_stream(name=name, subjects=[f"{prefix}.*"])
        store = await self.cluster.open_store(prefix, prepared=False)
        await self.cluster.publish(store, ((f"{prefix}.{n % subjects}", n) for n in range(count)))
        await store.close()
        yield Stream(client, self.url, name, f"{prefix}.0", count)
        await client.jetstream().delete_stream(name)
        await client.close()

    @asynccontextmanager
    async def _prepared_store(self) -> AsyncIterator[tuple[JetStreamStore, str]]:
        self._env += 1
        env = f"e{self._env}"
        store = await self.cluster.open_store(env)
        yield store, env
        await self.cluster.close_store(store, env)

    # ---- the controls

    async def bare(self, figure: str) -> None:
        async with self._filled_stream(self.options.messages // 2) as stream:
            rate, cpu_us = await pull_and_ack(stream.client, stream.name, stream.count)
        self.note(figure, rate)
        self.note(f"{figure} us of CPU a message", cpu_us)

    async def fetch(self) -> None:
        async with self._filled_stream(self.options.messages // 4) as stream:
            self.note("fetch", await fetch_and_ack(stream.client, stream.name, stream.count))

    async def documented(self) -> None:
        for figure, (way, part) in (HANDLING | PUTTING).items():
            async with self._filled_stream(int(self.options.messages * part), subjects=1) as stream:
                self.note(figure, await rate_of(way, stream))

    # ---- the engine

    async def node(self, figure: str, pinned: int, routes_of: Callable[[TimedNode], RouteTable] | None = None) -> None:
        """Measure a node. Feeds are closed while the messages are put, so that only the engine's work is timed."""
        count, cluster = self.options.messages, self.cluster
        async with self._prepared_store() as (store, env):
            if pinned:
                heads = (lane_subject(env, p, "still", 0, "low") for p in range(cluster.config.partitions))
                await cluster.publish(
                    store, ((s, ((p + 1) << 32) + n) for p, s in enumerate(heads) for n in range(pinned))
                )
            timed = TimedNode(cluster, store, env, count, routes_of=routes_of)
            await timed.start(backlog=pinned)
            await cluster.publish(store, cluster.busy_subjects(env, count))
            gc.collect()
            took, processor = await timed.run()
            self.note(figure, count / took)
            self.note(f"{figure} us of CPU a message", processor / count * 1e6)
            await timed.node.stop(10)

    async def puts(self) -> None:
        count, cluster = self.options.messages, self.cluster
        async with self._prepared_store() as (store, env):
            client, subjects = await nats.connect(self.url), [each for each, _ in cluster.busy_subjects(env, 3_000)]
            self.note("publish", await publish_and_count(client, subjects, BODY, count, WINDOW_MESSAGES))
            await client.close()
            async with Producer(env=env, store=store, topics=cluster.topics, facts=cluster.config) as producer:
                puts = [Put("busy", BODY, priority="mid") for _ in range(count)]
                start = time.perf_counter()
                outcomes = await producer.put_many(puts)
                self.note("puts", count / (time.perf_counter() - start))
                start = time.perf_counter()
                for _ in range(count // 10):
                    await producer.put("busy", BODY)
                self.note("single puts", count // 10 / (time.perf_counter() - start))
        assert not [o for o in outcomes if isinstance(o, Exception)]

    async def decision(self) -> None:
        crowd = Crowd(FairScheduler(SLOTS), 3_000, 3_000)
        self.note("decision", crowd.cost(DECISIONS))

    async def idle(self) -> None:
        async def handle(_message) -> None:
            """Receive nothing."""

        async with self._prepared_store() as (store, env):
            node = await self.cluster.start_node(store, env, RouteTable.of(handle))
            await asyncio.sleep(3)
            processor, server, start = time.process_time(), sum(self.server.cpu_times()[:2]), time.perf_counter()
            await asyncio.sleep(self.options.idle)
            took = time.perf_counter() - start
            self.note("idle node % of a core", 100 * (time.process_time() - processor) / took)
            self.note("idle server % of a core", 100 * (sum(self.server.cpu_times()[:2]) - server) / took)
            await node.stop(5)


def routed(node: TimedNode) -> RouteTable:
    """An application in which the tenant's handler is one of eleven."""
    app = Evenlane()
    for number in range(10):
        app.handler(f"other-{number}-*")(node.handle)
    app.handler("bus*")(node.handle)
    return application_of(app).routes


def typed(node: TimedNode) -> RouteTable:
    """An application whose handler gets each body decoded."""
    app = Evenlane()
    app.handler("bus*")(node.handle_typed)
    return application_of(app).routes


async def measure(options: argparse.Namespace) -> Result:
    async with running_server() as server:
        bench = Bench(server.url, server.pid, options)
        await bench.run()
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
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures to a JSON file, too")
    parser.add_argument("--record", action="store_true", help="write the ratios to benchmarks/recorded.json")
    tune_gc()
    result = uvloop.run(measure(options := parser.parse_args()))
    if options.json:
        print(json.dumps(result.document(), indent=2, default=str))
    else:
        result.show()
    if options.save:
        options.save.write_text(json.dumps(result.document(), indent=2, default=str))
    if options.record:
        result.record()


if __name__ == "__main__":
    main()
