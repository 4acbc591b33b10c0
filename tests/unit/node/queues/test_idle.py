"""What is silent costs nothing: counted, over simulated minutes (F9, E16)."""

from itertools import count

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.services.quota_borrower import QuotaBorrower
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until

PROJECTS = 5_000
MINUTES = 3


class Nobody:
    """A connection that nobody else is on."""

    def listen(self, _subject, _on_message):
        pass

    def send(self, _subject, _body):
        pass


async def test_five_thousand_silent_projects_are_looked_at_by_nobody():
    """F9, E16: each had a message; once that has been seen, rounds of metrics and of shares visit no queue."""
    projects = [f"tenant-{number}" for number in range(PROJECTS)]
    async with World(**dict.fromkeys(projects, topic())) as world:
        node = await world.node()
        known = TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps)
        sampling, taking = QueueSampler(node, known), QuotaBorrower(Nobody(), "online", node, [])
        meters = MeterPublisher(node, known, 3600.0, 8)
        meters.open()
        taking.open()
        for project in projects:
            await world.put(project=project)
        await until(lambda: len(world.handled) == PROJECTS and not node.in_flight, 60)
        for _ in range(2):  # one record tells it, and the next one finds that it is told
            await meters.publish()
        seconds = count(now_ns(), SECOND)
        await sampling.round(next(seconds))
        await until(lambda: not node.queues.activity.noted, 60)
        await taking.close()

        visited = []
        used, look = node.scheduler.used, known.look
        node.scheduler.used = lambda project, now: (visited.append(project), used(project, now))[1]
        known.look = lambda each: (visited.append(each.project), look(each))[1]
        for _ in range(60 * MINUTES):
            await sampling.round(next(seconds))
            await taking.look()
        assert [] == visited
        assert PROJECTS - 20 == known.left_out

        await world.put(project=projects[7])
        await until(lambda: len(world.handled) == PROJECTS + 1 and not node.in_flight)
        await sampling.round(next(seconds))
        await taking.look()
        assert {projects[7]} == {*visited}
        await meters.close()
        await sampling.close()
