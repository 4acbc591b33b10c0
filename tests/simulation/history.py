"""What a simulation remembers of what happened: faults, handlers, messages, streams. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.simulation.loop import Actor
    from tests.simulation.order import Chain

How = Literal["well", "failed", "paused", "cancelled"]
"""A handler's end; one that never ended has none."""


class Broken(AssertionError):
    """A promise doesn't hold; `promise` is its name."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


@dataclass(eq=False)
class Fault:
    """What it touches: a node (None: all), a stream (None: all). `end` None while it lasts; `by`: the message whose
    handler did it.
    """

    kind: str
    start: int
    node: Actor | None = None
    stream: str | None = None
    end: int | None = None
    by: str | None = None


@dataclass(eq=False)
class Run:
    """One handler on one message; `lease` is its node's, under which it owned the partition. Before `again` it isn't to
    be begun anew.
    """

    node: Actor
    epoch: int
    start: int
    lease: int = 0
    attempt: int = 1
    end: int | None = None
    how: How | None = None
    again: int = 0


@dataclass(eq=False)
class Item:
    """One message as it stands in a stream. `finished`: it may be settled. `stored` by the simulation's clock. `due` is
    when it was put if it isn't delayed. `due` and `expires` (0: never) in unix ns by the server's clock.
    """

    uid: str
    at: int
    project: str = ""
    priority: str = ""
    stored: int = 0
    finished: bool = False
    settled: bool = False
    due: int = 0
    expires: int = 0
    chain: Chain | None = None
    place: int = -1  # in its chain; -1: it has none there
    runs: list[Run] = field(default_factory=list)
    blamed: list[tuple[Fault, Actor]] = field(default_factory=list)


class Line:
    """A stream, and what the world knows of its messages, removed ones included."""

    def __init__(self) -> None:
        self.created = ""
        self.items: dict[int, Item] = {}
        self.settled_to = 0
        self.broken = False
        self.log_epoch = 0
        self.served_by: set[tuple[int, int]] = set()  # epoch and lease of owners that wrote to the log, and serve on


@dataclass
class Bounds:
    """`settle`: how long before a fault a message may have ended and still be handled again; `aftermath`: how
    long after it one that begins may; `recovery`: how long after a fault partitions may change hands; `unowned`: how
    long one may be without owner beyond that; `waiting`: how long a message may wait for a free worker and for no
    other.
    """

    settle: int
    aftermath: int
    recovery: int
    unowned: int
    waiting: int


@dataclass(frozen=True)
class Rules:
    """A topic, as far as promises hang on it. `ack_wait` in seconds."""

    ordered: bool = False
    max_attempts: int = 3
    ack_wait: float = 20.0
    dead_letter_expired: bool = False
