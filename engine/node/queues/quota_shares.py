"""Keeps this node's share of each topic, and configures the scheduler whenever it changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.queues.quota_share import WHOLE, NodeShare, node_share, share_of
from evenlane.engine.node.tuning import DEFAULT, NodeTuning
from evenlane.quota.lending.loans import Loans

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.quota.topics.topic import Topic

_SECOND = 1_000_000_000


class QuotaShares:
    """This node's share of each topic.

    `rules_of` returns the rules of a project, None if its messages must not be handed out; `draining_of` its groups
    that are being drained; `mine` are the node's partitions, `projects` those with queues here. `on_change` is called
    when other messages may start than before.

    Invariant: `_configured` has, for each project that the scheduler has rules for, the node's own part from which
    these rules were computed. A partition in `_later[project]` is the node's, but its previous owner has lent its part:
    it counts only from the given time (ns) on.
    """

    def __init__(
        self,
        cluster_config: ClusterConfig,
        scheduler: Scheduler[Queue],
        rules_of: Callable[[str], Topic | None],
        draining_of: Callable[[str], Sequence[int]],
        mine: Collection[int],
        projects: Collection[str],
        on_change: Callable[[], None],
        tuning: NodeTuning = DEFAULT,
    ) -> None:
        self._tuning = tuning
        self._cluster_config, self._scheduler, self._on_change = cluster_config, scheduler, on_change
        self._rules_of, self._draining_of, self._mine, self._projects = rules_of, draining_of, mine, projects
        self.loans = Loans()
        self.revision = 0
        """Grows whenever a project's topic, or the node's part of it, may have changed."""
        self._configured: dict[str, NodeShare] = {}  # own parts that the scheduler was configured with
        self._borrowed_of: dict[str, tuple[object, ...]] = {}  # the division under which loans were granted
        self._later: dict[str, dict[int, int]] = {}  # project -> partition -> ns
        self._sharing: asyncio.Handle | None = None
        self._share_at = 0.0
        self._all_due = False
        self._to_share: dict[str, None] = {}  # projects whose own part may have changed
        self._urgent: dict[str, None] = {}

    def configure(self, project: str) -> None:
        """Pass the project's current rules to the scheduler."""
        self.revision += 1
        topic, now = self._rules_of(project), now_ns()
        if topic is None:
            self._configured.pop(project, None)
            self._scheduler.configure(project, None, now)
            return
        if self._borrowed_of.get(project, division := self._division(project, topic)) != division:
            self.loans.drop(project)  # own parts have changed on all nodes: loans were granted by the old ones
        own = self._configured[project] = self._compute_own(project, topic)
        part = self.loans.part(project, own.part)
        if part > own.part:  # borrowed: limited to the most that its groups may use
            part = max(own.part, min(part, max(1, own.groups) * self._cluster_config.max_group_qps / topic.qps))
        self._scheduler.configure(project, share_of(topic, own, part), now, topic.qps)

    def compute_own_part(self, project: str) -> float:
        """The fraction of the topic that the node's partitions bring along."""
        topic = self._rules_of(project)
        return 0.0 if topic is None else self._compute_own(project, topic).part

    def part(self, project: str) -> float:
        """The fraction of the topic that the node may use now, loans included."""
        return self.loans.part(project, self.compute_own_part(project))

    def has_rules(self, project: str) -> bool:
        """Whether the scheduler has rules for the project."""
        return project in self._configured

    def parts_of(self, project: str) -> tuple[Topic, float, float] | None:
        """The project's topic, the node's own part, and the part that it may use now. None if the project has no rules,
        or its groups may not borrow.
        """
        topic = self._rules_of(project)
        if topic is None or not topic.borrow:
            return None
        own = self._compute_own(project, topic).part
        return topic, own, self.loans.part(project, own)

    def _compute_own(self, project: str, topic: Topic) -> NodeShare:
        draining = self._draining_of(project)
        later = self._later.get(project)
        if later is None and len(self._mine) >= self._cluster_config.partitions:
            return NodeShare(topic.groups + len(draining), WHOLE)
        if later is None:
            return node_share(project, topic, draining, self._mine.__contains__, self._cluster_config)
        here = {*self._mine} - {number for number, at in later.items() if at > now_ns()}
        return node_share(project, topic, draining, here.__contains__, self._cluster_config)

    # ---- partitions come and go

    def on_partition_acquired(self) -> None:
        """The node's parts grow from now on; the scheduler learns of it when the partition is open."""
        self.revision += 1

    def on_more_partitions(self) -> None:
        """A partition is open: recompute the node's parts in a moment."""
        self._all_due = True
        self._arm(self._tuning.shares_after_s)

    def on_fewer_partitions(self, gone: Iterable[str]) -> None:
        """A partition with queues of these projects is gone: give up its part before another node uses it."""
        self.revision += 1
        self._urgent.update(dict.fromkeys(gone))
        self._all_due = True
        self._arm(0)

    def on_change(self, projects: Iterable[str]) -> None:
        """Loans of these projects have changed."""
        for project in projects:
            self.revision += 1
            topic = self._rules_of(project)
            if topic is not None and self.loans.totals(project)[1]:
                self._borrowed_of[project] = self._division(project, topic)
            else:
                self._borrowed_of.pop(project, None)
            if project in self._configured:
                self.configure(project)
        self._on_change()

    def _division(self, project: str, topic: Topic) -> tuple[object, ...]:
        """The settings by which a topic is divided among partitions, independent of their owners."""
        return topic.groups, topic.spread, topic.borrow, tuple(self._draining_of(project))

    def stop(self) -> None:
        if self._sharing is not None:
            self._sharing.cancel()

    # ---- partitions whose previous owner has lent its part

    def list_owed(self, partition: int) -> dict[str, float]:
        """For a partition that is being released: the projects whose part other nodes may still use, and
        for how long (s).
        """
        now = now_ns()
        untils = {project: later[partition] for project, later in self._later.items() if partition in later}
        for project in self.loans.projects:
            until = now + self.loans.compute_owing(project, self.compute_own_part(project), now)
            untils[project] = max(until, untils.get(project, 0))
        return {project: (until - now) / _SECOND for project, until in untils.items() if until > now}

    def defer(self, partition: int, owed: Mapping[str, float]) -> None:
        """For a partition that was taken over: count it only after the times that `list_owed` reported."""
        for project, seconds in owed.items():
            until = now_ns() + int(seconds * _SECOND)
            later = self._later.setdefault(project, {})
            until = later[partition] = max(until, later.get(partition, 0))
            asyncio.get_running_loop().call_later(seconds, self._on_expiry, project, partition, until)

    def must_wait_for(self, partition: int) -> bool:
        """Whether other nodes may still use parts of the partition."""
        return any(partition in later for later in self._later.values())

    def _on_expiry(self, project: str, partition: int, until: int) -> None:
        later = self._later.get(project, {})
        if later.get(partition) == until:
            del later[partition]
            if not later:
                del self._later[project]
            self.on_change([project])

    async def wait_until_repaid(self) -> None:
        """Wait until all lent parts have expired. A lease that expires by itself lasts longer than that. Before
        revoking a lease without releasing its partitions first, the node must wait, because the partitions' next owners
        don't learn of the loans.
        """
        await asyncio.sleep(max(0, self.loans.find_lent_until() - now_ns()) / _SECOND)

    # ---- passes over all projects

    def _arm(self, after_s: float) -> None:
        """Schedule a pass. Partitions that keep arriving don't defer it."""
        loop = asyncio.get_running_loop()
        due = loop.time() + after_s
        if self._sharing is not None and self._share_at <= due:
            return
        self.stop()
        self._share_at = due
        self._sharing = loop.call_at(due, self._share)

    def _share(self) -> None:
        """Process some projects of the pass, and the rest in the next turn of the loop. Later changes cause
        another pass.
        """
        if self._all_due and not self._to_share:
            self._all_due, self._to_share = False, dict.fromkeys(self._projects)
        for _ in range(self._tuning.shares_at_once):
            some = self._urgent or self._to_share
            if not some:
                break
            self._share_one(some.popitem()[0])
        self._sharing = None
        if self._urgent or self._to_share:
            self._share_at = 0.0
            self._sharing = asyncio.get_running_loop().call_soon(self._share)
        elif self._all_due:
            self._arm(self._tuning.shares_after_s)

    def _share_one(self, project: str) -> None:
        topic = self._rules_of(project)
        if topic is None or project not in self._projects:
            if self._configured.pop(project, None) is not None:
                self.revision += 1
                self._scheduler.configure(project, None, now_ns())
        elif self._compute_own(project, topic) != self._configured.get(project):
            self.configure(project)
            self._on_change()
