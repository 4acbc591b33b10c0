"""Checks whether a new process would do what this one can't: then a supervisor should restart it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_SECOND = 1_000_000_000
_AGAIN_NS = 10 * _SECOND
_PROBE_S = 5.0
_LOOK_NS = 45 * _SECOND


@dataclass(frozen=True)
class Health:
    """The node's identity. `stuck` says in one sentence why its process should be restarted; empty if it shouldn't."""

    node: str
    env: str
    stuck: str = ""

    def document(self) -> dict[str, Any]:
        document = {"node": self.node, "env": self.env}
        return {**document, "error": self.stuck} if self.stuck else document


class Liveness:
    """A process that hasn't served for `patience_s` although the servers answer a new client can't recover by itself.
    While they don't answer, a restart would help nobody.

    `serves()` says whether the node has a lease that it trusts. `probe` opens new connections to the servers, and
    raises their clients' errors. Somebody looks at least every `_LOOK_NS`: after a longer gap,
    the time counts from the next look.

    Invariant: `_idle_since` is the first look (monotonic ns) of those since which the node hasn't served; None while it
    serves. `_looked_at` is the last look.
    """

    def __init__(
        self,
        serves: Callable[[], bool],
        probe: Callable[[], Awaitable[None]],
        patience_s: float,
        now: Callable[[], int] = now_ns,
    ) -> None:
        self._serves, self._probe, self._now = serves, probe, now
        self._patience_ns = int(patience_s * _SECOND)
        self._idle_since: int | None = None
        self._looked_at = now()
        self._probed_at: int | None = None
        self._answered = False
        self._probing = asyncio.Lock()

    async def explain_stuck(self) -> str:
        """Why the process should be restarted, in one sentence; empty if it shouldn't."""
        now, before = self._now(), self._looked_at
        self._looked_at = now
        if self._serves():
            self._idle_since = self._probed_at = None
            return ""
        if self._idle_since is None or now - before > _LOOK_NS:
            self._idle_since = now
        idle_ns = now - self._idle_since
        if idle_ns < self._patience_ns or not await self._do_servers_answer(now):
            return ""
        return (
            f"it has had no lease for {idle_ns // _SECOND} s, although etcd and NATS answer new connections: restart it"
        )

    async def _do_servers_answer(self, now: int) -> bool:
        async with self._probing:
            if self._probed_at is None or now - self._probed_at >= _AGAIN_NS:
                self._probed_at, self._answered = now, False
                self._answered = await self._probe_once()
            return self._answered

    async def _probe_once(self) -> bool:
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._probe()
        except (CoordinationError, Lost, Refused, EvenlaneError, TimeoutError):
            return False
        return True
