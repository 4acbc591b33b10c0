"""The server that memory stores share, as connections share a NATS server; with faults for tests."""

from __future__ import annotations

import math
from time import time_ns
from typing import TYPE_CHECKING, Protocol

from evenlane.engine.base import names
from evenlane.engine.core.ports import LogMoved, Lost, Refused, Unwritable
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.memory.stream import MemoryStream
from evenlane.engine.store.refusals import too_large

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import Receipt, Stored

FULL_DISK = Unwritable("the server can't write: no space left on its disk", restart=True)

_TOKENS = {"lanes": 6, "later": 7, "again": 7}  # number of tokens of a subject


class Unanswered(Exception):
    """The stream can't be written: a put gets no answer."""


class MemoryConnection(Protocol):
    """A store as the server and its feeds see it. `up` is set while it is connected."""

    @property
    def server(self) -> MemoryServer: ...

    @property
    def up(self) -> asyncio.Event: ...

    def cut(self) -> None: ...

    def join(self) -> None: ...

    def elected(self) -> None: ...

    def release(self) -> None: ...

    def disturb(self, stream: str, why: str) -> None: ...


class MemoryServer:
    """An in-memory server. `clock` returns unix ns; `max_payload` limits headers and body together (bytes)."""

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time_ns,
        max_payload: int = 1 << 20,
        duplicate_window_s: float = 30.0,
        dead_letter_keep_s: float = 30 * 86_400.0,
    ) -> None:
        self.clock, self.max_payload = clock, max_payload
        self.up = True
        self.ack_delay_s = 0.0
        self.stores: list[MemoryConnection] = []
        self._window = int(duplicate_window_s * 1_000_000_000)
        self._keep = int(dead_letter_keep_s * 1_000_000_000)
        self._streams: dict[str, MemoryStream] = {}
        self._refused: dict[str, Exception] = {}
        self._unwritable: dict[str, Unwritable] = {}
        self._queue_limits: dict[str, int] = {}  # by environment
        self._made = 0
        self._at = 0

    # ---- requests of connections

    def prepare(self, cluster: str, lanes: Sequence[LaneId], queue_limit: int | None = None) -> str | None:
        """Create missing streams. Nothing is done if one of a named subscription is missing: returns its name."""
        env, own = names.env_of(cluster), names.own_streams(cluster)
        if missing := [name for name in own if name not in self._streams]:
            return missing[0]
        self.create(*(names.stream(cluster, lane) for lane in lanes), *names.other_streams(cluster))
        if queue_limit is not None:
            self._queue_limits[env] = queue_limit
        for lane in lanes:
            if lane.kind == "lanes":
                self._streams[names.stream(env, lane)].set_limit(self._queue_limits.get(env, -1))
        return None

    def create(self, *streams: str) -> None:
        """Create those that don't exist."""
        self._streams |= {name: self._make(name) for name in streams if name not in self._streams}

    def delete(self, *streams: str) -> None:
        """Delete those that exist."""
        for name in streams:
            self._streams.pop(name, None)

    def list_streams(self) -> list[str]:
        return [*self._streams]

    def stream(self, name: str) -> MemoryStream:
        """Raises Lost if it doesn't exist."""
        if (found := self.find(name)) is None:
            raise Lost(f"stream {name} isn't there")
        return found

    def find(self, name: str) -> MemoryStream | None:
        """Return the stream, None if it doesn't exist."""
        found = self._streams.get(name)
        if found is not None and found.max_age:
            found.expire(self.clock())
        return found

    def store(self, subject: str, headers: bytes, body: bytes) -> Receipt:
        """Raises TooLarge, Refused, Lost, Unanswered."""
        self.check_size(len(headers) + len(body))
        for prefix, error in self._refused.items():
            if subject.startswith(prefix):
                raise error
        message_id = h.value(headers, h.ID)
        stream = self._taker(subject)
        if stream.name in self._unwritable:
            raise Unanswered
        receipt = stream.append(self._tick(), subject, headers, body, message_id)
        if subject.startswith("busy."):
            stream.keep_only(subject, receipt.sequence)
        return receipt

    def append_log(self, subject: str, record: bytes, after: int, checkpoint: bool) -> int:
        """Raises LogMoved, and the errors of `store`."""
        stream = self._taker(subject)
        if stream.last_of.get(subject, 0) != after:
            raise LogMoved(f"wrong last sequence: {stream.last_of.get(subject, 0)}")
        position = self.store(subject, b"", record).sequence
        if checkpoint:
            stream.keep_only(subject, position)
        return position

    def unwritable(self, streams: Sequence[str]) -> dict[str, Unwritable]:
        return {name: self._unwritable[name] for name in streams if name in self._unwritable}

    def removable(self, name: str) -> MemoryStream:
        """The stream, to remove messages from it. Raises Refused if it can't be written, Lost if it doesn't exist."""
        if name in self._unwritable:
            raise Refused(self._unwritable[name].why)
        return self.stream(name)

    def check_size(self, size: int) -> None:
        if error := too_large(size, self.max_payload):
            raise error

    # ---- faults and queries for tests

    def disconnect(self, *stores: MemoryConnection) -> None:
        """Disconnect these stores, or all: pending calls fail with Lost."""
        if not stores:
            self.up = False
        for store in stores or tuple(self.stores):
            store.cut()

    def reconnect(self, *stores: MemoryConnection) -> None:
        """End `disconnect` for these stores, or for all."""
        self.up = True
        for store in stores or tuple(self.stores):
            store.join()

    def replace(self, cluster: str, lane: LaneId) -> None:
        """Delete the lane's stream and create it again: feeds break, sequences begin at 1."""
        name = names.stream(cluster, lane)
        self._streams[name] = self._make(name)
        self._disturb(name, "the stream was deleted")

    def roll_back(self, cluster: str, lane: LaneId, to_sequence: int) -> None:
        """Lose all messages after `to_sequence`; later messages get the same sequences again. It implies a change of
        leader, so incarnations grow.
        """
        name = names.stream(cluster, lane)
        self.stream(name).roll_back(to_sequence)
        for store in self.stores:
            store.elected()
        self._disturb(name, "another leader")

    def refuse(self, subject_prefix: str, error: Exception | None = None) -> None:
        """Make puts to such subjects raise `error` (Refused by default) until `accept`. The prefix "dead." means all
        dead letters.
        """
        self._refused[subject_prefix] = error or Refused(f"puts to {subject_prefix} are refused")

    def accept(self, subject_prefix: str) -> None:
        self._refused.pop(subject_prefix, None)

    def fill_disk(self, *streams: str, why: Unwritable = FULL_DISK) -> None:
        """Make these streams unwritable, or all: puts get no answer, removals are refused."""
        self._unwritable |= dict.fromkeys(streams or self._streams, why)

    def make_room(self, *streams: str) -> None:
        """Make these streams writable again, or all."""
        for name in streams or tuple(self._unwritable):
            self._unwritable.pop(name, None)

    def delay_acks(self, seconds: float = math.inf) -> None:
        """Delay answers to puts and appends by this time from now on; with `inf` they don't come at all, though the
        requests are carried out at once. Answers held back that way come once another delay is set.
        """
        self.ack_delay_s = seconds
        for store in self.stores:
            store.release()

    def messages(self, stream_name: str) -> list[Stored]:
        """All messages that a stream holds."""
        return list(self.stream(stream_name).messages.values())

    # ---- internals

    def _make(self, name: str) -> MemoryStream:
        self._made += 1
        keep = self._keep if name.startswith("DEAD_") else 0
        return MemoryStream(name, f"memory-{self._made}", self._window, keep)

    def _taker(self, subject: str) -> MemoryStream:
        words = subject.split(".")
        kind, cluster = words[0], words[1] if len(words) > 1 else ""
        name = ""
        if len(words) == _TOKENS.get(kind):
            name = names.stream_of(subject)
        elif kind == "dead" and len(words) == 3:
            name = names.dead_stream(cluster)
        elif kind == "busy" and len(words) == 3:
            name = names.busy_stream(cluster)
        elif kind == "meter" and len(words) >= 3:
            name = names.meter_stream(cluster)
        elif kind == "settled" and len(words) == 4:
            name = names.settled_stream(cluster)
        if name not in self._streams:
            raise Lost(f"no stream takes {subject}")
        return self._streams[name]

    def _tick(self) -> int:
        """The arrival time of the next message. No two messages have the same, because stream identities compare
        arrival times.
        """
        self._at = max(self.clock(), self._at + 1)
        return self._at

    def _disturb(self, stream: str, why: str) -> None:
        for store in self.stores:
            store.disturb(stream, why)
