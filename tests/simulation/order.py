"""Watches over the order of an ordered topic's keys while a simulation runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.wire import headers as h
from tests.simulation.history import Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.history import Item, Run


class Chain:
    """One key's messages of one priority. `items` are those of the lane in put order; `open` is the first of them that
    hasn't ended, `opened` since when it is.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.open = self.opened = 0
        self.runs: list[tuple[Item, Run]] = []  # handlers that haven't ended
        self.furthest: dict[int, int] = {}  # the place of the last message begun under an epoch


class Order:
    """Promise "order". Of one key's messages of one priority, in an ordered topic:

    1. A message's handler starts only when every message of the key put before it into the lane has ended for good:
       a handler of it has returned, or its dead letter is stored, or its time to live is over, or it may be dropped.
    2. Under one epoch, handlers start in put order: what has once been passed is not begun again by this owner. A later
       owner may repeat what its predecessor had not made durable (D says when), in put order again.
    3. No handler starts while another one of the key runs, of the same message or of another; but for those that run on
       in a process that is dead or whose lease has ended: nobody can stop these. A hand-over is no excuse.
    4. A failing message stays where it is: no copy of it is put for a later attempt.

    Delayed messages take their place when they are due, so of 1 and 2 they are free. A stream that was replaced or
    rolled back promises nothing of what was put before. Messages without key, and topics that aren't ordered, are
    promised nothing of this.
    """

    def __init__(
        self,
        now: Callable[[], int],
        covers: Callable[[int, int], bool],
        fail: Callable[[str, str], None],
        topics: Mapping[str, Rules],
    ) -> None:
        self._now, self._covers, self._fail, self._topics = now, covers, fail, topics
        self._chains: dict[tuple[str, str, str], Chain] = {}

    def put(self, subject: str, headers: bytes, item: Item) -> None:
        """A message is stored in a lane or a later stream."""
        key = h.value(headers, h.KEY)
        kind, _, _, project, _, priority = subject.split(".")[:6]
        if key is None or not self._topics.get(project, Rules()).ordered:
            return
        chain = self._chains.setdefault((project, key, priority), Chain())
        item.chain = chain
        if kind == "lanes":
            if chain.open == len(chain.items):
                chain.opened = self._now()
            item.place = len(chain.items)
            chain.items.append(item)

    def cut_back(self, items: list[Item]) -> None:
        """The stream of these was replaced or rolled back."""
        for item in items:
            if item.chain is not None:
                item.chain.__init__()  # type: ignore[misc]
                item.chain, item.place = None, -1

    def copied(self, item: Item) -> None:
        """A copy of it for a later attempt is stored."""
        if item.chain is not None:
            self._fail("order", f"{item.uid} is put for a later attempt, though its key has an order")

    def starts(self, what: str, item: Item, run: Run, over: Callable[[Item], bool]) -> None:
        chain = item.chain
        if chain is None:
            return
        self._check_alone(what, chain)
        chain.runs.append((item, run))
        if item.place < 0:
            return
        self._advance(chain, over)
        if item.place > chain.open:
            before = chain.items[chain.open]
            self._fail("order", f"{what} starts, though {before.uid} was put before it and hasn't ended")
        elif item.place < chain.furthest.get(run.epoch, 0):
            after = chain.items[chain.furthest[run.epoch]]
            self._fail("order", f"{what} starts, though {after.uid} after it has begun under the same epoch")
        chain.furthest[run.epoch] = item.place

    def _check_alone(self, what: str, chain: Chain) -> None:
        chain.runs = [
            (other, run)
            for other, run in chain.runs
            if run.end is None and not run.node.dead and self._covers(run.epoch, run.lease)
        ]
        for other, run in chain.runs:
            self._fail("order", f"{what} starts, while {other.uid} of the same key runs on {run.node}")

    def _advance(self, chain: Chain, over: Callable[[Item], bool]) -> None:
        while chain.open < len(chain.items):
            item = chain.items[chain.open]
            if not (item.finished or item.settled or over(item)):
                return
            chain.open += 1
            chain.opened = self._now()

    def ended(self, item: Item, over: Callable[[Item], bool]) -> None:
        """It may be the turn of the next."""
        if item.chain is not None:
            self._advance(item.chain, over)
