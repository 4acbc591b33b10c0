"""What the node asks of a scheduler, and what it tells it.

The node tells which queues have a message at hand (`ready`, `empty`), takes the next one (`next`), and reports
its end (`done`). A scheduler charges in `next` and corrects in `done` or `give_back`. It reads no clock: `now`
is the node's monotonic time in ns, and `wake_at` the next instant at which an answer would change by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
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


class Scheduler(Protocol[Q]):
    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        """A topic's rules, at once and for the backlog already there; None: unknown, nothing of it is handed out.
        `whole`: the rate (msg/s) of the whole topic, if `topic` is a node's part of it.
        """

    def ready(self, queue: Q, now: int) -> None:
        """The queue has at least one message at hand; no effect if it was ready."""

    def empty(self, queue: Q, now: int) -> None:
        """The queue has none at hand any more; no effect if it was empty."""

    def next(self, now: int) -> Q | None:
        """The queue whose head to handle next, charged for one message and one slot; None if nothing may go now.
        Whoever asks has a free slot.
        """

    def again(self, queue: Q, now: int) -> bool:
        """Whether a batch may take one more message of this queue in the same slot; charged if so."""

    def give_back(self, queue: Q, now: int) -> None:
        """The message that the last `next` or `again` promised wasn't there: undo the charge (E10). It follows at
        once, with nothing but `empty` in between; else RuntimeError.
        """

    def done(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """A slot is free: its `count` messages of this queue took `service` ns together, however they ended."""

    def undo(self, queue: Q, now: int, count: int = 1) -> None:
        """A slot is free: its `count` messages of this queue weren't handled, and will be handed out again."""

    def used(self, project: str, now: int) -> Used:
        """What there is to know of a project's quota; of one that it doesn't know, nothing was charged."""

    def wake_at(self) -> int | None:
        """After `next` gave None: the next instant at which it may answer otherwise without any further call; None:
        never.
        """

    def why(self, queue: Q, now: int) -> str | None:
        """The reason why this queue's head waits (surfaces.md's words), None if it need not."""
