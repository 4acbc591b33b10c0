"""The protocol of one ephemeral ack-none pull consumer: its pulls, the messages that it accepts, and its end. Pure.

Events come in as calls: the consumer was created, a message or a status arrived, a second passed, a turn was granted.
The results go out as actions. Nothing is redelivered to an ack-none consumer, so the protocol verifies itself: the
consumer's sequence must rise by one, and heartbeats must arrive and agree with it. Any inconsistency ends the consumer;
the feed (engine/store/jetstream/feed.py) creates another one on a new inbox, from the last sequence on.

A small pull is always open. A pull that is used up while more messages are pending is followed by a large one, in turns
that all feeds share (engine/store/jetstream/delivery/byte_budget.py, pure as well, and called from here).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.store.byte_lag import ByteLag
    from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget

HEARTBEAT_S = 5.0
SILENT_S = 2.5 * HEARTBEAT_S
FIRST_BYTES = 16 << 10  # of a feed's first pull: small, so that many feeds that begin together all start soon
_NEVER = -1  # no message has this sequence


class PullStage(Enum):
    """The pull that is open at the server."""

    OPENING = "opening"  # nothing: the consumer is being created
    SMALL = "small"  # a small pull, which sends heartbeats
    WAITING = "waiting"  # no pull: the last one is used up, and the budget was asked for a turn. No heartbeats come.
    TURN = "turn"  # a large pull, under a turn that goes back to the budget when the stage ends
    ENDED = "ended"  # nothing that counts: no event changes anything any more, and no action follows


class EndReason(Enum):
    """The reason why a consumer ended. The value is logged if no detail is known."""

    COMPLETE = "all requested messages have come"  # no other consumer is needed
    BODIES = "bodies are needed, or no longer needed"
    FOREIGN = "a message came that isn't from a consumer"
    GAP = "a gap"
    MISSED = "a heartbeat reports messages that never came"
    DELETED = "nothing more came: the expected messages have been deleted"
    SILENT = "no heartbeat"
    STATUS = "the server ended it"
    DISCONNECTED = "connection lost"
    NOT_CREATED = "no answer"
    DISTURBED = "its stream may have been replaced"
    CLOSED = "closed"


class Pull(NamedTuple):
    """Ask the server for messages of up to `max_bytes` together. In TURN only existing messages, in SMALL
    new ones, too.
    """

    stage: PullStage
    max_bytes: int


class CaughtUp(NamedTuple):
    """All messages that the stream had when the consumer was created have been delivered. Sent at most once."""


class Ended(NamedTuple):
    """Stop listening, and delete the consumer. The last action, sent exactly once."""

    reason: EndReason
    why: str  # one sentence for the log


Action = Pull | CaughtUp | Ended


class PullConsumer:
    """One consumer, from its creation to its end.

    Messages and actions aren't returned: the parser calls `on_message` directly, because a shell in between would
    cost one more call per message. `sink` gets each message with a body: subject, sequence, time in unix ns, headers,
    body. `on_head` gets each message without one: the body's size replaces the body, and the result says whether the
    message is taken. `perform` gets the actions. All three may call the consumer. `sink` may be replaced at any time.

    `lag` outlives the consumer, and decides whether the next one delivers bodies. With `until` (a sequence), the
    consumer is patient and ends at that sequence. `awaits_end` says whether any message may be the last one awaited:
    always with `until`, otherwise until `CaughtUp`.

    Invariants:
    - All messages up to the stream sequence `last` were delivered, or don't exist.
    - `_expected` is _NEVER only in ENDED, and always there, so that the check of each message also rejects late ones.
    - 0 <= `_room` <= `_asked`, in bytes as the server counts them: it sends no message that doesn't fit.
    - `_room` is 0 if and only if the server has ended the pull without a status.
    - `_begins` <= `_expected`.
    """

    __slots__ = (
        "_alive_at", "_asked", "_begins", "_expected", "_has_status", "_pending", "_received", "_room", "_seen",
        "_stage", "awaits_end", "budget", "headless", "lag", "last", "on_head", "perform", "sink", "until",
    )  # fmt: skip

    def __init__(
        self,
        *,
        sink: Callable[[bytes, int, int, bytes, bytes], None],
        perform: Callable[[Action], None],
        budget: FeedBudget,
        lag: ByteLag,
        last: int,
        until: int | None = None,
        on_head: Callable[[bytes, int, int, bytes, int], bool] | None = None,
        awaits_end: bool = True,
    ) -> None:
        self.sink, self.perform, self.on_head = sink, perform, on_head
        self.budget, self.lag = budget, lag
        self.last, self.until = last, until
        self.awaits_end = awaits_end or until is not None
        self.headless = lag.leaves_bodies  # this consumer delivers no bodies; needs `on_head`
        self._stage = PullStage.OPENING
        self._expected = 1  # consumer sequence that the next message must have: 1 + messages so far
        self._received = 0  # messages; set at the end
        self._asked = 0  # bytes that the open pull, or the last one, asked for
        self._room = 0  # bytes that it may still deliver
        self._begins = 1  # consumer sequence at its start
        self._pending = 0  # messages in the stream behind the last one received
        # A sign of life is a message, a status, or the stage WAITING. None came between `_alive_at` and the last check.
        self._alive_at = 0.0  # s
        self._seen = 1  # `_expected` at the last check
        self._has_status = False  # a status arrived since the last check

    @property
    def stage(self) -> PullStage:
        return self._stage

    @property
    def received(self) -> int:
        """The number of messages received, delivered or not."""
        return self._received if self._stage is PullStage.ENDED else self._expected - 1

    # ---- lifecycle events

    def on_created(self, pending: int, now: float) -> None:
        """The consumer exists, with `pending` messages ahead of it. `now` in seconds, as in `on_second`."""
        if self._stage is not PullStage.OPENING:
            return  # disturbed meanwhile
        self._alive_at = now
        if self.until is not None and (pending == 0 or self.last >= self.until):
            self.end(EndReason.COMPLETE)
            return
        if pending == 0:
            self._catch_up()
        self._pull(PullStage.SMALL, min(self.budget.small, FIRST_BYTES))

    def on_second(self, now: float, late: float = 0.0) -> None:
        """A second has passed, plus `late` seconds for which the process or its event loop was blocked and messages
        stayed unread. A consumer that is silent for long is gone or cut off.
        """
        if self.lag.on_second():
            self.end(EndReason.BODIES)
        self._alive_at = min(now, self._alive_at + late)
        if self._stage in {PullStage.OPENING, PullStage.WAITING} or self._has_status or self._expected != self._seen:
            self._alive_at, self._seen, self._has_status = now, self._expected, False
        elif now - self._alive_at > SILENT_S:
            self.end(EndReason.SILENT)

    def end(self, reason: EndReason, why: str = "") -> None:
        """End the consumer, for an external or internal reason. Only the first reason counts."""
        if self._stage is PullStage.ENDED:
            return
        self._received, self._expected = self._expected - 1, _NEVER
        had_turn, self._stage = self._stage is PullStage.TURN, PullStage.ENDED
        self.perform(Ended(reason, why or reason.value))
        if had_turn:
            self.budget.return_turn()

    def _catch_up(self) -> None:
        if self.until is None and self.awaits_end and self._stage is not PullStage.ENDED:
            self.awaits_end = False
            self.perform(CaughtUp())

    # ---- pulls

    def _pull(self, stage: PullStage, max_bytes: int) -> None:
        self._stage = stage
        self._asked = self._room = max_bytes
        self._begins = self._expected
        self.perform(Pull(stage, max_bytes))

    def _leave_turn(self, stage: PullStage) -> None:
        """The open pull has ended."""
        had_turn, self._stage = self._stage is PullStage.TURN, stage
        if had_turn:
            self.budget.return_turn()

    def _on_used_up(self) -> None:
        """The open pull can't deliver more, but more messages are pending."""
        self._leave_turn(PullStage.WAITING)
        came, size = self._expected - self._begins, self._asked - self._room
        if self.on_head is not None and self.lag.note_pull(came, size, self._pending):
            self.end(EndReason.BODIES)
        else:
            self.budget.ask(self._take_turn, patient=self.until is not None)

    def _take_turn(self) -> bool:
        """Take the turn; False if the consumer has ended."""
        if self._stage is not PullStage.WAITING:
            return False
        most = self.budget.turn
        if self.until is not None:
            nothing_came = self._room == self._asked  # a message may be larger than a pull
            most = min(most, 8 * self._asked) if nothing_came else self.budget.patient_turn
        self._pull(PullStage.TURN, most)
        return True

    # ---- messages (called from the parser: must be quick, and nothing may be awaited)

    def on_message(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        """A message or a status arrived on the inbox."""
        words = reply.split(b".")
        if len(words) != 9:
            if not reply.startswith(b"$JS.ACK."):
                self._on_status(subject, headers)
                return
            del words[2:4]  # domain and account hash
        try:
            sequence, number, at, pending = int(words[5]), int(words[6]), int(words[7]), int(words[8])
        except (ValueError, IndexError):
            self.end(EndReason.FOREIGN)
            return
        if number != self._expected:
            self.end(EndReason.GAP, f"a gap: message {number} of the consumer came instead of {self._expected}")
            return
        self._expected = number + 1
        if self.until is not None and sequence > self.until:
            self.end(EndReason.COMPLETE)
            return
        self.last = sequence
        self._pending = pending
        # The server counts in the same way, and ends a pull without a status if it is used up to the last byte.
        self._room -= len(subject) + len(reply) + len(headers) + len(body)
        if not self._room:
            self._on_used_up()
        if not self.headless:
            self.sink(subject, sequence, at, headers, body)
        elif not self._accept_head(subject, sequence, at, headers):
            return
        if self.awaits_end:
            self._look_for_end(sequence, pending)

    def _look_for_end(self, sequence: int, pending: int) -> None:
        if self.until is not None:
            if sequence == self.until or not pending:
                self.end(EndReason.COMPLETE)
        elif not pending:
            self._catch_up()

    def _accept_head(self, subject: bytes, sequence: int, at: int, headers: bytes) -> bool:
        """Whether the message is accepted without its body; otherwise it will be delivered with it."""
        size = min(h.read_added_number(headers, "Nats-Msg-Size", 0), self.budget.largest)
        if self.on_head is not None and self.on_head(subject, sequence, at, headers, size):
            self.lag.note_left(size)
            return True
        self.last = sequence - 1
        self.lag.require_body()
        self.end(EndReason.BODIES)
        return False

    def _on_status(self, subject: bytes, headers: bytes) -> None:
        if self._stage is PullStage.ENDED:
            return
        self._has_status = True
        code = headers[9:12]
        if code == b"100":
            self._on_heartbeat(headers)
        elif code in {b"404", b"408"}:  # no messages, or none within the time
            if self._is_of_open_pull(subject):
                self._leave_turn(PullStage.SMALL)
                self._pull(PullStage.SMALL, self.budget.small)
        elif code == b"409" and b"MaxBytes" in headers[:60]:  # the next message doesn't fit
            if self._is_of_open_pull(subject):
                self._on_used_up()
        elif code != b"409" or b"Batch Completed" not in headers[:60]:
            self.end(EndReason.STATUS, headers[9:80].split(b"\r\n")[0].decode("utf-8", "replace"))

    def _on_heartbeat(self, headers: bytes) -> None:
        if h.number(headers, "Nats-Last-Consumer", self._expected - 1) != self._expected - 1:
            self.end(EndReason.MISSED)
        elif self.until is not None:
            self.end(EndReason.DELETED)

    def _is_of_open_pull(self, subject: bytes) -> bool:
        """Whether a status is about the open pull; the last token of `subject` names its stage."""
        return subject.rpartition(b".")[2] == self._stage.value.encode()
