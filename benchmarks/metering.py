"""Benchmark of meter records: their bytes relative to those of the messages, and how long they hold the event loop.

    python -m benchmarks.metering [--queues N] [--qps Q] [--seconds S] [--json]

A real node in a process of its own, on real nats-server and etcd. Messages of 100 bytes arrive at a steady rate, evenly
over all queues.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from nats.aio.client import Client

from benchmarks.figures import show
from benchmarks.scrape import Child
from evenlane import Producer
from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.plan import Manifest
from evenlane.engine.core.records.meter_record import decode
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination

BARS = {"share_of_payload": 0.05}
_BODY = b"x" * 100
_PRIORITIES = ("high", "mid", "low")
_STEPS = 20  # per second
_BEFORE = 2  # first records, which aren't counted


async def put(producer: Producer, projects: list[str], qps: int, seconds: float) -> None:
    """Put messages at a steady rate, each to a random queue."""
    chance, start, sent = random.Random(1), time.monotonic(), 0
    while (now := time.monotonic() - start) < seconds:
        some = range(sent, int(now * qps))
        sent += len(some)
        puts = (producer.put(chance.choice(projects), _BODY, priority=chance.choice(_PRIORITIES)) for _ in some)
        await asyncio.gather(*puts)
        await asyncio.sleep(1 / _STEPS)


async def records(url: str) -> list[tuple[int, int, float]]:
    """The bytes, queues and seconds of each record."""
    client = Client()
    await client.connect(url)
    jetstream, stream = client.jetstream(), names.meter_stream("online")
    last = (await jetstream.stream_info(stream)).state.last_seq
    found = []
    for sequence in range(1, last + 1):
        body = (await jetstream.get_msg(stream, sequence)).data
        record = decode(body)
        found.append((len(body), record.queues, record.span / 1e9))
    await client.close()
    return found


async def run(options: argparse.Namespace) -> dict[str, Any]:
    projects = [f"tenant-{number:04d}" for number in range(options.queues // len(_PRIORITIES))]
    with tempfile.TemporaryDirectory() as folder:
        nats, server = NatsServer(Path(folder) / "nats", fast=True), EtcdServer(Path(folder) / "etcd", fast=True)
        await asyncio.gather(nats.start(), server.start())
        etcd = EtcdCoordination([server.endpoint])
        child = await Child.start(nats.url, server.endpoint, 100)
        try:
            while await etcd.get(names.key("online", "leader")) is None:
                await asyncio.sleep(0.1)
            applying = ApplyPlan(etcd, "online", ClusterConfig())
            specs = dict.fromkeys(projects, b'{"qps": 10, "groups": 1}')
            await applying.carry_out(await applying.plan(Manifest(specs, {})))
            async with Producer(nats=[nats.url], etcd=[server.endpoint]) as producer:
                await child.held_ms()
                await put(producer, projects, options.qps, options.seconds)
            held = await child.held_ms()
            counted = (await records(nats.url))[_BEFORE:]
        finally:
            await child.stop()
            await etcd.close()
            await asyncio.gather(nats.stop(), server.stop())
    seconds = sum(each[2] for each in counted)
    recorded = sum(each[0] for each in counted)
    return {
        "records": len(counted),
        "queues": statistics.median(each[1] for each in counted),
        "bytes": statistics.median(each[0] for each in counted),
        "share_of_payload": recorded / (seconds * options.qps * len(_BODY)),
        "loop_held_max_ms": held,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=3_000)
    parser.add_argument("--qps", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    show(uvloop.run(run(options)), BARS, as_json=options.json)


if __name__ == "__main__":
    main()
