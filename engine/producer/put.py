"""What is put, and what comes of it."""

from __future__ import annotations

import asyncio
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
    """Who waits for the outcome of a put."""

    def landed(self, sending: PendingPut, outcome: Outcome) -> None: ...


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
    size: int  # bytes of headers and body; -1 once it has its outcome
    accepted: Accepted  # the topic it was addressed by
    # Set by whoever waits for it, and by the sender:
    backlog: BacklogEstimate | None = None  # in which it is counted, if its topic has a limit
    landing: Completion | None = None
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

    def landed(self, _sending: PendingPut, outcome: Outcome) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)
