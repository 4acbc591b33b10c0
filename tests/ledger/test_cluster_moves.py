"""Nodes join and leave in order, under load: nothing is lost, nothing comes twice, nobody waits for long."""

import asyncio
import logging

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

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

_log = logging.getLogger(__name__)


def figures(cluster: ProcessCluster, since: int) -> tuple[int, list[float]]:
    """How many partitions have moved since then, and the longest pause of each, in s."""
    made = [reign for reign in cluster.history.reigns() if reign.created > since]
    entries = cluster.entries()
    window = 500_000_000
    return len(made), sorted(
        pause(entries, reign.partition, reign.created - window, reign.created + window) for reign in made
    )


async def test_a_node_joins_and_one_leaves_under_load(tmp_path):
    """E6, E14, Z1, P6, P13, fault 3: L, no duplicates at all, one owner at any time; handlers that run across both
    hand-overs run once, and the leaver waits for its own of them.
    """
    async with ProcessCluster(tmp_path) as cluster:
        a, b, c = await cluster.start("a", "b", "c")
        await cluster.topics(*cluster.projects, ack_wait=60)
        await cluster.carried_out(a, b, c)
        async with cluster.load() as load:
            await load.reaches_all()
            long = [one(project, "long", order="held") for project in cluster.projects]
            await cluster.put(await cluster.producer(), long)
            await until(lambda: {put.id for put in long} <= set(cluster.ids("begin")), 10, "the long ones to begin")
            before_join = now_ns()
            [d] = await cluster.start("d")
            await cluster.carried_out(a, b, c, d)
            await load.reaches_all()
            assert not {put.id for put in long} & set(cluster.ids())  # all of them run across the move
            moved, pauses = figures(cluster, before_join)
            before_leave = asked = now_ns()
            leaving = asyncio.create_task(b.stop())
            await until(lambda: cluster.history.owned("b") == [], 20, "all of b's to be released")
            assert not {put.id for put in long} & set(cluster.ids())
            forgive(a.ledger)
            assert 0 == await leaving
            took = (now_ns() - asked) / 1e9
            await cluster.carried_out(a, c, d)
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


async def test_sigterm_of_a_node_with_handlers_that_never_end(tmp_path):
    """Fault 4: L, only what was stuck comes again, exit inside the grace period; what isn't stuck moves at once."""
    async with ProcessCluster(tmp_path) as cluster:
        a, b = await cluster.start("a", "b", drain_grace=8)
        await cluster.topics(*cluster.projects, ack_wait=600)
        await cluster.carried_out(a, b)
        mine = [cluster.projects[number] for number in cluster.history.owned("a")]
        stuck = [one(project, "stuck", order="once hang") for project in mine[:3]]
        async with cluster.load() as load:
            await cluster.put(await cluster.producer(), stuck)
            await until(lambda: {put.id for put in stuck} <= set(cluster.ids("begin")), 10, "the stuck ones to begin")
            asked = now_ns()
            leaving = asyncio.create_task(a.stop())
            await until(lambda: cluster.history.owned("a") == [], 7, "all to be released")
            await load.reaches_all(timeout=7)
            moved_after = (now_ns() - asked) / 1e9
            assert not leaving.done(), "what isn't stuck waits for what is"
            assert 1 == await leaving  # it can't say that all was ended
            took = (now_ns() - asked) / 1e9
            assert took < 16  # the grace, and what a busy machine adds: its handlers never end
            await cluster.carried_out(b)
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert sorted(put.id for put in stuck) == sorted(entry.id for entry in begun_again(entries))
        assert [] == begun_too_late(entries)
        check_owner_keys(cluster.history)
        _log.info("all served elsewhere %.2f s after SIGTERM, gone after %.2f s", moved_after, took)


async def test_a_second_node_of_the_same_id_refuses(tmp_path):
    """It says so in one sentence, exit code 1, and the first one doesn't notice."""
    async with ProcessCluster(tmp_path) as cluster:
        [a] = await cluster.start("a")
        await cluster.topics(*cluster.projects)
        await cluster.carried_out(a)
        async with cluster.load():
            second = cluster.made("a")
            second.log = tmp_path / "second.log"
            await second.spawn()
            assert 1 == await second.ended()
        lines = [line for line in second.last_words().splitlines() if line.startswith("evenlane: ")]
        assert ["evenlane: a node 'a' runs already: give this one another --node"] == lines
        assert "Traceback" not in second.last_words()
        assert {a.pid} == {entry.pid for entry in cluster.entries()}
        assert {None} == {reign.deleted for reign in cluster.history.reigns()}


async def test_a_node_of_the_same_id_takes_over_from_one_that_was_killed(tmp_path):
    """E14: by itself, once the lease of its former life has ended.
    No longer than that: tests/unit/cluster/ownership/test_lease.py.
    """
    async with ProcessCluster(tmp_path) as cluster:
        [a] = await cluster.start("a")
        await cluster.topics(*cluster.projects)
        await cluster.carried_out(a)
        await a.kill()
        again = cluster.made("a")
        await again.spawn()
        await until(lambda: not cluster.history.owners, 10, "the lease to end")
        await again.ready()
        await cluster.carried_out(again)
        await cluster.put(await cluster.producer(), [one(each, "last") for each in cluster.projects])
        await cluster.handled()
        assert {again.pid} == {entry.pid for entry in cluster.entries()}


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
async def test_nodes_come_and_go_again_and_again(tmp_path, seed):
    """L, O, Z1: no duplicates at all, however the moves overlap."""
    from random import Random

    chance = Random(seed)
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await cluster.start("n0", "n1")
        await cluster.topics(*cluster.projects)
        await cluster.carried_out(*nodes)
        async with cluster.load() as load:
            for number in range(2, 12):
                if len(nodes) > 1 and (chance.random() < 0.5 or len(nodes) > 4):
                    assert 0 == await nodes.pop(chance.randrange(len(nodes))).stop()
                else:
                    nodes += await cluster.start(f"n{number}")
                if chance.random() < 0.5:
                    await cluster.carried_out(*nodes)
            await cluster.carried_out(*nodes)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)
        assert set(range(cluster.partitions)) == {partition(entry) for entry in entries}
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
