"""Checks whether a node can do its work: it reaches NATS and etcd, and owns partitions or is on standby."""

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

_WITHIN_S = 2.0  # time limit for a round trip
_FRESH_NS = 1_000_000_000  # results are reused for this time, so that clients can't keep the servers busy


@dataclass(frozen=True)
class Readiness:
    """Readiness of a node. `not_ready` says why it isn't ready, in one sentence; empty if it is."""

    node: str
    partitions: int = 0
    generation: int = 0
    not_ready: str = ""

    @property
    def is_ready(self) -> bool:
        return not self.not_ready

    def document(self) -> dict[str, Any]:
        document = {
            "ready": self.is_ready,
            "node": self.node,
            "partitions": self.partitions,
            "generation": self.generation,
        }
        return document if self.is_ready else {**document, "error": self.not_ready}


class Probe:
    """Probes both servers, once for all concurrent callers. Each probe raises its client's errors."""

    def __init__(
        self,
        nats: Callable[[], Awaitable[object]],
        etcd: Callable[[], Awaitable[object]],
        *,
        within_s: float = _WITHIN_S,
    ) -> None:
        self._probes, self._within_s = {"NATS": nats, "etcd": etcd}, within_s
        self._asking = asyncio.Lock()
        self._found, self._at = "", 0

    async def find_missing(self) -> str:
        """Return which servers don't answer, in one sentence; empty if both do."""
        async with self._asking:
            if not self._at or now_ns() - self._at >= _FRESH_NS:
                missing = await asyncio.gather(
                    *(self._find_missing(name, probe) for name, probe in self._probes.items())
                )
                self._found, self._at = "; ".join(filter(None, missing)), now_ns()
            return self._found

    async def _find_missing(self, server: str, probe: Callable[[], Awaitable[object]]) -> str:
        try:
            async with asyncio.timeout(self._within_s):
                await probe()
        except TimeoutError:
            return f"{server} did not answer within {self._within_s:g} s"
        except (CoordinationError, Lost, Refused, EvenlaneError) as error:
            return f"{server} does not work properly: {error}"
        return ""
