"""A running producer in `live`: which puts of a topic are taken, and which refused because it drains."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import BacklogFull, NotAcknowledged, TopicDraining
from evenlane.engine.proof.scenarios.alongside import alongside
from evenlane.engine.proof.scenarios.arrivals import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.producer.producer import Producer

_EVERY_S = 0.02


class Tried(NamedTuple):
    """A put, from its call to its outcome, ns since boot."""

    project: str
    at: int
    ended: int
    taken: bool


class Probe:
    """`tried` in the order of the calls, for each project."""

    def __init__(self, producer: Producer, projects: Sequence[str]) -> None:
        self._producer, self._projects = producer, projects
        self.tried: list[Tried] = []

    def running(self) -> AbstractAsyncContextManager[None]:
        """As long as the block runs. Raises what a put raises but for refusals."""
        return alongside(*map(self._run, self._projects))

    async def _run(self, project: str) -> None:
        start, count = now_ns(), 0
        while True:
            await asyncio.sleep((start + count * _EVERY_S * SECOND - now_ns()) / SECOND)
            count += 1
            at, taken = now_ns(), True
            try:
                await self._producer.put(project, b"")
            except TopicDraining:
                taken = False
            except (BacklogFull, NotAcknowledged):
                continue
            self.tried.append(Tried(project, at, now_ns(), taken))
