"""The scheduler port: the calls that a node makes.

The node reports which queues have a message ready (`ready`, `empty`), asks for the next one (`next`), commits the grant
that it gets once the message may start, and reports the message's end (`finish`). A scheduler charges at the commit and
corrects in `finish` or `refund`. It reads no clock: `now` is the node's monotonic time in ns, and `wake_at` returns the
next instant at which an answer changes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.quota.topics.topic import Topic


class Schedulable(Protocol):
    """A queue as the scheduler sees it. `slot` belongs to the scheduler, which keeps its own record of the
    queue there.
    """

    project: str
    group: int
    band: int
    slot: object | None


Q = TypeVar("Q", bound=Schedulable)


class QuotaUse(NamedTuple):
    """The quota use of a project: `spent` messages charged so far, whether it `has` a message that might start, and
    whether that message `waits` for quota.
    """

    spent: int
    has: bool
    waits: bool


NOTHING_USED = QuotaUse(0, has=False, waits=False)


class Grant(Generic[Q]):
    """Permission to start the head of `queue`.

    `commit(now)` charges the message. `cancel()` ends the grant: nothing was charged, so nothing needs to be undone
    (E10). A grant also ends when the scheduler is asked for the next one. After the end `commit` raises RuntimeError,
    and `cancel` does nothing.

    Each scheduler reuses one grant object: an object per message would cost a tenth of a decision.
    """

    __slots__ = ("cancel", "commit", "queue")

    queue: Q

    def __init__(
        self, commit: Callable[[int], None] = lambda _now: None, cancel: Callable[[], None] = lambda: None
    ) -> None:
        self.commit, self.cancel = commit, cancel


class Scheduler(Protocol[Q]):
    """Decides which queue's head starts next. The node calls it from one thread."""

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        """Set a topic's rules, at once and for the existing backlog, too. None: the topic is unknown, and none of its
        messages is handed out. `whole` is the rate (msg/s) of the whole topic, if `topic` is the node's share of it.
        """

    def save_up(self, project: str, batch: int) -> None:
        """From the next `configure` on, let each group of the topic save up the quota of `batch` messages, for
        handlers that wait for full batches. In any window, `batch` messages more than the topic's burst may start.
        """

    def ready(self, queue: Q, now: int) -> None:
        """The queue has at least one message ready; no effect if it was ready."""

    def empty(self, queue: Q, now: int) -> None:
        """The queue has no message ready any more; no effect if it was empty."""

    def next(self, now: int) -> Grant[Q] | None:
        """Grant the next queue one message and one slot; None if no message may start now. The caller has a
        free slot.
        """

    def grant_again(self, queue: Q, now: int) -> Grant[Q] | None:
        """Grant one more message of this queue for a batch, in the same slot; None if it may not have one."""

    def affords_at(self, queue: Q, now: int, count: int) -> int:
        """The instant (ns) from which the quota has room for `count` messages of this queue at once, or for as many as
        it can save up, if these are fewer. It may lie in the past.
        """

    def finish(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """Free a slot: its `count` messages of this queue took `service` ns together, whatever their outcome."""

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        """Free a slot: its `count` messages of this queue did not start, and will be handed out again."""

    def measure_use(self, project: str, now: int) -> QuotaUse:
        """The quota use of a project; all zero for an unknown one."""

    def wake_at(self) -> int | None:
        """The next instant at which `next`, having returned None, may answer differently without any further call;
        None: never.
        """

    def wait_reason(self, queue: Q, now: int) -> str | None:
        """The reason why this queue's head waits (a reason word, see `wait-reasons.md`); None if it need not wait."""


def start_next(scheduler: Scheduler[Q], now: int) -> Q | None:
    """The queue whose head starts next, charged: `next` and `commit` for callers that check nothing in between."""
    grant = scheduler.next(now)
    if grant is None:
        return None
    grant.commit(now)
    return grant.queue
