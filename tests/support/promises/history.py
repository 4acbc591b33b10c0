"""Records of what happened: faults, handlers, messages, streams. Times are in ns of one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

How = Literal["well", "failed", "paused", "cancelled"]
"""How a handler ended."""


class Process(Protocol):
    """The process of a node. It compares equal only to itself."""

    @property
    def dead(self) -> bool: ...


class Broken(AssertionError):
    """A promise doesn't hold; `promise` is its name."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


@dataclass(eq=False)
class Fault:
    """A fault of a kind in fault_kinds.py.

    It touches one node or all (None), and one stream or all (None). `end` is None while it lasts. `by` is the id of the
    message whose handler caused it.
    """

    kind: str
    start: int
    node: Process | None = None
    stream: str | None = None
    end: int | None = None
    by: str | None = None


@dataclass(eq=False)
class Run:
    """One run of a handler for a message.

    `lease` is the lease of its node, under which the node owned the partition. `end` and `how` are None as long as it
    runs, and for ever if its process dies. The message must not start again before `again`.
    """

    node: Process
    epoch: int
    start: int
    lease: int = 0
    attempt: int = 1
    end: int | None = None
    how: How | None = None
    again: int = 0


@dataclass(eq=False)
class Item:
    """One message as it is stored in a stream, for one subscription.

    `finished` allows its settlement: a handler has returned, or a copy is stored. `stored` is when it was put. `at`,
    `due` (the time of the put if it isn't delayed) and `expires` (0: never) are unix ns of the server's clock.
    `is_delayed`: it was put with a due time. `passed_over`: the message isn't for this subscription.
    """

    uid: str
    at: int = 0
    project: str = ""
    priority: str = ""
    stored: int = 0
    finished: bool = False
    settled: bool = False
    due: int = 0
    expires: int = 0
    is_delayed: bool = False
    passed_over: bool = False
    chain: Chain | None = None
    place: int = -1  # in its chain; -1 if it has none there
    runs: list[Run] = field(default_factory=list)
    blamed: list[tuple[Fault, Process]] = field(default_factory=list)  # the faults that explain its repeats


class Chain:
    """The messages of one key and one priority.

    `items` are those in the lane, in put order. `open` is the place of the first that hasn't ended, `opened` the time
    since when it is the first.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.open = self.opened = 0
        self.runs: list[tuple[Item, Run]] = []  # handlers that haven't ended
        self.furthest: dict[int, int] = {}  # epoch -> the place of the last message that started under it

    def clear(self) -> None:
        """Forget everything: the stream has lost it."""
        self.__init__()  # type: ignore[misc]


class Line:
    """A stream, and all messages that it ever held."""

    def __init__(self) -> None:
        self.created = ""
        self.items: dict[int, Item] = {}
        self.settled_to = 0
        self.broken = False  # it was replaced or rolled back
        self.log_epoch = 0
        self.served_by: set[tuple[int, int]] = set()  # epoch and lease of owners that wrote to the log and serve still


@dataclass
class Bounds:
    """Times within which promises hold, in ns.

    `settle`: how long before a fault a message may have ended and still be handled again. `aftermath`: how long after a
    fault a message may start and still be handled again. `recovery`: how long after a fault partitions may change
    owners. `unowned`: how long a partition may be without an owner beyond that. `waiting`: how long a message may wait
    for a free worker alone.
    """

    settle: int
    aftermath: int = 0
    recovery: int = 0
    unowned: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Rules:
    """The settings of a topic that promises depend on. `ack_wait` is in seconds."""

    ordered: bool = False
    max_attempts: int = 3
    ack_wait: float = 20.0
    dead_letter_expired: bool = False


def unended(acknowledged: Iterable[str], ended: Collection[str]) -> list[str]:
    """Promise L: the acknowledged messages that never ended."""
    return [uid for uid in acknowledged if uid not in ended]
