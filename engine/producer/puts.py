"""What is put, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.ports import Receipt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from datetime import datetime

# A put that failed stands in a list of results as the error that `Producer.put` would have raised.
Outcome = Receipt | Exception


@dataclass(slots=True)
class Put:
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


class Landing(Protocol):
    """Who waits for the outcome of a put."""

    def landed(self, sending: Sending, outcome: Outcome) -> None: ...


class Sending:
    """A put as it goes over the wire, from its first try to its outcome. Times are monotonic seconds.

    One object for all: at 50,000 a second each further one costs.
    """

    __slots__ = (
        "answer", "body", "deadline", "fresh", "headers", "id", "landing", "next_try", "number", "order",
        "project", "sent_at", "size", "subject", "tries", "why",
    )  # fmt: skip

    def __init__(self, project: str, id: str, fresh: bool, subject: str, headers: bytes, body: bytes) -> None:  # noqa: A002
        self.project = project
        self.id = id  # "" without duplicate protection
        self.fresh = fresh  # the id is the producer's own: nobody else can have put it before
        self.subject = subject
        self.headers = headers
        self.body = body
        self.size = len(headers) + len(body)  # -1 once it has its outcome
        # Set by whoever waits for it, and by the sender:
        self.landing: Landing
        self.number = 0  # among the puts of one call
        self.order = 0  # among all of a sender
        self.answer: asyncio.Future[Receipt] | None = None
        self.tries = 0
        self.deadline = self.sent_at = self.next_try = 0.0
        self.why = ""  # the last try failed
