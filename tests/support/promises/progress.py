"""Checks that messages start soon once they may."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.promises.history import Item, Process, Run

_SECOND = 1_000_000_000
_LONG = _SECOND // 2


class Progress:
    """Promise "progress" (W): while nothing is wrong, the handler of a message starts within `waiting` ns of the last
    reason to wait: its put or due time, the end of the message before it of its key, the delay that its previous
    attempt asked for, a new owner, a paused topic, a handler of half a second or more on its node. So a waiting key
    holds up no other key.
    """

    def __init__(self, now: Callable[[], int], fail: Callable[[str, str], None], waiting: int) -> None:
        self._now, self._fail, self._waiting = now, fail, waiting
        self._running: dict[Process, dict[Run, None]] = {}
        self._long: dict[Process, int] = {}  # when the last long handler ended

    def starts(self, what: str, item: Item, run: Run, since: int) -> None:
        """`since` is the latest of the reasons that this checker doesn't know."""
        running = self._running.setdefault(run.node, {})
        since = max(since, self._long.get(run.node, 0), item.chain.opened if item.chain is not None else 0)
        since = max([since, *(other.again for other in item.runs)])
        late = self._now() - since
        if late > self._waiting and all(self._now() - other.start < _LONG for other in running):
            self._fail("progress", f"{what} starts {late / _SECOND:.3f} s late")
        running[run] = None

    def ends(self, run: Run) -> None:
        running = self._running.get(run.node, {})
        running.pop(run, None)
        if self._now() - run.start >= _LONG:
            self._long[run.node] = self._now()
