"""Tracks which of a node's streams can't be written, since when, and whether the node can still settle."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.core.ports import Unwritable

_SECOND = 1_000_000_000
_NAMED = 2
_RESTART = "; once there is room, nats-server must be restarted"


class FailureBegan(NamedTuple):
    stream: str
    failure: Unwritable


class FailureEnded(NamedTuple):
    stream: str
    after_s: float


class WriteFailures:
    """The findings of the last look. Without the stream `settle_log` no message can be settled. A failure that may pass
    by itself, such as a leader election, counts from the second look on.

    Invariant: `_found` and `_since` have the same streams, those whose failure counts; `_since` is when it began to
    count (monotonic ns). `_last` has all failures of the last look, counted or not.
    """

    def __init__(self, settle_log: str) -> None:
        self._settle_log = settle_log
        self._streams: Sequence[str] = ()
        self._found: Mapping[str, Unwritable] = {}
        self._since: dict[str, int] = {}
        self._last: Mapping[str, Unwritable] = {}

    def look(
        self, streams: Sequence[str], found: Mapping[str, Unwritable], now: int
    ) -> tuple[list[FailureBegan], list[FailureEnded]]:
        """The changes since the last look, at `now` (monotonic ns). A stream that is no longer in `streams` belongs to
        another node, which doesn't count as an end.
        """
        last, self._last = self._last, found
        found = {stream: failure for stream, failure in found.items() if failure.restart or stream in last}
        began = [FailureBegan(stream, failure) for stream, failure in found.items() if stream not in self._since]
        ended = [
            FailureEnded(stream, (now - since) / _SECOND)
            for stream, since in self._since.items()
            if stream not in found and stream in streams
        ]
        self._streams, self._found = streams, found
        self._since = {stream: self._since.get(stream, now) for stream in found}
        return began, ended

    @property
    def can_settle(self) -> bool:
        return self._settle_log not in self._found

    @property
    def sentence(self) -> str:
        """The failure as a clause to follow the node's name; empty if all streams can be written."""
        if not self._found:
            return ""
        what = "can't write all of its streams" if self.can_settle else "can't settle"
        tail = _RESTART if any(failure.restart for failure in self._found.values()) else ""
        return f"{what}: {self._reason()} ({self._format_streams()}){tail}"

    def _reason(self) -> str:
        """The settle log's reason, or else the most frequent one."""
        if not self.can_settle:
            return self._found[self._settle_log].why
        return Counter(failure.why for failure in self._found.values()).most_common(1)[0][0]

    def _format_streams(self) -> str:
        """The first streams by name, the settle log first."""
        names = sorted(self._found, key=lambda stream: (stream != self._settle_log, stream))
        more = len(names) - _NAMED
        named = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{named} of {len(self._streams)} streams"
