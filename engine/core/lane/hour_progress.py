"""Tracks how far each hour of a delay stream is settled, so that the next owner needn't feed all of it again. Pure.

Delay streams are fed hour by hour. A stream keeps settled messages as long as another subscription needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.names import due_hour

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class HourProgress:
    """The progress of the hours of one stream. An hour is the due time in whole hours since 1970. Without `tracks`
    nothing is known of any hour.

    Invariants:
    - All messages of an hour up to `_last[hour]` were delivered. Its feed delivers in stream order.
    - `_open` has the hour of each delivered message that isn't settled durably.

    `repeated` counts messages that were settled before they were delivered: the log should say that they needn't be.
    """

    def __init__(self, positions: Mapping[int, int] | None = None, *, tracks: bool = True) -> None:
        self._tracks = tracks
        self._last: dict[int, int] = {**positions} if positions else {}
        self._open: dict[int, int] = {}
        self.repeated = 0

    def note(self, subject: bytes, sequence: int, *, settled: bool) -> None:
        """Note a delivered message, and whether it is settled already."""
        if not self._tracks:
            return
        word = subject[subject.rfind(b".") + 1 :]
        hour = due_hour(word.decode()) if word.isdigit() else None
        if hour is None:
            return  # it is fed from the beginning
        self._last[hour] = max(sequence, self._last.get(hour, 0))
        if settled:
            self.repeated += 1
        else:
            self._open[sequence] = hour

    def note_settled(self, sequences: Iterable[int]) -> None:
        """Note messages that are settled durably."""
        if self._open:
            for sequence in sequences:
                self._open.pop(sequence, None)

    def retain(self, hours: Collection[int]) -> None:
        """Forget all hours but these: the stream has no messages of them."""
        self._last = {hour: last for hour, last in self._last.items() if hour in hours}

    def positions(self) -> dict[int, int]:
        """The sequence up to which all messages of each hour are settled."""
        found = {**self._last}
        for sequence, hour in self._open.items():
            if sequence <= found.get(hour, 0):
                found[hour] = sequence - 1
        return found

    def find_start(self, hours: Iterable[int | None]) -> int:
        """The sequence from which on a feed of these hours must deliver; None is a word that isn't an hour."""
        settled = self.positions()
        return 1 + min((0 if hour is None else settled.get(hour, 0) for hour in hours), default=0)
