"""A stream in memory: rising sequences, ids within a window, deletions that leave gaps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from evenlane.engine.core.ports import LaneState, QueueFull, Receipt, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Container


class MemoryStream:
    """One stream. `created` tells it from others that had its name; ids are remembered for `window` ns. Messages are
    removed after `max_age` ns (0: never).
    """

    def __init__(self, name: str, created: str, window: int, max_age: int = 0) -> None:
        self.name, self.created, self.window, self.max_age = name, created, window, max_age
        self.limit = -1  # messages that a subject may hold; negative: unlimited
        self.messages: dict[int, Stored] = {}  # in sequence order
        self.last = self.last_at = 0
        self.listeners: dict[Callable[[], None], None] = {}  # called for each message
        self.last_of: dict[str, int] = {}  # the last sequence of each subject
        self._first = 1
        self._ids: dict[str, tuple[int, int]] = {}  # id -> (arrival, sequence), the oldest first

    def state(self) -> LaneState:
        return LaneState(self.created, self.first, self.last, self.last_at)

    @property
    def first(self) -> int:
        """The first message's sequence; `last + 1` if there is none, 0 if there never was one."""
        while self._first <= self.last and self._first not in self.messages:
            self._first += 1
        return self._first if self.last else 0

    def append(self, at: int, subject: str, headers: bytes, body: bytes, message_id: str | None) -> Receipt:
        if message_id is not None and (known := self._find_known(message_id, at)):
            return Receipt(self.name, known, duplicate=True)
        if 0 < self.limit <= len(self.sequences(subject)):
            raise QueueFull(self.limit)
        self.last += 1
        self.last_at = at
        self.messages[self.last] = Stored(self.last, at, subject, headers, body)
        self.last_of[subject] = self.last
        if message_id is not None:
            self._ids[message_id] = (at, self.last)
        for listener in list(self.listeners):
            listener()
        return Receipt(self.name, self.last, duplicate=False)

    def set_limit(self, limit: int) -> None:
        """Set the limit. It is lowered only if no subject holds more."""
        if limit < 0 or max(self.counts().values(), default=0) <= limit:
            self.limit = limit
        elif self.limit > 0:
            self.limit = max(self.limit, limit)

    def after(self, sequence: int, until: int | None, hours: Container[str], prefix: str = "") -> Stored | None:
        """The next message above `sequence`, up to `until`, whose subject begins with `prefix`; with `hours`, the next
        one whose subject ends in one of them, too.
        """
        end = self.last if until is None else min(until, self.last)
        for candidate in range(max(sequence + 1, self.first), end + 1):
            found = self.messages.get(candidate)
            if found is None or not found.subject.startswith(prefix):
                continue
            if not hours or found.subject.rpartition(".")[2] in hours:
                return found
        return None

    def counts(self, prefix: str = "") -> dict[str, int]:
        """The number of messages by subject, of the subjects that begin with `prefix`."""
        return dict(Counter(each.subject for each in self.messages.values() if each.subject.startswith(prefix)))

    def sequences(self, subject: str, start: int = 1) -> list[int]:
        """Those of a subject, or of all that begin with what is before a final `>`."""
        if subject.endswith(">"):
            return [s for s, each in self.messages.items() if s >= start and each.subject.startswith(subject[:-1])]
        return [s for s, message in self.messages.items() if s >= start and message.subject == subject]

    def purge(self, below: int) -> None:
        for sequence in range(self.first, min(below, self.last + 1)):
            self.messages.pop(sequence, None)

    def keep_only(self, subject: str, sequence: int) -> None:
        """Remove all other messages of the subject, as a rollup does."""
        for other in self.sequences(subject):
            if other != sequence:
                del self.messages[other]

    def expire(self, now: int) -> None:
        """Remove messages older than `max_age`."""
        for sequence, message in list(self.messages.items()):
            if now - message.at < self.max_age:
                break
            del self.messages[sequence]

    def roll_back(self, to_sequence: int) -> None:
        """Lose all messages above `to_sequence`, as a server that comes back without its latest data does."""
        self.messages = {s: message for s, message in self.messages.items() if s <= to_sequence}
        self._ids = {text: known for text, known in self._ids.items() if known[1] <= to_sequence}
        self.last_of = {message.subject: s for s, message in self.messages.items()}
        self.last = min(self.last, to_sequence)
        self.last_at = self.messages[self.last].at if self.last in self.messages else 0
        self._first = min(self._first, self.last + 1)

    def _find_known(self, message_id: str, at: int) -> int:
        for old, (since, _) in list(self._ids.items()):
            if at - since < self.window:
                break
            del self._ids[old]
        return self._ids.get(message_id, (0, 0))[1]
