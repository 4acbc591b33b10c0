"""Prometheus while a node dies by kill -9, and after its return."""

from urllib.parse import urlsplit

import pytest

from evenlane.engine.producer.put import Put
from tests.ledger.cluster import one_for_each
from tests.prometheus import load
from tests.prometheus.look import Look, by, value
from tests.prometheus.stage import stage
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]

_LEASE_S = 10  # so that the time without an owner is seen
_NODES, _UNOWNED = "fleet / table / The nodes / A", "fleet / stat / Without owner / A"


async def test_killed_node_and_its_takeover_are_visible(tmp_path):
    """Fault 1: its partitions have no owner, then another one; its messages in flight may be handled twice. Then it
    rejoins, and gets a share.
    """
    async with stage(tmp_path, lease_ttl=_LEASE_S) as on:
        look, world = Look(on.api), on.world
        other, victim = await on.nodes()
        in_flight = await _put_in_flight(victim, world)
        await look.shows(_NODES, lambda found: by("instance", found) == _owned(other, victim))

        await on.processes["node-b"].kill()
        await look.shows(_UNOWNED, lambda found: value(found) == len(victim.epochs))
        down = {"instance": victim.address, "job": "evenlane"}
        await look.shows("alert / EvenlaneNodeDown", lambda found: [down] == [each.labels for each in found])
        assert 1 == value(await look.at("fleet / stat / Nodes / A"))

        await look.shows(_NODES, lambda found: by("instance", found) == {other.address: load.PARTITIONS})
        assert 0 == value(await look.at(_UNOWNED))
        await look.shows("fleet / annotation / Rebalance", bool)
        await look.shows("fleet / timeseries / Rebalances / A", lambda found: by("how", found)["acquired"] >= in_flight)
        twice = "delivery / timeseries / Maybe handled twice, by cause / A"
        await look.shows(twice, lambda found: by("cause", found)["crash"] > 0)

        async def all_are_counted() -> bool:
            return in_flight == await on.api.value('sum(evenlane_duplicates_total{cause="crash"})')

        await until(all_are_counted)

        await world.node(name="node-b", http_port=urlsplit(f"http://{victim.address}").port)
        await look.shows(_NODES, _both_own)
        await look.shows("alert / EvenlaneNodeDown", lambda found: not found)
        assert 0 == value(await look.at(_UNOWNED))


async def _put_in_flight(node, world) -> int:
    """Have the node handle one message of each of its partitions until its end; return their number."""
    every = one_for_each(load.PARTITIONS)
    await world.topics(*every, qps=100)  # the same quota for all, so that no partition moves because of its load
    projects = [every[partition] for partition in node.epochs]
    producer = await world.producer()
    await world.put(producer, [Put(each, b"x", id=each, headers={"order": "first alive 600"}) for each in projects])
    await until(lambda: len(world.entries()) == len(projects), what="all to be begun")
    assert {node.pid} == {entry.pid for entry in world.entries()}
    return len(projects)


def _both_own(found) -> bool:
    owned = by("instance", found).values()
    return len(owned) == 2 and sum(owned) == load.PARTITIONS and min(owned) > 0


def _owned(*nodes):
    return {node.address: len(node.epochs) for node in nodes}
