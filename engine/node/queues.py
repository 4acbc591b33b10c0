"""The queues that a node knows, and their rules: a project's topic, as far as it is the node's to keep."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING

import structlog

from engine.clock import now_ns
from engine.index import Queue
from engine.node.share import groups_here, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from engine.facts import Facts
    from engine.index import Limits
    from engine.scheduler.interface import Scheduler
    from quota.topic import Topic

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_LEAST_AHEAD = 4  # messages
_SHARE_AFTER_S = 0.05  # other partitions that come with this one come in the same moment
_SHARED_AT_ONCE = 100  # projects in one turn of the loop


class Queues:
    """`topic_of` tells the topic of a project, None if there is none; `mine` are the node's partitions, kept up to date
    by whoever opens and releases them; `on_change` is called when other messages may go than before.
    """

    def __init__(
        self,
        facts: Facts,
        limits: Limits,
        scheduler: Scheduler[Queue],
        topic_of: Callable[[str], Topic | None],
        mine: Collection[int],
        on_change: Callable[[], None],
    ) -> None:
        self._facts, self._limits, self._scheduler = facts, limits, scheduler
        self._topic_of, self._mine, self._on_change = topic_of, mine, on_change
        self._by_partition: dict[int, dict[tuple[str, int, int], Queue]] = {}
        self._by_project: dict[str, list[Queue]] = {}
        self._withheld: dict[str, dict[str, bool]] = {}  # whether its queues sleep meanwhile, by project and reason
        self._shares: dict[str, int] = {}  # for how many of its groups a project's rules were told the scheduler
        self._sharing: asyncio.Handle | None = None
        self._share_at = 0.0
        self._all_anew = False
        self._to_share: dict[str, None] = {}  # projects whose share may have changed
        self._urgent: dict[str, None] = {}

    def get(self, partition: int, project: str, group: int, band: int) -> Queue:
        """The queue, made if it is new."""
        known = self._by_partition.setdefault(partition, {})
        queue = known.get((project, group, band))
        if queue is None:
            queue = known[project, group, band] = Queue(project, group, self._facts.priorities[band], band, partition)
            topic = self._topic_of(project)
            if project not in self._by_project:
                self._by_project[project] = []
                self._configure(project, topic, now_ns())
                if topic is None:
                    _log.warning("messages of a project without a topic wait until it has one", project=project)
            self._by_project[project].append(queue)
            self.apply(queue, topic)
        return queue

    def of(self, project: str) -> Sequence[Queue]:
        """A view, which may grow."""
        return self._by_project.get(project, ())

    def all(self) -> Iterator[Queue]:
        return (queue for known in self._by_partition.values() for queue in known.values())

    @property
    def projects(self) -> int:
        return len(self._by_project)

    def opened(self, partition: int, at_hand: Callable[[Queue], None]) -> None:
        """Its messages may be handed out from now on."""
        for queue in self._by_partition.get(partition, {}).values():
            if queue.hand or queue.behind:
                at_hand(queue)

    def forget(self, partition: int) -> None:
        """Drop those of a partition that is the node's no more, and its part of their topics."""
        now = now_ns()
        gone = self._by_partition.pop(partition, {})
        for queue in gone.values():
            queue.asleep = True  # nothing reads for it any more
            self._scheduler.empty(queue, now)
        projects = {queue.project for queue in gone.values()}
        self.fewer_partitions(sorted(projects))
        for project in projects:
            left = [queue for queue in self._by_project[project] if queue.partition != partition]
            if left:
                self._by_project[project] = left
            else:
                del self._by_project[project]

    # ---- rules

    def configure(self, project: str, topic: Topic | None) -> None:
        """Act on a topic's new rules at once; its queues' own are for `apply`."""
        self._configure(project, topic, now_ns())

    def withhold(self, project: str, reason: str, on: bool, *, asleep: bool) -> None:
        """Hand out no more of it, whatever its topic says, until that ends for each reason there was; `asleep`: for so
        long that its queues needn't hold payloads.
        """
        reasons = self._withheld.setdefault(project, {})
        if on:
            reasons[reason] = asleep
        else:
            reasons.pop(reason, None)
        if not reasons:
            del self._withheld[project]
        topic = self._topic_of(project)
        self._configure(project, topic, now_ns())
        for queue in self.of(project):
            self.apply(queue, topic)

    def withheld(self, project: str) -> str | None:
        """Why nothing of it is handed out, if so."""
        reasons = self._withheld.get(project)
        return min(reasons) if reasons else None

    def _configure(self, project: str, topic: Topic | None, now: int) -> None:
        if topic is None or project in self._withheld:
            self._shares.pop(project, None)
            self._scheduler.configure(project, None, now)
            return
        groups = self._shares[project] = groups_here(project, topic, self._mine, self._facts.partitions)
        self._scheduler.configure(project, share_of(topic, groups), now)

    def apply(self, queue: Queue, topic: Topic | None) -> None:
        """A topic's rules for one queue of it."""
        queue.topic = topic
        queue.pushed = topic is not None and topic.push is not None
        queue.keep_order(topic is not None and topic.ordered, self._limits)
        if topic is not None:
            queue.read_ahead(min(self._limits.read_ahead, _needed_soon(topic, self._facts.max_group_qps)))
        withheld = self._withheld.get(queue.project)
        queue.asleep = topic is None or topic.state == "paused" or (withheld is not None and any(withheld.values()))
        queue.ttl = int(topic.ttl * _SECOND) if topic is not None else 0
        queue.ack_wait = int(topic.ack_wait * _SECOND) if topic is not None else 0

    # ---- shares

    def more_partitions(self) -> None:
        """A partition came: in a moment other parts of the topics are this node's."""
        self._all_anew = True
        self._arm(_SHARE_AFTER_S)

    def fewer_partitions(self, gone: Iterable[str]) -> None:
        """A partition went, with queues of these projects: give up that part before another node has it."""
        self._urgent.update(dict.fromkeys(gone))
        self._all_anew = True
        self._arm(0)

    def stop(self) -> None:
        if self._sharing is not None:
            self._sharing.cancel()

    def _arm(self, after_s: float) -> None:
        """Partitions that keep coming don't put it off."""
        loop = asyncio.get_running_loop()
        due = loop.time() + after_s
        if self._sharing is not None and self._share_at <= due:
            return
        self.stop()
        self._share_at = due
        self._sharing = loop.call_at(due, self._share)

    def _share(self) -> None:
        """Some projects of the pass; the rest in the next turn of the loop. What came meanwhile makes another pass."""
        if self._all_anew and not self._to_share:
            self._all_anew, self._to_share = False, dict.fromkeys(self._by_project)
        for _ in range(_SHARED_AT_ONCE):
            some = self._urgent or self._to_share
            if not some:
                break
            project = some.popitem()[0]
            topic = self._topic_of(project)
            if topic is None or project not in self._by_project:
                self._shares.pop(project, None)
            elif groups_here(project, topic, self._mine, self._facts.partitions) != self._shares.get(project):
                self._configure(project, topic, now_ns())
                self._on_change()
        self._sharing = None
        if self._urgent or self._to_share:
            self._share_at = 0.0
            self._sharing = asyncio.get_running_loop().call_soon(self._share)
        elif self._all_anew:
            self._arm(_SHARE_AFTER_S)


def _needed_soon(topic: Topic, max_group_qps: float) -> int:
    """How many messages of one queue may be handed out within about a second: more needn't be at hand."""
    rate = min(topic.qps, max_group_qps) if topic.borrow else topic.qps / topic.groups
    return max(_LEAST_AHEAD, ceil(rate) + topic.burst)
