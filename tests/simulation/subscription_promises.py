"""Checks the promises for a named subscription (K10, L), and tells each cluster's checkers what concerns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from tests.simulation.promises import Promises

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.core.records.settle_record import SettleRecord
    from evenlane.engine.store.memory.stream import MemoryStream
    from tests.support.promises.history import Item, Line

_SHARED = tuple(kind.upper() for kind in names.SHARED_KINDS)


class SubscriptionPromises(Promises):
    """The checkers for a named subscription. `since` (unix ns) is when its creation began; 0: it hasn't.

    In each shared stream the subscription begins with the first record of its settle log. It doesn't get what was
    removed before, nor what is up to that record's watermark; from then on nothing may be removed that it hasn't
    settled. Nor does it get copies of other subscriptions (retries), and delayed messages that were due before `since`.

    Of the puts, those count as acknowledged which began after the acknowledgement of the creation.
    """

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.since = 0
        self._begun: set[str] = set()  # shared streams

    def _passes_over(self, stream: str, origin: str | None) -> bool:
        return origin is not None and stream.startswith(_SHARED)

    def _may_be_over(self, item: Item) -> bool:
        return super()._may_be_over(item) or self._was_due_before(item)

    def _was_due_before(self, item: Item) -> bool:
        return item.is_delayed and 0 < max(item.due, item.at) < self.since

    def _starts_passed_over(self, item: Item) -> bool:
        return item.passed_over or self._was_due_before(item)

    def _over(self, what: str, item: Item) -> None:
        if not self._was_due_before(item):
            super()._over(what, item)
            return
        self.ended.add(item.uid)
        self.counts["due before"] += 1

    def _recorded(self, line: Line, record: SettleRecord) -> None:
        """The first record of a log, which a creator writes, says where the subscription begins."""
        if record.epoch == 0:
            for sequence, item in line.items.items():
                item.passed_over = item.finished = item.passed_over or sequence <= record.watermark

    def logged(self, subject: str, raw: bytes) -> None:
        _, cluster, kind, partition = subject.split(".")
        self._begun.add(f"{kind.upper()}_{names.env_of(cluster)}_{partition}")
        super().logged(subject, raw)

    def removing(self, stream: MemoryStream, sequences: list[int]) -> None:
        if not stream.name.startswith(_SHARED) or stream.name in self._begun:
            super().removing(stream, sequences)
            return
        items = self.line(stream.name).items
        for sequence in sequences:
            items[sequence].passed_over = items[sequence].finished = items[sequence].settled = True


class Witnesses:
    """Tells the checkers of each cluster (`of`) what the server has carried out, as far as it concerns them: a shared
    stream concerns all, any other stream one.
    """

    def __init__(self, of: Mapping[str, Promises]) -> None:
        self._of = of

    def _concerned(self, stream: str) -> list[Promises]:
        if stream.startswith(_SHARED):
            return [*self._of.values()]
        one = self._of.get(stream.partition("_")[2])
        return [] if one is None else [one]

    def stored(self, stream: MemoryStream, receipt: Receipt, subject: str, headers: bytes) -> None:
        for promises in self._concerned(stream.name):
            promises.stored(stream, receipt, subject, headers)

    def logged(self, subject: str, record: bytes) -> None:
        self._of[subject.split(".")[1]].logged(subject, record)

    def removing(self, stream: MemoryStream, sequences: list[int]) -> None:
        for promises in self._concerned(stream.name):
            promises.removing(stream, sequences)
