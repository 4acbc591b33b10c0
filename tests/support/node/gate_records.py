"""The in-flight records of a node, as a test holds them up and reads them."""

import asyncio
from collections import deque

import msgspec


def named(body):
    """What a record names."""
    _, count, _, parts = msgspec.msgpack.decode(body)
    found = {(kind, partition, sequence) for kind, partition, _, sequences in parts for sequence in sequences}
    assert count == max(2, len(found))
    return found


class Records:
    """The in-flight records of a node: what the last safe one names, how many were on their way at once, how many there
    were. They are acknowledged while `free` is set, each after the next of `delays` (s), or when the next of `refusals`
    is done, and fail as it does.
    """

    def __init__(self, node):
        self._node, self._put = node, node.store.put
        self.free, self.delays = asyncio.Event(), deque()
        self.free.set()
        self.safe, self.under_way, self.most, self.count, self.chosen = set(), 0, 0, 0, 0
        self.refusals = []
        self._last = None
        node.store.put = self.put

    def put(self, subject, headers, body):
        if not subject.startswith("busy."):
            return self._put(subject, headers, body)
        self.count += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.chosen = max(self.chosen, len(self._node.in_flight))
        self._last = asyncio.ensure_future(self._carried_out(self._last, subject, headers, body))
        return self._last

    async def _carried_out(self, before, subject, headers, body):
        try:
            if self.delays:
                await asyncio.sleep(self.delays.popleft())
            if self.refusals:
                await self.refusals.pop(0)
            await self.free.wait()
            if before is not None:  # a stream keeps the order of what one connection puts
                await asyncio.wait([before])
            receipt = await self._put(subject, headers, body)
            self.safe = named(body)
            return receipt
        finally:
            self.under_way -= 1


class Reads:
    """Counts what a node reads by sequence from now on."""

    def __init__(self, node):
        self._get, self.count = node.store.get, 0
        node.store.get = self.get

    async def get(self, lane, sequences):
        self.count += 1
        return await self._get(lane, sequences)


def place(message):
    return message.lane.id.kind, message.partition, message.sequence
