"""Decides when a feed leaves the bodies of messages in the stream (docs/adr/0029). Pure.

A feed reads its stream in order. Where one project puts large messages faster than their bodies can be read, all
messages of other projects would wait behind them. Such a feed reads only the headers. A queue then reads its bodies by
sequence when its turn is near, which is soon for a queue with little to read.
"""

from __future__ import annotations

_LARGE = 32 << 10  # bytes, on average; a smaller message costs less with its body than if it is read again
LAG_BYTES = 16 << 20  # waiting in the stream; reading fewer with bodies causes no long delay
_LAGGING_PULLS = 4  # lagging pulls in a row: a single large message before many small ones isn't a flood
_FLOOD = 16 << 20  # bytes per second; any feed keeps up with less
_CALM = 3  # seconds below _FLOOD until bodies are read again


class ByteLag:
    """The decision of one feed: `leaves_bodies`. Each method that can change the decision returns whether it did."""

    def __init__(self) -> None:
        self.leaves_bodies = False
        self._lagging = 0  # lagging pulls in a row
        self._left = self._messages = 0  # bytes, and messages, left in the stream since the last second
        self._calm = 0  # seconds

    def note_pull(self, messages: int, size: int, pending: int) -> bool:
        """A pull has brought `messages` messages of `size` bytes together, and `pending` more wait behind them."""
        if self.leaves_bodies or not messages:
            return False
        mean = size // messages
        self._lagging = self._lagging + 1 if mean >= _LARGE and mean * pending >= LAG_BYTES else 0
        return self._lagging >= _LAGGING_PULLS and self._decide(leaves_bodies=True)

    def note_left(self, size: int) -> None:
        """The body of a message, of `size` bytes, was left in the stream."""
        self._left += size
        self._messages += 1

    def on_second(self) -> bool:
        """Call this once per second."""
        if not self.leaves_bodies:
            return False
        is_flood = self._left >= _FLOOD and self._left >= self._messages * _LARGE
        self._calm = 0 if is_flood else self._calm + 1
        self._left = self._messages = 0
        return self._calm >= _CALM and self.require_body()

    def require_body(self) -> bool:
        """The next message must come with its body."""
        return self.leaves_bodies and self._decide(leaves_bodies=False)

    def _decide(self, *, leaves_bodies: bool) -> bool:
        self.leaves_bodies = leaves_bodies
        self._lagging = self._left = self._messages = self._calm = 0
        return True
