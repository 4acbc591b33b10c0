"""Reply subjects of puts, which are used again.

nats-server looks up the subscriptions of each reply subject, and remembers the last 512 subjects for each stream. With
a new subject for each put, an acknowledgement costs it a third of the put (docs/adr/0033). So the puts to one stream
share a few.

Used again, a subject no longer tells which put a message answers: a server may send an acknowledgement twice, as when
a stream changes its leader, or late. So a subject is used again only after an acknowledgement of a new message. The
next one on it must have a higher sequence, as both messages are in one stream. After any other answer, after none in
time, and after a lost connection, a subject is never used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evenlane.engine.core.ports import Lost, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

Answered: TypeAlias = "Callable[[Receipt | Exception], None]"

_MOST_TARGETS = 32_768  # subjects that are remembered: some 8 MB


class ReplySlot:
    """A reply subject. `answered` is that of its put, None while it has none."""

    __slots__ = ("answered", "free", "number", "reply", "sequence")

    def __init__(self, reply: bytes, free: list[ReplySlot]) -> None:
        self.reply = reply
        self.free = free  # the slots of its stream without a put
        self.answered: Answered | None = None
        self.number = 0  # of its put among all puts of the connection
        self.sequence = 0  # of the last message that was acknowledged on it


class PutTarget:
    """What all puts to one subject share."""

    __slots__ = ("free", "subject")

    def __init__(self, subject: bytes, free: list[ReplySlot]) -> None:
        self.subject, self.free = subject, free


class ReplySlots:
    """The reply subjects of one connection: `inbox`, a dot and a number.

    Invariants: `_slots` has the subjects whose answers count; each has a put, or is in the list `free` of its stream.
    A number is used for one subject only.
    """

    def __init__(self, inbox: str) -> None:
        self.wildcard = f"{inbox}.*"
        self._prefix = f"{inbox}.".encode()
        self._slots: dict[bytes, ReplySlot] = {}
        self._targets: dict[str, PutTarget] = {}
        self._free: dict[str, list[ReplySlot]] = {}  # by stream
        self._made = 0
        self.puts = 0

    def target(self, subject: str) -> PutTarget:
        """The target of puts to a lane's or delay stream's `subject`."""
        target = self._targets.get(subject)
        if target is None:
            if len(self._targets) >= _MOST_TARGETS:
                self._targets.clear()
            stream = ".".join(subject.split(".", 3)[:3])
            target = self._targets[subject] = PutTarget(subject.encode(), self._free.setdefault(stream, []))
        return target

    def take(self, target: PutTarget, answered: Answered) -> bytes:
        """Return the reply subject for a put, whose outcome `answered` gets."""
        if target.free:
            slot = target.free.pop()
        else:
            self._made += 1
            slot = ReplySlot(b"%b%x" % (self._prefix, self._made), target.free)
            self._slots[slot.reply] = slot
        self.puts += 1
        slot.number, slot.answered = self.puts, answered
        return slot.reply

    def forget(self, reply: bytes) -> None:
        """Never use a reply subject again: its put wasn't sent."""
        del self._slots[reply]

    def settle(self, reply: bytes, outcome: Receipt | Exception) -> None:
        """Give an answer's outcome to the put that it answers, if there is one."""
        slot = self._slots.get(reply)
        if slot is None:
            return
        answered = slot.answered
        if answered is None:
            return
        slot.answered = None
        if isinstance(outcome, Exception) or outcome.duplicate:
            del self._slots[reply]
        elif outcome.sequence > slot.sequence:
            slot.sequence = outcome.sequence
            slot.free.append(slot)
        else:  # a late copy; or the stream is new, and the sequences of none of its slots hold
            self._forget_stream(slot)
            outcome = Lost("an acknowledgement came that may be that of an earlier message")
        answered(outcome)

    def fail(self, why: Exception, mark: int | None = None) -> None:
        """Fail the puts that wait, or those of the first `mark` puts: no answer will come. Their subjects aren't used
        again.
        """
        silent = [
            slot for slot in self._slots.values() if slot.answered is not None and (mark is None or slot.number <= mark)
        ]
        if mark is None:
            self._slots.clear()
            for free in self._free.values():
                free.clear()
        for slot in silent:
            self._slots.pop(slot.reply, None)
        for slot in silent:
            answered, slot.answered = slot.answered, None
            if answered is not None:
                answered(why)

    def _forget_stream(self, slot: ReplySlot) -> None:
        del self._slots[slot.reply]
        for other in slot.free:
            del self._slots[other.reply]
        slot.free.clear()
