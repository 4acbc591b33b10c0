"""Benchmark of silent projects: CPU and memory of nodes with and without them, measured at the same time.

    python -m benchmarks.idle [--sizes 0,5000x1,20000x3] [--seconds S] [--rounds R] [--json]

One real nats-server and etcd; for each size an environment with one node in a process of its own, which also leads,
with all defaults. A size is topics x priorities: each of these queues gets one message, and then nothing more happens.
All nodes are measured over the same seconds, so other work of the machine affects all alike. The rows of a silent queue
in meter records are packed in its first turn, so the first round begins when each queue has had its turn.
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
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
import uvloop

from evenlane import Engine, Producer
from evenlane.engine.base import names
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.plan import Manifest
from evenlane.engine.core.records.meter_record import INTERVAL_S, REFRESH
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BAR = 1.25  # of the node without projects, in CPU
_SPEC = b'{"qps": 10}'
_AT_ONCE = 2_000  # puts
_WITHIN_S = 300.0


class Size(NamedTuple):
    topics: int
    priorities: int

    @classmethod
    def parse(cls, text: str) -> Size:
        topics, _, priorities = text.partition("x")
        return cls(int(topics), int(priorities or 1))

    @property
    def queues(self) -> int:
        return self.topics * self.priorities

    @property
    def env(self) -> str:
        return f"silent{self.topics}x{self.priorities}"

    def __str__(self) -> str:
        return f"{self.topics:,} topics, {self.queues:,} queues"


# ---- a node, in a process of its own


async def serve(nats: str, etcd: str, env: str) -> None:
    """Serve, and answer each line with: messages handled, processor seconds, resident bytes."""
    handled = 0

    async def handle(_message: object) -> None:
        nonlocal handled
        handled += 1

    async with Engine(handle, nats=[nats], etcd=[etcd], env=env, http_port=0, node="n") as engine:
        running = asyncio.create_task(engine.run())
        async for _ in _lines():
            print(json.dumps([handled, time.process_time(), psutil.Process().memory_info().rss]), flush=True)
        engine.stop()
        await running


async def _lines() -> AsyncIterator[bytes]:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        yield line


class Child:
    """The node, for its parent."""

    def __init__(self, size: Size, process: asyncio.subprocess.Process) -> None:
        self.size, self._process = size, process
        self.pid = process.pid
        self.rss_before = 0

    @classmethod
    async def start(cls, size: Size, nats: str, etcd: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.idle", "--child", nats, etcd, size.env,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return cls(size, process)

    async def read_figures(self) -> tuple[int, float, int]:
        """Return messages handled, processor seconds, resident bytes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        handled, processor, rss = json.loads(await self._process.stdout.readline())
        return handled, processor, rss

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


# ---- the silent projects


async def fill_queues(child: Child, nats: str, endpoint: str, etcd: EtcdCoordination) -> None:
    """Make the topics of the node's environment, and put a message into every queue."""
    size = child.size
    while await etcd.get(names.key(size.env, "leader")) is None:
        await asyncio.sleep(0.1)
    await asyncio.sleep(5)
    child.rss_before = (await child.read_figures())[2]
    if not size.topics:
        return
    specs = {f"tenant-{number}": _SPEC for number in range(size.topics)}
    applying = ApplyPlan(etcd, size.env, ClusterConfig())
    await applying.carry_out(await applying.plan(Manifest(specs, {})))
    await _wait_until_accepted(etcd, size)
    async with Producer(nats=[nats], etcd=[endpoint], env=size.env) as producer:
        puts = [(project, priority) for project in specs for priority in ClusterConfig().priorities[: size.priorities]]
        for start in range(0, len(puts), _AT_ONCE):
            some = puts[start : start + _AT_ONCE]
            await asyncio.gather(*(producer.put(project, b"x", priority=band) for project, band in some))
    async with asyncio.timeout(_WITHIN_S):
        while (await child.read_figures())[0] < size.queues:
            await asyncio.sleep(0.5)


async def _wait_until_accepted(etcd: EtcdCoordination, size: Size) -> None:
    prefix = names.key(size.env, "accepted", "")
    async with asyncio.timeout(_WITHIN_S):
        while len((await etcd.list(prefix)).items) < size.topics:
            await asyncio.sleep(1)


# ---- measurement


class Figures(NamedTuple):
    """CPU in % of a core, one value per round, and the bytes of memory that the silent projects added."""

    size: Size
    cpu: list[float]
    grown: int

    @property
    def median(self) -> float:
        return statistics.median(self.cpu)


async def measure(children: list[Child], options: argparse.Namespace) -> list[Figures]:
    cpu: list[list[float]] = [[] for _ in children]
    for number in range(options.rounds):
        before = [(time.perf_counter(), await child.read_figures()) for child in children]
        await asyncio.sleep(options.seconds)
        for child, (began, (_, processor, _)), found in zip(children, before, cpu, strict=True):
            _, now, _ = await child.read_figures()
            found.append(100 * (now - processor) / (time.perf_counter() - began))
        print_line(f"round {number + 1}: " + ", ".join(f"{each[-1]:.2f} %" for each in cpu))
    grown = [(await child.read_figures())[2] - child.rss_before for child in children]
    return [Figures(child.size, found, more) for child, found, more in zip(children, cpu, grown, strict=True)]


async def run(options: argparse.Namespace) -> list[Figures]:
    with tempfile.TemporaryDirectory() as folder:
        nats, server = NatsServer(Path(folder) / "nats", fast=True), EtcdServer(Path(folder) / "etcd", fast=True)
        await asyncio.gather(nats.start(), server.start())
        etcd = EtcdCoordination([server.endpoint])
        children: list[Child] = []
        try:
            for size in options.sizes:
                children.append(await Child.start(size, nats.url, server.endpoint))
                await fill_queues(children[-1], nats.url, server.endpoint, etcd)
                print_line(f"{size}: silent from now on, process {children[-1].pid}")
            await asyncio.sleep(options.settle)
            gc.collect()
            return await measure(children, options)
        finally:
            await asyncio.gather(*(child.stop() for child in children))
            await etcd.close()
            await asyncio.gather(nats.stop(), server.stop())


def print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(found: list[Figures]) -> None:
    base = found[0]
    print(f"{'node with':34}{'% of a core (least to most)':>30}{'ratio':>8}{'more':>10}{'memory':>12}{'a queue':>10}")
    for each in found:
        cpu = f"{each.median:.2f} ({min(each.cpu):.2f} to {max(each.cpu):.2f})"
        ratio = statistics.median(mine / its for mine, its in zip(each.cpu, base.cpu, strict=True))
        more = statistics.median(mine - its for mine, its in zip(each.cpu, base.cpu, strict=True))
        memory = each.grown - base.grown
        a_queue = f"{memory / each.size.queues:,.0f} B" if each.size.queues else ""
        verdict = "" if each is base else f"  at most {BAR}: {'ok' if ratio <= BAR else 'MISSED'}"
        print(f"{each.size!s:34}{cpu:>30}{ratio:8.2f}{more:+9.2f}%{memory / 1e6:10.1f}MB{a_queue:>10}{verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="0,5000x1,20000x3", help="topics x priorities; the first is compared with")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--settle", type=float, default=REFRESH * INTERVAL_S + 10, help="seconds of silence before the first round"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("NATS", "ETCD", "ENV"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tune_gc()  # as `evenlane run` does
        uvloop.run(serve(*options.child))
        return
    options.sizes = [Size.parse(text) for text in options.sizes.split(",")]
    found = uvloop.run(run(options))
    if options.json:
        print(json.dumps([{**each.size._asdict(), "cpu": each.cpu, "bytes": each.grown} for each in found], indent=2))
    else:
        show(found)


if __name__ == "__main__":
    main()
