"""Benchmark of waits while another project floods its partition with bytes: messages of 1 MiB at 120 MB/s.

    python -m benchmarks.flood [--rate MB/S] [--size BYTES] [--seconds N] [--rounds R] [--qps N] [--groups N] [--json]

One nats-server with file storage, one process that floods, and one node. `near` has a queue on the partition of the
flood, `elsewhere` one on another partition. Both get 50 small messages per second. The wait is the time from before a
put until its handler begins. Arms, interleaved over the rounds:

calm    without the flood
bodies  with the flood, on a node whose feeds deliver each message with its body
flood   with the flood, on an unchanged node: a feed that lags by bytes leaves bodies in the stream
N       with the flood, on a node whose feeds leave bodies in the stream once they lag by N MiB
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import uvloop

from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store import byte_lag
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import complete, parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 4
CLUSTER_CONFIG = ClusterConfig(partitions=PARTITIONS, max_group_qps=1_000_000)
LANES = [LaneId(kind, number) for kind in ("lanes", "later") for number in range(PARTITIONS)]
SMALL = 50  # messages per second of each small project
PLACES = {"near": 0, "elsewhere": 1}  # their partitions; the flood's is 0
WINDOW = 32  # messages of the flood on their way
_LAG_BYTES = byte_lag.LAG_BYTES


class AllBodies(JetStreamStore):
    """A store whose feeds deliver every body."""

    def feed(self, *args: Any, **options: Any) -> Any:
        return super().feed(*args, **{**options, "on_head": None})


async def open_store(url: str, env: str, kind: type[JetStreamStore] = JetStreamStore) -> JetStreamStore:
    store = kind(NatsOptions((url,)), env)
    await store.open()
    await store.prepare(LANES)
    return store


async def flood(url: str, env: str, options: argparse.Namespace) -> None:
    """Flood until the time is over, and print the MB/s."""
    store = await open_store(url, env)
    body, free, count, start = b"x" * options.size, asyncio.Semaphore(WINDOW), 0, monotonic()
    while (spent := monotonic() - start) < options.seconds:
        if count * options.size > spent * options.rate * 1e6:
            await asyncio.sleep(0.002)
            continue
        await free.acquire()
        subject = lane_subject(env, 0, "flood", count % options.groups, CLUSTER_CONFIG.priorities[1])
        stored = store.put(subject, h.encode({h.ID: f"flood:{count:x}"}), body)
        stored.add_done_callback(lambda _: free.release())
        count += 1
    await stored
    print(count * options.size / 1e6 / (monotonic() - start))
    await store.close()


class Waits:
    """The handler's ledger: the put time of each message, and the waits in s."""

    def __init__(self) -> None:
        self.put: dict[bytes, float] = {}
        self.waited: dict[str, list[float]] = {name: [] for name in PLACES}
        self.flooded = 0

    async def handle(self, message: Any) -> None:
        if message.project == "flood":
            self.flooded += 1
        else:
            self.waited[message.project].append(monotonic() - self.put.pop(message.body))


async def put_small(store: JetStreamStore, env: str, waits: Waits, seconds: float) -> None:
    start, number = monotonic(), 0
    while monotonic() - start < seconds:
        for project, partition in PLACES.items():
            number += 1
            body = b"%d" % number
            waits.put[body] = monotonic()
            subject = lane_subject(env, partition, project, 0, CLUSTER_CONFIG.priorities[1])
            store.put(subject, h.encode({h.ID: f"{project}:{number:x}"}), body)
        await asyncio.sleep(1 / SMALL)


async def run(url: str, env: str, arm: str, options: argparse.Namespace) -> dict[str, float]:
    byte_lag.LAG_BYTES = int(arm) << 20 if arm.isdigit() else _LAG_BYTES
    store = await open_store(url, env, AllBodies if arm == "bodies" else JetStreamStore)
    putting, waits = await open_store(url, env), Waits()
    specs = dict.fromkeys(PLACES, b'{"qps": 100000}')
    specs["flood"] = b'{"qps": %d, "groups": %d}' % (options.qps, options.groups)
    topics = {name: complete(parse_spec(spec), CLUSTER_CONFIG) for name, spec in specs.items()}
    node = Node(store, CLUSTER_CONFIG, RouteTable.of(waits.handle), topics.get, cluster=env)
    await node.start()
    await node.take_over(range(PARTITIONS), 1)
    found: dict[str, float] = {}
    flooding = await _start_flood(url, env, options) if arm != "calm" else None
    await put_small(putting, env, waits, options.seconds)
    end = monotonic()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(120):
            while waits.put:
                await asyncio.sleep(0.01)
    found["caught up after, s"] = monotonic() - end
    if flooding is not None:
        line, _ = await flooding.communicate()
        found["flood, MB/s"] = float(line)
        found["flood handled"] = waits.flooded
    await putting.close()
    await node.stop(5)
    await store.close()
    return found | dict(_figures(waits))


def _figures(waits: Waits) -> Iterator[tuple[str, float]]:
    for project, waited in waits.waited.items():
        ordered = sorted(waited)
        yield f"{project} p50, ms", 1e3 * statistics.median(ordered)
        yield f"{project} p99, ms", 1e3 * ordered[int(0.99 * len(ordered))]
        yield f"{project} most, ms", 1e3 * ordered[-1]


async def _start_flood(url: str, env: str, options: argparse.Namespace) -> asyncio.subprocess.Process:
    words = [f"--{name}={getattr(options, name)}" for name in ("rate", "size", "seconds", "groups")]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.flood", "--flood", url, env, *words, stdout=asyncio.subprocess.PIPE
    )


async def measure(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for arm in options.arms.split(","):
            with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
                server = NatsServer(Path(folder), fast=True)
                await server.start()
                try:
                    figures = await run(server.url, f"e{number}", arm, options)
                finally:
                    await server.stop()
            found.setdefault(arm, []).append(figures)
            line = "  ".join(f"{name} {value:,.1f}" for name, value in figures.items())
            print(f"round {number + 1}: {arm:8}{line}", file=sys.stderr)
    return found


def show(found: dict[str, list[dict[str, float]]]) -> None:
    names = sorted({name for rounds in found.values() for each in rounds for name in each})
    print(f"\n{'median of the rounds':24}" + "".join(f"{arm:>12}" for arm in found))
    for name in names:
        each = [[figures[name] for figures in rounds if name in figures] for rounds in found.values()]
        print(f"{name:24}" + "".join(f"{_median(values):>12}" for values in each))


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):,.1f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Waits during a flood of bytes.")
    parser.add_argument("--rate", type=float, default=120.0, help="MB/s")
    parser.add_argument("--size", type=int, default=(1 << 20) - 512, help="bytes of a body")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--qps", type=int, default=10, help="of the flood's topic")
    parser.add_argument("--groups", type=int, default=1, help="of the flood's topic, all on one partition")
    parser.add_argument("--arms", default="calm,bodies,flood")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flood", nargs=2, metavar=("URL", "ENV"), help=argparse.SUPPRESS)
    tune_gc()
    options = parser.parse_args()
    if options.flood:
        uvloop.run(flood(*options.flood, options))
    elif options.json:
        print(json.dumps(uvloop.run(measure(options)), indent=2))
    else:
        show(uvloop.run(measure(options)))


if __name__ == "__main__":
    main()
