"""The trace of a load: when each message was put, started and ended, and on which node."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from evenlane.engine.proof.load.placement import place_on_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.engine.proof.load.load import Load
    from evenlane.engine.proof.load.placement import Placement

NEVER = -1
_PRIORITIES = ("high", "mid", "low")


class Trace:
    """Columns that extend those of the load, in ns on the load's clock; NEVER for events that didn't happen.

    On the simulator a message is put at its arrival. On the broker `put` is the instant at which its put was sent, and
    `started` and `ended` are the handler's first and last statements.
    """

    def __init__(self, load: Load, put: array[int] | None = None, where: Placement | None = None) -> None:
        self.load, self.where = load, where or place_on_one(load.cluster_config)
        self.put = array("q", load.at if put is None else put)
        self.started = array("q", [NEVER]) * len(load)
        self.ended = array("q", [NEVER]) * len(load)
        self.node = array("b", [NEVER]) * len(load)
        """The number of the node on which each one started."""
        self.figures: dict[str, float] = {}
        """Figures that the runner itself measured, such as how late its clock ran."""

    def was_handled(self, number: int) -> bool:
        """Whether the message had ended before the end of the load's time."""
        return NEVER != self.ended[number] <= self.load.until

    def lines(self, priorities: Sequence[str] = _PRIORITIES) -> Iterator[str]:
        """Every event on a line, in order of time: `12.345 acme/0/high start`, in seconds; where there are several
        nodes, with the node's number: `12.345 acme/0/high start on 2`.
        """
        columns = (("put", self.put), ("start", self.started), ("end", self.ended))
        order = {"end": 0, "put": 1, "start": 2}
        events = [(at, order[event], n, event) for event, column in columns for n, at in enumerate(column)]
        for at, _rank, n, event in sorted(events):
            if at != NEVER:
                load = self.load
                queue = f"{load.tenants[load.tenant[n]].name}/{load.group[n]}/{priorities[load.band[n]]}"
                where = f" on {self.node[n]}" if self.where.nodes > 1 and event != "put" else ""
                yield f"{at / 1e9:.3f} {queue} {event}{where}"
