"""The rules that a topic gives to its queues."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.quota.topics.topic import Topic

_SECOND = 1_000_000_000
_LOW = 64  # more messages are read once fewer than this are ready (or fewer than half of `ahead`)
_LEAST_AHEAD = 4  # messages


@dataclass(frozen=True, slots=True)
class Handling:
    """How a project's messages are handled. `call` is the handler, if it is simply awaited with one message. `batch` is
    the most messages of one call, and `batch_wait` (ns) the time to wait for so many. `handlers` is for whoever calls
    them, and opaque here.

    `kind_header` and `kinds` are set if not every message has a handler: only those whose header has one of the kinds.
    """

    handlers: Any = None
    call: Callable[[Any], Awaitable[None]] | None = None
    batch: int = 1
    batch_wait: int = 0
    kind_header: str = ""
    kinds: frozenset[str] | None = None


NO_HANDLING = Handling()


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Rules of a queue. They are replaced as a whole, and the queues of a topic share one object.

    `asleep`: the topic is paused, missing or withheld, so nothing is prefetched. `ahead`: the most messages to hold
    ready; `low`: more are read below this number. `ttl` and `ack_wait` are in ns, 0 without a topic. `call` is that of
    `handling`, None for a topic that is pushed.

    Invariants: `careful` is set if the topic is ordered or allows a single attempt, or if some of its messages have no
    handler: a message that was chosen may still have to wait. `batch_wait` is that of `handling`, 0 for a topic that is
    pushed.
    """

    topic: Topic | None = None
    asleep: bool = True
    ahead: int = 256
    low: int = _LOW
    ttl: int = 0
    ack_wait: int = 0
    pushed: bool = False  # delivered by HTTP
    single_attempt: bool = False
    ordered: bool = False
    careful: bool = False
    handling: Handling = NO_HANDLING
    call: Callable[[Any], Awaitable[None]] | None = None
    batch_wait: int = 0

    def without_prefetch(self) -> QueueRules:
        """The same rules for a queue that must not prefetch any more."""
        return replace(self, asleep=True)


NO_TOPIC = QueueRules()


def rules_of(
    topic: Topic | None,
    max_group_qps: float,
    most_ahead: int,
    *,
    asleep: bool = False,
    handling: Handling = NO_HANDLING,
) -> QueueRules:
    """The rules for the queues of `topic`, which hold at most `most_ahead` messages ready. `asleep` puts them to sleep
    whatever the topic's state.
    """
    if topic is None:
        return NO_TOPIC
    single, pushed = topic.max_attempts == 1, topic.push is not None
    ahead = min(most_ahead, max(handling.batch, _count_needed(topic, max_group_qps)))
    return QueueRules(
        topic=topic,
        asleep=asleep or topic.state == "paused",
        ahead=ahead,
        low=low_mark(ahead),
        ttl=int(topic.ttl * _SECOND),
        ack_wait=int(topic.ack_wait * _SECOND),
        pushed=pushed,
        single_attempt=single,
        ordered=topic.ordered,
        careful=single or topic.ordered or (handling.kinds is not None and not pushed),
        handling=handling,
        call=None if pushed else handling.call,
        batch_wait=0 if pushed else handling.batch_wait,
    )


def low_mark(ahead: int) -> int:
    """The number of ready messages below which more are read, for a queue that holds up to `ahead`."""
    return min(_LOW, max(1, ahead // 2))


def _count_needed(topic: Topic, max_group_qps: float) -> int:
    """The number of messages of one queue that may start within about a second: there is no need to prefetch more."""
    rate = min(topic.qps, max_group_qps) if topic.borrow else topic.qps / topic.groups
    return max(_LEAST_AHEAD, ceil(rate) + topic.burst)
