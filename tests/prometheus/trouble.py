"""Troubles under the load, caused directly in NATS and etcd if necessary: with each beat a message without a queue, and
one that vanishes from its stream; each second some dropped messages.
"""

import asyncio
import itertools
import time
from collections import Counter
from typing import Self

import nats
from nats.js.errors import ServerError

from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.startup import wait_until_answered
from evenlane.ring.coordination.ports import PutKey as Write
from evenlane.ring.hashing import partition_of
from tests.ledger.world import ProcessWorld

_NO_MESSAGE = 10_057  # JetStream: no message found
_HOUR = 3_600_000_000_000
_TIMEOUT_S = 20.0  # as long as a command waits for busy servers


class Trouble:
    """Causes troubles. `put` counts messages that didn't come from the producer, by project and priority; `vanished`
    counts those that were deleted unread.
    """

    def __init__(self, world: ProcessWorld, partitions: int) -> None:
        self._world, self._partitions, self._env = world, partitions, world.settings.env
        self._numbers = itertools.count()
        self.put: Counter[tuple[str, str]] = Counter()
        self.vanished = 0

    async def __aenter__(self) -> Self:
        self._client = await nats.connect(self._world.servers.nats.url)
        self._stream = self._client.jetstream()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def aged(self, project: str, count: int, seconds: float) -> None:
        """Put messages that became due `seconds` ago, which only a foreign producer can do."""
        due = time.time_ns() - int(seconds * 1e9)
        hour = time.time_ns() // _HOUR  # the present hour is fed at once, whatever the header says
        place = partition_of(project, 0, 1, self._partitions, "hashed")
        subject = names.later_subject(self._env, place, project, 0, "low", hour)
        for number in range(count):
            headers = {h.DUE: str(due), h.ID: f"{project}:{number}"}
            await self._stream.publish(subject, b"x", headers=headers)
        self.put[project, "low"] += count

    async def bad_spec(self) -> None:
        """Write an invalid spec, as anyone can with etcdctl."""
        await self._world.etcd.txn([], [Write(names.key(self._env, "topics", "invalid"), b'{"qps": NaN}')])

    async def put_unroutable(self) -> None:
        """Publish a message with an unknown priority."""
        await self._stream.publish(f"lanes.{self._env}.0.stray.0.none", b"x")

    def vanishing(self, project: str) -> Put:
        """A message that `vanish` can find."""
        return Put(project, b"x", id=f"{project}-{next(self._numbers)}")

    async def vanish(self, put: Put) -> None:
        """Delete a message before a node reads it. After a pause of the machine it may have been handled already."""
        stream, sequence = self._world.acknowledged[str(put.id)]
        try:
            await self._stream.delete_msg(stream, sequence)
        except ServerError as error:
            if error.err_code != _NO_MESSAGE:
                raise
        else:
            self.vanished += 1

    async def drop(self, project: str) -> None:
        await wait_until_answered(lambda: purge(self._world.settings, project, None), _TIMEOUT_S, lambda _: None)


async def each(seconds: float, end: asyncio.Event, step) -> None:
    """Run `step` every `seconds` until `end`; the next one follows a longer one at once."""
    clock = asyncio.get_running_loop().time
    due = clock()
    while not end.is_set():
        await step()
        due = max(due + seconds, clock() - seconds)
        await asyncio.sleep(max(0.0, due - clock()))
