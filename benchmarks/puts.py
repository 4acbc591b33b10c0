"""Benchmark of acknowledged puts of one process against a bare publish loop with the same settings: only ratios count.

    python -m benchmarks.puts [--messages N] [--rounds R] [--window N] [--projects N] [--only ARMS] [--memory N]

Bodies of 100 bytes, ids, one nats-server with file storage. Arms, interleaved over the rounds:

bare      publishes with prepared headers and subjects, and a window of acknowledgements that are only counted
nats-py   `js.publish` of nats-py, the same number at once
put_each  one `Producer.put_each`, the outcomes only counted
put_many  one `Producer.put_many`
put       `Producer.put`, by one task per place in the window

`--memory N` compares nothing: N puts go through one `put_each`, and the growth of the process is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import psutil
import uvloop

from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire import headers as h
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import Accepted, complete, parse_spec
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BODY = b"x" * 100


class Topics:
    """`projects` tenants of 8 groups each."""

    def __init__(self, cluster_config: ClusterConfig, projects: int) -> None:
        topic = complete(parse_spec(b'{"qps": 400}'), cluster_config)
        self.all = {f"p{n}": Accepted(topic=topic, active=topic.groups, revision=1) for n in range(projects)}

    def get(self, project: str) -> Accepted | None:
        return self.all.get(project)


class Bench:
    def __init__(self, url: str, options: argparse.Namespace) -> None:
        self.url, self.options = url, options
        self.cluster_config = ClusterConfig(partitions=options.partitions)
        self.topics = Topics(self.cluster_config, options.projects)
        self.figures: dict[str, list[float]] = {}
        self._env = 0

    async def run(self) -> None:
        arms = {"bare": self.bare, "nats-py": self.nats_py, "put_each": self.put_each, "put_many": self.put_many,
                "put": self.put}  # fmt: skip
        chosen = self.options.only.split(",") if self.options.only else list(arms)
        for number in range(self.options.rounds):
            for name in chosen:
                rate = await self._time(name, arms[name])
                print(f"round {number + 1}: {name} {rate:,.0f}/s", file=sys.stderr)

    async def _time(self, name: str, arm: Callable[[JetStreamStore, str, int], Awaitable[None]]) -> float:
        self._env += 1
        env = f"e{self._env}"
        store = JetStreamStore(NatsOptions((self.url,)), env, feeds_apart=False)
        await store.open()
        await store.prepare([LaneId(k, p) for k in ("lanes", "later") for p in range(self.cluster_config.partitions)])
        await arm(store, env, min(5_000, self.options.messages))  # subjects, caches, the stream's first block
        gc.collect()
        start, processor = time.perf_counter(), time.process_time()
        await arm(store, env, self.options.messages)
        took, processor = time.perf_counter() - start, time.process_time() - processor
        self.figures.setdefault(name, []).append(self.options.messages / took)
        self.figures.setdefault(f"{name} us of CPU a put", []).append(processor / self.options.messages * 1e6)
        await self._remove(store, env)
        return self.options.messages / took

    async def _remove(self, store: JetStreamStore, env: str) -> None:
        await store.close()
        client = await nats.connect(self.url)
        for info in await client.jetstream().streams_info():
            if f"_{env}" in info.config.name:
                await client.jetstream().delete_stream(info.config.name)
        await client.close()

    # ---- the controls

    def _subjects(self, env: str) -> list[str]:
        topics, partitions = self.topics.all.items(), self.cluster_config.partitions
        return [
            lane_subject(
                env, partition_of(project, group, each.topic.spread, partitions, "hashed"), project, group, "mid"
            )
            for group in range(8)
            for project, each in topics
        ]

    async def bare(self, _store: JetStreamStore, env: str, messages: int) -> None:
        connection = Connection(NatsOptions((self.url,)), "bare")
        await connection.open()
        landed, room, start = 0, asyncio.Event(), self._fresh_ids()

        def on_ack(_subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
            nonlocal landed
            assert b'"seq"' in body
            landed += 1
            room.set()

        connection.listen("_INBOX.bare", on_ack)
        subjects, window = self._subjects(env), self.options.window
        for number in range(messages):
            headers = b"NATS/1.0\r\nNats-Msg-Id: p:%d\r\n\r\n" % (start + number)
            connection.send(subjects[number % len(subjects)], BODY, headers, "_INBOX.bare")
            while number - landed >= window:
                room.clear()
                await room.wait()
        while landed < messages:
            room.clear()
            await room.wait()
        await connection.close()

    async def nats_py(self, _store: JetStreamStore, env: str, messages: int) -> None:
        client = await nats.connect(self.url)
        js, subjects, start = client.jetstream(), self._subjects(env), self._fresh_ids()

        async def put(number: int) -> None:
            await js.publish(subjects[number % len(subjects)], BODY, headers={h.ID: f"p:{start + number}"})

        await self._by_tasks(messages, put)
        await client.close()

    _next_id = 0

    def _fresh_ids(self) -> int:
        self._next_id += 1 << 24
        return self._next_id

    # ---- the producer

    def _producer(self, store: JetStreamStore, env: str) -> Producer:
        return Producer(
            env=env, store=store, topics=self.topics, facts=self.cluster_config, window_messages=self.options.window
        )

    def _puts(self, messages: int):
        names = list(self.topics.all)
        return (Put(names[number % len(names)], BODY) for number in range(messages))

    async def put_each(self, store: JetStreamStore, env: str, messages: int) -> None:
        landed = 0

        def done(_number: int, outcome: Receipt | Exception) -> None:
            nonlocal landed
            landed += isinstance(outcome, Receipt)

        async with self._producer(store, env) as producer:
            await producer.put_each(self._puts(messages), done)
        assert landed == messages

    async def put_many(self, store: JetStreamStore, env: str, messages: int) -> None:
        async with self._producer(store, env) as producer:
            outcomes = await producer.put_many(self._puts(messages))
        assert sum(isinstance(each, Receipt) for each in outcomes) == messages

    async def put(self, store: JetStreamStore, env: str, messages: int) -> None:
        names = list(self.topics.all)
        async with self._producer(store, env) as producer:
            await self._by_tasks(messages, lambda number: producer.put(names[number % len(names)], BODY))

    async def _by_tasks(self, messages: int, put: Callable[[int], Awaitable[object]]) -> None:
        numbers = count()

        async def worker() -> None:
            while (number := next(numbers)) < messages:
                await put(number)

        await asyncio.gather(*(worker() for _ in range(min(messages, self.options.window))))

    # ---- memory

    async def memory(self) -> dict[str, object]:
        process, messages = psutil.Process(), self.options.memory
        store = JetStreamStore(NatsOptions((self.url,)), "memory", feeds_apart=False)
        await store.open()
        await store.prepare([LaneId(k, p) for k in ("lanes", "later") for p in range(self.cluster_config.partitions)])
        await self.put_each(store, "memory", 20_000)
        gc.collect()
        at_first = most = process.memory_info().rss
        asked = asyncio.create_task(self.put_each(store, "memory", messages))
        start = time.perf_counter()
        while not asked.done():
            await asyncio.wait([asked], timeout=0.05)
            most = max(most, process.memory_info().rss)
        await asked
        took = time.perf_counter() - start
        await store.close()
        return {"puts": messages, "per_s": messages / took, "grew_mib": (most - at_first) / 2**20}

    def result(self) -> dict[str, object]:
        median = {name: statistics.median(values) for name, values in self.figures.items()}
        bare = median.get("bare")
        ratios = {name: median[name] / bare for name in median if bare and "CPU" not in name and name != "bare"}
        return {"options": vars(self.options), "median": median, "all": self.figures, "of_bare": ratios}


def show(result: dict) -> None:
    print(f"\n{'figure':30}{'median':>10}  {'of bare':>8}   each round")
    for name, value in result["median"].items():
        each = "  ".join(f"{one:,.1f}" if one < 100 else f"{one:,.0f}" for one in result["all"][name])
        ratio = result["of_bare"].get(name)
        print(f"{name:30}{value:10,.1f}  {'' if ratio is None else format(ratio, '8.2f'):>8}   {each}")


async def measure(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
        server = NatsServer(Path(folder), fast=True)
        await server.start()
        try:
            bench = Bench(server.url, options)
            if options.memory:
                return await bench.memory()
            await bench.run()
        finally:
            await server.stop()
    return bench.result()


def main() -> None:
    parser = argparse.ArgumentParser(description="Acknowledged puts of one process against a bare publish loop.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--projects", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=128)
    parser.add_argument("--window", type=int, default=4_096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0, help="measure the memory of N puts instead")
    parser.add_argument("--only", help="arms to run, separated by commas")
    parser.add_argument("--json", action="store_true")
    tune_gc()
    result = uvloop.run(measure(options := parser.parse_args()))
    if options.json or options.memory:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
