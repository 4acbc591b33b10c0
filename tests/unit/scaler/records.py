"""Puts the leader's record into etcd in memory."""

from evenlane.engine.base import names
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.scaling.record import ScalingRecord
from evenlane.engine.scaler.recommendation import Recommendations
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import encode
from tests.support.until import until

ENV = "online"
SECOND = 1_000_000_000


class CountingReader(RecordReader):
    """Counts the records that were read."""

    count = 0

    def read(self, kind, key, raw):
        self.count += 1
        return super().read(kind, key, raw)


class Leader:
    """What the leader has written, and a process that follows it. `now` is in ns."""

    def __init__(self, mode="keda"):
        self.now, self.coordination, self._looks = 0, MemoryCoordination(), 0
        self.records = CountingReader(ENV)
        self.recommendations = Recommendations(
            self.coordination, ENV, mode, 30.0, self.records, clock=lambda: self.now
        )  # fmt: skip

    async def __aenter__(self):
        self.recommendations.open()
        return self

    async def __aexit__(self, *_):
        await self.recommendations.close()

    async def write(self, **fields):
        self._looks += 1
        record = ScalingRecord(**{"mode": "keda", "by": "a", "at": float(self._looks), **fields})
        await self.coordination.put(names.key(ENV, "scaling"), encode(record))
        await until(lambda: self.recommendations.looked_at == self._looks)
