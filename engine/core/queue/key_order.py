"""Keeps the order of each key in one queue of an ordered topic: one message per key is out, the others wait behind it.
Pure.

A message is out from the moment it is handed to a worker until its outcome is final. It stays out over its retries,
which leave it in its lane (docs/explanation/delivery-guarantees.md). The messages of a key are therefore handled one
after the other, in the order in which they entered the queue, while other keys proceed independently.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import MessageRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget

_ROOM = 256  # once full, reading resumes when there is room for this many messages
_LOOKED_AT = 64  # keys that `oldest` examines
_PAYLOADS = 64  # payloads kept of messages behind their keys; of further messages only the sequence is kept


class _Key:
    """The messages of one key. `turn` is the message that is out, or goes out next."""

    __slots__ = ("behind", "turn")

    def __init__(self, turn: MessageRef) -> None:
        self.turn = turn
        self.behind: list[Entry | MessageRef] = []  # in order; a deque would cost 600 bytes per key


class KeyOrder:
    """The keys of one queue that have a message out, and the messages behind them.

    Invariants:
    - `_keys` and `_key_of` are inverse: each key in `_keys` has exactly one message out, its `turn`.
    - `waiting` is the number of messages behind all keys; `_payloads` of them are kept with their payload.
    - `full` is set once a message was turned away because `waiting` had reached the limit. It is cleared when there is
      room again.
    - `next` holds messages whose turn it is and whose payload must be read. They are read before all others: behind
      messages that are turned away they would never be reached.
    """

    __slots__ = ("_key_of", "_keys", "_payloads", "full", "next", "waiting")

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._key_of: dict[MessageRef, str] = {}
        self._payloads = 0
        self.waiting = 0
        self.full = False
        self.next: list[MessageRef] = []

    def admit(self, key: str, place: MessageRef) -> bool:
        """Whether this message may go out: its key is free, or it is this message's turn. If so, it takes the key."""
        known = self._keys.get(key)
        if known is None:
            self._keys[key] = _Key(place)
            self._key_of[place] = key
            return True
        return known.turn == place

    def wait(self, key: str, entry: Entry, limits: MemoryBudget) -> bool:
        """Queue the message behind its key. False if the limit (`limits.index`) is reached; the message then stays
        where it was.
        """
        if self.waiting >= limits.index:
            self.full = True
            return False
        size = entry[5]
        self.waiting += 1
        # half of the budget stays free for messages that are handled earlier
        if self._payloads < _PAYLOADS and limits.used_bytes + size <= limits.payload_bytes // 2:
            self._payloads += 1
            limits.used_bytes += size
            self._keys[key].behind.append(entry)
        else:
            self._keys[key].behind.append(MessageRef(*entry[:2]))
        return True

    def is_out(self, place: MessageRef) -> bool:
        """Whether this message is out, or goes out next."""
        return place in self._key_of

    def free_key(self, place: MessageRef, limits: MemoryBudget) -> Entry | MessageRef | None:
        """Free the key of a message whose outcome is final. Returns the key's next message, whose turn it is now; None
        if there is none, or if the message wasn't out.
        """
        key = self._key_of.pop(place, None)
        if key is None:
            return None
        known = self._keys[key]
        if not known.behind:
            del self._keys[key]
            return None
        following = known.behind.pop(0)
        self._remove_waiting(following, limits)
        if self.waiting <= limits.index - max(1, min(_ROOM, limits.index // 8)):
            self.full = False
        known.turn = _place(following)
        self._key_of[known.turn] = key
        return following

    def waits_in(self, lane: Lane) -> Iterator[MessageRef]:
        """The messages of a lane that wait behind their keys, or are in `next`."""
        for known in self._keys.values():
            yield from (_place(each) for each in known.behind if each[0] is lane)
        yield from (place for place in self.next if place.lane is lane)

    def oldest(self) -> Entry | MessageRef | None:
        """The oldest message that waits behind a key; None if none waits.

        It is an approximation: only the oldest few keys are examined, and messages kept with their payload are taken to
        be older than those without.
        """
        firsts = [known.behind[0] for known in islice(self._keys.values(), _LOOKED_AT) if known.behind]
        held = [each for each in firsts if not isinstance(each, MessageRef)]
        if held:
            return min(held, key=lambda entry: entry[2])
        return min((_place(each) for each in firsts), key=lambda place: place.sequence, default=None)

    def take_next(self, count: int) -> list[MessageRef]:
        """Remove up to `count` messages of one stream from the front of `next`."""
        first = self.next[0].lane
        same = 1
        while same < min(count, len(self.next)) and self.next[same].lane is first:
            same += 1
        taken = self.next[:same]
        del self.next[:same]
        return taken

    def drop_payloads(self, limits: MemoryBudget) -> None:
        """Unload the payloads of waiting messages and keep their references: the queue won't be served for a while."""
        for known in self._keys.values():
            for number, each in enumerate(known.behind):
                if not isinstance(each, MessageRef):
                    self._uncount(each, limits)
                    known.behind[number] = _place(each)

    def discard(self, lane: Lane, limits: MemoryBudget) -> list[Entry | MessageRef]:
        """Drop all messages of a lane whose stream was replaced. Returns the next messages of the keys whose turn was
        in that lane.
        """
        for known in self._keys.values():
            gone = [each for each in known.behind if each[0] is lane]
            known.behind = [each for each in known.behind if each[0] is not lane]
            for each in gone:
                self._remove_waiting(each, limits)
        self.full = False
        self.next = [place for place in self.next if place.lane is not lane]
        stale = [place for place in self._key_of if place.lane is lane]
        return [following for place in stale if (following := self.free_key(place, limits)) is not None]

    def drain(self, limits: MemoryBudget) -> list[MessageRef]:
        """Remove all waiting messages and return them by sequence. Messages that are out stay out."""
        places = []
        for known in self._keys.values():
            for each in known.behind:
                self._remove_waiting(each, limits)
                places.append(_place(each))
            known.behind = []
        places += self.next
        self.next = []
        self.full = False
        return sorted(places, key=lambda place: place.sequence)

    def _remove_waiting(self, each: Entry | MessageRef, limits: MemoryBudget) -> None:
        self.waiting -= 1
        self._uncount(each, limits)

    def _uncount(self, each: Entry | MessageRef, limits: MemoryBudget) -> None:
        if not isinstance(each, MessageRef):
            self._payloads -= 1
            limits.used_bytes -= each[5]


def _place(each: Entry | MessageRef) -> MessageRef:
    return MessageRef(each[0], each[1])
