"""Edits of topics while `live` runs: one wish after another, straight into etcd as anyone with `etcdctl` would."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.scenarios.alongside import alongside
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.proof.scenarios.cluster import ENV, PATIENCE_S
from evenlane.engine.proof.scenarios.live_load import LOW_QPS, STORM_QPS
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Event, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.proof.scenarios.live_load import Edited, Projects

_STORMY = 1_000  # edits a second
_TOGETHER = 32  # of them on their way
_LOOK_S = 0.05


class Edit(NamedTuple):
    """A wish, from the moment at which its write began until it was acknowledged, ns since boot. `until` is when the
    same topic's next one began; `revision` is 0 if nobody knows whether it was written.
    """

    name: str
    change: str
    at: int
    acknowledged: int
    revision: int
    until: int = 0


class Storm(NamedTuple):
    """`edits` of one quota from `start` on (ns since boot) until the last one, which lowers it."""

    start: int
    edits: int
    last: Edit


class Editor:
    """`edits` in the order of time; `accepted` says when the wish of a revision was seen in force under `accepted/`."""

    def __init__(self, endpoint: str, edited: Sequence[Edited]) -> None:
        self._etcd = EtcdCoordination((endpoint,))
        self._edited = edited
        self._changed: dict[str, bool] = dict.fromkeys((each.name for each in edited), False)
        self._turns = cycle(edited)
        self._found: list[Edit] = []
        self.accepted: dict[int, int] = {}

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        try:
            async with alongside(self._follow()):
                yield
        finally:
            await self._etcd.close()

    def editing(self, every_s: float) -> AbstractAsyncContextManager[None]:
        """As long as the block runs; each topic in its turn, by the clock on the wall."""
        return alongside(self._edit(every_s))

    def edits(self, end: int) -> list[Edit]:
        """All, as if each topic had been edited once more at `end`."""
        until: dict[str, int] = {}
        found = []
        for edit in reversed(self._found):
            found.append(edit._replace(until=until.get(edit.name, end)))
            until[edit.name] = edit.at
        return found[::-1]

    async def restore(self) -> None:
        """All as they were at the beginning; returns when that is in force. Raises EvenlaneError."""
        revisions = {await self._write(each) for each in self._edited if self._changed[each.name]}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not revisions <= self.accepted.keys():  # noqa: ASYNC110 - what follows tells nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EvenlaneError(
                f"the scenario broke off: topics are not as they were at the beginning after {PATIENCE_S:g} s"
            ) from None

    async def storm(self, projects: Projects, seconds: float) -> Storm:
        """One topic's quota, a thousand times a second or as fast as etcd takes it; and a last edit."""
        start = now_ns()
        count = 0
        while (now := now_ns()) < start + seconds * SECOND:
            behind = min(_TOGETHER, int((now - start) * _STORMY / SECOND) - count)
            puts = [projects.stormy(STORM_QPS[(count + n) % 2]) for n in range(behind)]
            await asyncio.gather(*(self._etcd.put(put.key, put.value) for put in puts))
            count += behind
            await asyncio.sleep(0.001)
        put, last = projects.stormy(LOW_QPS), now_ns()
        revision = await self._etcd.put(put.key, put.value)
        return Storm(start, count, Edit(projects.storm.name, "quota down", last, now_ns(), revision))

    async def _edit(self, every_s: float) -> None:
        start = now_ns()
        for count, each in enumerate(self._turns):
            await asyncio.sleep((start + count * every_s * SECOND - now_ns()) / SECOND)
            await self._write(each)

    async def _write(self, each: Edited) -> int:
        changed = self._changed[each.name] = not self._changed[each.name]
        at = now_ns()
        try:
            revision = (await self._etcd.txn([], [each.op(changed)])).revision
        except Unavailable:
            revision = 0
        change = each.toggle.there if changed else each.toggle.back
        self._found.append(Edit(each.name, change, at, now_ns(), revision))
        return revision

    async def _follow(self) -> None:
        async for told in self._etcd.watch(names.key(ENV, "accepted", "")):
            if isinstance(told, Event) and told.kind == "put":
                revision = msgspec.json.decode(told.item.value).get("revision", 0)
                self.accepted.setdefault(revision, now_ns())
