"""The registry of a node's queues, and the rules that their topics give them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import NO_HANDLING, QueueRules, rules_of
from evenlane.engine.node.queues.activity import Activity
from evenlane.engine.node.queues.quota_shares import QuotaShares
from evenlane.engine.node.tuning import DEFAULT, NodeTuning

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.queue_rules import Handling
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.quota.topics.topic import Topic

_log = structlog.get_logger(__name__)

_band = attrgetter("band")
NO_HANDLER = "no_handler"
"""The reason why messages wait that no handler of this node takes."""


class QueueRegistry:
    """The queues of the node's partitions, by partition and by project.

    `handling_of` returns how a project's messages are handled, None if no handler takes them. `topic_of` returns the
    topic of a project, None if there is none; `draining_of` its groups that are being drained. `mine` are the
    node's partitions, kept current by their owner; `on_change` is called when other messages may start than before.

    Invariants: a project in `_withheld` has no rules in the scheduler. Its value has, per reason, whether the project's
    queues sleep meanwhile, that is, hold no payloads. `_last_rules` has the rules that were last made for each project,
    so that its queues share one object.
    """

    def __init__(
        self,
        cluster_config: ClusterConfig,
        limits: MemoryBudget,
        scheduler: Scheduler[Queue],
        handling_of: Callable[[str], Handling | None],
        topic_of: Callable[[str], Topic | None],
        draining_of: Callable[[str], Sequence[int]],
        mine: Collection[int],
        on_change: Callable[[], None],
        tuning: NodeTuning = DEFAULT,
    ) -> None:
        self._cluster_config, self._limits, self._scheduler = cluster_config, limits, scheduler
        self._handling_of, self._topic_of = handling_of, topic_of
        self._by_partition: dict[int, dict[tuple[str, int, int], Queue]] = {}
        self._by_project: dict[str, list[Queue]] = {}
        self.on_gone: list[Callable[[Iterable[Queue]], None]] = []
        """Callbacks for queues that are about to belong to another node."""
        self.activity = Activity()
        self._withheld: dict[str, dict[str, bool]] = {}
        self._last_rules: dict[str, tuple[Topic | None, bool, QueueRules]] = {}  # topic, asleep, and their rules
        self.shares = QuotaShares(
            cluster_config, scheduler, self._rules_of, draining_of, mine, self._by_project.keys(), on_change, tuning
        )

    def get(self, partition: int, project: str, group: int, band: int) -> Queue:
        """The queue, created if it is new."""
        known = self._by_partition.setdefault(partition, {})
        queue = known.get((project, group, band))
        if queue is None:
            queue = known[project, group, band] = Queue(
                project, group, self._cluster_config.priorities[band], band, partition
            )
            topic = self._topic_of(project)
            if project not in self._by_project:
                self._by_project[project] = []
                if (handling := self._handling_of(project)) is not None and handling.batch_wait:
                    self._scheduler.save_up(project, handling.batch)
                self.shares.configure(project)
                if topic is None:
                    _log.warning("messages of a project without a topic wait until it has one", project=project)
                elif self._has_no_handler(project, topic):
                    _log.warning("messages of a project wait: this node has no handler for them", project=project)
            self._by_project[project].append(queue)
            queue.apply(self._queue_rules(project, topic), self._limits)
            self.activity.note(queue)
        return queue

    def of_project(self, project: str) -> Sequence[Queue]:
        """The project's queues. A live view, which may grow."""
        return self._by_project.get(project, ())

    def list_by_priority(self, project: str) -> list[Queue]:
        """The project's queues, most urgent first, so that their payloads are read first."""
        return sorted(self.of_project(project), key=_band)

    def all(self) -> Iterator[Queue]:
        return (queue for known in self._by_partition.values() for queue in known.values())

    @property
    def projects(self) -> int:
        return len(self._by_project)

    @property
    def project_names(self) -> Collection[str]:
        """The projects with queues here. A live view."""
        return self._by_project.keys()

    @property
    def backlog(self) -> int:
        """The number of messages that wait in all queues."""
        return sum(queue.backlog for queue in self.activity.noted)

    def report_ready(self, partition: int, on_ready: Callable[[Queue], None]) -> None:
        """Report the partition's queues that have messages: they may be handed out from now on."""
        for queue in sorted(self._by_partition.get(partition, {}).values(), key=_band):
            if queue.ready or queue.behind:
                on_ready(queue)

    def discard(self, partition: int) -> None:
        """Drop the queues of a partition that the node no longer owns, and its part of their topics."""
        now = now_ns()
        gone = self._by_partition.pop(partition, {})
        for notify in self.on_gone:
            notify(gone.values())
        self.activity.discard(gone.values())
        for queue in gone.values():
            queue.rules = queue.rules.without_prefetch()  # stops reads under way
            self._scheduler.empty(queue, now)
        projects = {queue.project for queue in gone.values()}
        self.shares.on_fewer_partitions(sorted(projects))
        for project in projects:
            left = [queue for queue in self._by_project[project] if queue.partition != partition]
            if left:
                self._by_project[project] = left
            else:
                del self._by_project[project]
                self._last_rules.pop(project, None)

    # ---- rules

    def withhold(self, project: str, reason: str, on: bool, *, asleep: bool) -> None:
        """Hand out no messages of the project for this `reason`, whatever its topic says, or end that. Each reason must
        be ended separately. `asleep`: the project waits for so long that its queues needn't hold payloads.
        """
        reasons = self._withheld.setdefault(project, {})
        if on:
            reasons[reason] = asleep
        else:
            reasons.pop(reason, None)
        if not reasons:
            del self._withheld[project]
        topic = self._topic_of(project)
        self.shares.configure(project)
        self.apply_topic(project, topic)

    def explain_withheld(self, project: str) -> str | None:
        """The reason why the project is withheld; None if it isn't."""
        if self._handling_of(project) is None and self._has_no_handler(project, self._topic_of(project)):
            return NO_HANDLER
        reasons = self._withheld.get(project)
        return min(reasons) if reasons else None

    def _has_no_handler(self, project: str, topic: Topic | None) -> bool:
        """Whether messages of the project wait for a handler: those of a topic with push need none."""
        return topic is not None and topic.push is None and self._handling_of(project) is None

    def _rules_of(self, project: str) -> Topic | None:
        if project in self._withheld:
            return None
        topic = self._topic_of(project)
        return None if self._has_no_handler(project, topic) else topic

    def apply_topic(self, project: str, topic: Topic | None) -> None:
        """Apply a topic's rules to the project's queues. The most urgent come first: their payloads are read first."""
        if not (queues := self.of_project(project)):
            return
        rules = self._queue_rules(project, topic)
        for queue in sorted(queues, key=_band):
            queue.apply(rules, self._limits)

    def _queue_rules(self, project: str, topic: Topic | None) -> QueueRules:
        asleep = project in self._withheld and any(self._withheld[project].values())
        asleep = asleep or self._has_no_handler(project, topic)
        if (last := self._last_rules.get(project)) is not None and last[0] is topic and last[1] == asleep:
            return last[2]
        rules = rules_of(
            topic, self._cluster_config.max_group_qps, self._limits.read_ahead, asleep=asleep,
            handling=self._handling_of(project) or NO_HANDLING,
        )  # fmt: skip
        self._last_rules[project] = topic, asleep, rules
        return rules
