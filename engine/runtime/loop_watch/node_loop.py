"""The event loop of a node, as seen by the thread that keeps its lease: finds the code that blocks it, and ends the
process if it stays blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.runtime.loop_watch import culprit
from evenlane.engine.runtime.loop_watch.loop_watch import Blocker
from evenlane.ring.coordination.ports import CoordinationError, CreatedAt, PutKey
from evenlane.ring.membership.records import BlockedLane, HeldRecord, OwnerRecord, RecordError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.loop_lag import LoopLag
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_log = structlog.get_logger(__name__)

BLOCKED = 70
"""Exit code of a process that ended itself because its event loop stayed blocked."""

_WITHIN_S = 2.0  # time limit for writing to etcd


class NodeLoop:
    """The event loop in which this object is made. `node()` returns the process's present node; `handler` is the name
    of the handler. `coordination` belongs to the watching thread. `publish` writes the node's record.
    """

    def __init__(
        self,
        node_id: str,
        cluster: str,
        coordination: Coordination,
        lag: LoopLag,
        node: Callable[[], Node | None],
        handler: str,
        publish: Callable[[], Awaitable[None]],
    ) -> None:
        self._id, self._cluster, self._coordination, self._publish = node_id, cluster, coordination, publish
        self._lag, self._node, self._handler = lag, node, handler
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    @property
    def beats(self) -> int:
        return self._lag.beats

    def blocker(self) -> Blocker | None:
        beats = self.beats
        found = culprit.find(self._loop, self._thread)
        if found is None:
            return None
        node = self._node()
        messages = node.find_messages(found.task) if node is not None and found.task is not None else []
        if beats != self.beats:
            return None  # the loop ran meanwhile, so the culprit and the messages may not match
        falling_back = bool(messages) and bool(messages[0].reason)
        return Blocker(found, "the fallback" if falling_back else self._handler, messages)

    def stacks(self) -> dict[str, str]:
        return culprit.stacks()

    async def end_process(self, blocker: Blocker, blocked_s: float) -> None:
        """Report the culprit to the next owner of its partition, and exit."""
        await self.last_words(blocker, blocked_s)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(BLOCKED)

    async def last_words(self, blocker: Blocker, blocked_s: float) -> None:
        """Write the process's last report to etcd: the culprit, and the node's record, which expires with the lease."""
        with contextlib.suppress(CoordinationError, TimeoutError):
            async with asyncio.timeout(_WITHIN_S):
                await self._accuse(blocker.messages, blocked_s)
                await self._publish()

    async def _accuse(self, messages: Sequence[Message], blocked_s: float) -> None:
        """Write the accusation under no lease, as this process's lease is about to end. The next owner deletes the key
        after reading it.
        """
        if not messages:
            return
        lane = messages[0].lane
        record = accusation(self._id, messages, blocked_s)
        owner = names.key(self._cluster, "owners", lane.id.partition)
        held = names.key(self._cluster, "held", lane.id.partition, lane.epoch)
        item = await self._coordination.get(owner)
        if item is not None and _is_of(item, lane.epoch):
            await self._coordination.txn([CreatedAt(owner, item.create_revision)], [PutKey(held, encode(record))])


def _is_of(owner: KeyValue, epoch: int) -> bool:
    """Whether the key belongs to the owner with this epoch."""
    with contextlib.suppress(RecordError):
        return decode(OwnerRecord, owner.key, owner.value).base + owner.create_revision == epoch
    return False


def accusation(node: str, messages: Sequence[Message], blocked_s: float) -> HeldRecord:
    """Return the record by which a partition's next owner learns that a handler of these messages blocked a process."""
    sequences: dict[Lane, list[int]] = {}
    for message in messages:  # a batch may have messages of both streams of the partition
        sequences.setdefault(message.lane, []).append(message.sequence)
    seconds = round(blocked_s, 1)
    blocked: dict[str, BlockedLane] = {
        lane.id.kind: BlockedLane(created=lane.created, sequences=its, seconds=seconds)
        for lane, its in sequences.items()
    }
    return HeldRecord(id=node, epoch=messages[0].lane.epoch, blocked=blocked)
