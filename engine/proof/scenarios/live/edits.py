"""Edits of topics while `live` runs, straight into etcd as with `etcdctl`; and a producer that probes them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import BacklogFull, EvenlaneError, NotAcknowledged, TopicDraining
from evenlane.engine.proof.broker.background import run_in_background
from evenlane.engine.proof.cluster.cluster import ENV, PATIENCE_S
from evenlane.engine.proof.load.arrivals import SECOND
from evenlane.engine.proof.scenarios.live.load import LOW_QPS, STORM_QPS
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Event, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.proof.scenarios.live.load import EditedTopic, LiveProjects

_STORMY = 1_000  # edits per second
_TOGETHER = 32  # edits in flight
_LOOK_S = 0.05
_PROBE_S = 0.02


class Edit(NamedTuple):
    """A spec, from the begin of its write to its acknowledgement, ns since boot. `until` is the begin of the same
    topic's next edit; `revision` is 0 if it is unknown whether the spec was written.
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
    """Edits topics. `accepted` has the time at which the spec of each revision was observed under `accepted/`."""

    def __init__(self, endpoint: str, edited: Sequence[EditedTopic]) -> None:
        self._etcd = EtcdCoordination((endpoint,))
        self._edited = edited
        self._changed: dict[str, bool] = dict.fromkeys((each.name for each in edited), False)
        self._turns = cycle(edited)
        self._found: list[Edit] = []
        self.accepted: dict[int, int] = {}

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        try:
            async with run_in_background(self._follow()):
                yield
        finally:
            await self._etcd.close()

    def edit_during(self, every_s: float) -> AbstractAsyncContextManager[None]:
        """Edit topics in turn, in real time, as long as the block runs."""
        return run_in_background(self._edit(every_s))

    def edits(self, end: int) -> list[Edit]:
        """All in the order of time, as if each topic had been edited once more at `end`."""
        until: dict[str, int] = {}
        found = []
        for edit in reversed(self._found):
            found.append(edit._replace(until=until.get(edit.name, end)))
            until[edit.name] = edit.at
        return found[::-1]

    async def restore(self) -> None:
        """Restore all topics as they were at the beginning; returns when that is in effect. Raises EvenlaneError."""
        revisions = {await self._write(each) for each in self._edited if self._changed[each.name]}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not revisions <= self.accepted.keys():  # noqa: ASYNC110 - the watch notifies nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EvenlaneError(
                f"the scenario was aborted: topics are not as they were at the beginning after {PATIENCE_S:g} s"
            ) from None

    async def storm(self, projects: LiveProjects, seconds: float) -> Storm:
        """Edit one topic's quota a thousand times per second, or as fast as etcd accepts it; then make a last edit."""
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

    async def _write(self, each: EditedTopic) -> int:
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
        async for change in self._etcd.watch(names.key(ENV, "accepted", "")):
            if isinstance(change, Event) and change.kind == "put":
                revision = msgspec.json.decode(change.item.value).get("revision", 0)
                self.accepted.setdefault(revision, now_ns())


class PutAttempt(NamedTuple):
    """A put, from its call to its outcome, ns since boot."""

    project: str
    at: int
    ended: int
    taken: bool


class ProbeProducer:
    """A running producer: it shows which puts of a topic are accepted, and which are refused because the topic drains.
    `tried` is in the order of the calls, for each project.
    """

    def __init__(self, producer: Producer, projects: Sequence[str]) -> None:
        self._producer, self._projects = producer, projects
        self.tried: list[PutAttempt] = []

    def put_during(self) -> AbstractAsyncContextManager[None]:
        """Put as long as the block runs. Raises what a put raises, except refusals."""
        return run_in_background(*map(self._run, self._projects))

    async def _run(self, project: str) -> None:
        start, count = now_ns(), 0
        while True:
            await asyncio.sleep((start + count * _PROBE_S * SECOND - now_ns()) / SECOND)
            count += 1
            at, taken = now_ns(), True
            try:
                await self._producer.put(project, b"")
            except TopicDraining:
                taken = False
            except (BacklogFull, NotAcknowledged):
                continue
            self.tried.append(PutAttempt(project, at, now_ns(), taken))
