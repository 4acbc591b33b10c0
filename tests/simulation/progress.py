"""Watches while a simulation runs that whoever may be handled soon is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.loop import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.history import Item, Run
    from tests.simulation.loop import Actor

_LONG = SECOND // 2


class Progress:
    """Promise "progress": while nothing is wrong, a message's handler starts within `waiting` ns of the last reason why
    it had to wait: its put or due time, the end of the message before it of its key, the delay that its own former
    attempt asked for, a new owner, a paused topic, a handler of half a second or more on its node. So a key that waits
    holds up no other.
    """

    def __init__(self, now: Callable[[], int], fail: Callable[[str, str], None], waiting: int) -> None:
        self._now, self._fail, self._waiting = now, fail, waiting
        self._running: dict[Actor, dict[Run, None]] = {}
        self._long: dict[Actor, int] = {}  # when the last long handler has ended

    def starts(self, what: str, item: Item, run: Run, since: int) -> None:
        """`since` are the other reasons."""
        running = self._running.setdefault(run.node, {})
        since = max(since, self._long.get(run.node, 0), item.chain.opened if item.chain is not None else 0)
        since = max([since, *(other.again for other in item.runs)])
        late = self._now() - since
        if late > self._waiting and all(self._now() - other.start < _LONG for other in running):
            self._fail("progress", f"{what} starts {late / SECOND:.3f} s after it could have")
        running[run] = None

    def ends(self, run: Run) -> None:
        running = self._running.get(run.node, {})
        running.pop(run, None)
        if self._now() - run.start >= _LONG:
            self._long[run.node] = self._now()
