"""The store port: the engine's view of the store that holds its messages.

A lane is an append-only stream with rising sequences; its settled messages are recorded in a separate log. JetStream
(engine/store/jetstream) and memory (engine/store/memory) implement the port. Any implementation must pass
tests/contract/store/contract.py, a third one (Valkey streams) included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.ring.hashing import Layout


UNLIMITED = -1
"""A queue's limit: it may hold any number of messages."""


class Stored(NamedTuple):
    """A message as the store holds it. `at` is the store's time of arrival, unix ns."""

    sequence: int
    at: int
    subject: str
    headers: bytes
    body: bytes


class Head(NamedTuple):
    """A message without its body, whose size is `size` bytes."""

    sequence: int
    at: int
    size: int
    headers: bytes


class BusyRecord(NamedTuple):
    """The in-flight record of a process (engine/core/records/in_flight_record.py); `at` is the store's time of its
    arrival, unix ns.
    """

    at: int
    body: bytes


class Receipt(NamedTuple):
    """The store's word that a message is safe; `duplicate` if its id was there already, maybe from an earlier
    try of the same put under an id of the caller's own.
    """

    stream: str
    sequence: int
    duplicate: bool


class LaneState(NamedTuple):
    """The state of a lane's stream, as its leader reports it; `at` is the arrival time of `last`, unix ns,
    0 if unknown.
    """

    created: str
    first: int
    last: int
    at: int


class StreamSize(NamedTuple):
    """The messages that a lane's stream has, their bytes, and the sequence of the first one."""

    first: int
    messages: int
    bytes: int


class SubjectCounts(NamedTuple):
    """The number of messages in a lane, by subject, at the time when its last message had the sequence `last`."""

    counts: dict[str, int]
    last: int


class SubjectBacklogs(NamedTuple):
    """A lane's messages by subject, and the sequence of each subject's last one, as far as it is known. `counts` may
    include messages that come before the backlog.
    """

    counts: dict[str, int]
    ends: dict[str, int]


class Unwritable(NamedTuple):
    """The reason why a stream can't be written, as a clause: "the server can't write: no space left on its disk". With
    `restart`, the server must be restarted even once the cause is gone; otherwise the failure may pass by itself.
    """

    why: str
    restart: bool = False


class Refused(Exception):
    """The store has refused; the same request won't succeed later. The text says why."""


class TooLarge(Refused):
    """The message exceeds the store's size limit."""


class Full(Refused):
    """The limit of the store or of the queue is reached."""


class QueueFull(Full):
    """The queue holds as many messages as it may: `limit`, 0 if unknown here."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"its queue is full, with {limit or 'all'} messages that it may hold")
        self.limit = limit


class Lost(Exception):
    """No answer came (in time): whether the request was carried out is unknown. Ask again."""


class LogMoved(Exception):
    """The settle log was written by another process, that is, a newer owner."""


class Disconnected(EvenlaneError):
    """The connection was lost before the answer came: whether the request was carried out is unknown."""


class Feed(Protocol):
    """A running delivery of a lane, in order and without gaps: a sequence that is skipped doesn't exist."""

    sink: Callable[[bytes, int, int, bytes, bytes], None]
    """May be replaced while the feed runs."""

    def disturb(self, why: str) -> None:
        """Have the lane verified, and the feed resumed (by way of `on_break`)."""

    async def close(self) -> None: ...


class Store(Protocol):
    """A store. All times are unix ns by the store's clock. Any call may raise Lost."""

    @property
    def incarnation(self) -> int:
        """Grows whenever stream identities must be verified again (after a reconnect, or a change of leader)."""

    @property
    def max_payload(self) -> int:
        """The largest size of headers and body together (bytes)."""

    @property
    def is_connected(self) -> bool: ...

    def now(self) -> int:
        """The store's clock."""

    async def prepare(self, lanes: Sequence[LaneId], queue_limit: int | None = None) -> None:
        """Create the streams of these lanes, of dead letters and of the settle log, or check existing ones. Those of a
        named subscription alone (`names.own_streams`) are only checked: a node that a deletion has overlooked must not
        bring them back.

        `queue_limit` is the most messages that each queue's subject of a lane (not of a delay stream) may hold from now
        on, -1 for any number; None leaves it as it is. It is lowered only if no queue holds more. Raises ConfigError
        for an existing stream with settings that would lose messages, and for a missing one of a named subscription.
        """

    async def create_own_streams(self) -> None:
        """Create the streams of a named subscription, `names.own_streams`, or check existing ones. Raises
        ConfigError as `prepare` does.
        """

    async def find_clusters(self, *, again: bool = False) -> frozenset[str]:
        """The clusters of the environment that have a stream of settle logs, this one included, as `prepare` has found
        them; with `again`, as they are now. Raises Lost.
        """

    async def find_missing_streams(self) -> list[str]:
        """Which of `names.own_streams` don't exist. Raises Lost."""

    async def has_room(self, size: int) -> bool:
        """Whether the server could store this many more bytes. Raises Lost, Refused."""

    async def delete_own_streams(self) -> None:
        """Delete the streams of a named subscription, `names.own_streams`, as far as they exist. Raises Refused."""

    def put(self, subject: str, headers: bytes, body: bytes) -> asyncio.Future[Receipt]:
        """Store a message; its id is the header `Nats-Msg-Id`. Raises Refused, TooLarge, Full, QueueFull, Lost."""

    def put_then(
        self, subject: str, headers: bytes, body: bytes, answered: Callable[[Receipt | Exception], None]
    ) -> None:
        """`put` without the cost of a future: `answered`, which must be quick, receives the receipt or the error, once,
        and never before this call returns. Raises Lost if nothing could be sent.
        """

    async def busy(self) -> list[BusyRecord]:
        """The in-flight record of each process that has written one: the last body put to each `busy.<env>.*`."""

    async def state(self, lane: LaneId) -> LaneState: ...

    async def size(self, lane: LaneId) -> StreamSize:
        """The size of a lane's stream, as its leader reports it."""

    async def counts(self, lane: LaneId) -> dict[str, int]:
        """The number of messages in the lane, by subject."""

    async def backlog_after(self, lane: LaneId, position: int) -> SubjectBacklogs:
        """The subjects that have messages after this sequence. Raises Lost, Refused."""

    async def count_by_subject(self, lane: LaneId, project: str, cluster: str | None = None) -> SubjectCounts:
        """The number of a project's messages in the lane (`*`: of all projects), by subject, and up to which sequence;
        empty if the lane doesn't exist. Settled messages count until they are removed. With `cluster`: in that
        cluster's lane.
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

        - With `until`, the feed ends at this sequence and calls `on_end`; without it, `on_end` is called once, when all
          existing messages have been delivered.
        - With `hours` (of a delay stream), only messages due in these hours are delivered.
        - With `on_head`, a feed that lags by bytes may leave bodies in the stream, and calls `on_head(subject,
          sequence, at, headers, body size)` in place of `sink`, in the same order. If that returns False, the message
          is delivered to `sink`.
        - After a break of any kind, `on_break(last delivered)` is awaited; it verifies the lane's identity and returns
          the sequence to continue from.
        """

    def expect_feeds(self, *, more: bool) -> None:
        """Say whether feeds will follow for lanes that other nodes serve. Until they do, feeds with `until`
        are throttled.
        """

    async def get(self, lane: LaneId, sequences: Sequence[int]) -> list[Stored | None]:
        """Messages by sequence, None where the lane's leader says that there is none."""

    async def find_since(self, lane: LaneId, at: int) -> int:
        """The sequence of the first message that arrived at `at` (unix ns) or later, as the lane's leader knows; if
        there is none, that of the next message to arrive.
        """

    async def scan(self, lane: LaneId, subject: str, start: int, limit: int) -> list[int]:
        """The next sequences of one subject, at most `limit`."""

    async def next_of(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Stored]:
        """The next messages of one subject from the sequence `start` on, at most `limit`. More may exist than
        are returned. If none is returned, the lane's leader has confirmed that none exists.
        """

    async def count(self, lane: LaneId, subject: str, start: int) -> int:
        """The number of messages of one subject from the sequence `start` on; of all subjects that begin with what is
        before a final `>`, too.
        """

    async def heads(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Head]:
        """The next messages of one subject, at most `limit`, with their headers but without bodies."""

    async def read_log(self, lane: LaneId) -> tuple[list[Stored], int]:
        """The lane's settle log since its last checkpoint, and its position (0 if empty)."""

    async def read_last_record(self, lane: LaneId, cluster: str) -> bytes | None:
        """The last record of the lane's settle log in another cluster; None if there is none. The answer may be out of
        date, so that what it says is settled is settled.
        """

    async def read_records(self, lane: LaneId, cluster: str) -> list[bytes]:
        """The records of the lane's settle log in another cluster, since its last checkpoint. The answer may be out of
        date, too.
        """

    def append_log(self, lane: LaneId, record: bytes, after: int, *, checkpoint: bool = False) -> asyncio.Future[int]:
        """Append a record if the log's position is still `after`; a checkpoint replaces all earlier records. Returns
        the new position; raises LogMoved.
        """

    async def purge(self, lane: LaneId, below: int, may: Callable[[], bool] = lambda: True) -> None:
        """Remove all messages with a sequence below `below`. Raises Lost, and removes nothing, unless it `may` right
        before the request that removes them: others may have preceded it.
        """

    async def delete(self, lane: LaneId, sequence: int) -> None:
        """Remove one message; no error if it doesn't exist."""

    async def unwritable(self, streams: Sequence[str]) -> dict[str, Unwritable]:
        """The streams of these (by name) that can't be written, as far as the store can tell without writing. A put to
        such a stream may get no answer at all.
        """

    async def dead_letters_kept(self) -> float:
        """The retention of dead letters, s; 0: for ever."""

    async def keep_dead_letters(self, seconds: float) -> None:
        """Set the retention of dead letters (s), existing ones included. Raises Refused if it is shorter than the
        duplicate window.
        """

    async def close(self) -> None: ...


class OpenStore(Store, Protocol):
    """A store that is a connection."""

    async def open(self) -> None:
        """Raises Unreachable."""

    async def find_risks(self) -> list[str]:
        """What may lose messages that the store has acknowledged, after a power cut for example, in one sentence each.
        Call this after `prepare`.
        """


class ClusterLayout(Protocol):
    """The cluster config (`evenlane.engine.cluster.cluster_config.ClusterConfig`)."""

    @property
    def partitions(self) -> int: ...

    @property
    def priorities(self) -> Sequence[str]: ...

    @property
    def max_queue_backlog(self) -> int | None: ...

    @property
    def layout(self) -> Layout: ...
