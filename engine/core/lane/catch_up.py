"""Tracks the catch-up of a lane after a takeover: the main feed delivers the backlog while a tail feed delivers new
messages. Pure.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class CatchUp:
    """The progress of a catch-up: `counts` messages per subject remain, up to the sequence `last`. `ends` has the last
    sequence of subjects for which it is known; the count of such a subject may be too high.

    Invariants:
    - `incomplete` has the number of remaining messages of each subject with backlog, or more. A subject is complete
      once its last message has arrived. Messages of the tail feed wait behind them.
    - The tail feed begins behind `last` and has delivered up to `tail`.
    - `_ahead` has [sequence, read] of each subject that was read ahead of the main feed: the subject was read up to
      `sequence`, and `read` of its messages, which the main feed has yet to skip, are already counted.
    """

    def __init__(self, counts: dict[str, int], last: int, ends: Mapping[str, int]) -> None:
        self.incomplete = {subject.encode(): count for subject, count in counts.items() if count > 0}
        self._ends = {subject.encode(): end for subject, end in ends.items()}
        self.last = self.tail = last
        self._ahead: dict[bytes, list[int]] = {}

    def smallest(self, most: int) -> list[bytes]:
        """Up to `most` subjects, in rising order of the messages that remain."""
        return [subject for subject, _ in sorted(self.incomplete.items(), key=itemgetter(1))[:most]]

    def ahead(self, subject: bytes) -> int:
        """The sequence up to which a subject was read ahead of the feed; 0 if it wasn't."""
        return self._ahead[subject][0] if subject in self._ahead else 0

    def note_ahead(self, subject: bytes, sequence: int) -> None:
        """Count a message that was read ahead of the feed. The feed will skip it, and all earlier messages
        of the subject.
        """
        read = self._ahead.get(subject, [0, 0])[1]
        self._ahead[subject] = [sequence, read + 1]
        self._note_arrival(subject, sequence)

    def mark_complete(self, subject: bytes) -> None:
        """Complete a subject's backlog; the feed will skip the rest of it."""
        self._ahead[subject] = [self.last, 0]
        self.incomplete.pop(subject, None)

    def should_skip(self, subject: bytes, sequence: int) -> bool:
        """Whether to skip a message of the feed, because it or a later one of its subject was read ahead. Counts the
        message, unless `note_ahead` has counted it already.
        """
        ahead = self._ahead.get(subject)
        if ahead is None or sequence > ahead[0]:
            self._note_arrival(subject, sequence)
            return False
        if ahead[1]:
            ahead[1] -= 1  # counted already by `note_ahead`
        else:
            self._note_arrival(subject, sequence)
        return True

    def _note_arrival(self, subject: bytes, sequence: int) -> None:
        left = self.incomplete.get(subject, 0) - 1
        if left > 0 and sequence < self._ends.get(subject, self.last + 1):
            self.incomplete[subject] = left
        else:
            self.incomplete.pop(subject, None)
