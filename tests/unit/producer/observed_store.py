"""A store in memory that notes what a producer asks of it, and can withhold its counts."""

import asyncio

from evenlane.engine.store.memory.store import MemoryStore


class ObservedStore(MemoryStore):
    """`tries` has the subjects of all puts, `counted` the lanes of all counts. Counts wait for `counts_come`."""

    def __init__(self, server, env):
        super().__init__(server, env)
        self.tries, self.counted = [], []
        self.counting = self.most_counting = 0  # counts at the same time
        self.counts_come = asyncio.Event()
        self.counts_come.set()

    def put_then(self, subject, headers, body, answered):
        super().put_then(subject, headers, body, answered)
        self.tries.append(subject)

    async def count_by_subject(self, lane, project):
        self.counted.append(lane)
        self.counting += 1
        self.most_counting = max(self.most_counting, self.counting)
        try:
            await self.counts_come.wait()
            return await super().count_by_subject(lane, project)
        finally:
            self.counting -= 1
