"""Measures the memory of one node over millions of messages: growth means a leak.

    python -m benchmarks.endurance [--messages N] [--part N] [--queues N]

A node on a real nats-server handles N messages of 100 bytes, put in parts, with an empty handler. The benchmark prints
the process's memory after each part. The exit code is 1 if the median of the last quarter of the parts exceeds that of
the first by more than 5 %. The first quarter starts after one part, as a warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys

import psutil
import uvloop

from benchmarks.busy_cluster import BusyCluster, running_server
from evenlane.engine.base.build import describe_build
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.node.handlers.routes import RouteTable

MOST = 1.05


async def measure(options: argparse.Namespace, url: str) -> list[float]:
    """The process's memory (MB) after each part."""
    cluster = BusyCluster(url, options.partitions, options.queues)
    store, handled, sizes = await cluster.open_store("endurance"), 0, []

    async def handle(_message) -> None:
        nonlocal handled
        handled += 1

    node = await cluster.start_node(store, "endurance", RouteTable.of(handle))
    for part in range(1, options.messages // options.part + 1):
        subjects = cluster.busy_subjects("endurance", options.part)
        await cluster.publish(store, ((subject, part * options.part + n) for subject, n in subjects))
        while handled < part * options.part:
            await asyncio.sleep(0.05)
        gc.collect()
        sizes.append(psutil.Process().memory_info().rss / 1e6)
        print(f"{part * options.part:>12,} messages  {sizes[-1]:7.1f} MB", flush=True)
    await node.stop(10)
    await store.close()
    return sizes


async def run(options: argparse.Namespace) -> int:
    async with running_server() as server:
        sizes = await measure(options, server.url)
    quarter = max(1, len(sizes) // 4)
    growth = statistics.median(sizes[-quarter:]) / statistics.median(sizes[1 : 1 + quarter])
    print(f"{describe_build()}: memory of the last quarter / first quarter: {growth:.3f}, at most {MOST}")
    return int(growth > MOST)


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory of one node over millions of messages.")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--part", type=int, default=500_000)
    parser.add_argument("--queues", type=int, default=3_000)
    parser.add_argument("--partitions", type=int, default=128)
    options = parser.parse_args()
    if options.messages < 2 * options.part:
        parser.error("--messages must be at least two parts")
    tune_gc()
    return uvloop.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
