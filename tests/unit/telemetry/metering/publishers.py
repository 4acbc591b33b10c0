"""Meter publishers whose records the test publishes, and what they have published."""

from contextlib import asynccontextmanager

from evenlane.engine.base import names
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from tests.support.node.world import CLUSTER_CONFIG, World


def tenants():
    return TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps)


def meter(node, known=None, **tuning):
    """Return a publisher whose records the test publishes."""
    made = MeterPublisher(node, known or tenants(), 3600.0, 8, **tuning)
    made.open()
    return made


@asynccontextmanager
async def metered(most_rows=20_000, **topics):
    """A world, its only node, and the node's publisher."""
    async with World(**topics) as world:
        node = await world.node()
        meters = meter(node, most_rows=most_rows)
        yield world, node, meters
        await meters.close()


def published(world):
    return [each.body for each in world.server.messages(names.meter_stream("online"))]
