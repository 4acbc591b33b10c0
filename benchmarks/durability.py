"""Benchmark of what it costs to acknowledge only what is on disk: nats-server by `sync_interval`, on one server and on
three with as many replicas; and etcd with and without fsync. In one run: only ratios count.

    python -m benchmarks.durability [--messages N] [--rounds R] [--folder DIR]

DIR is on the disk to measure. Bodies of 100 bytes, 16 partitions. Figures, the median over the rounds:

puts      acknowledged puts per second of one `Producer.put_many`, pipelined
one       ms from a single put to its acknowledgement, the median of 200 that follow one another
feed      messages per second that the feeds of one node deliver of what was put
etcd      puts per second, one after another, and ms for each
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvloop

from benchmarks.puts import Topics
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats_cluster import NatsCluster
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.ring.coordination.etcd.client import EtcdCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY = b"x" * 100
PARTITIONS = 16
PROJECTS = 64
SINGLE = 200
SYNCS = ('"2m"', '"1s"', "always")
REPLICAS = (1, 3)


@asynccontextmanager
async def opened(url: str, replicas: int, *, feeds: bool) -> AsyncIterator[JetStreamStore]:
    store = JetStreamStore(NatsOptions(tuple(url.split(","))), "bench", replicas=replicas, feeds_apart=feeds)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def put_rate(producer: Producer, messages: int) -> float:
    start = time.perf_counter()
    outcomes = await producer.put_many(Put(f"p{number % PROJECTS}", BODY) for number in range(messages))
    took = time.perf_counter() - start
    failed = [each for each in outcomes if isinstance(each, Exception)]
    assert not failed, failed[0]
    return messages / took


async def single_ms(producer: Producer) -> float:
    took = []
    for number in range(SINGLE):
        start = time.perf_counter()
        await producer.put(f"p{number % PROJECTS}", BODY)
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e3


async def feed_rate(url: str, replicas: int, messages: int) -> float:
    async with opened(url, replicas, feeds=True) as store:
        left, done = messages, asyncio.Event()

        def sink(*_message: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        async def on_break(last: int) -> int:
            return last + 1

        start = time.perf_counter()
        feeds = [store.feed(LaneId("lanes", partition), 1, sink, on_break) for partition in range(PARTITIONS)]
        await done.wait()
        took = time.perf_counter() - start
        await asyncio.gather(*(feed.close() for feed in feeds))
    return messages / took


async def measure_nats(folder: Path, sync: str, replicas: int, messages: int) -> dict[str, float]:
    config = f"jetstream {{ max_file_store: 1TB, sync_interval: {sync} }}"
    data_dirs = [folder / str(number) for number in range(replicas)]
    for data_dir in data_dirs:
        data_dir.mkdir()
    async with NatsCluster(data_dirs, config=config) as cluster:
        async with opened(cluster.url, replicas, feeds=False) as store:
            await store.prepare([LaneId(kind, p) for kind in ("lanes", "later") for p in range(PARTITIONS)])
            cluster_config = ClusterConfig(partitions=PARTITIONS)
            topics = Topics(cluster_config, PROJECTS)
            async with Producer(env="bench", store=store, topics=topics, facts=cluster_config) as producer:
                puts = await put_rate(producer, messages)
                one = await single_ms(producer)
        return {"puts": puts, "one": one, "feed": await feed_rate(cluster.url, replicas, messages + SINGLE)}


async def measure_etcd(folder: Path, *, fast: bool) -> dict[str, float]:
    server = EtcdServer(folder, fast=fast)
    await server.start()
    try:
        client, took = EtcdCoordination([server.endpoint]), []
        for number in range(SINGLE):
            start = time.perf_counter()
            await client.put(f"/key-{number}", BODY)
            took.append(time.perf_counter() - start)
        await client.close()
    finally:
        await server.stop()
    return {"etcd": 1 / statistics.mean(took), "etcd ms": statistics.median(took) * 1e3}


async def main(options: argparse.Namespace) -> None:
    arms = [(replicas, sync) for replicas in REPLICAS for sync in SYNCS]
    nats: dict[tuple[int, str], list[dict[str, float]]] = {arm: [] for arm in arms}
    etcd: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(options.rounds):
        for replicas, sync in arms:
            with tempfile.TemporaryDirectory(prefix="evenlane-bench-", dir=options.folder) as folder:
                nats[replicas, sync].append(await measure_nats(Path(folder), sync, replicas, options.messages))
        for fast, figures in etcd.items():
            with tempfile.TemporaryDirectory(prefix="evenlane-bench-", dir=options.folder) as folder:
                figures.append(await measure_etcd(Path(folder), fast=fast))
    print("| servers | sync_interval | puts/s | one put, ms | feed/s |")
    print("| --- | --- | --- | --- | --- |")
    for (replicas, sync), rounds in nats.items():
        puts, one, feed = (statistics.median(each[name] for each in rounds) for name in ("puts", "one", "feed"))
        print(f"| {replicas} | {sync} | {puts:,.0f} | {one:.2f} | {feed:,.0f} |")
    print("\n| etcd | puts/s, one after another | ms |\n| --- | --- | --- |")
    for fast, rounds in etcd.items():
        rate, ms = (statistics.median(each[name] for each in rounds) for name in ("etcd", "etcd ms"))
        print(f"| {'without fsync' if fast else 'with fsync'} | {rate:,.0f} | {ms:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(main(parser.parse_args()))
