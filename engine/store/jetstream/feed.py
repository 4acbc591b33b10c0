"""One feed: an ephemeral ack-none pull consumer whose messages are handed on in stream order, checked for gaps.

One that lags by bytes goes on without bodies (engine/store/byte_lag.py), where its owner can do without them.

Nothing is redelivered to an ack-none consumer, so the feed checks itself: the consumer's sequence must rise by
one, heartbeats must come and agree. Whatever is wrong, the consumer is made anew on a new inbox from the last
sequence on; nobody downstream notices but by the call of `on_break`.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from evenlane.engine.base.aio.cancellation import cancel_and_wait
from evenlane.engine.core.ports import Disconnected, Lost
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.byte_lag import ByteLag
from evenlane.engine.store.jetstream.api.values import ConsumerInfo
from evenlane.engine.store.jetstream.client.connection import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.store.jetstream.byte_budget import FeedBudget
    from evenlane.engine.store.jetstream.client.connection import Connection

_log = structlog.get_logger(__name__)

_HEARTBEAT_S = 5.0
_SILENT_S = 2.5 * _HEARTBEAT_S
_EXPIRES_S = 30.0
_ENDLESS = 1_000_000  # messages; a pull shall end by bytes alone, for then the server says so
_FIRST = 16 << 10  # bytes of a feed's first pull: where many feeds begin together, each brings its first messages soon
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_SECOND = 1_000_000_000
_OTHERWISE = "bodies are to come, or no longer"


class JetStreamFeed:
    """Runs until `close`, or until it has delivered up to `until`."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        start: int,
        sink: Callable[[bytes, int, int, bytes, bytes], None],
        on_break: Callable[[int], Awaitable[int]],
        budget: FeedBudget,
        *,
        until: int | None = None,
        subjects: Sequence[str] = (),
        on_end: Callable[[], None] | None = None,
        on_head: Callable[[bytes, int, int, bytes, int], bool] | None = None,
        leader_of: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        self._connection, self._stream, self.sink = connection, stream, sink
        self._on_break, self._budget, self._on_end, self._on_head = on_break, budget, on_end, on_head
        self._until, self._subjects, self._leader_of = until, list(subjects), leader_of
        self._last = start - 1
        self._expected = 1  # the consumer's next sequence
        self._sid = 0
        self._next_subject = self._inbox = ""
        self._turn = self._waiting = self._closed = False
        self._asked = self._room = 0  # bytes that the present pull may bring, and may still bring
        self._begins = 1  # the consumer's sequence with which that pull began
        self._pending = 0  # messages in the stream behind the last one that came
        self._lag, self._headless = ByteLag(), False  # `_headless`: this consumer brings no bodies
        self._seen = 0  # what `_expected` was at the last check
        self.alive_at = monotonic()
        self._broken: asyncio.Future[str] | None = None
        self._task = asyncio.create_task(self._run(), name=f"feed {stream}")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await cancel_and_wait(self._task)

    def disturb(self, why: str) -> None:
        """Make the consumer anew: what it stood on may be gone."""
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(why)
            if self._sid:  # nothing more of this consumer counts
                self._connection.unlisten(self._sid)

    def check(self, now: float, late: float = 0.0) -> None:
        """Called each second, or `late` seconds later as the process or its loop stood still: what came meanwhile has
        still to be read. A consumer that is silent for long is gone or cut off.

        Heartbeats come only where nothing else does, and not at all while the feed waits for a turn.
        """
        if self._lag.second_passed():
            self.disturb(_OTHERWISE)
        self.alive_at = min(now, self.alive_at + late)
        if self._waiting or self._expected != self._seen:
            self._seen, self.alive_at = self._expected, now
        elif now - self.alive_at > _SILENT_S:
            self.disturb("no heartbeat")

    async def _run(self) -> None:
        tries = 0
        self._budget.join()
        try:
            while True:
                why = await self._once()
                if why == "end":
                    break
                if why == _OTHERWISE:
                    _log.debug("feed changed", stream=self._stream, last=self._last, bodies=not self._lag.leaves_bodies)
                    continue
                _log.debug("feed broken", stream=self._stream, why=why, last=self._last)
                tries = 0 if self._expected > 1 else tries + 1
                self._last = await self._resume() - 1
                await asyncio.sleep(_BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)])
        finally:
            self._leave()
            self._budget.leave()
        self._ended()

    async def _resume(self) -> int:
        while True:
            try:
                return await self._on_break(self._last)
            except (Lost, Disconnected, TimeoutError, ApiError) as error:
                _log.debug("lane not verified yet", stream=self._stream, error=str(error))
                await asyncio.sleep(_BACKOFF_S[2])

    async def _once(self) -> str:
        """One consumer's life; why it ended."""
        self._broken = asyncio.get_running_loop().create_future()
        try:
            pending = await self._open()
            if self._until is not None and (pending == 0 or self._last >= self._until):
                return "end"
            if pending == 0:
                self._ended()
            self._pull_small(_FIRST)
            return await self._broken
        except (Disconnected, TimeoutError, ApiError) as error:
            return str(error) or "no answer"
        finally:
            self._leave()

    async def _open(self) -> int:
        """Create the consumer, on the stream's leader; how many messages are ahead of it."""
        config: dict[str, Any] = {
            "deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1, "ack_policy": "none",
            "mem_storage": True, "num_replicas": 1, "max_waiting": 16, "inactive_threshold": 60 * _SECOND,
        }  # fmt: skip
        if len(self._subjects) == 1:
            config["filter_subject"] = self._subjects[0]
        elif self._subjects:
            config["filter_subjects"] = self._subjects
        self._headless = self._lag.leaves_bodies
        if self._headless:
            config["headers_only"] = True
        leader = await self._leader_of() if self._leader_of else None
        for _ in range(16):
            made = await self._connection.api_as(
                ConsumerInfo, f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
            )
            if leader is None or made.leader == leader:
                break
            await self._connection.api(f"CONSUMER.DELETE.{self._stream}.{made.name}")
        else:
            raise Disconnected("no consumer could be made on the stream's leader")
        self._expected = 1
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{made.name}"
        self._inbox = f"_INBOX.feed.{self._stream}.{made.name}"
        self._sid = self._connection.listen(f"{self._inbox}.*", self._on_message)
        self.alive_at = monotonic()
        return made.num_pending

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _leave(self) -> None:
        self._end_turn()
        if self._sid:
            self._connection.unlisten(self._sid)
            self._sid = 0
            name = self._next_subject.rpartition(".")[2]
            with contextlib.suppress(Disconnected):
                self._connection.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}", b"")

    # ---- pulls: a small one is always open, a large one is taken in turns

    def _pull_small(self, most: int = _ENDLESS) -> None:
        request = {
            "batch": _ENDLESS, "max_bytes": min(self._budget.small, most), "expires": int(_EXPIRES_S * _SECOND),
            "idle_heartbeat": int(_HEARTBEAT_S * _SECOND),
        }  # fmt: skip
        self._pull(request, "small")

    def _ask_turn(self) -> None:
        sid, patient = self._sid, self._until is not None
        nothing_came, asked = self._room == self._asked, self._asked  # a message may be larger than a pull
        self._waiting = True

        def start() -> bool:
            if sid != self._sid or not sid:
                return False
            self._turn, self._waiting = True, False
            most = self._budget.turn
            if patient:
                most = min(most, 8 * asked) if nothing_came else self._budget.patient_turn
            self._pull({"batch": _ENDLESS, "max_bytes": most, "no_wait": True}, "turn")
            return True

        self._budget.ask(start, patient=patient)

    def _pull(self, request: dict[str, Any], kind: str) -> None:
        self._asked = self._room = request["max_bytes"]
        self._begins = self._expected
        try:
            self._connection.send(self._next_subject, msgspec.json.encode(request), reply=f"{self._inbox}.{kind}")
        except EvenlaneError:
            self.disturb("connection lost")

    def _end_turn(self) -> None:
        self._waiting = False
        if self._turn:
            self._turn = False
            self._budget.give_back()

    # ---- what comes in (inside the parser: quick, and nothing may be awaited)

    def _on_message(self, _subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        words = reply.split(b".")
        if len(words) != 9:
            if not reply.startswith(b"$JS.ACK."):
                self._on_status(_subject, headers)
                return
            del words[2:4]  # domain and account hash
        try:
            sequence, number, at, pending = int(words[5]), int(words[6]), int(words[7]), int(words[8])
        except (ValueError, IndexError):
            self.disturb("a message came that is none of a consumer's")
            return
        if number != self._expected:
            self.disturb(f"a gap: message {number} of the consumer came instead of {self._expected}")
            return
        self._expected += 1
        until = self._until
        if until is not None and sequence > until:
            self.disturb("end")
            return
        self._last = sequence
        # The server counts like this, and ends a pull that is used up to its last byte without a word.
        self._room -= len(_subject) + len(reply) + len(headers) + len(body)
        self._pending = pending
        if not self._room:
            self._end_turn()
            self._go_on()
        if not self._headless:
            self.sink(_subject, sequence, at, headers, body)
        elif not self._takes_head(_subject, sequence, at, headers):
            return
        if until is not None or self._on_end is not None:
            self._look_for_end(sequence, nothing_left=words[8] == b"0")

    def _look_for_end(self, sequence: int, *, nothing_left: bool) -> None:
        if self._until is None:
            if nothing_left:
                self._ended()
        elif sequence == self._until or nothing_left:
            self.disturb("end")

    def _takes_head(self, subject: bytes, sequence: int, at: int, headers: bytes) -> bool:
        """Whether it is taken in without its body; else it will come with it."""
        size = min(h.added_number(headers, "Nats-Msg-Size", 0), self._budget.largest)
        if self._on_head is not None and self._on_head(subject, sequence, at, headers, size):
            self._lag.left(size)
            return True
        self._last = sequence - 1
        self._lag.needs_body()
        self.disturb(_OTHERWISE)
        return False

    def _go_on(self) -> None:
        """A pull is used up, and there is more."""
        came, size = self._expected - self._begins, self._asked - self._room
        if self._on_head is not None and self._lag.came(came, size, self._pending):
            self.disturb(_OTHERWISE)
        else:
            self._ask_turn()

    def _on_status(self, subject: bytes, headers: bytes) -> None:
        self.alive_at = monotonic()
        code = headers[9:12]
        if code == b"100":
            if h.number(headers, "Nats-Last-Consumer", self._expected - 1) != self._expected - 1:
                self.disturb("a heartbeat tells of messages that never came")
            elif self._until is not None:
                self.disturb("nothing more came: what was to come has been deleted")
        elif code == b"404" or code == b"408":  # noqa: PLR1714
            self._end_turn()
            self._pull_small()
        elif code == b"409" and b"MaxBytes" in headers[:60]:
            if subject.endswith(b".turn"):
                self._end_turn()
            self._go_on()
        elif code != b"409" or b"Batch Completed" not in headers[:60]:
            self.disturb(headers[9:80].split(b"\r\n")[0].decode("utf-8", "replace"))
