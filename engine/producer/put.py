"""Values of a put: the message, its state until its outcome, and the protocols of limits and completions."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from evenlane.engine.core.ports import Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlane.engine.producer.backlog_estimate import BacklogEstimate
    from evenlane.quota.topics.topic import Accepted

# A failed put is in a list of results as the error that `Producer.put` would have raised.
Outcome = Receipt | Exception


class Put(msgspec.Struct, eq=False, gc=False):
    """One message to put; None means omitted.

    `delay` and `ttl` are seconds, `due` is unix ns or a datetime with a time zone; `delay` and `due` exclude each
    other. Messages with the same key go to the same group. Within the duplicate window, an `id` is stored once per
    project.
    """

    project: str
    body: bytes
    priority: str | None = None
    key: str | None = None
    group: int | None = None
    delay: float | None = None
    due: int | datetime | None = None
    ttl: float | None = None
    id: str | None = None
    headers: Mapping[str, str] | None = None


class Completion(Protocol):
    """Receives the outcome of a put for its caller."""

    def complete(self, pending: PendingPut, outcome: Outcome) -> None: ...


class Limit(Protocol):
    """A limit that a put must pass before it is sent: its topic's backlog, its rate, or the window. What a put has
    acquired is released when the put completes, or needs no release.
    """

    def try_acquire(self, pending: PendingPut, /) -> bool:
        """Return whether the put may pass now; also True for a put that has already passed. May raise BacklogFull."""

    async def acquire(self, pending: PendingPut) -> None:
        """Wait until the put may pass, but not beyond its deadline. Raises BacklogFull, NotAcknowledged or
        ProducerClosed; the put then holds no share of the limit and was not sent.
        """


class PutState(Enum):
    """Progress of a put, and what it holds. Each state may be followed by DONE; otherwise they follow in order, and
    IN_FLIGHT and RETRYING alternate.
    """

    PREPARED = 1  # routed. A limit makes it wait; it has no room in the window.
    ADMITTED = 2  # admitted by all limits. Sent at once, with room; or set aside by its rate limit, without.
    IN_FLIGHT = 3  # its last try is unanswered. It has room in the window.
    RETRYING = 4  # its last try failed, or its first try must wait. It has room in the window.
    DONE = 5  # it has its outcome, or its caller has gone. It has no room, and is in no list but that of retries.


# As globals, since Python 3.11 takes some 100 ns to look up a member in its class, and each put needs five.
PREPARED, ADMITTED, IN_FLIGHT, RETRYING, DONE = PutState


class PendingPut(msgspec.Struct, eq=False, gc=False):
    """A put on its way, from its routing to its outcome. Times are monotonic seconds.

    A single object per put, and one that the garbage collector skips: both count at 40,000 puts per second.
    """

    project: str
    id: str  # "" without duplicate protection
    fresh: bool  # the id is the producer's own: no other process can have put it before
    subject: str
    headers: bytes
    body: bytes
    size: int  # bytes of headers and body
    accepted: Accepted  # the topic by which it was routed
    state: PutState = PREPARED
    # Set by its caller, its limits and the sender:
    is_alone: bool = False  # its caller waits for it alone, so it may always be set aside: it overtakes no other put
    backlog: BacklogEstimate | None = None  # that counts it, if its topic has a limit
    completion: Completion | None = None
    number: int = 0  # among the puts of a batch
    order: int = 0  # among all puts of a sender
    tries: int = 0
    deadline: float = 0.0
    sent_at: float = 0.0
    next_try: float = 0.0
    why: str = ""  # why the last try failed


class SinglePut:
    """Completion of a single put. `outcome` is its receipt or raises its error."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def complete(self, _sending: PendingPut, outcome: Outcome) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)
