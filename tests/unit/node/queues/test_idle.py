"""Silent projects cost nothing, over simulated minutes (F9, E16)."""

from itertools import count

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.services.quota_borrower import QuotaBorrower
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until

PROJECTS = 1_000
MINUTES = 3


class FakeConnection:
    """A connection without other clients."""

    def listen(self, _subject, _on_message):
        pass

    def send(self, _subject, _body):
        pass


async def test_rounds_visit_no_silent_project():
    """F9, E16: each of 1,000 projects had a message. Later rounds of metrics and of quota shares visit no queue."""
    projects = [f"tenant-{number}" for number in range(PROJECTS)]
    async with World(**dict.fromkeys(projects, topic())) as world:
        node = await world.node()
        known = TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps)
        sampling, borrower = QueueSampler(node, known), QuotaBorrower(FakeConnection(), "online", node, [])
        meters = MeterPublisher(node, known, 3600.0, 8)
        meters.open()
        borrower.open()
        for project in projects:
            await world.put(project=project)
        await until(lambda: len(world.handled) == PROJECTS and not node.in_flight, 60)
        for _ in range(2):  # one record reports the message, and the next one nothing
            await meters.publish()
        seconds = count(now_ns(), SECOND)
        await borrower.close()

        visited = []
        used, look = node.scheduler.measure_use, known.look
        node.scheduler.measure_use = lambda project, now: (visited.append(project), used(project, now))[1]
        known.look = lambda each: (visited.append(each.project), look(each))[1]

        async def is_silent():
            visited.clear()
            await sampling.round(next(seconds))
            await borrower.look()
            return not visited

        await until(is_silent, 60)
        for _ in range(60 * MINUTES):
            await sampling.round(next(seconds))
            await borrower.look()
        assert [] == visited
        assert PROJECTS - 20 == known.left_out

        await world.put(project=projects[7])
        await until(lambda: len(world.handled) == PROJECTS + 1 and not node.in_flight)
        await sampling.round(next(seconds))
        await borrower.look()
        assert {projects[7]} == {*visited}
        await meters.close()
        await sampling.close()
