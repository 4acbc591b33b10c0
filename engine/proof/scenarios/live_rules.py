"""What shows the new rule, for each change of `live`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios import live_figures as figures
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.proof.scenarios.live_load import LOW, LOW_QPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.live_edits import Edit
    from evenlane.engine.proof.scenarios.live_figures import Marks, Seen

    Latency = Callable[[Edit, Marks, set[str], int], list[Seen]]

_INTERVAL = int(SECOND / LOW_QPS)  # of the low quota on a node that has all of it; one that comes late may be closer
_WEIGHT_GAP = SECOND // 10  # 50 times the weight: 16 ms; the low one: seconds
_ROW = 3  # starts close to one another, to tell the higher rate from chance


class Rules:
    """`records` are those of topics that are edited; `starts` all their begins, `low` those of the lower band."""

    def __init__(self, records: Iterable[Record]) -> None:
        records = list(records)
        self.starts = figures.starts(records)
        self.low = figures.starts(records, lambda each: each.band == LOW)
        first, last, mostly_last = figures.until_first, figures.until_last, partial(figures.until_last, strict=False)
        beside = figures.beside(records)
        self._of: Mapping[str, tuple[Latency, Marks]] = {
            "pause": (last, self.starts),
            "resume": (first, self.starts),
            "quota down": (last, figures.close(self.starts, _INTERVAL // 2)),
            "quota up": (first, figures.close(self.starts, _INTERVAL, _ROW)),
            "concurrency down": (last, beside),
            "concurrency up": (first, beside),
            "weight down": (mostly_last, figures.close(self.starts, _WEIGHT_GAP)),
            "weight up": (first, figures.close(self.starts, 2 * _WEIGHT_GAP, _ROW)),
            "ageing on": (first, self.low),
            "ageing off": (mostly_last, self.low),
            "delete": (last, self.starts),
            "put back": (first, self.starts),
        }

    def seen(self, edit: Edit, owners: set[str], start: int) -> list[Seen]:
        """The edit's latencies, counted from `start`, on nodes that are owners throughout."""
        latency, marks = self._of[edit.change]
        return latency(edit, marks, owners, start)
