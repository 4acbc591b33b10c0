"""Owners of one partition, one after another, and what each has to record."""

from evenlane.engine.base.names import settled_stream
from evenlane.engine.core.lane.settle_record import decode
from evenlane.ring.hashing import partition_of
from tests.support.node.keyed import Deadly
from tests.support.node.two import P, lane_of
from tests.support.node.world import CLUSTER_CONFIG, topic
from tests.support.until import until


class Horizons(Deadly):
    """Of project acme, group 0, whose messages lie in partition P. Messages in `waits` don't end."""

    async def put_paused(self):
        """A message of a topic that is paused, in the same lane: it stays there, and what comes after it."""
        self.topics.setdefault("still", topic(state="paused"))
        group = next(group for group in range(10) if partition_of("still", group, 2, CLUSTER_CONFIG.partitions) == P)
        return await self.put(project="still", group=group)

    async def node_with(self, *ids, **options):
        """A node that runs these."""
        node = await self.node(self.handle, **options)
        await self.runs(node, *ids)
        return node

    async def runs(self, node, *ids):
        await until(lambda: set(ids) <= {message.id for message in node.workers.running}, what=f"{ids} to run")

    @staticmethod
    def recorded(node):
        """Of what runs, by id, whether it is recorded in flight."""
        return {message.id: message.recorded for message in node.workers.running}

    @staticmethod
    def looks(node):
        """Of what runs, by id, attempt and suspicion."""
        return {message.id: (message.attempt, message.suspect) for message in node.workers.running}

    @staticmethod
    def horizons(node):
        """Of P's lane and later stream."""
        return tuple(lane.horizon for lane in node.partitions[P].both)

    async def last_word(self, kind="lanes"):
        """What the log says last: its horizon, and whether the end was clean."""
        log = await self.settled(lane_of(kind))
        return log.horizon, log.clean

    def fences(self, epoch):
        """The records of an epoch in all settle logs."""
        records = [decode(each.body) for each in self.server.messages(settled_stream("online"))]
        return [record for record in records if record.epoch == epoch]
