"""Leader task: reconciles topic specs under `topics/` into accepted topics under `accepted/`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from enum import Enum, auto
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.cluster.leader_election import LeaderElection
from evenlane.engine.control.leader.run_together import run_together
from evenlane.engine.control.leader.work_queue import WorkQueue
from evenlane.engine.control.topics.accepted_view import AcceptedView
from evenlane.engine.control.topics.accepted_writer import AcceptedWriter
from evenlane.engine.control.topics.history import next_numbers
from evenlane.engine.control.topics.reconcile import TopicReconciler, log_changes
from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.leader.work_queue import Batch
    from evenlane.engine.control.topics.reconcile import TopicChange
    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, CreatedAt, Watch

PAUSE_S = 0.02  # between two publications, as every node reacts to each
_log = structlog.get_logger(__name__)


class _End(Enum):
    """Reason for the end of one reading of etcd."""

    OUTDATED = auto()  # etcd differs from what this leader has read and written: read it again
    FENCED = auto()  # another process leads
    DISCONNECTED = auto()  # a watch has ended


class TopicController:
    """Campaigns as `holder` and reconciles topics while it leads.

    `leading` is set while it leads. `alarms` maps a project to the reason why its spec is rejected at present;
    `refused` counts rejections since the start. `other_controllers(fence)` runs the other controllers: their writes
    carry the fence, and they end when it no longer holds. `node_lease`: see `LeaderElection`. `last_good(project)`
    returns the topic that this process last read for a project whose accepted topic is corrupted, None if it never read
    one.

    Invariants: `_work_queue` is set while one reading of etcd is followed, and `_reconciler` belongs to that reading;
    `_refused_before` counts the rejections of earlier ones.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        cluster_config: ClusterConfig,
        holder: str,
        lease_ttl_s: int = 10,
        *,
        other_controllers: Callable[[CreatedAt], Awaitable[None]] | None = None,
        node_lease: Callable[[], int] | None = None,
        last_good: Callable[[str], Accepted | None] = lambda _project: None,
    ) -> None:
        self._coordination = coordination
        self._env = env
        self._cluster_config = cluster_config
        self._leadership = LeaderElection(
            coordination, env, holder, self._lead, lease_ttl_s=lease_ttl_s, node_lease=node_lease
        )
        self._other_controllers, self._last_good = other_controllers, last_good
        self._reconciler = TopicReconciler(env, cluster_config, {})
        self._work_queue: WorkQueue | None = None  # of the reading that is followed
        self._refused_before = 0  # in earlier readings

    @property
    def leading(self) -> asyncio.Event:
        return self._leadership.leading

    @property
    def alarms(self) -> dict[str, str]:
        return self._reconciler.alarms

    @property
    def refused(self) -> int:
        return self._refused_before + self._reconciler.refused

    async def start(self) -> None:
        """Start campaigning and return at once. Wait for `leading` if needed."""
        self._leadership.start()

    async def close(self) -> None:
        """Give up leadership, if held. May be called twice."""
        await self._leadership.close()

    async def remove_groups(self, project: str, groups: Collection[int], number: int | None = None) -> bool:
        """Remove empty groups from `draining`. A deleted topic is removed from `accepted/` when all its groups, active
        and draining, are named at once.

        `number` is that of the accepted topic under which the groups were examined: if it has changed, nothing happens.
        Returns whether `accepted/` was changed; also False if this process doesn't lead, or stops leading meanwhile.
        """
        return False if self._work_queue is None else await self._work_queue.ask(project, groups, number)

    async def _lead(self, epoch: int) -> None:
        """Run all controllers until one of them ends."""

        async def accept(_fence: CreatedAt) -> None:
            await self._accept(epoch)

        other_controllers = () if self._other_controllers is None else (self._other_controllers,)
        await run_together(accept, *other_controllers)(self._leadership.fence(epoch))

    async def _accept(self, epoch: int) -> None:
        """Reconcile topics while this process leads. It is the only writer under `accepted/`: if etcd differs from what
        it has written, it discards its decisions and reads etcd again.
        """
        while await self._reconcile(epoch) is _End.OUTDATED:
            _log.info("begins anew", reason="the accepted topics differ from what this leader has written")
            await asyncio.sleep(PAUSE_S)

    async def _reconcile(self, epoch: int) -> _End:
        """Publish specs as they arrive, starting from etcd's present state."""
        async with aclosing(self._watch("accepted")) as accepted, aclosing(self._watch("topics")) as specs:
            found = await anext(accepted, None)
            if not isinstance(found, Listing):
                return _End.DISCONNECTED
            view = AcceptedView(self._env, found.items)
            self._reconciler = TopicReconciler(self._env, self._cluster_config, self._in_effect(view))
            writer = AcceptedWriter(self._coordination, self._env, self._leadership.fence(epoch), view)
            self._work_queue = work_queue = WorkQueue(specs, accepted)
            try:
                while await work_queue.wait():
                    batch = work_queue.take()
                    view.apply_events(batch.accepted)
                    if view.is_stale:
                        return _End.OUTDATED
                    if not (batch.specs or batch.asked or view.corrupted):
                        continue  # only its own writes have arrived
                    if not await self._publish(batch, writer, view.newer):
                        return _End.OUTDATED if await writer.is_leader() else _End.FENCED
                    await asyncio.sleep(PAUSE_S)
                return _End.DISCONNECTED
            finally:
                self._work_queue = None
                self._refused_before, self._reconciler = (
                    self.refused,
                    TopicReconciler(self._env, self._cluster_config, {}),
                )
                await work_queue.close()

    async def _publish(self, batch: Batch, writer: AcceptedWriter, newer: Collection[str]) -> bool:
        """Publish a batch, without the projects that a newer release has accepted in a format of its own. Returns False
        if another process leads or has written there; part of it may be written.
        """
        unaccepted = self._reconciler.find_unaccepted(batch.specs)
        numbers = await next_numbers(self._coordination, self._env, unaccepted)
        changes = _leave_newer(self._reconciler.changes(batch.specs, numbers), newer)
        if not await writer.publish(changes):
            return False
        log_changes(changes)
        for question in batch.asked:
            change = None
            if question.project not in newer:
                change = self._reconciler.remove_groups(question.project, question.groups, question.number)
            if change is not None and not await writer.publish([change]):
                return False
            log_changes([change] if change is not None else ())
            question.answer(changed=change is not None)
        return await writer.repair(self._reconciler.accepted)

    def _watch(self, kind: str) -> Watch:
        return self._coordination.watch(names.key(self._env, kind, ""))

    def _in_effect(self, view: AcceptedView) -> dict[str, Accepted]:
        """Return the accepted topics. A corrupted one is replaced by its last known good value; without one, it counts
        as missing, and is rewritten from its spec if that is valid.
        """
        last = {project: self._last_good(project) for project in view.unreadable}
        known = {project: topic for project, topic in last.items() if topic is not None}
        if unknown := last.keys() - known.keys():
            one = min(unknown)
            _log.warning(
                "what is accepted can't be read", projects=len(unknown), one=one[:64], reason=view.unreadable[one]
            )
        return {**view.accepted, **known}


def _leave_newer(changes: Sequence[TopicChange], newer: Collection[str]) -> list[TopicChange]:
    """The changes without those of `newer` projects, which are logged."""
    for change in changes:
        if change.project in newer:
            _log.warning("a topic is left to a newer release, which has accepted it", project=change.project)
    return [change for change in changes if change.project not in newer]
