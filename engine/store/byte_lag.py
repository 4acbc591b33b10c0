"""When a feed leaves the bodies of messages in the stream (docs/adr/0029). Pure.

A feed reads its stream in order. Where one project puts large messages faster than their bodies can be read, whatever
the others put would wait behind all of them. Such a feed reads only the headers: a queue reads its bodies by sequence
when its turn is near, and for what has little to read that is soon.
"""

from __future__ import annotations

_LARGE = 32 << 10  # bytes of a message, on average: one below costs less with its body than read again by sequence
LAG_BYTES = 16 << 20  # that wait in the stream: below them, reading on with bodies delays nobody for long
_TURNS = 4  # in a row that say so: a single large message before many small ones is no flood
_FLOOD = 16 << 20  # bytes a second, with which any feed keeps up
_CALM = 3  # seconds below it


class ByteLag:
    """Of one feed. `leaves_bodies` is what it decides; each of its methods says whether that has changed."""

    def __init__(self) -> None:
        self.leaves_bodies = False
        self._turns = 0  # in a row that say that it lags
        self._left = self._messages = 0  # bytes that were left in the stream since the last second, and of how many
        self._calm = 0  # seconds

    def came(self, messages: int, size: int, pending: int) -> bool:
        """A pull has brought so many messages of `size` bytes together, and so many more wait behind them."""
        if self.leaves_bodies or not messages:
            return False
        mean = size // messages
        self._turns = self._turns + 1 if mean >= _LARGE and mean * pending >= LAG_BYTES else 0
        return self._turns >= _TURNS and self._decide(leaves_bodies=True)

    def left(self, size: int) -> None:
        """The body of a message was left in the stream."""
        self._left += size
        self._messages += 1

    def second_passed(self) -> bool:
        """To be told once a second."""
        if not self.leaves_bodies:
            return False
        is_flood = self._left >= _FLOOD and self._left >= self._messages * _LARGE
        self._calm = 0 if is_flood else self._calm + 1
        self._left = self._messages = 0
        return self._calm >= _CALM and self.needs_body()

    def needs_body(self) -> bool:
        """The next message is wanted with its body."""
        return self.leaves_bodies and self._decide(leaves_bodies=False)

    def _decide(self, *, leaves_bodies: bool) -> bool:
        self.leaves_bodies = leaves_bodies
        self._turns = self._left = self._messages = self._calm = 0
        return True
