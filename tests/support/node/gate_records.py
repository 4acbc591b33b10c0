"""The in-flight records of a node, which a test can delay, refuse and read."""

import asyncio
from collections import deque

import msgspec


def _named(body):
    """The (kind, partition, sequence) of each message that a record names."""
    _, count, _, parts = msgspec.msgpack.decode(body)
    found = {(kind, partition, sequence) for kind, partition, _, sequences in parts for sequence in sequences}
    assert count == max(2, len(found))
    return found


class Records:
    """The in-flight records of a node, intercepted on their way to the store.

    `safe` has the messages that the last stored record names, `under_way` the number of records under way,
    `most_under_way` its maximum, `count` the number of records written, `most_in_flight` the most messages that were in
    flight when a record was written.

    A record is stored while `free` is set, after the next of `delays` (s), and after the next future of `refusals`; if
    that fails, the record is refused with its error.
    """

    def __init__(self, node):
        self._node, self._put = node, node.store.put
        self.free, self.delays = asyncio.Event(), deque()
        self.free.set()
        self.safe, self.under_way, self.most_under_way, self.count, self.most_in_flight = set(), 0, 0, 0, 0
        self.refusals = []
        self._last = None
        node.store.put = self.put

    def put(self, subject, headers, body):
        if not subject.startswith("busy."):
            return self._put(subject, headers, body)
        self.count += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.most_in_flight = max(self.most_in_flight, len(self._node.in_flight))
        self._last = asyncio.ensure_future(self._store(self._last, subject, headers, body))
        return self._last

    async def _store(self, before, subject, headers, body):
        try:
            if self.delays:
                await asyncio.sleep(self.delays.popleft())
            if self.refusals:
                await self.refusals.pop(0)
            await self.free.wait()
            if before is not None:  # a stream keeps the order of one connection's puts
                await asyncio.wait([before])
            receipt = await self._put(subject, headers, body)
            self.safe = _named(body)
            return receipt
        finally:
            self.under_way -= 1


class Reads:
    """Counts the node's reads by sequence from now on."""

    def __init__(self, node):
        self._get, self.count = node.store.get, 0
        node.store.get = self.get

    async def get(self, lane, sequences):
        self.count += 1
        return await self._get(lane, sequences)


def place_of(message):
    return message.lane.id.kind, message.partition, message.sequence
