"""The store port: what the engine needs of whatever holds the messages.

A lane is an append-only stream with rising sequences; what is settled stands in a log beside it. JetStream
(engine/store/jetstream) and memory (engine/store/memory) implement it; tests/contract/store/contract.py is
what any implementation must pass, a third one (Valkey streams) included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.base.names import LaneId


UNLIMITED = -1
"""As a queue's limit: it may hold any number of messages."""


class Stored(NamedTuple):
    """A message as the store holds it. `at` is the store's time of arrival, unix ns."""

    sequence: int
    at: int
    subject: str
    headers: bytes
    body: bytes


class Head(NamedTuple):
    """A message without its body, which has `size` bytes."""

    sequence: int
    at: int
    size: int
    headers: bytes


class BusyRecord(NamedTuple):
    """What a process may have in flight (engine/core/lane/in_flight_record.py); `at` is the store's time of its
    arrival, unix ns.
    """

    at: int
    body: bytes


class Receipt(NamedTuple):
    """The store's word that a message is safe; `duplicate` if its id was there already."""

    stream: str
    sequence: int
    duplicate: bool


class LaneState(NamedTuple):
    """What the lane's leader says of it; `at` is the time of `last`, unix ns, 0 if unknown."""

    created: str
    first: int
    last: int
    at: int


class SubjectCounts(NamedTuple):
    """How many messages a lane held, by subject, when its last one had the sequence `last`."""

    counts: dict[str, int]
    last: int


class Unwritable(NamedTuple):
    """Why a stream takes nothing, as a clause: "the server can't write: no space left on its disk". With `restart` it
    takes nothing before its server is restarted, even if the cause is gone; else that may pass by itself.
    """

    why: str
    restart: bool = False


class Refused(Exception):
    """The store answered no; asking again without a change won't help. The text says why."""


class TooLarge(Refused):
    """The message is above the store's limit."""


class Full(Refused):
    """The store's or the queue's limit is reached."""


class QueueFull(Full):
    """The queue holds as many messages as it may: `limit`, 0 if it isn't known here."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"its queue is full, with {limit or 'all'} messages that it may hold")
        self.limit = limit


class Lost(Exception):
    """No answer came (in time): carried out or not is unknown, ask again."""


class LogMoved(Exception):
    """Somebody else appended to the settle log: a newer owner."""


class Disconnected(EvenlaneError):
    """The connection went before the answer came: whether the request was carried out is unknown."""


class Feed(Protocol):
    """A running delivery of a lane, in order and without gaps: a sequence that is skipped isn't there."""

    sink: Callable[[bytes, int, int, bytes, bytes], None]
    """May be exchanged while the feed runs."""

    def disturb(self, why: str) -> None:
        """Have it verified and begun anew (by way of `on_break`)."""

    async def close(self) -> None: ...


class Store(Protocol):
    """All times are unix ns by the store's clock. Any call may raise Lost."""

    @property
    def incarnation(self) -> int:
        """Grows whenever identities must be verified again (a reconnect, a change of leader)."""

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body together that a message may have."""

    @property
    def connected(self) -> bool: ...

    def now(self) -> int:
        """The store's clock."""

    async def prepare(self, lanes: Sequence[LaneId], queue_limit: int | None = None) -> None:
        """Make the streams of these lanes, of dead letters and of the settle log, or check what is there.

        `queue_limit` is how many messages each queue's subject of a lane (not of a later stream) may hold from now on,
        -1 for any number; whoever doesn't know it leaves it as it is. It is lowered only where no queue holds more.
        Raises ConfigError for a stream that stands there with settings that would lose messages.
        """

    def put(self, subject: str, headers: bytes, body: bytes) -> asyncio.Future[Receipt]:
        """Store a message; its id is the header `Nats-Msg-Id`. Raises Refused, TooLarge, Full, QueueFull, Lost."""

    def put_then(
        self, subject: str, headers: bytes, body: bytes, answered: Callable[[Receipt | Exception], None]
    ) -> None:
        """`put` without the price of a future: `answered`, which must be quick, gets the receipt or the error, once,
        and never before this returns. Raises Lost if nothing could be sent.
        """

    async def busy(self) -> list[BusyRecord]:
        """The in-flight record of each process that has written one: the last body put to each `busy.<env>.*`."""

    async def state(self, lane: LaneId) -> LaneState: ...

    async def counts(self, lane: LaneId) -> dict[str, int]:
        """How many messages the lane holds for each subject."""

    async def held(self, lane: LaneId, project: str) -> SubjectCounts:
        """How many it holds of a project, by subject, and up to where; none if the lane isn't there. Settled messages
        count until they are removed.
        """

    def feed(
        self,
        lane: LaneId,
        start: int,
        sink: Callable[[bytes, int, int, bytes, bytes], None],
        on_break: Callable[[int], Awaitable[int]],
        *,
        until: int | None = None,
        hours: Sequence[int | str] | None = None,
        on_end: Callable[[], None] | None = None,
        on_head: Callable[[bytes, int, int, bytes, int], bool] | None = None,
    ) -> Feed:
        """Deliver from `start` on by calling `sink(subject, sequence, at, headers, body)`, which must be quick.

        With `until`, end there and call `on_end`; without, it is called once, when all there was has come in. With
        `hours` (of a later stream), only messages due in these.
        With `on_head`, a feed that lags by bytes may leave bodies in the stream, and calls `on_head(subject, sequence,
        at, headers, bytes of the body)` in place of `sink`, in the same order. Where that returns False the message
        comes by `sink`.
        After a break of any kind `on_break(last delivered)` is awaited; it verifies the lane's identity and names
        the sequence to go on from.
        """

    def expect_feeds(self, *, more: bool) -> None:
        """Say whether feeds will follow for lanes that other nodes serve. Until then, feeds with `until` are slow."""

    async def get(self, lane: LaneId, sequences: Sequence[int]) -> list[Stored | None]:
        """Messages by sequence, None where the lane's leader says that there is none."""

    async def scan(self, lane: LaneId, subject: str, start: int, limit: int) -> list[int]:
        """The next sequences, at most `limit`, of one subject."""

    async def next_of(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Stored]:
        """The next messages of one subject, at most `limit`, from the sequence `start` on. There may be more than are
        returned; but if none is, there is none, as the lane's leader says.
        """

    async def count(self, lane: LaneId, subject: str, start: int) -> int:
        """How many messages of one subject there are from the sequence `start` on."""

    async def heads(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Head]:
        """The next messages, at most `limit`, of one subject; with their headers, but without bodies."""

    async def read_log(self, lane: LaneId) -> tuple[list[Stored], int]:
        """The lane's settle log since its last checkpoint, and its position (0 if empty)."""

    def append_log(self, lane: LaneId, record: bytes, after: int, *, checkpoint: bool = False) -> asyncio.Future[int]:
        """Append if the log still stands at `after`; a checkpoint replaces all before it.

        Returns the new position; raises LogMoved.
        """

    async def purge(self, lane: LaneId, below: int) -> None:
        """Remove all messages with a sequence < `below`."""

    async def delete(self, lane: LaneId, sequence: int) -> None:
        """Remove one message; no error if it is gone."""

    async def unwritable(self, streams: Sequence[str]) -> dict[str, Unwritable]:
        """Which of these streams (by name) can't be written, as far as the store can tell without writing. A put to one
        may bring no answer at all.
        """

    async def dead_letters_kept(self) -> float:
        """How long the store keeps dead letters before it removes them, s; 0: for ever."""

    async def keep_dead_letters(self, seconds: float) -> None:
        """Keep them for so long, those that are there included. Raises Refused for less than the duplicate window."""

    async def close(self) -> None: ...


class OpenStore(Store, Protocol):
    """A store that is a connection."""

    async def open(self) -> None:
        """Raises Unreachable."""


INBOX = "_INBOX."
"""How a subject for answers begins. A node answers nowhere else: or a process that may ask could have it write to any
subject.
"""

NO_RESPONDERS = b"NATS/1.0 503"
"""What the headers of the answer begin with that a bus itself gives when nobody listens to a question."""


class RequestBus(Protocol):
    """A connection on which questions are heard and answered."""

    async def open(self) -> None:
        """Raises Unreachable."""

    def listen(self, subject: str, heard: Callable[[bytes, bytes, bytes, bytes], None]) -> int:
        """`heard(subject, reply, headers, body)` is called for each message; a word `*` of the subject takes any word.
        Returns what `unlisten` needs.
        """

    def unlisten(self, sid: int) -> None: ...

    def send(self, subject: str, body: bytes, headers: bytes = b"", reply: str = "") -> None:
        """Publish to all that listen to the subject. Raises Disconnected."""

    async def close(self) -> None: ...


class ClusterFacts(Protocol):
    """What the cluster has agreed on (`evenlane.engine.cluster.cluster_config.Facts`)."""

    @property
    def partitions(self) -> int: ...

    @property
    def priorities(self) -> Sequence[str]: ...

    @property
    def max_queue_backlog(self) -> int | None: ...
