"""The leader's work on topics: wishes under `topics/` become what is in force under `accepted/`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from engine import names
from engine.acceptance import Acceptance
from engine.duties import together
from engine.inbox import Inbox
from engine.leadership import Leadership
from engine.publishing import Publishing
from quota.topic import Accepted, TopicError, decode_accepted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from engine.facts import Facts
    from ring.coordination import Coordination, CreatedAt, KeyValue

PAUSE_S = 0.02  # between two publications: every node takes part in each of them
_log = structlog.get_logger(__name__)


class Acceptor:
    """Stands for election under the name `holder` and accepts topics while it leads.

    `leading` is set while it does. `alarms` (project -> sentence) are the wishes refused at present,
    `refused` counts them since the start. `beside(fence)` is the leader's other work: what it writes carries
    the fence, and it ends when that doesn't hold any more. `node_lease`: see Leadership.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        facts: Facts,
        holder: str,
        lease_ttl_s: int = 10,
        *,
        beside: Callable[[CreatedAt], Awaitable[None]] | None = None,
        node_lease: Callable[[], int] | None = None,
    ) -> None:
        self._coordination = coordination
        self._env = env
        self._facts = facts
        self._leadership = Leadership(
            coordination, env, holder, self._lead, lease_ttl_s=lease_ttl_s, node_lease=node_lease
        )
        self._beside = beside
        self._acceptance = Acceptance(env, facts, {})
        self._inbox: Inbox | None = None  # of the present term
        self._refused_before = 0  # in former terms

    @property
    def leading(self) -> asyncio.Event:
        return self._leadership.leading

    @property
    def alarms(self) -> dict[str, str]:
        return self._acceptance.alarms

    @property
    def refused(self) -> int:
        return self._refused_before + self._acceptance.refused

    async def start(self) -> None:
        """Returns at once; wait for `leading`, if it matters."""
        self._leadership.start()

    async def close(self) -> None:
        """Gives the lead up, if it has it. May be called twice."""
        await self._leadership.close()

    async def emptied(self, project: str, groups: Collection[int], number: int | None = None) -> bool:
        """These groups hold nothing any more: they leave `draining`. A deleted topic goes from `accepted/` when all its
        groups, the active ones and those still draining, are named at once.

        `number` is that of the accepted topic under which they were looked at: nothing happens if there is another one
        by now. Returns whether `accepted/` was changed: False as well if the lead is not here or is lost meanwhile.
        """
        return False if self._inbox is None else await self._inbox.ask(project, groups, number)

    async def _lead(self, epoch: int) -> None:
        """Until any of the leader's work ends."""

        async def accept(_fence: CreatedAt) -> None:
            await self._accept(epoch)

        beside = () if self._beside is None else (self._beside,)
        await together(accept, *beside)(self._leadership.fence(epoch))

    async def _accept(self, epoch: int) -> None:
        """Accepts wishes until they can't be published because somebody else leads.

        This is the only writer. If a publication fails, what was decided is forgotten and etcd is read anew.
        """
        while not await self._is_lost(epoch):
            _log.info("begins anew", reason="what is accepted was not written by this leader alone")
            await asyncio.sleep(PAUSE_S)

    async def _is_lost(self, epoch: int) -> bool:
        """Accepts wishes as long as all can be published; returns whether the lead is lost, or the connection."""
        found = (await self._coordination.list(names.key(self._env, "accepted", ""))).items
        self._acceptance = Acceptance(self._env, self._facts, self._in_force(found))
        stands = {item.key: item.mod_revision for item in found}
        publishing = Publishing(self._coordination, self._env, self._leadership.fence(epoch), stands)
        self._inbox = inbox = Inbox(self._coordination.watch(names.key(self._env, "topics", "")))
        try:
            while await inbox.waited():
                told, asked = inbox.take()
                changes = self._acceptance.changes(told)
                if not await publishing.published(changes):
                    return not await publishing.is_fenced()
                for question in asked:
                    change = self._acceptance.emptied(question.project, question.groups, question.number)
                    if change is not None and not await publishing.published([change]):
                        return not await publishing.is_fenced()
                    question.answer(changed=change is not None)
                await asyncio.sleep(PAUSE_S)
            return True
        finally:
            self._inbox = None
            self._refused_before, self._acceptance = self.refused, Acceptance(self._env, self._facts, {})
            await inbox.close()

    def _in_force(self, found: Iterable[KeyValue]) -> dict[str, Accepted]:
        """A value that can't be read counts as none, and is written anew if its wish is good."""
        prefix = names.key(self._env, "accepted", "")
        known: dict[str, Accepted] = {}
        for item in found:
            try:
                known[item.key.removeprefix(prefix)] = decode_accepted(item.value)
            except TopicError as error:
                _log.warning("an accepted topic can't be read", key=item.key, reason=str(error))
        return known
