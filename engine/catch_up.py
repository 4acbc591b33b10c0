"""The backlog of a lane that was taken over: its feed brings it, while a tail feed brings what comes after. Pure."""

from __future__ import annotations

from operator import itemgetter


class CatchUp:
    """`counts` tells how much of each subject is to come, up to the sequence `last`; the tail feed begins behind it and
    has come to `tail`. `incomplete` are subjects of which more is to come: what the tail brings of them has to wait.
    """

    def __init__(self, counts: dict[str, int], last: int) -> None:
        self.incomplete = {subject.encode(): count for subject, count in counts.items() if count > 0}
        self.tail = last
        self._ahead: set[bytes] = set()

    def smallest(self, most: int) -> list[tuple[bytes, int]]:
        """Up to so many subjects with the least to come, and how much."""
        return sorted(self.incomplete.items(), key=itemgetter(1))[:most]

    def take_ahead(self, subject: bytes) -> None:
        """What is to come of it is found by its subject instead."""
        self._ahead.add(subject)
        del self.incomplete[subject]

    def passes_over(self, subject: bytes) -> bool:
        """A message of the backlog has come in: whether it is found by its subject instead."""
        if subject in self._ahead:
            return True
        left = self.incomplete.get(subject, 0) - 1
        if left > 0:
            self.incomplete[subject] = left
        else:
            self.incomplete.pop(subject, None)
        return False
