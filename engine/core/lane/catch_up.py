"""The backlog of a lane that was taken over: its feed brings it, while a tail feed brings what comes after. Pure."""

from __future__ import annotations

from operator import itemgetter


class CatchUp:
    """`counts` tells how much of each subject is to come, up to the sequence `last`; the tail feed begins behind it and
    has come to `tail`. `incomplete` are subjects of which more is to come: what the tail brings of them has to wait.
    """

    def __init__(self, counts: dict[str, int], last: int) -> None:
        self.incomplete = {subject.encode(): count for subject, count in counts.items() if count > 0}
        self.last = self.tail = last
        self._ahead: dict[bytes, list[int]] = {}  # up to which sequence a subject was read, and how many that were

    def smallest(self, most: int) -> list[bytes]:
        """The subjects with the least to come, at most `most`."""
        return [subject for subject, _ in sorted(self.incomplete.items(), key=itemgetter(1))[:most]]

    def ahead(self, subject: bytes) -> int:
        """The sequence up to which it was read ahead of the feed."""
        return self._ahead[subject][0] if subject in self._ahead else 0

    def came_ahead(self, subject: bytes, sequence: int) -> None:
        """It has come in ahead of the feed, which passes over it and whatever it has of the subject before it."""
        read = self._ahead.get(subject, [0, 0])[1]
        self._ahead[subject] = [sequence, read + 1]
        self._came(subject)

    def all_came(self, subject: bytes) -> None:
        """Nothing more of it is to come, whatever the feed has of it."""
        self._ahead[subject] = [self.last, 0]
        self.incomplete.pop(subject, None)

    def passes_over(self, subject: bytes, sequence: int) -> bool:
        """Whether a message that the feed brings was read ahead of it, or lies before one that was."""
        ahead = self._ahead.get(subject)
        if ahead is None or sequence > ahead[0]:
            self._came(subject)
            return False
        if ahead[1]:
            ahead[1] -= 1  # one that has been counted, or another one that it stands for
        else:
            self._came(subject)
        return True

    def _came(self, subject: bytes) -> None:
        left = self.incomplete.get(subject, 0) - 1
        if left > 0:
            self.incomplete[subject] = left
        else:
            self.incomplete.pop(subject, None)
