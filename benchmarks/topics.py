"""Benchmark of many topics: memory and start of a node, one change, a file of topics, a quota that changes constantly.

    python -m benchmarks.topics [--topics N] [--rounds R] [--apply N] [--edits N] [--json]

On a real etcd without fsync. The node's part is a fresh process each time:

memory     of a topic cache with N topics (tracemalloc), and the growth of the process as it loaded them (RSS)
load       from the start of the cache until all topics are known
change     from the put of a spec until the node's `on_change`, with 100 topics and with N; a leader accepts it
apply      `evenlane topics apply` of a file of new topics while a leader accepts them, from start to end
edits      puts of one quota, 50 at once: how often it is published, and when the last is in effect
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
import tracemalloc
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvloop

from benchmarks.figures import show
from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.plan import Manifest
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLUSTER_CONFIG = ClusterConfig()
FEW = 100
BARS = {"memory_mb": 20.0, "load_s": 3.0, "change_ratio": 2.0, "edits_last_s": 1.0}
_AT_ONCE = 50  # puts


def spec(number: int) -> dict[str, object]:
    """One of five shapes."""
    push = {"url": "https://acme.example/hook", "timeout": 5}
    return [
        {"qps": 100},
        {"qps": 5, "concurrency": 4, "ttl": 3_600},
        {"qps": 1_000, "weight": 10, "reserve": 100},
        {"qps": 20, "ordered": True, "backoff": {"base": 2}},
        {"qps": 50, "max_attempts": 3, "push": push},
    ][number % 5]


def specs_of(prefix: str, count: int) -> dict[str, dict[str, object]]:
    return {f"{prefix}-{number}": spec(number) for number in range(count)}


async def make_topics(etcd: EtcdCoordination, env: str, count: int) -> None:
    applying = ApplyPlan(etcd, env, CLUSTER_CONFIG)
    specs = {project: json.dumps(fields).encode() for project, fields in specs_of("customer", count).items()}
    outcome = await applying.carry_out(await applying.plan(Manifest(specs, {})))
    assert (count, []) == (len(outcome.written), outcome.waiting)


async def in_child(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.topics", "--child", *map(str, arguments)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    assert child.returncode == 0
    found: dict[str, Any] = json.loads(output)
    return found


async def load(endpoint: str, env: str, traced: str) -> dict[str, float]:
    """Load all topics, in a process of its own."""
    etcd = EtcdCoordination([endpoint])
    topic_cache = TopicCache(etcd, env)
    await etcd.get("warm")
    gc.collect()
    if traced == "traced":
        tracemalloc.start()
    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    await topic_cache.start()
    took = time.perf_counter() - began
    grown = psutil.Process().memory_info().rss - before
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0] if traced == "traced" else 0
    figures = {"topics": len(topic_cache.all()), "load_s": took, "traced_mb": memory / 1e6, "rss_mb": grown / 1e6}
    await topic_cache.close()
    await etcd.close()
    return figures


@asynccontextmanager
async def leader(endpoint: str, env: str) -> AsyncIterator[TopicController]:
    etcd = EtcdCoordination([endpoint])
    topic_controller = TopicController(etcd, env, CLUSTER_CONFIG, "leader")
    await topic_controller.start()
    await topic_controller.leading.wait()
    try:
        yield topic_controller
    finally:
        await topic_controller.close()
        await etcd.close()


@asynccontextmanager
async def node(endpoint: str, env: str) -> AsyncIterator[TopicCache]:
    etcd = EtcdCoordination([endpoint])
    topic_cache = TopicCache(etcd, env)
    await topic_cache.start()
    try:
        yield topic_cache
    finally:
        await topic_cache.close()
        await etcd.close()


async def change_seconds(topic_cache: TopicCache, etcd: EtcdCoordination, env: str, count: int) -> list[float]:
    changed = asyncio.Event()
    topic_cache.on_change.append(lambda _project, _now: changed.set())
    taken = []
    for number in range(count):
        await asyncio.sleep(0.03)  # otherwise the leader's pause after the last change would be measured
        changed.clear()
        began = time.perf_counter()
        await etcd.put(names.key(env, "topics", "customer-1"), b'{"qps": %d}' % (number + 10))
        await changed.wait()
        taken.append(time.perf_counter() - began)
    topic_cache.on_change.clear()
    return taken


async def changes(endpoint: str, etcd: EtcdCoordination, options: argparse.Namespace) -> dict[str, float]:
    """Measure with few and with many topics, interleaved, since the machine may be busy for a while."""
    taken: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(options.rounds):
        for env in taken:
            async with leader(endpoint, env), node(endpoint, env) as topic_cache:
                await change_seconds(topic_cache, etcd, env, 10)
                taken[env] += await change_seconds(topic_cache, etcd, env, 50)
    few, many = (statistics.median(taken[env]) for env in ("few", "many"))
    worst = max(taken["many"])
    return {
        "change_few_ms": few * 1e3,
        "change_ms": many * 1e3,
        "change_max_ms": worst * 1e3,
        "change_ratio": many / few,
    }


async def measure_apply(endpoint: str, folder: Path, count: int) -> dict[str, float]:
    path = folder / "topics.json"
    path.write_text(json.dumps(specs_of("filed", count)))
    async with leader(endpoint, "filed"):
        began = time.perf_counter()
        command = [
            sys.executable,
            "-c",
            "from evenlane.engine.cli.main import main; main()",
            "topics",
            "apply",
            str(path),
        ]
        child = await asyncio.create_subprocess_exec(
            *command, "--json", "--env", "filed", "--etcd", endpoint, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await child.communicate()
        took = time.perf_counter() - began
    document = json.loads(output)
    return {"apply_topics": count, "apply_s": took, "apply_accepted": document["accepted"]}


async def measure_edit(endpoint: str, etcd: EtcdCoordination, count: int) -> dict[str, float]:
    key, done = names.key("edited", "topics", "acme"), asyncio.Event()
    async with leader(endpoint, "edited"), node(endpoint, "edited") as topic_cache:
        published = []
        topic_cache.on_change.append(lambda _project, now: published.append(now.topic.qps))
        topic_cache.on_change.append(lambda _project, now: done.set() if now.topic.qps == 7_777 else None)
        began = time.perf_counter()
        for first in range(0, count, _AT_ONCE):
            await asyncio.gather(*(etcd.put(key, b'{"qps": %d}' % (first + n + 1)) for n in range(_AT_ONCE)))
        await etcd.put(key, b'{"qps": 7777}')
        wrote = time.perf_counter()
        await done.wait()
        last = time.perf_counter() - wrote
    return {"edits": count, "edits_s": wrote - began, "edits_published": len(published), "edits_last_s": last}


async def run(options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        server = EtcdServer(Path(folder) / "etcd", fast=True)
        await server.start()
        etcd = EtcdCoordination([server.endpoint])
        try:
            await make_topics(etcd, "few", FEW)
            await make_topics(etcd, "many", options.topics)
            loads = [await in_child(server.endpoint, "many", "plain") for _ in range(options.rounds)]
            traced = await in_child(server.endpoint, "many", "traced")
            figures = {
                "topics": traced["topics"],
                "memory_mb": traced["traced_mb"],
                "memory_rss_mb": statistics.median(each["rss_mb"] for each in loads),
                "load_s": statistics.median(each["load_s"] for each in loads),
            }
            figures |= await changes(server.endpoint, etcd, options)
            figures |= await measure_edit(server.endpoint, etcd, options.edits)
            if options.apply:
                figures |= await measure_apply(server.endpoint, Path(folder), options.apply)
            return figures
        finally:
            await etcd.close()
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apply", type=int, default=20_000, help="topics in the file; 0 leaves it out")
    parser.add_argument("--edits", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("ETCD", "ENV", "HOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(uvloop.run(load(*options.child))))
        return
    show(uvloop.run(run(options)), BARS, as_json=options.json)


if __name__ == "__main__":
    main()
