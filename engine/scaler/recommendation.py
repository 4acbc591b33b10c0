"""The number of nodes that the leader recommends, for those who ask this node for it: KEDA, and Prometheus."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.engine.control.scaling.record import ScalingRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Coordination

_LOOKS = 3  # of the leader; a recommendation that is older is not given
_SECOND = 1_000_000_000


class Recommendation(NamedTuple):
    """`nodes` is the number; None if there is none, and `problem` says why in a clause. `is_conflict`: the nodes have
    different settings.
    """

    nodes: int | None
    problem: str = ""
    is_conflict: bool = False


class Recommendations:
    """Follows the leader's record: call `open`, then `close`. `mode` is the setting `scaling` of this node, and
    `interval_s` that of the leader's looks. A record is old by this process's clock, from when it was first seen.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        mode: str,
        interval_s: float,
        records: RecordReader,
        clock: Callable[[], int] = now_ns,
    ) -> None:
        self._coordination, self._key, self._mode, self._records = (
            coordination,
            names.key(cluster, "scaling"),
            mode,
            records,
        )
        self._old_ns, self._clock = int(_LOOKS * interval_s * _SECOND), clock
        self._record: ScalingRecord | None = None
        self._revision = self._seen_at = 0  # the record's, and when it was first seen
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="recommendation")

    async def close(self) -> None:
        """Close. No effect if never opened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def looked_at(self) -> float | None:
        """The time of the leader's last look, in unix s by its clock; None before the first one is known."""
        return self._record.at if self._record is not None else None

    @property
    def current(self) -> Recommendation:
        record = self._record
        if record is None:
            return Recommendation(None, "no leader has recommended a number of nodes yet")
        if record.mode != self._mode:
            differs = f"the setting scaling is {self._mode} here, and {record.mode} on node {record.by}, which leads"
            return Recommendation(None, f"{differs}: set the same on all nodes", is_conflict=True)
        age_ns = self._clock() - self._seen_at
        if age_ns > self._old_ns:
            return Recommendation(None, f"no leader has looked for {age_ns / _SECOND:.0f}s")
        if record.error:
            return Recommendation(None, record.error, is_conflict=True)
        return Recommendation(record.desired)

    async def follow(self) -> AsyncIterator[Recommendation]:
        """Yield the present recommendation, and then each other one."""
        last = None
        while True:
            self._changed.clear()
            if (present := self.current) != last:
                last = present
                yield present
            await self._changed.wait()

    async def _watch(self) -> None:
        async with PrefixWatch(self._coordination, self._key) as updates:
            async for update in updates:
                item = update.changed.get("")
                if item is None and not update.whole and "" not in update.gone:
                    continue  # another key that begins like this one
                self._record = None if item is None else self._records.read(ScalingRecord, item.key, item.value)
                revision = 0 if item is None else item.mod_revision
                if revision != self._revision:  # a watch that was interrupted lists the same record again
                    self._revision, self._seen_at = revision, self._clock()
                self._changed.set()
