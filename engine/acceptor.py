"""The leader's work on topics: wishes under `topics/` become what is in force under `accepted/`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from engine import names
from engine.acceptance import Acceptance, batches
from engine.leadership import Leadership
from quota.topic import Accepted, TopicError, decode_accepted, encode
from ring.coordination import Put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.facts import Facts
    from ring.coordination import Coordination, CreatedAt

_MOST_PUTS = 100  # in one transaction; etcd takes 128
_MOST_BYTES = 1_000_000  # in one transaction; etcd takes 1.5 MiB
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
        self._prefix = names.key(env, "accepted", "")
        self._leadership = Leadership(
            coordination, env, holder, self._lead, lease_ttl_s=lease_ttl_s, node_lease=node_lease
        )
        self._beside = beside
        self._acceptance = Acceptance(env, facts, {})
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

    async def _lead(self, epoch: int) -> None:
        """Until any of the leader's work ends."""
        duties = [asyncio.ensure_future(self._accept(epoch))]
        if self._beside is not None:
            duties.append(asyncio.ensure_future(self._beside(self._leadership.fence(epoch))))
        try:
            ended, _ = await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
            for duty in ended:
                duty.result()
        finally:
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)

    async def _accept(self, epoch: int) -> None:
        """Accepts wishes until one can't be published because somebody else leads."""
        self._acceptance = Acceptance(self._env, self._facts, await self._in_force())
        watch = self._coordination.watch(names.key(self._env, "topics", ""))
        try:
            async for told in watch:
                if not await self._published(self._acceptance.changes(told), epoch):
                    return
        finally:
            await watch.aclose()
            self._refused_before, self._acceptance = self.refused, Acceptance(self._env, self._facts, {})

    async def _in_force(self) -> dict[str, Accepted]:
        """A value that can't be read counts as none, and is written anew if its wish is good."""
        known: dict[str, Accepted] = {}
        for item in (await self._coordination.list(self._prefix)).items:
            try:
                known[item.key.removeprefix(self._prefix)] = decode_accepted(item.value)
            except TopicError as error:
                _log.warning("an accepted topic can't be read", key=item.key, reason=str(error))
        return known

    async def _published(self, changes: dict[str, Accepted], epoch: int) -> bool:
        written = ((self._prefix + project, encode(accepted)) for project, accepted in changes.items())
        for part in batches(written, _MOST_PUTS, _MOST_BYTES):
            puts = [Put(key, value) for key, value in part]
            if not (await self._coordination.txn([self._leadership.fence(epoch)], puts)).succeeded:
                return False
        return True
