"""Owners of one partition, one after another, and the messages that each must record."""

from evenlane.engine.base.names import settled_stream
from evenlane.engine.core.records.settle_record import decode
from tests.support.node.keyed import PoisonWorld
from tests.support.node.two import P, lane_of
from tests.support.node.world import topic
from tests.support.until import until


class Horizons(PoisonWorld):
    """Messages of project acme, group 0, are in partition P. Those in `waits` don't end. `record_reads` counts how
    often nodes read the in-flight records.
    """

    def __init__(self, **topics):
        super().__init__(**topics)
        self.record_reads = 0

    def new_store(self, _cluster="online"):
        store = super().new_store()
        busy = store.busy

        async def counted():
            self.record_reads += 1
            return await busy()

        store.busy = counted
        return store

    async def put_paused(self):
        """Put a message of a paused topic into P's lane: it stays there, and so do those after it."""
        self.topics.setdefault("still", topic(state="paused"))
        return await self.put(project="still", group=self.group_in(P, "still"))

    async def node_with(self, *ids, **options):
        """A node that runs these messages."""
        node = await self.node(self.handle, **options)
        await self.runs(node, *ids)
        return node

    async def runs(self, node, *ids):
        await until(lambda: set(ids) <= {message.id for message in node.workers.running}, what=f"{ids} to run")

    @staticmethod
    def recorded(node):
        """Whether each running message is recorded in flight, by id."""
        return {message.id: message.recorded for message in node.workers.running}

    @staticmethod
    def looks(node):
        """The attempt of each running message, and whether it is a suspect, by id."""
        return {message.id: (message.attempt, message.is_suspect) for message in node.workers.running}

    @staticmethod
    def horizons(node):
        """The crash horizons of P's lane and delay stream."""
        return tuple(lane.horizon for lane in node.partitions[P].lanes)

    async def last_word(self, kind="lanes"):
        """The horizon in the settle log's last state, and whether the log's end is clean."""
        log = await self.settled(lane_of(kind))
        return log.horizon, log.clean

    def records_of(self, epoch):
        """The records of an epoch in all settle logs."""
        records = [decode(each.body) for each in self.server.messages(settled_stream("online"))]
        return [record for record in records if record.epoch == epoch]
