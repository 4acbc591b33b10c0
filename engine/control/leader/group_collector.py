"""Leader task: finds closed groups and deleted topics that are empty, and has them removed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.gc_candidates import GroupCandidates
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.group_gc_messages import GroupReply, GroupRequest, subject
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import Unreachable
from evenlane.ring.membership.records import OwnerRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.core.records.group_gc_messages import GroupQuestion
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, CreatedAt

_log = structlog.get_logger(__name__)

EVERY_S = 2.0  # between two looks at a group that seems empty
LONGEST_S = 60.0  # between two questions about one that isn't
ANSWER_S = 15.0  # for all answers; a deep question takes some milliseconds per partition
_SECOND = 1_000_000_000


class GroupCollector:
    """Runs `serve` while this node leads.

    `remove_groups(project, groups, number)` removes groups from the accepted topic: it is that of `TopicController`.
    `connect` makes a connection, which is only opened when a question is due. A producer may put under a topic for
    `known_s` seconds after the topic has changed.

    Invariants: `_number` identifies the latest question; `_replies` has only replies to it, by node.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        partitions: int,
        topic_cache: TopicCache,
        connect: Callable[[], RequestBus],
        remove_groups: Callable[[str, Collection[int], int], Awaitable[bool]],
        known_s: float,
        *,
        every_s: float = EVERY_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._every_s, self._answer_s = every_s, answer_s
        self._coordination, self._env, self._partitions = coordination, env, partitions
        self._connect, self._remove_groups = connect, remove_groups
        self._records = RecordReader(env, lambda reason: _log.debug("an owner key is skipped", reason=reason))
        self._candidates = GroupCandidates(int(known_s * _SECOND), int(every_s * _SECOND), int(LONGEST_S * _SECOND))
        self._wake = asyncio.Event()
        self._number = 0
        self._replies: dict[str, GroupReply] = {}
        self._reply_arrived = asyncio.Event()
        topic_cache.on_change.append(self._on_change)

    def _on_change(self, project: str, accepted: Accepted | None) -> None:
        self._candidates.on_change(project, accepted, now_ns())
        self._wake.set()

    async def serve(self, _fence: CreatedAt) -> None:
        """Collect groups without end. Writes carry the topic controller's own fence. Raises CoordinationError."""
        self._candidates.begin()
        while True:
            await self._wait_until_due()
            connection = self._connect()
            try:
                await self._ask_on(connection)
            except (Unreachable, Disconnected) as error:
                _log.debug("nobody can be asked which groups are empty", error=str(error))
                await asyncio.sleep(self._every_s)
            finally:
                await connection.close()

    async def _wait_until_due(self) -> None:
        while (due := self._candidates.due()) is None or due > now_ns():
            self._wake.clear()
            try:
                async with asyncio.timeout(None if due is None else (due - now_ns()) / _SECOND):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _ask_on(self, connection: RequestBus) -> None:
        """Ask questions on this connection without end. Raises Unreachable, Disconnected, CoordinationError."""
        await connection.open()
        inbox = connection.new_inbox()
        connection.listen(inbox, self._on_reply)
        while True:
            await self._wait_until_due()
            for deep in (False, True):
                if questions := self._candidates.questions(now_ns(), deep=deep):
                    await self._round(connection, inbox, questions, deep=deep)

    async def _round(
        self, connection: RequestBus, inbox: str, questions: tuple[GroupQuestion, ...], *, deep: bool
    ) -> None:
        full = await self._ask_owners(connection, inbox, questions, deep=deep)
        for each in questions:
            held = None if full is None else full.get(each.project, set())
            empty = self._candidates.on_answer(each, held, now_ns(), deep=deep)
            if empty is not None and await self._remove_groups(*empty):
                _log.info("groups are empty and taken away", project=empty.project, groups=len(empty.groups))

    # ---- one question

    async def _ask_owners(
        self, connection: RequestBus, inbox: str, questions: tuple[GroupQuestion, ...], *, deep: bool
    ) -> dict[str, set[int]] | None:
        """Ask all owners; return non-empty groups by project, None if the answer for any partition is missing."""
        owners = await self._owners()
        if len(owners) < self._partitions:
            return None
        self._number += 1
        self._replies = {}
        connection.send(subject(self._env), msgspec.json.encode(GroupRequest(self._number, inbox, questions, deep)))
        try:
            async with asyncio.timeout(self._answer_s):
                while not self._is_complete(owners):
                    self._reply_arrived.clear()
                    await self._reply_arrived.wait()
        except TimeoutError:
            return None
        full: dict[str, set[int]] = {}
        for reply in self._replies.values():
            for project, groups in reply.full.items():
                full.setdefault(project, set()).update(groups)
        return full

    def _is_complete(self, owners: dict[int, tuple[str, int]]) -> bool:
        """Whether the owner of each partition has examined it, under the epoch under which it owns the partition."""
        return all(
            (reply := self._replies.get(node)) is not None and reply.epochs.get(partition) == epoch
            for partition, (node, epoch) in owners.items()
        )

    def _on_reply(self, _subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        try:
            reply = msgspec.json.decode(body, type=GroupReply)
        except UNREADABLE as error:
            _log.debug("not an answer", error=str(error))
            return
        if reply.number == self._number:
            self._replies[reply.node] = reply
            self._reply_arrived.set()

    async def _owners(self) -> dict[int, tuple[str, int]]:
        """Return node and epoch by partition."""
        prefix = names.key(self._env, "owners", "")
        found: dict[int, tuple[str, int]] = {}
        for item in (await self._coordination.list(prefix)).items:
            number = self._records.partition(item.key.removeprefix(prefix), self._partitions)
            record = self._records.read(OwnerRecord, item.key, item.value)
            if number is not None and record is not None:
                found[number] = (record.id, record.base + item.create_revision)
        return found
