"""The message that a handler receives."""

from __future__ import annotations

from datetime import UTC, datetime
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.base.names import stream, subscription_of
from evenlane.engine.core.lane.attempts import SUSPECT, attempts
from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry
    from evenlane.engine.core.queue.queue import Queue


class _Done:
    """A completed awaitable, so that `in_progress()` works with and without `await`."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = _Done()


class Message:
    """One attempt at one message. `body` is its payload in bytes, `node` the id of the node that handles it.
    `Message[Order]` is a message whose body is decoded as an `Order` before its handler starts.

    What isn't a plain field is worked out when it is asked for.
    """

    __slots__ = (
        "_cluster",
        "_ended",
        "_entry",
        "_mark",
        "_queue",
        "alive_at",
        "app_state",
        "body",
        "chosen",
        "decoded",
        "failure",
        "generation",
        "is_batched",
        "node",
        "ran_to",
        "recorded",
        "started",
        "timed_out",
    )  # fmt: skip

    def __init__(self, entry: Entry, queue: Queue, cluster: str, node: str, now: int, mark: int = 0) -> None:
        self._entry, self._queue, self._cluster, self._mark = entry, queue, cluster, mark
        self.body: bytes = entry[4]
        self.node = node
        self.generation: int = entry[0].generation
        self.chosen = now  # by the scheduler, monotonic ns
        self.started = now  # start of its handler, monotonic ns
        self.ran_to = now  # its handler's time is counted up to then, monotonic ns
        self.alive_at = now  # last sign of life, monotonic ns
        self.timed_out = False
        self.recorded = False  # its handler starts once an in-flight record names it

    # Set for few messages, and unset for all others:
    app_state: object  # what the application's lifespan has yielded
    decoded: Any  # the body, if its handler asks for a type
    failure: BaseException  # of this message alone, in a batch that has returned
    is_batched: bool  # its handler has several messages

    @classmethod
    def __class_getitem__(cls, body: Any) -> GenericAlias:
        """Allow the annotation `Message[Order]`. Not by `Generic`: mypyc fails on type variables with a default."""
        return GenericAlias(cls, body)

    @property
    def data(self) -> Any:
        """The decoded body, if the handler's annotation names a type (`Message[Order]`); else `body`."""
        found: Any = getattr(self, "decoded", self.body)
        return found

    @property
    def state(self) -> Any:
        """What the application's lifespan has yielded; None without one."""
        return getattr(self, "app_state", None)

    def fail(self, error: BaseException) -> None:
        """In a batch: fail this message alone, as if its handler had raised `error`. The other messages of the batch
        succeed if the handler returns. A handler of one message just raises; there, this call raises `error`, too.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"fail() needs an exception, and this is of type {type(error).__name__}")
        if not getattr(self, "is_batched", False):
            raise error
        self.failure = error

    @property
    def lane(self) -> Lane:
        return self._entry[0]

    @property
    def queue(self) -> Queue:
        return self._queue

    @property
    def place(self) -> tuple[Lane, int]:
        """Its lane and sequence."""
        return self._entry[0], self._entry[1]

    @property
    def entry(self) -> Entry:
        return self._entry

    @property
    def is_suspect(self) -> bool:
        """Whether it was in flight when a process died, and hasn't been handled since."""
        return bool(self._mark & SUSPECT)

    @property
    def raw_headers(self) -> bytes:
        return self._entry[3]

    @property
    def id(self) -> str:
        """The producer's id, the same over all retries; `<stream>-<sequence>-<time>` if it gave none."""
        own = header_values.own_id(self._entry[3], self.project)
        # with the time, because a stream that is created again reuses sequences
        return f"{self.stream}-{self.sequence}-{self._entry[2]}" if own is None else own

    @property
    def project(self) -> str:
        """The project of its put."""
        return self._queue.project

    @property
    def group(self) -> int:
        """The group of its project, from 0."""
        return self._queue.group

    @property
    def priority(self) -> str:
        """The name of its priority."""
        return self._queue.priority

    @property
    def key(self) -> str | None:
        """The key that the producer gave, if any."""
        return header_values.key(self._entry[3])

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the producer set itself."""
        return h.decode_user(self._entry[3])

    @property
    def attempt(self) -> int:
        """The number of this attempt; 1 for the first."""
        return header_values.attempt(self._entry[3]) + attempts(self._mark)

    @property
    def sequence(self) -> int:
        """Its sequence in `stream`."""
        return self._entry[1]

    @property
    def subscription(self) -> str:
        """The subscription for which it is handled; empty: the one without a name. Idempotency rests on `project`, `id`
        and this.
        """
        return subscription_of(self._cluster)

    @property
    def stream(self) -> str:
        """The JetStream stream that this attempt came from."""
        return stream(self._cluster, self._entry[0].id)

    @property
    def partition(self) -> int:
        """The partition that its group is in."""
        return self._entry[0].id.partition

    @property
    def epoch(self) -> int:
        """The epoch of the owner that handles it."""
        return self._entry[0].epoch

    @property
    def put_ns(self) -> int:
        """The time of its first put, unix ns by the store's clock."""
        return header_values.read_instant(self._entry[3], h.PUT, self._entry[2])

    @property
    def put_at(self) -> datetime:
        """The time of its first put, the same over all retries, by the store's clock."""
        return datetime.fromtimestamp(self.put_ns / 1e9, UTC)

    @property
    def due_at(self) -> datetime | None:
        """The time at which this attempt was due, if it was delayed."""
        due = header_values.read_instant(self._entry[3], h.DUE, 0)
        return datetime.fromtimestamp(due / 1e9, UTC) if due else None

    def note_dead_letter(self, reason: str, error: str) -> None:
        """Note why it is about to be dead-lettered, for a fallback handler to see."""
        self._ended = (reason, error)

    @property
    def reason(self) -> str:
        """In a fallback handler: why it is to become a dead letter; else empty."""
        return getattr(self, "_ended", ("", ""))[0]

    @property
    def error(self) -> str:
        """In a fallback handler: the last error, type and text; else empty."""
        return getattr(self, "_ended", ("", ""))[1]

    def in_progress(self, lasting: float = 0.0) -> _Done:
        """Give a sign of life: ack_wait starts over, `lasting` seconds from now. `await` it, or just call it (in a
        thread, say).
        """
        from evenlane.engine.base.clock import now_ns  # noqa: PLC0415 - the only use of a clock

        self.alive_at = now_ns() + int(lasting * 1_000_000_000)
        return _DONE

    def __repr__(self) -> str:
        return f"<Message {self.project}:{self.id} {self.priority} attempt {self.attempt}>"


H = TypeVar("H")


def batch(max: int = 100) -> Callable[[H], H]:  # noqa: A002 - the name in the public surface
    """Mark a handler that takes a list of up to `max` messages, all of one queue. If it raises, all of them have
    failed; `Message.fail` fails a single one.
    """
    if max < 1:
        raise ValueError(f"a batch holds at least 1 message, not {max}")

    def mark(handler: H) -> H:
        as_any: Any = handler
        as_any.__evenlane_batch__ = max
        return handler

    return mark
