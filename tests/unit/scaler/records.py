"""Puts the leader's record into etcd in memory."""

from evenlane.engine.base import names
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.scaling.record import ScalingRecord
from evenlane.engine.scaler.recommendation import Recommendations
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import encode

ENV = "online"
SECOND = 1_000_000_000


class Leader:
    """What the leader has written, and a process that reads it. `now` is in ns."""

    def __init__(self, mode="keda", **options):
        self.now, self.coordination = 0, MemoryCoordination()
        self.recommendations = Recommendations(
            self.coordination, ENV, mode, 30.0, RecordReader(ENV), clock=lambda: self.now, **options
        )

    async def write(self, **fields):
        record = ScalingRecord(**{"mode": "keda", "by": "a", "at": self.now / SECOND, **fields})
        await self.coordination.put(names.key(ENV, "scaling"), encode(record))
        await self.recommendations.read()
