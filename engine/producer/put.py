"""The values of a put: the message, its way to its outcome, and the protocols of what it meets there."""

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

# A put that failed stands in a list of results as the error that `Producer.put` would have raised.
Outcome = Receipt | Exception


class Put(msgspec.Struct, eq=False, gc=False):
    """One message to be put; None means left out.

    `delay` and `ttl` are seconds, `due` is unix ns (or a datetime with its zone); of `delay` and `due` one
    can be given. Messages with the same key go to the same group. Within the duplicate window an `id` is
    stored once for a project.
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
    """Takes the outcome of a put for its caller."""

    def completed(self, pending: PendingPut, outcome: Outcome) -> None: ...


class Limit(Protocol):
    """Something that a put passes before it is sent: its topic's backlog, its rate, or the window. What a put has
    acquired is released when it completes, or passes on by itself.
    """

    def try_acquire(self, pending: PendingPut, /) -> bool:
        """Whether the put may pass now; True once more for one that has passed. May raise BacklogFull."""

    async def acquire(self, pending: PendingPut) -> None:
        """Wait until the put may pass, but not beyond its deadline. Raises BacklogFull, NotAcknowledged,
        ProducerClosed: then the put has acquired nothing, and was not sent.
        """


class PutState(Enum):
    """How far a put is, and what it holds. Any state is followed by DONE; the others follow one another in order, and
    IN_FLIGHT and RETRYING take turns.
    """

    PREPARED = 1  # addressed. Some limit has it wait; it has no room in the window.
    ADMITTED = 2  # all limits admit it. Sent at once, with its room; or set aside by its rate limit, without.
    IN_FLIGHT = 3  # its last try is unanswered. It has room in the window.
    RETRYING = 4  # its last try has failed, or the first one may not be made yet. It has room in the window.
    DONE = 5  # it has its outcome, or nobody waits for one. It has no room, and is in no list but one of retries.


# In names of their own, since Python 3.11 takes some 100 ns to look a member up in its class, and each put needs five.
PREPARED, ADMITTED, IN_FLIGHT, RETRYING, DONE = PutState


class PendingPut(msgspec.Struct, eq=False, gc=False):
    """A put as it goes over the wire, from its first try to its outcome. Times are monotonic seconds.

    One object for all, and one that the garbage collector needn't visit: at 40,000 a second both count.
    """

    project: str
    id: str  # "" without duplicate protection
    fresh: bool  # the id is the producer's own: nobody else can have put it before
    subject: str
    headers: bytes
    body: bytes
    size: int  # bytes of headers and body
    accepted: Accepted  # the topic it was addressed by
    state: PutState = PREPARED
    # Set by its caller, its limits and the sender:
    is_alone: bool = False  # its caller waits for it, so it may always be set aside: it overtakes nobody
    backlog: BacklogEstimate | None = None  # in which it is counted, if its topic has a limit
    completion: Completion | None = None
    number: int = 0  # among the puts of one call
    order: int = 0  # among all of a sender
    tries: int = 0
    deadline: float = 0.0
    sent_at: float = 0.0
    next_try: float = 0.0
    why: str = ""  # the last try failed


class SinglePut:
    """One put. `outcome` is its receipt or raises its error."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def completed(self, _sending: PendingPut, outcome: Outcome) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)
