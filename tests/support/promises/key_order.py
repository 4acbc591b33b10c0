"""Checks the order of the keys of ordered topics (K6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.promises.history import Chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.promises.history import Item, Run


class KeyOrder:
    """Promise "order". For the messages of one key and one priority in an ordered topic:

    1. The handler of a message starts only when every message that was put before it into the lane has ended finally:
       a handler returned, its dead letter is stored, it has expired, or it may be dropped.
    2. Under one epoch, handlers start in put order: the owner doesn't start a message again after a later one. A later
       owner may repeat what its predecessor had not made durable (promise D says when), again in put order.
    3. No handler starts while another one of the key runs, for the same message or for another. Handlers in a process
       that is dead, or whose lease has ended, are exempt: nothing can stop them. A handoff is no exemption.
    4. A failing message keeps its place: no copy of it is put for a later attempt.

    Delayed messages get their place when they are due, so rules 1 and 2 don't hold for them. No rule holds for
    messages that a stream held before it was replaced or rolled back, for messages without a key, or in topics that
    aren't ordered.
    """

    def __init__(
        self,
        now: Callable[[], int],
        covers: Callable[[int, int], bool],
        fail: Callable[[str, str], None],
        is_over: Callable[[Item], bool] = lambda _item: False,
    ) -> None:
        """`covers(epoch, lease)` says whether a run under them is exclusive still. `is_over` says whether a message may
        have ended without a handler: expired, or dropped.
        """
        self._now, self._covers, self._fail, self._is_over = now, covers, fail, is_over
        self._chains: dict[tuple[str, str, str], Chain] = {}

    def put(self, key: tuple[str, str, str], item: Item, *, delayed: bool = False) -> None:
        """A message is stored. `key` is project, key and priority."""
        chain = item.chain = self._chains.setdefault(key, Chain())
        if delayed:
            return
        if chain.open == len(chain.items):
            chain.opened = self._now()
        item.place = len(chain.items)
        chain.items.append(item)

    def discard(self, items: Iterable[Item]) -> None:
        """The stream of these messages was replaced or rolled back."""
        for item in items:
            if item.chain is not None:
                item.chain.clear()
                item.chain, item.place = None, -1

    def begin_again(self, items: Iterable[Item]) -> None:
        """These messages, all of their lane in put order, come again. Handlers that run still count for rule 3."""
        begun: set[int] = set()
        for item in items:
            chain = item.chain
            if chain is None or item.place < 0:
                continue
            if id(chain) not in begun:
                begun.add(id(chain))
                running = chain.runs
                chain.clear()
                chain.runs, chain.opened = running, self._now()
            item.place = len(chain.items)
            chain.items.append(item)

    def copied(self, item: Item) -> None:
        """A copy of the message is stored for a later attempt."""
        if item.chain is not None:
            self._fail("order", f"{item.uid} is put for a later attempt, although its key is ordered")

    def starts(self, what: str, item: Item, run: Run) -> None:
        chain = item.chain
        if chain is None:
            return
        self._check_alone(what, chain)
        chain.runs.append((item, run))
        if item.place < 0:
            return
        self._advance(chain)
        if item.place > chain.open:
            before = chain.items[chain.open]
            self._fail("order", f"{what} starts, although {before.uid} was put before it and hasn't ended")
        elif item.place < chain.furthest.get(run.epoch, 0):
            after = chain.items[chain.furthest[run.epoch]]
            self._fail("order", f"{what} starts after {after.uid}, which was put later, under the same epoch")
        chain.furthest[run.epoch] = item.place

    def ended(self, item: Item) -> None:
        """The message may have ended finally."""
        if item.chain is not None:
            self._advance(item.chain)

    def _check_alone(self, what: str, chain: Chain) -> None:
        chain.runs = [
            (other, run)
            for other, run in chain.runs
            if run.end is None and not run.node.dead and self._covers(run.epoch, run.lease)
        ]
        for other, run in chain.runs:
            self._fail("order", f"{what} starts, while {other.uid} of the same key runs on {run.node}")

    def _advance(self, chain: Chain) -> None:
        while chain.open < len(chain.items):
            item = chain.items[chain.open]
            if not (item.finished or item.settled or self._is_over(item)):
                return
            chain.open += 1
            chain.opened = self._now()
