"""Reply subjects of puts, which are used again.

nats-server looks up the subscriptions of each reply subject, and remembers the last 512 subjects for each stream. With
a new subject for each put, a put costs it a third more CPU time (docs/adr/0033). So the puts to one stream share a few.

Used again, a subject no longer tells which put a message answers: a server may send an acknowledgement twice, as when
a stream changes its leader, or late. So a subject is used again only after an acknowledgement of a new message. The
next one on it must have a higher sequence, as both messages are in one stream. After any other answer, if no answer
comes in time, and after a lost connection, a subject is never used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

Answered: TypeAlias = "Callable[[Receipt | Exception], None]"

_MOST_FREE = 512  # per stream: the server remembers no more
_MOST_TARGETS = 32_768  # subjects that are remembered: some 8 MB


class StreamSlots:
    """The free reply subjects of one stream: those that no put uses. A subject of an earlier `generation` is never
    free, since its sequence may be that of a deleted stream.
    """

    __slots__ = ("free", "generation")

    def __init__(self) -> None:
        self.free: list[ReplySlot] = []
        self.generation = 0

    def end_generation(self) -> None:
        self.free.clear()
        self.generation += 1


class ReplySlot:
    """A reply subject."""

    __slots__ = ("answered", "generation", "number", "reply", "sequence", "stream", "target")

    def __init__(self, reply: bytes, stream: StreamSlots, answered: Answered) -> None:
        self.reply, self.stream, self.generation = reply, stream, stream.generation
        self.answered: Answered | None = answered  # that of its put, None while it has none
        self.target: PutTarget | None = None  # that of its last put
        self.number = 0  # of its last put among all puts of the connection
        self.sequence = 0  # of the last message that was acknowledged on it


class PutTarget:
    """What all puts to one subject share."""

    __slots__ = ("stream", "subject")

    def __init__(self, subject: bytes, stream: StreamSlots) -> None:
        self.subject, self.stream = subject, stream


class ReplySlots:
    """The reply subjects of one connection: `inbox`, a dot and a number.

    Invariants: `_waiting` has the slots of unanswered puts by reply subject, in the order of the puts. A slot is there,
    or free, or never used again. A number is used for one subject only.
    """

    def __init__(self, inbox: str) -> None:
        self.wildcard = f"{inbox}.*"
        self._prefix = f"{inbox}.".encode()
        self._waiting: dict[bytes, ReplySlot] = {}
        self._targets: dict[str, PutTarget] = {}
        self._streams: dict[str, StreamSlots] = {}
        self._made = 0
        self.puts = 0

    def target(self, subject: str) -> PutTarget:
        """The target of puts to a lane's or delay stream's `subject`."""
        target = self._targets.get(subject)
        if target is None:
            if len(self._targets) >= _MOST_TARGETS:
                self._targets.clear()
            name = names.stream_of(subject)
            if name not in self._streams:
                self._streams[name] = StreamSlots()
            target = self._targets[subject] = PutTarget(subject.encode(), self._streams[name])
        return target

    def take(self, target: PutTarget, answered: Answered) -> bytes:
        """Return the reply subject for a put, whose outcome `answered` gets."""
        stream = target.stream
        if stream.free:
            slot = stream.free.pop()
            slot.answered = answered
        else:
            self._made += 1
            slot = ReplySlot(b"%b%x" % (self._prefix, self._made), stream, answered)
        self.puts += 1
        slot.number = self.puts
        slot.target = target
        self._waiting[slot.reply] = slot
        return slot.reply

    def forget(self, reply: bytes) -> None:
        """Never use a reply subject again: its put wasn't sent."""
        del self._waiting[reply]

    def settle(self, reply: bytes, outcome: Receipt | Exception) -> None:
        """Give an answer's outcome to the put that it answers, if there is one."""
        slot = self._waiting.get(reply)
        if slot is None:
            return
        if not isinstance(outcome, Exception) and not outcome.duplicate:
            if outcome.sequence == slot.sequence:
                return  # a copy of the last acknowledgement: that of this put is still to come
            if outcome.sequence < slot.sequence:
                # a copy of an earlier acknowledgement, or the stream was deleted and created again
                slot.stream.end_generation()
                outcome = Lost("the acknowledgement may belong to an earlier message")
            else:
                slot.sequence = outcome.sequence
                free = slot.stream.free
                if slot.generation == slot.stream.generation and len(free) < _MOST_FREE:
                    free.append(slot)
        self._answer(slot, outcome)

    def fail(self, why: Exception) -> None:
        """Fail all unanswered puts, as the connection is lost. None of the present reply subjects is used again."""
        for stream in self._streams.values():
            stream.end_generation()
        self.give_up(self.puts, why)

    def refuse(self, subject: str, why: Exception) -> None:
        """Fail the unanswered puts to this subject: the server has dropped them."""
        denied = subject.encode()
        for slot in list(self._waiting.values()):
            if slot.target is not None and slot.target.subject == denied:
                self._answer(slot, why)

    def give_up(self, mark: int, why: Exception) -> None:
        """Fail those of the first `mark` puts that are unanswered: no answer will come."""
        while self._waiting:
            slot = next(iter(self._waiting.values()))
            if slot.number > mark:
                break
            self._answer(slot, why)

    def _answer(self, slot: ReplySlot, outcome: Receipt | Exception) -> None:
        del self._waiting[slot.reply]
        answered, slot.answered = slot.answered, None
        if answered is not None:
            answered(outcome)
