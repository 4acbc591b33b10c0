"""Tests of nodes that join and leave cleanly under load: nothing is lost or repeated, and pauses are short."""

import asyncio
import logging
from random import Random

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import ProcessCluster
from tests.ledger.handlers import forgive
from tests.ledger.promises import (
    begun_again,
    begun_too_late,
    check_generations,
    check_owner_keys,
    never_handled,
    partition,
    pause,
)
from tests.ledger.puts import one
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)


def figures(cluster: ProcessCluster, since: int) -> tuple[int, list[float]]:
    """The number of partitions that have moved since then, and the longest pause of each, in s."""
    made = [reign for reign in cluster.history.reigns() if reign.created > since]
    entries = cluster.entries()
    window = 500_000_000
    return len(made), sorted(
        pause(entries, reign.partition, reign.created - window, reign.created + window) for reign in made
    )


async def test_join_and_leave_under_load_repeat_nothing(tmp_path):
    """E6, E14, Z1, P6, P13, fault 3: L, no duplicates at all, one owner at any time. Handlers that run across both
    handoffs run once, and the leaving node waits for its own ones.
    """
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        a, b, c = await cluster.start("a", "b", "c")
        await cluster.topics(*cluster.projects, ack_wait=60)
        await cluster.owned_by(a, b, c)
        async with cluster.load(round_s=0.025) as load:  # so that messages end in the midst of each move
            await load.reaches_all()
            long = [one(project, "long", order="held") for project in cluster.projects]
            await cluster.put(await cluster.producer(), long)
            await until(lambda: {put.id for put in long} <= set(cluster.ids("begin")), 30, "the long ones to begin")
            before_join = now_ns()
            [d] = await cluster.start("d")
            await cluster.owned_by(a, b, c, d)
            await load.reaches_all()
            assert not {put.id for put in long} & set(cluster.ids())  # all of them run across the move
            moved, pauses = figures(cluster, before_join)
            before_leave = asked = now_ns()
            leaving = asyncio.create_task(b.stop())
            await until(lambda: cluster.history.owned("b") == [], 60, "all of b's to be released")
            assert not {put.id for put in long} & set(cluster.ids())
            forgive(a.ledger)
            assert 0 == await leaving
            took = (now_ns() - asked) / 1e9
            await cluster.owned_by(a, c, d)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
        assert moved <= len(cluster.projects) / 4 + 1  # d's share, and no more
        assert len(cluster.history.owned("d")) >= 2
        left, pauses_left = figures(cluster, before_leave)
        _log.info("join: %d moved, pauses %s s", moved, _brief(pauses))
        _log.info("leave: %d moved, pauses %s s; gone after %.2f s", left, _brief(pauses_left), took)


def _brief(pauses: list[float]) -> str:
    return " ".join(f"{each:.3f}" for each in pauses)


async def test_stuck_handlers_delay_only_their_own_node(tmp_path):
    """Fault 4: L, only the stuck messages are repeated, exit within the grace period; the others move at once."""
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        a, b = await cluster.start("a", "b", drain_grace=20)
        await cluster.topics(*cluster.projects, ack_wait=600)
        await cluster.owned_by(a, b)
        mine = [cluster.projects[number] for number in cluster.history.owned("a")]
        stuck = [one(project, "stuck", order="once hang") for project in mine[:3]]
        async with cluster.load() as load:
            await cluster.put(await cluster.producer(), stuck)
            await until(lambda: {put.id for put in stuck} <= set(cluster.ids("begin")), 30, "the stuck ones to begin")
            asked = now_ns()
            leaving = asyncio.create_task(a.stop())
            await until(lambda: cluster.history.owned("a") == [], 15, "all to be released")
            await load.reaches_all(timeout=15)
            moved_after = (now_ns() - asked) / 1e9
            assert not leaving.done(), "other messages wait for the stuck ones"
        assert 1 == await leaving  # not all handlers have ended
        took = (now_ns() - asked) / 1e9
        assert took < 40  # the grace, and time for a busy machine: the handlers never end
        await cluster.owned_by(b)
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert sorted(put.id for put in stuck) == sorted(entry.id for entry in begun_again(entries))
        assert [] == begun_too_late(entries)
        check_owner_keys(cluster.history)
        _log.info("all served elsewhere %.2f s after SIGTERM, gone after %.2f s", moved_after, took)


async def test_node_id_belongs_to_one_process(tmp_path):
    """E14: a second node of the same id refuses with one sentence and exit code 1, and the first one doesn't notice.
    Once the first is killed and its lease has ended, another takes its id over.
    No longer than that: tests/unit/cluster/ownership/test_lease.py.
    """
    async with ProcessCluster(tmp_path) as cluster:
        [a] = await cluster.start("a")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(a)
        async with cluster.load():
            second = cluster.add_node(name="a")
            second.log = tmp_path / "second.log"
            await second.spawn()
            assert 1 == await second.ended()
        lines = [line for line in second.last_words().splitlines() if line.startswith("evenlane: ")]
        assert ["evenlane: a node 'a' is already running: give this one another --node"] == lines
        assert "Traceback" not in second.last_words()
        assert {a.pid} == {entry.pid for entry in cluster.entries()}
        assert {None} == {reign.deleted for reign in cluster.history.reigns()}
        before, reigns = len(cluster.entries()), len(cluster.history.reigns())
        await a.kill()
        again = cluster.add_node(name="a")
        await again.spawn()
        await until(lambda: all(each.deleted for each in cluster.history.reigns()[:reigns]), what="the lease's end")
        await again.ready()
        await cluster.owned_by(again)
        await cluster.put(await cluster.producer(), [one(each, "last") for each in cluster.projects])
        await cluster.handled()
        assert {again.pid} == {entry.pid for entry in cluster.entries()[before:]}


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
async def test_overlapping_joins_and_leaves_repeat_nothing(tmp_path, seed):
    """L, O, Z1: no duplicates at all, however the moves overlap."""
    chance = Random(seed)
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        nodes = await cluster.start("n0", "n1")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(*nodes)
        async with cluster.load(round_s=0.025) as load:
            for number in range(2, 12):
                if len(nodes) > 1 and (chance.random() < 0.5 or len(nodes) > 4):
                    assert 0 == await nodes.pop(chance.randrange(len(nodes))).stop()
                else:
                    nodes += await cluster.start(f"n{number}")
                if chance.random() < 0.5:
                    await cluster.owned_by(*nodes)
            await cluster.owned_by(*nodes)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)
        assert set(range(cluster.partitions)) == {partition(entry) for entry in entries}
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
