"""The keys of one queue of an ordered topic: of each, one message is out, and the others wait behind it. Pure.

A message is out from the moment that it is handed to a worker until it has ended for good: its retries included, which
leave it where it is (design.md, section 2). So a key's messages are handled one after the other, in the order in which
they came into the queue, while other keys go on.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import MessageRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget

_ROOM = 256  # messages for which there must be room before more are read again
_LOOKED_AT = 64  # keys
_PAYLOADS = 64  # of messages that wait behind their keys; of further ones the sequence alone is kept


class _Key:
    """`turn` is the message that is out, or goes out next."""

    __slots__ = ("behind", "turn")

    def __init__(self, turn: MessageRef) -> None:
        self.turn = turn
        self.behind: list[Entry | MessageRef] = []  # in order; a deque would cost 600 bytes for each key


class KeyOrder:
    """`waiting` counts those behind, `full` says that one more was turned away. `next` are messages whose turn it is,
    and that are read before all others: behind some that are turned away they would never be reached.
    """

    __slots__ = ("_keys", "_payloads", "_turns", "full", "next", "waiting")

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._turns: dict[MessageRef, str] = {}
        self._payloads = 0
        self.waiting = 0
        self.full = False
        self.next: list[MessageRef] = []

    def admit(self, key: str, place: MessageRef) -> bool:
        """Whether this message may go out: its key is free, or it is the key's turn. If so, the key is taken."""
        known = self._keys.get(key)
        if known is None:
            self._keys[key] = _Key(place)
            self._turns[place] = key
            return True
        return known.turn == place

    def wait(self, key: str, entry: Entry, limits: MemoryBudget) -> bool:
        """Have it wait behind its key; False if as many wait as may (`limits.index`): then it stays where it was."""
        if self.waiting >= limits.index:
            self.full = True
            return False
        size = entry[5]
        self.waiting += 1
        # (half of the budget stays free for what is handled before it)
        if self._payloads < _PAYLOADS and limits.held + size <= limits.payload_bytes // 2:
            self._payloads += 1
            limits.held += size
            self._keys[key].behind.append(entry)
        else:
            self._keys[key].behind.append(MessageRef(*entry[:2]))
        return True

    def out(self, place: MessageRef) -> bool:
        """Whether this message is out, or about to go."""
        return place in self._turns

    def ended(self, place: MessageRef, limits: MemoryBudget) -> Entry | MessageRef | None:
        """The message that was out has ended for good: the next of its key, whose turn it is now."""
        key = self._turns.pop(place, None)
        if key is None:
            return None
        known = self._keys[key]
        if not known.behind:
            del self._keys[key]
            return None
        following = known.behind.pop(0)
        self._left(following, limits)
        if self.waiting <= limits.index - max(1, min(_ROOM, limits.index // 8)):
            self.full = False
        known.turn = _place(following)
        self._turns[known.turn] = key
        return following

    def waits_in(self, lane: Lane) -> Iterator[MessageRef]:
        """Those of a lane that wait behind their keys, or are next."""
        for known in self._keys.values():
            yield from (_place(each) for each in known.behind if each[0] is lane)
        yield from (place for place in self.next if place.lane is lane)

    def oldest(self) -> Entry | MessageRef | None:
        """Of those that wait behind the keys which came first, the one that came first, as far as that can be told of a
        few: whose payload is held came before those whose isn't. None if none waits.
        """
        firsts = [known.behind[0] for known in islice(self._keys.values(), _LOOKED_AT) if known.behind]
        held = [each for each in firsts if not isinstance(each, MessageRef)]
        if held:
            return min(held, key=lambda entry: entry[2])
        return min((_place(each) for each in firsts), key=lambda place: place.sequence, default=None)

    def take_next(self, count: int) -> list[MessageRef]:
        """Up to so many of `next`, of one stream."""
        first = self.next[0].lane
        same = 1
        while same < min(count, len(self.next)) and self.next[same].lane is first:
            same += 1
        taken = self.next[:same]
        del self.next[:same]
        return taken

    def drop_payloads(self, limits: MemoryBudget) -> None:
        """Remember only where those behind lie: the queue won't be served for a while."""
        for known in self._keys.values():
            for number, each in enumerate(known.behind):
                if not isinstance(each, MessageRef):
                    self._gone(each, limits)
                    known.behind[number] = _place(each)

    def forget(self, lane: Lane, limits: MemoryBudget) -> list[Entry | MessageRef]:
        """Drop what came from a lane whose stream was replaced; of keys whose message was out of it, the next ones."""
        for known in self._keys.values():
            gone = [each for each in known.behind if each[0] is lane]
            known.behind = [each for each in known.behind if each[0] is not lane]
            for each in gone:
                self._left(each, limits)
        self.full = False
        self.next = [place for place in self.next if place.lane is not lane]
        void = [place for place in self._turns if place.lane is lane]
        return [following for place in void if (following := self.ended(place, limits)) is not None]

    def drain(self, limits: MemoryBudget) -> list[MessageRef]:
        """All that wait behind, by sequence: they don't any more. What is out stays out."""
        places = []
        for known in self._keys.values():
            for each in known.behind:
                self._left(each, limits)
                places.append(_place(each))
            known.behind = []
        places += self.next
        self.next = []
        self.full = False
        return sorted(places, key=lambda place: place.sequence)

    def _left(self, each: Entry | MessageRef, limits: MemoryBudget) -> None:
        self.waiting -= 1
        self._gone(each, limits)

    def _gone(self, each: Entry | MessageRef, limits: MemoryBudget) -> None:
        if not isinstance(each, MessageRef):
            self._payloads -= 1
            limits.held -= each[5]


def _place(each: Entry | MessageRef) -> MessageRef:
    return MessageRef(each[0], each[1])
