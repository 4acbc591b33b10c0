"""A put on its way, its state until its outcome, and the protocols of limits and completions."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.backlog_estimate import BacklogEstimate
    from evenlane.engine.producer.put import Outcome
    from evenlane.quota.topics.topic import Accepted


class Completion(Protocol):
    """Receives the outcome of a put for its caller."""

    def complete(self, pending: PendingPut, outcome: Outcome) -> None: ...


class AnswerSink(Protocol):
    """Receives the answers to a put's tries."""

    def on_answer(self, pending: PendingPut, number: int, answer: Receipt | Exception) -> None: ...


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


class RateLimit(Limit, Protocol):
    """A limit that sends the puts that it admits, each in its turn (`engine/producer/rate_limit.py`)."""

    def send(self, pending: PendingPut) -> None: ...

    def discard(self, completion: Completion) -> None:
        """Complete waiting puts without an outcome, as their caller has gone."""


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
PREPARED: Final = PutState.PREPARED
ADMITTED: Final = PutState.ADMITTED
IN_FLIGHT: Final = PutState.IN_FLIGHT
RETRYING: Final = PutState.RETRYING
DONE: Final = PutState.DONE


class PendingPut:
    """A put on its way, from its routing to its outcome. Times are monotonic seconds."""

    has_backlog_limit: bool = False  # of its topic
    # Set by its caller, its limits and the sender:
    state: PutState = PREPARED
    is_alone: bool = False  # its caller waits for it alone, so it may always be set aside: it overtakes no other put
    backlog: BacklogEstimate | None = None  # the estimate that counts this put, if its topic has a limit
    completion: Completion | None = None
    sender: AnswerSink | None = None
    number: int = 0  # among the puts of a batch
    order: int = 0  # among all puts of a sender
    tries: int = 0
    deadline: float = 0.0
    sent_at: float = 0.0
    next_try: float = 0.0
    why: str = ""  # why the last try failed

    def __init__(
        self,
        project: str,
        id: str,  # noqa: A002 - the name in the public surface
        fresh: bool,
        subject: str,
        headers: bytes,
        body: bytes,
        accepted: Accepted,
    ) -> None:
        self.project = project
        self.id = id  # "" without duplicate protection
        self.fresh = fresh  # the id is the producer's own: no other process can have put it before
        self.subject, self.headers, self.body = subject, headers, body
        self.size = len(headers) + len(body)  # bytes
        self.accepted = accepted  # the topic by which it was routed

    def on_first_answer(self, answer: Receipt | Exception) -> None:
        """Pass on the answer to the first try. A bound method takes half the time of a `partial`."""
        if self.sender is not None:
            self.sender.on_answer(self, 1, answer)


class SinglePut:
    """Completion of a single put. `outcome` is its receipt or raises its error."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def complete(self, _pending: PendingPut, outcome: Outcome) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)
