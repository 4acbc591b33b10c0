"""Benchmark of what other subscriptions cost the unnamed one: compare the arms of one run, only ratios count.

    python -m benchmarks.subscriptions [--behind N] [--delayed N] [--paused N] [--partitions P] [--rounds R] [--json]

One process and one nats-server; 100-byte bodies. Arms, interleaved over the rounds:

alone   there is no other subscription
behind  there is one that nobody runs: N messages and N delayed messages wait for it, which the unnamed one has handled
pinned  as `behind`, and a paused project has messages at the head of each partition, so that no watermark moves
three   two more subscriptions work in the same process, each with a node of its own

takeover  s until a new owner has handled a backlog of 20,000 messages, of which a tenth were delayed
p99       ms between put and handler at 2,000 messages/s
puts      messages/s of puts in a row, while the node handles them
handled   messages/s that all nodes of the arm handle together, of puts in a row
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvloop

from evenlane.engine.base import names
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.names import LaneId, lane_subject, later_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import Topic, complete, parse_spec

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Receipt

BODY = b"x" * 100
WINDOW = 4_000
BACKLOG, STEADY, BURST = 20_000, 10_000, 40_000  # messages
RATE = 2_000  # messages/s
PROJECTS = 20
PAUSED = "paused"
TIMEOUT_S = 600
_HOUR = 3_600 * 10**9


class Arm:
    """An environment, with the other subscriptions that it has; `run` are those with nodes. A paused project has
    `paused` messages in each partition.
    """

    def __init__(
        self, name: str, url: str, partitions: int, others: tuple[str, ...] = (), run: tuple[str, ...] = (), *,
        paused: int = 0,
    ) -> None:  # fmt: skip
        self.env, self._url, self._others, self._run, self._paused = name, url, others, run, paused
        self.config = ClusterConfig(partitions=partitions, max_group_qps=1_000_000)
        self.topic: Topic = complete(
            parse_spec(b'{"qps": 1000000, "groups": %d, "spread": %d}' % (partitions, partitions)), self.config
        )
        self.paused_topic: Topic = complete(parse_spec(b'{"qps": 1, "state": "paused"}'), self.config)
        self.view = RegistryView(1, {each: Subscription(state="active") for each in others}) if others else None
        self._epoch = self._number = 0
        self.handled = 0
        self.waits: list[float] = []
        self.figures: dict[str, list[float]] = {}

    @property
    def lanes(self) -> list[LaneId]:
        return [LaneId(kind, number) for kind in names.SHARED_KINDS for number in range(self.config.partitions)]

    async def store(self, cluster: str) -> JetStreamStore:
        store = JetStreamStore(NatsOptions((self._url,)), cluster)
        await store.open()
        return store

    async def prepare(self) -> None:
        """Create the streams; a subscription without nodes has settled nothing."""
        store = await self.store(self.env)
        await store.prepare(self.lanes)
        for each in self._others:
            own = await self.store(names.cluster_name(self.env, each))
            await own.create_own_streams()
            await own.close()
        await store.close()

    async def start(self, stack: AsyncExitStack, subscription: str = "") -> Node:
        """A node that takes over all partitions."""
        cluster = names.cluster_name(self.env, subscription)
        store = await self.store(cluster)
        stack.push_async_callback(store.close)
        await store.prepare([*self.lanes, *([LaneId("again", 0)] if subscription else [])])
        routes = RouteTable.of(self.handle if not subscription else self.count)
        node = Node(store, self.config, routes, self._topic_of, cluster=cluster)
        await node.start()
        stack.push_async_callback(node.stop, 5)
        await node.registry.begin()
        if self.view is not None:
            node.registry.adopt(self.view)
        self._epoch += 1
        await node.take_over(range(self.config.partitions), self._epoch)
        return node

    def _topic_of(self, project: str) -> Topic:
        return self.paused_topic if project == PAUSED else self.topic

    async def handle(self, message: Message) -> None:
        self.handled += 1
        if message.body[:1] != b"x":
            self.waits.append(time.time() - float(message.body))

    async def count(self, _message: Message) -> None:
        self.handled += 1

    async def put(self, store: JetStreamStore, count: int, *, delayed: int = 0, body: bytes = BODY) -> None:
        """Put messages, the first of them delayed; those are due at once."""
        waiting: list[asyncio.Future[Receipt]] = []
        due = store.now()
        for number in range(count):
            self._number += 1
            partition, project = self._number % self.config.partitions, f"tenant-{self._number % PROJECTS}"
            head = {h.ID: f"{project}:{self._number}"}
            subject = lane_subject(self.env, partition, project, partition, "mid")
            if number < delayed:
                head[h.DUE] = str(due)
                subject = later_subject(self.env, partition, project, partition, "mid", due // _HOUR)
            waiting.append(store.put(subject, h.encode(head), body))
            if len(waiting) >= WINDOW:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)

    async def done(self, count: int) -> None:
        """Wait until this many were handled since the start."""
        async with asyncio.timeout(TIMEOUT_S):
            while self.handled < count:
                await asyncio.sleep(0.002)

    async def fill(self, count: int, delayed: int) -> None:
        """Put and handle messages, which wait for the others from then on."""
        await self.prepare()
        store = await self.store(self.env)
        async with AsyncExitStack() as stack:
            await self.start(stack)
            start = self.handled
            for number in range(self._paused * self.config.partitions):
                partition, head = number % self.config.partitions, {h.ID: f"{PAUSED}:{number}"}
                await store.put(lane_subject(self.env, partition, PAUSED, 0, "mid"), h.encode(head), BODY)
            for done in range(0, count, 50_000):
                await self.put(store, min(50_000, count - done))
                await self.done(start + min(count, done + 50_000))
            await self.put(store, delayed, delayed=delayed)
            await self.done(start + count + delayed)
        await store.close()

    async def round(self) -> None:
        store, nodes = await self.store(self.env), 1 + len(self._run)
        async with AsyncExitStack() as stack:
            for each in self._run:
                await self.start(stack, each)
            before = self.handled
            await self.put(store, BACKLOG, delayed=BACKLOG // 10)
            await self.done(before + BACKLOG * len(self._run))
            began, before = time.perf_counter(), self.handled
            await self.start(stack)
            await self.done(before + BACKLOG)
            self._note("takeover", time.perf_counter() - began)
            await self._steady(store, nodes)
            before, began = self.handled, time.perf_counter()
            await self.put(store, BURST)
            self._note("puts", BURST / (time.perf_counter() - began))
            await self.done(before + BURST * nodes)
            self._note("handled", BURST * nodes / (time.perf_counter() - began))
        await store.close()

    async def _steady(self, store: JetStreamStore, nodes: int) -> None:
        before, began, put = self.handled, time.perf_counter(), 0
        self.waits.clear()
        while put < STEADY:
            due = min(STEADY, int((time.perf_counter() - began) * RATE))
            await self.put(store, due - put, body=b"%.6f" % time.time())
            put = due
            await asyncio.sleep(0.01)
        await self.done(before + STEADY * nodes)
        self._note("p99", statistics.quantiles(self.waits, n=100)[98] * 1_000)

    def _note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)


async def measure(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
        server = NatsServer(Path(folder), fast=True)
        await server.start()
        try:
            arms = [
                Arm("alone", server.url, options.partitions),
                Arm("behind", server.url, options.partitions, ("away",)),
                Arm("pinned", server.url, options.partitions, ("away",), paused=options.paused),
                Arm("three", server.url, options.partitions, ("audit", "search"), ("audit", "search")),
            ]
            for arm in arms:
                if arm.env != "three":
                    await arm.fill(options.behind, options.delayed)
                else:
                    await arm.prepare()
                print(f"{arm.env} is prepared", file=sys.stderr)
            for number in range(options.rounds):
                for arm in arms:
                    await arm.round()
                print(f"round {number + 1} has ended", file=sys.stderr)
        finally:
            await server.stop()
    return {arm.env: arm.figures for arm in arms}


def show(result: dict[str, dict[str, list[float]]]) -> None:
    alone = result["alone"]
    print(f"{'':10}{'arm':10}{'median':>10}{'to alone':>10}   each round")
    for name in alone:
        for arm, figures in result.items():
            middle = statistics.median(figures[name])
            ratio = statistics.median(one / other for one, other in zip(figures[name], alone[name], strict=True))
            each = "  ".join(f"{one:.4g}" for one in figures[name])
            print(f"{name:10}{arm:10}{middle:10.4g}{ratio:10.2f}   {each}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What other subscriptions cost the unnamed one.")
    parser.add_argument("--behind", type=int, default=1_000_000, help="messages that wait for the absent one")
    parser.add_argument("--delayed", type=int, default=100_000, help="delayed messages that wait for it")
    parser.add_argument("--paused", type=int, default=20, help="paused messages in each partition")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
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
