"""What the node asks of a scheduler, and what it tells it.

The node says which queues have a message ready (`ready`, `empty`), asks for the next one (`next`), commits the grant
that it gets once the message may start, and reports the message's end (`done`). A scheduler charges at the commit and
corrects in `done` or `refund`. It reads no clock: `now` is the node's monotonic time in ns, and `wake_at` the next
instant at which an answer changes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.quota.topics.topic import Topic


class Schedulable(Protocol):
    """A queue as the scheduler sees it. `slot` is the scheduler's own note on it."""

    project: str
    group: int
    band: int
    slot: object | None


Q = TypeVar("Q", bound=Schedulable)


class Used(NamedTuple):
    """Of a project: how many messages were charged so far, whether it `has` anything that might go, and whether that
    `waits` for its quota.
    """

    spent: int
    has: bool
    waits: bool


NOTHING_USED = Used(0, has=False, waits=False)


class Grant(Generic[Q]):
    """The head of `queue` may start, if the node finds nothing against it.

    `commit(now)` charges the message. `cancel()` ends the grant: nothing was charged, so nothing has to be undone
    (E10). A grant also ends when the scheduler is asked for the next one. `commit` raises RuntimeError after the end.

    Each scheduler fills in one grant again and again: an object for each message would cost a tenth of a decision.
    """

    __slots__ = ("cancel", "commit", "queue")

    queue: Q

    def __init__(
        self, commit: Callable[[int], None] = lambda _now: None, cancel: Callable[[], None] = lambda: None
    ) -> None:
        self.commit, self.cancel = commit, cancel


class Scheduler(Protocol[Q]):
    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        """A topic's rules, at once and for the backlog already there; None: unknown, nothing of it is handed out.
        `whole`: the rate (msg/s) of the whole topic, if `topic` is a node's part of it.
        """

    def ready(self, queue: Q, now: int) -> None:
        """The queue has at least one message at hand; no effect if it was ready."""

    def empty(self, queue: Q, now: int) -> None:
        """The queue has none at hand any more; no effect if it was empty."""

    def next(self, now: int) -> Grant[Q] | None:
        """The queue whose head starts next, for one message and one slot; None if nothing may start now. The caller
        has a free slot.
        """

    def again(self, queue: Q, now: int) -> Grant[Q] | None:
        """One more message of this queue for a batch, in the same slot; None if it may not have one."""

    def done(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """A slot is free: its `count` messages of this queue took `service` ns together, however they ended."""

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        """A slot is free: its `count` messages of this queue did not start, and are handed out again later."""

    def used(self, project: str, now: int) -> Used:
        """What there is to know of a project's quota; of one that it doesn't know, nothing was charged."""

    def wake_at(self) -> int | None:
        """After `next` gave None: the next instant at which it may answer otherwise without any further call; None:
        never.
        """

    def why(self, queue: Q, now: int) -> str | None:
        """The reason why this queue's head waits (surfaces.md's words), None if it need not."""


def start_next(scheduler: Scheduler[Q], now: int) -> Q | None:
    """The queue whose head starts next, charged: `next` and `commit` for callers with nothing to check in between."""
    grant = scheduler.next(now)
    if grant is None:
        return None
    grant.commit(now)
    return grant.queue
