"""Tests of messages that kill their process (X11), under a load that reaches every partition."""

import logging
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import ProcessCluster
from tests.ledger.promises import SECOND, never_handled, pause
from tests.ledger.puts import some
from tests.ledger.replay import check_handled_twice
from tests.ledger.supervised import Supervised
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

ATTEMPTS = 3
LONGEST_PAUSE_S = 30.0  # of one partition: a takeover, and another one if the next owner dies, too


@asynccontextmanager
async def supervised(cluster: ProcessCluster, count: int):
    """Start `count` nodes that are restarted when they die, and make the topics of the load."""
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(Supervised(cluster, f"node-{number}", concurrency=16))
            for number in range(count)
        ]
        await cluster.topics(*cluster.projects, "poison", max_attempts=ATTEMPTS)
        yield nodes


async def dies_out(cluster: ProcessCluster, nodes: list[Supervised], order: str, count: int, timeout: float) -> None:
    """Put `count` killers at once, wait until all are dead letters, and check their effects."""
    poison = some("poison", "p", count, order=order)
    ids = {put.id for put in poison}
    dead = await cluster.dead_letters()
    async with cluster.load() as load:
        await load.reaches_all()
        producer = await cluster.producer()
        start = now_ns()
        await cluster.put(producer, poison)
        for own in ids:
            del cluster.acknowledged[own]  # no handler will ever end it

        async def all_dead() -> bool:
            return ids <= await dead.ids()

        await until(all_dead, timeout, "the dead letters")
        took = (now_ns() - start) / SECOND
        await load.reaches_all()
    dead_letters = await dead.read()
    assert dict.fromkeys(ids, 1) == Counter(dead_letter.id for dead_letter in dead_letters)
    assert all("its process died" in dead_letter.reason for dead_letter in dead_letters), {
        dead_letter.reason for dead_letter in dead_letters
    }
    begun = Counter(entry.id for entry in cluster.entries() if entry.what == "begin" and entry.id in ids)
    killed = [end for node in nodes for end in node.killed]
    # The first death counts no attempt. A killer that is about to start may pay for the death by another one.
    least = ATTEMPTS if count == 1 else ATTEMPTS - 1
    assert all(least <= times <= ATTEMPTS + 1 for times in begun.values()), begun
    if count == 1:
        assert len(killed) <= ATTEMPTS + 1
    assert set() == never_handled(cluster.acknowledged, cluster.entries())
    doubled = check_handled_twice([entry for entry in cluster.entries() if entry.id not in ids], killed)
    pauses = sorted(pause(cluster.entries(), number, start, now_ns()) for number in range(cluster.partitions))
    _log.info(
        "%d poison (%s): dead after %.1f s and %d deaths, begun %s; a neighbour's partition without service for %.1f s"
        " (median), %.1f s (most); handled twice %d of %d",
        count, order, took, len(killed), sorted(begun.values()), pauses[len(pauses) // 2], pauses[-1],
        len(doubled), len(cluster.acknowledged),
    )  # fmt: skip
    assert pauses[-1] < LONGEST_PAUSE_S


@pytest.mark.parametrize("order", [pytest.param("exit", marks=pytest.mark.full), "crash"])
async def test_killer_is_dead_lettered_after_n_attempts(tmp_path, order):
    """Fault 15, X11: at most N + 1 deaths, across two nodes that are restarted. No other message is lost or dead."""
    async with ProcessCluster(tmp_path) as cluster, supervised(cluster, 2) as nodes:
        await dies_out(cluster, nodes, order, 1, timeout=60)


@pytest.mark.full
async def test_several_killers_are_dead_lettered(tmp_path):
    """Fault 15, X11: four killers of one tenant, on three nodes."""
    async with ProcessCluster(tmp_path) as cluster, supervised(cluster, 3) as nodes:
        await dies_out(cluster, nodes, "exit", 4, timeout=180)
