"""A node's term: from joining to the loss of its lease, or to the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.ownership.membership import Membership
    from evenlane.engine.node.node import Node

_log = structlog.get_logger(__name__)

_STANDBY_AFTER_S = 2.0


class SessionHost(Protocol):
    """The process that a session is one of. `node` and `membership` are None before they are made."""

    @property
    def settings(self) -> Settings: ...

    @property
    def node(self) -> Node | None: ...

    @property
    def membership(self) -> Membership | None: ...

    def ready(self, partitions: int, generation: int) -> None: ...

    def broken(self, reason: str) -> None: ...


class Session:
    """How a term goes, and why it ended."""

    def __init__(self, engine: SessionHost) -> None:
        self._engine = engine
        self._over = asyncio.Event()
        self._ready = False
        self.fatal = ""

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def ended(self, stop: asyncio.Event) -> None:
        """Wait for the end of the term, or for `stop`."""
        waits = [asyncio.create_task(stop.wait()), asyncio.create_task(self._over.wait())]
        waiting = asyncio.get_running_loop().call_later(_STANDBY_AFTER_S, self._stands_by)
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def trust(self, until: int) -> None:
        engine = self._engine
        if engine.node is not None and engine.membership is not None and not self.is_over:
            engine.node.trust(until)
            engine.membership.trusted(until)

    def carried_out(self, partitions: int, generation: int) -> None:
        self._ready = True
        env = self._engine.settings.env
        _log.info("serving" if partitions else "standing by", env=env, partitions=partitions, generation=generation)
        self._engine.ready(partitions, generation)

    def _stands_by(self) -> None:
        """The plan, or what it says, is long in coming."""
        membership = self._engine.membership
        if not self._ready and membership is not None:
            member = membership.member
            _log.info("standing by", phase=membership.phase, partitions=len(member.owned), generation=member.done)
            self._engine.ready(len(member.owned), member.done)

    def lost(self, reason: str) -> None:
        self._engine.broken(reason)
        self._over.set()

    def fail(self, reason: str) -> None:
        self.fatal = reason
        self.lost(reason)
