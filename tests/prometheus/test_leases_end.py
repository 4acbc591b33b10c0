"""Prometheus after leases ended: all leases, since etcd is away, or one lease."""

import pytest

from evenlane.engine.base import names
from tests.prometheus import load
from tests.prometheus.look import Look, by
from tests.prometheus.stage import stage

pytestmark = [pytest.mark.real, pytest.mark.full]

_LEASE_S = 6  # none ends because the machine pauses
_TABLE = "fleet / table / The nodes"
_OWNED, _LEADS, _LEFT = (f"{_TABLE} / {ref}" for ref in "ADE")


async def test_outage_of_etcd_is_visible_until_it_returns(tmp_path):
    """Fault 9: there is no leader and no lease is renewed; all recovers without help."""
    async with stage(tmp_path, lease_ttl=_LEASE_S) as on:
        look, etcd = Look(on.api), on.world.servers.etcd
        nodes = {node.address for node in await on.nodes()}
        await look.shows(_LEADS, lambda found: sorted(by("instance", found).values()) == [0, 1])
        await look.shows("alert / EvenlaneNoLeader", lambda found: not found)

        await etcd.kill()
        await look.shows("alert / EvenlaneLeaseTrouble", lambda found: by("instance", found).keys() == nodes)
        await look.shows(_LEFT, lambda found: max(by("instance", found).values()) < 0)
        await look.shows("alert / EvenlaneNoLeader", lambda found: 1 == len(found))
        assert {0.0} == set(by("instance", await look.at(_LEADS)).values())

        await etcd.start()
        await look.shows(_LEADS, lambda found: sorted(by("instance", found).values()) == [0, 1])
        await look.shows(_OWNED, lambda found: sum(by("instance", found).values()) == load.PARTITIONS)
        for alert in ("NoLeader", "LeaseTrouble"):
            await look.shows(f"alert / Evenlane{alert}", lambda found: not found)


async def test_revoked_lease_is_visible_as_lost_partitions(tmp_path):
    """Others take the partitions over; the node reports the number that it lost, and rejoins."""
    async with stage(tmp_path, lease_ttl=_LEASE_S) as on:
        look, etcd = Look(on.api), on.world.etcd
        await look.shows(_OWNED, lambda found: sum(by("instance", found).values()) == load.PARTITIONS)
        loser = next(node for node in await on.nodes() if not node.leads)

        record = await etcd.get(names.key("online", "nodes", loser.name))
        await etcd.revoke(record.lease)
        lost = "alert / EvenlanePartitionsLost"
        await look.shows(lost, lambda found: list(by("instance", found)) == [loser.address])
        await look.shows("fleet / timeseries / Rebalances / A", lambda found: by("how", found)["lost"] > 0)
        lost_moves = f'evenlane_partition_moves_total{{how="lost",instance="{loser.address}"}}'
        assert len(loser.epochs) == await on.api.value(lost_moves)

        await look.shows(_OWNED, lambda found: len(found) == 2 and min(by("instance", found).values()) > 0)
        await look.shows(lost, lambda found: not found)
