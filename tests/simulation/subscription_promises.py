"""Checks the promises for a named subscription (K10, L), and tells each cluster's checkers what concerns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.core.records import settle_record
from tests.simulation.promises import Promises

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.core.records.settle_record import SettleRecord
    from evenlane.engine.store.memory.stream import MemoryStream
    from tests.support.promises.history import How, Item, Line, Run

_SHARED = tuple(kind.upper() for kind in names.SHARED_KINDS)


class SubscriptionPromises(Promises):
    """The checkers for a named subscription. `since` (unix ns) is when its creation began; 0: it hasn't.

    In each shared stream the subscription begins with the first record of its settle log. It doesn't get what was
    removed before, nor what is up to that record's watermark; from then on nothing may be removed that it hasn't
    settled. Nor does it get copies of other subscriptions (retries), and delayed messages that were due before `since`.

    A reset is acknowledged once. From the acknowledgement on, everything that is stored and was stored at `start` (unix
    ns) or later must be handled again, and may not be removed before. In a lane, that already holds from the first
    record on that follows the reset, but owners may remove messages until the acknowledgement. `reset` (unix ns) is
    that in the registry.

    Of the puts, those count as acknowledged which began after the acknowledgement of the creation.
    """

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.since = self.start = self.reset = 0
        self._since_before = 0  # the last reset
        self._begun: set[str] = set()  # shared streams
        self._acknowledged = 0  # the last reset that is
        self._resets: dict[str, int] = {}  # by shared stream: the reset that holds for its messages
        self._recorded_resets: dict[str, int] = {}  # ... and that of the last record
        self._foreign: set[int] = set()  # ids of items: copies of other subscriptions
        self._removed: dict[str, set[int]] = {}

    def _passes_over(self, stream: str, origin: str | None) -> bool:
        return origin is not None and stream.startswith(_SHARED)

    def _may_be_over(self, item: Item) -> bool:
        return super()._may_be_over(item) or self._was_due_before(item)

    def _was_due_before(self, item: Item) -> bool:
        return item.is_delayed and 0 < max(item.due, item.at) < self.since

    def _starts_passed_over(self, item: Item) -> bool:
        return item.passed_over or self._was_due_before(item)

    def _over(self, what: str, item: Item) -> None:
        if what.startswith("AGAIN") and self._skips and item.at < self.reset:
            self.ended.add(item.uid)
            self.counts["retries skipped"] += 1
            return
        is_reset = self._resets.get(what.partition(" ")[0], 0) >= self.reset
        if not (self._was_due_before(item) or (not is_reset and 0 < max(item.due, item.at) < self._since_before)):
            super()._over(what, item)
            return
        self.ended.add(item.uid)
        self.counts["due before"] += 1

    def stored(self, stream: MemoryStream, receipt: Receipt, subject: str, headers: bytes) -> None:
        super().stored(stream, receipt, subject, headers)
        item = self.line(stream.name).items.get(receipt.sequence)
        if item is not None and item.passed_over:
            self._foreign.add(id(item))

    # ---- resets

    def look(self, since: int, start: int, reset: int) -> None:
        """The registry says so."""
        if reset != self.reset:
            self._since_before = self.since
        self.since, self.start, self.reset = since, start, reset

    @property
    def _skips(self) -> bool:
        """Whether the last reset is to new messages."""
        return 0 < self.reset <= self.start

    def acknowledge_reset(self) -> None:
        """The reset in the registry is acknowledged."""
        self._acknowledged = self.reset
        for name in [name for name in self.lines if name.startswith(_SHARED)]:
            if self._resets.get(name, 0) < self.reset:
                self._begin_again(name, None)

    def _begin_again(self, name: str, watermark: int | None) -> None:
        """The messages above the watermark come again; None: those that are stored since `start`."""
        line, removed = self.line(name), self._removed.setdefault(name, set())
        there = {sequence: item for sequence, item in line.items.items() if sequence not in removed}
        since = [s for s, item in there.items() if item.at >= self.start]
        if name.startswith("LATER"):
            watermark = 0
        elif watermark is None:
            watermark = min(since, default=max(line.items, default=0) + 1) - 1
        elif not self._skips and not line.broken:
            for sequence in since:
                if sequence <= watermark and id(there[sequence]) not in self._foreign:
                    self.fail("L", f"{name} {sequence} ({there[sequence].uid}) is skipped by a reset to before it")
        self._resets[name], line.settled_to = self.reset, watermark
        again = []
        for sequence, item in there.items():
            if sequence <= watermark:
                item.passed_over = item.finished = item.settled = True
                self.ended.add(item.uid)
                continue
            item.settled = False
            if id(item) not in self._foreign and not self._was_due_before(item):
                item.passed_over = item.finished = False
                item.runs, item.blamed = [], []
                self.ended.discard(item.uid)
                self.attempts.mark_stale(item.uid)
                again.append(item)
        self.counts["reset lanes"] += 1
        self.counts["again"] += len(again)
        self._order.begin_again(again)

    def ends(self, message: Message, run: Run, how: How, after: float = 0) -> None:
        item = self.line(message.stream).items.get(message.sequence)
        if item is None or item.uid != message.id or any(each is run for each in item.runs):
            super().ends(message, run, how, after)
            return
        run.end, run.how = self._loop.now, how  # it was started before a reset: the result is void
        self._progress.ends(run)
        self.counts["void since a reset"] += 1

    def cut_back(self, name: str, above: int) -> None:
        self._removed[name] = {each for each in self._removed.get(name, ()) if each <= above}
        super().cut_back(name, above)

    def _recorded(self, line: Line, record: SettleRecord) -> None:
        """The first record of a log, which a creator writes, says where the subscription begins; the first one that
        follows a reset, where it begins again.
        """
        name = next(name for name, each in self.lines.items() if each is line)
        if name.startswith(_SHARED) and record.reset > self._recorded_resets.get(name, 0):
            self._recorded_resets[name] = record.reset
            self._begin_again(name, record.watermark)
        if record.epoch == 0:
            for sequence, item in line.items.items():
                item.passed_over = item.finished = item.passed_over or sequence <= record.watermark

    def logged(self, subject: str, raw: bytes) -> None:
        _, cluster, kind, partition = subject.split(".")
        name = f"{kind.upper()}_{names.env_of(cluster)}_{partition}"
        self._begun.add(name)
        if settle_record.decode(raw).reset >= self._resets.get(name, 0):  # otherwise it says nothing any more
            super().logged(subject, raw)

    def removing(self, stream: MemoryStream, sequences: list[int]) -> None:
        self._removed.setdefault(stream.name, set()).update(sequences)
        if not stream.name.startswith(_SHARED):
            super().removing(stream, sequences)
            return
        if stream.name in self._begun and self._resets.get(stream.name, 0) <= self._acknowledged:
            super().removing(stream, sequences)
            return
        items = self.line(stream.name).items
        for sequence in sequences:
            if self._resets.get(stream.name, 0):
                items[sequence].finished = items[sequence].settled = True
                self.ended.add(items[sequence].uid)
            else:
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
