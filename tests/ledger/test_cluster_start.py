"""Tests of many nodes that start at once, and of their requests to etcd then and when idle."""

import asyncio
import logging
from collections import Counter
from pathlib import Path

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import ProcessCluster
from tests.ledger.etcd_requests import received
from tests.ledger.history import Reign
from tests.ledger.process import NodeProcess
from tests.ledger.promises import SECOND, check_generations, check_owner_keys

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

MOST_FOR_A_NODE = 60  # requests until it owns its partitions
IDLE_S = 20
MOST_IDLE = 50.0  # requests/s of 50 nodes


def mib(nodes: list[NodeProcess]) -> float:
    """Memory of the processes together, without their shared pages."""
    sizes = [Path(f"/proc/{node.pid}/smaps_rollup").read_text() for node in nodes]
    return sum(int(size.partition("Pss:")[2].split()[0]) for size in sizes) / 1024


def moves(reigns: list[Reign], *, since: int) -> Counter[int]:
    """The number of moves of each partition since then. The first owner isn't a move."""
    owned_before: set[int] = set()
    found: Counter[int] = Counter()
    for reign in reigns:
        if reign.partition in owned_before and reign.created > since:
            found[reign.partition] += 1
        owned_before.add(reign.partition)
    return found


@pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.timeout(400)
async def test_simultaneous_starts_move_each_partition_at_most_once(tmp_path, count):
    """Fault 18: counted from when all have a plan; requests to etcd are bounded."""
    async with ProcessCluster(tmp_path, partitions=128, lease_ttl=10, start_timeout=120) as cluster:
        began = now_ns()
        nodes = await cluster.start(*(f"n{number}" for number in range(count)), within_s=200)
        await cluster.owned_by(*nodes, timeout=200)
        took = (now_ns() - began) / SECOND
        requests = await received(cluster.servers.etcd)
        history = cluster.history
        all_planned = max(next(s.at for s in history.seen if s.key == f"plan/{name}") for name in history.nodes)
        reigns = history.reigns()
        after = moves(reigns, since=all_planned)
        generation = history.value("generation")["generation"]
        _log.info(
            "%d nodes: %.1f s until all was as planned, %d plans, %d moves in all, %d after all had a plan; "
            "%d requests: %s; %.0f MiB",
            count, took, generation, len(reigns) - 128, after.total(), requests.total(),
            ", ".join(f"{method} {number}" for method, number in requests.most_common(6)), mib(nodes),
        )  # fmt: skip
        assert max(after.values(), default=0) <= 1
        assert requests.total() < MOST_FOR_A_NODE * count + 10 * len(reigns)
        check_owner_keys(history)
        check_generations(history)


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [12, 50])
async def test_idle_nodes_ask_etcd_seldom(tmp_path, count):
    """M, P2: at most 50 requests/s for 50 nodes, with the default lease of 10 s."""
    async with ProcessCluster(tmp_path, partitions=128, lease_ttl=10, start_timeout=120) as cluster:
        nodes = await cluster.start(*(f"n{number}" for number in range(count)), within_s=200)
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(*nodes, timeout=200)
        generation = cluster.history.value("generation")
        before = await received(cluster.servers.etcd)
        await asyncio.sleep(IDLE_S)  # nothing may happen meanwhile
        asked = (await received(cluster.servers.etcd)) - before
        rate = asked.total() / IDLE_S
        _log.info(
            "%d idle nodes: %.1f requests/s, so %.1f for 50: %s",
            count, rate, rate * 50 / count, ", ".join(f"{name} {n / IDLE_S:.1f}" for name, n in asked.most_common()),
        )  # fmt: skip
        assert rate * 50 / count <= MOST_IDLE
        assert generation == cluster.history.value("generation")
