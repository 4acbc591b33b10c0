"""Finds the messages of a stretch of time that a subscription has settled and that are still stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.backlog.scan import PAGE, list_subjects, map_concurrently, pages, views
from evenlane.engine.core.queue.subscriber import UNNAMED, Subscriber
from evenlane.engine.core.queue.subscription_filter import is_of_another
from evenlane.engine.core.wire import header_values

if TYPE_CHECKING:
    from evenlane.engine.admin.backlog.scan import LaneView
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.ports import Head, Store
    from evenlane.engine.core.wire.queue_subjects import Subject


class Stretch(NamedTuple):
    """Messages that were stored from `since` until before `until` (unix ns); with `key`, only that key's."""

    since: int
    until: int
    key: str | None = None

    def has(self, head: Head) -> bool:
        """Whether a message belongs to it. Retries and replays don't: the message that they are copies of does."""
        return (
            self.since <= head.at < self.until
            and not is_of_another(head.headers)
            and self.key in (None, header_values.key(head.headers))
        )


class Selection(NamedTuple):
    """The settled messages of a stretch: the sequences by stream, in the order of each stream. `waiting` messages of it
    aren't settled yet.
    """

    settled: dict[LaneId, list[int]]
    waiting: int

    @property
    def total(self) -> int:
        return sum(map(len, self.settled.values()))


async def select(
    store: Store, cluster_config: ClusterConfig, project: str, stretch: Stretch, subscriber: Subscriber = UNNAMED
) -> Selection:
    """Select the messages that the subscription of this store has settled, since its last reset. Raises Lost,
    Refused.
    """
    subjects = await list_subjects(store, cluster_config, project, cluster_config.priorities)
    seen = await views(store, subjects, subscriber)

    async def search(subject: Subject) -> tuple[LaneId, list[int], int]:
        return subject.lane, *await _search(store, subject, seen[subject.lane], stretch)

    settled: dict[LaneId, list[int]] = {}
    waiting = 0
    for lane, sequences, more in await map_concurrently(subjects, search):
        settled.setdefault(lane, []).extend(sequences)
        waiting += more
    return Selection({lane: sorted(settled[lane]) for lane in sorted(settled) if settled[lane]}, waiting)


async def _search(store: Store, subject: Subject, view: LaneView, stretch: Stretch) -> tuple[list[int], int]:
    found, waiting = [], 0
    start = await _find_start(store, subject, view.state.first, stretch.since)
    async for page in pages(store, subject, start, subject.last):
        for head in page:
            if stretch.has(head):
                if head.sequence in view.settled:
                    found.append(head.sequence)
                else:
                    waiting += 1
        if page and page[-1].at >= stretch.until:
            break
    return found, waiting


async def _find_start(store: Store, subject: Subject, first: int, since: int) -> int:
    """Return a sequence at or before the subject's first message that was stored at `since` or later. Arrival times
    rise with sequences.
    """
    low, high = first, subject.last + 1
    while high - low > PAGE:
        middle = (low + high) // 2
        heads = await store.heads(subject.lane, subject.name, middle, 1)
        if not heads or heads[0].at >= since:
            high = middle
        else:
            low = heads[0].sequence + 1
    return low
