"""Benchmark of a scrape of many tenants: how long it takes, and how long it holds the node's event loop.

    python -m benchmarks.scrape [--tenants N] [--labels M] [--rounds R] [--json]

A real node in a process of its own, on real nats-server and etcd, with N tenants that have a backlog in each of three
priorities. The page is read as Prometheus reads it. Meanwhile a timer of 1 ms in the node's loop notes its greatest
delay. The control is the same time without a scrape.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from benchmarks.figures import show
from evenlane import Engine, Producer
from evenlane.engine.base import names
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.plan import Manifest
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.telemetry import metric_names as metrics
from evenlane.ring.coordination.etcd.client import EtcdCoordination

BARS = {"scrape_ms": 150.0, "loop_held_ms": 20.0}
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_TICK_S = 0.001
_WITHIN_S = 180.0


async def serve(nats: str, etcd: str, labels: int) -> None:
    """Run a node in a process of its own. It prints its address and, for each line of input, its loop's delay."""

    async def handle(_message: object) -> None:
        await asyncio.sleep(0)

    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            worst = max(worst, time.perf_counter() - began - _TICK_S)

    async with Engine(handle, nats=[nats], etcd=[etcd], http_port=0, metrics_projects=labels, node="n") as engine:
        running = asyncio.create_task(engine.run())
        watching = asyncio.create_task(watch())
        print(engine.http.address, flush=True)
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while await lines.readline():
            print(json.dumps(worst * 1e3), flush=True)
            worst = 0.0
        watching.cancel()
        engine.stop()
        await running


class Child:
    """The node, for its parent."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self._process, self.address = process, address

    @classmethod
    async def start(cls, *arguments: object) -> Child:
        command = [sys.executable, "-m", "benchmarks.scrape", "--child", *map(str, arguments)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert process.stdout is not None
        return cls(process, (await process.stdout.readline()).decode().strip())

    async def held_ms(self) -> float:
        """The longest time that the loop was held since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return float(json.loads(await self._process.stdout.readline()))

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def backlog(nats: str, etcd: EtcdCoordination, endpoint: str, tenants: int) -> None:
    """Make paused tenants with three messages in each priority."""
    spec = b'{"qps": 10, "groups": 1, "state": "paused"}'
    specs = {f"tenant-{number}": spec for number in range(tenants)}
    applying = ApplyPlan(etcd, "online", ClusterConfig())
    outcome = await applying.carry_out(await applying.plan(Manifest(specs, {})))
    assert len(outcome.written) == tenants, outcome
    accepted = names.key("online", "accepted", "")
    while len((await etcd.list(accepted)).items) < tenants:
        await asyncio.sleep(0.1)
    async with Producer(nats=[nats], etcd=[endpoint]) as producer:
        for priority in ("high", "mid", "low"):
            for _ in range(3):
                await asyncio.gather(*(producer.put(project, b"x", priority=priority) for project in specs))


async def scrape(client: aiohttp.ClientSession, address: str) -> tuple[float, str]:
    began = time.perf_counter()
    async with client.get(f"{address}/metrics", headers={"accept": ACCEPT}) as answer:
        text = await answer.text()
    return (time.perf_counter() - began) * 1e3, text


async def wait_for_all(client: aiohttp.ClientSession, address: str, waiting: int) -> None:
    """Wait until the page shows the whole backlog."""
    async with asyncio.timeout(_WITHIN_S):
        while waiting > sum(
            sample.value
            for family in parsed((await scrape(client, address))[1])
            for sample in family.samples
            if sample.name == metrics.BACKLOG
        ):
            await asyncio.sleep(1)


async def measure(child: Child, options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, list[float]] = {"scrape": [], "held": [], "control": []}
    async with aiohttp.ClientSession() as client:
        await wait_for_all(client, child.address, 9 * options.tenants)
        for _ in range(options.rounds):
            await asyncio.sleep(1)
            await child.held_ms()
            took, text = await scrape(client, child.address)
            found["scrape"].append(took)
            found["held"].append(await child.held_ms())
            await asyncio.sleep(took / 1e3)
            found["control"].append(await child.held_ms())
    return {
        "scrape_ms": statistics.median(found["scrape"]),
        "scrape_max_ms": max(found["scrape"]),
        "loop_held_ms": statistics.median(found["held"]),
        "loop_held_max_ms": max(found["held"]),
        "control_held_max_ms": max(found["control"]),
        "lines": text.count("\n"),
    }


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        nats, server = NatsServer(Path(folder) / "nats", fast=True), EtcdServer(Path(folder) / "etcd", fast=True)
        await asyncio.gather(nats.start(), server.start())
        etcd = EtcdCoordination([server.endpoint])
        child = await Child.start(nats.url, server.endpoint, options.labels)
        try:
            while await etcd.get(names.key("online", "leader")) is None:
                await asyncio.sleep(0.1)
            await backlog(nats.url, etcd, server.endpoint, options.tenants)
            return {"tenants": options.tenants, "labels": options.labels, **await measure(child, options)}
        finally:
            await child.stop()
            await etcd.close()
            await asyncio.gather(nats.stop(), server.stop())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=5_000)
    parser.add_argument("--labels", type=int, default=100, help="tenants with their own label")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("NATS", "ETCD", "LABELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        nats, etcd, labels = options.child
        tune_gc()  # as `evenlane run` does
        uvloop.run(serve(nats, etcd, int(labels)))
        return
    show(uvloop.run(run(options)), BARS, as_json=options.json)


if __name__ == "__main__":
    main()
