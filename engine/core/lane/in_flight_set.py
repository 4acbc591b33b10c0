"""The recorded messages that a process may be handling (X11), and those that the record of a dead process names. Pure.

engine/core/records/in_flight_record.py describes the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records import in_flight_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import BusyRecord

_KEPT = 256  # idle lanes to keep before they are dropped


class InFlightSet:
    """The recorded messages that a process may be handling, by lane.

    Invariant: `count` is the number of sequences in `lanes`. `_parts` has an entry for each lane of `lanes` and shares
    its set.
    """

    def __init__(self) -> None:
        self.count = 0
        self.lanes: dict[Lane, set[int]] = {}
        self._parts: dict[Lane, tuple[str, int, int, set[int]]] = {}  # the record's parts, ready to encode
        self.suspect: tuple[Lane, int] | None = None

    def in_lane(self, lane: Lane) -> frozenset[int]:
        """The messages of a lane that are in flight."""
        return frozenset(self.lanes.get(lane, ()))

    def add(self, lane: Lane, sequence: int) -> None:
        """Add a message; it may start as soon as a record with it is stored. No effect if it is there."""
        of = self.lanes.get(lane)
        if of is None:
            of = self.lanes[lane] = set()
            self._parts[lane] = (lane.id.kind, lane.id.partition, lane.epoch, of)
        if sequence not in of:
            of.add(sequence)
            self.count += 1

    def remove(self, lane: Lane, sequence: int) -> bool:
        """Remove a message that has ended or won't start, and return whether it was there."""
        of = self.lanes.get(lane)
        if of is None or sequence not in of:
            return False
        of.remove(sequence)
        self.count -= 1
        return True

    def record(self) -> bytes:
        """The record to write now."""
        parts = [part for part in self._parts.values() if part[3]]
        if len(self.lanes) > 4 * len(parts) + _KEPT:  # most lanes are idle, or gone
            self.lanes = {lane: of for lane, of in self.lanes.items() if of}
            self._parts = {lane: self._parts[lane] for lane in self.lanes}
        suspect = self.suspect
        suspected = (suspect[0].id.kind, suspect[0].id.partition, suspect[1]) if suspect is not None else None
        return in_flight_record.encode(suspected, parts)


class InFlightListing(NamedTuple):
    """A message that may have been in flight when its process died, and becomes a suspect.

    `counts`: an in-flight record names it, so an attempt is counted. `confirmed`: it was the record's suspect, and so
    the cause. `at` is the record's time of arrival, unix ns.
    """

    sequence: int
    counts: bool
    confirmed: bool
    at: int


def list_in_flight(records: Iterable[BusyRecord], lane: LaneId, epoch: int) -> list[InFlightListing]:
    """The messages of a lane that the records name under `epoch`, in rising order; unreadable records are skipped.

    Each has an attempt counted, even if the record has a suspect as well: a message without a counted attempt could
    kill its process twice at no cost.
    """
    found: dict[int, InFlightListing] = {}
    for at, raw in records:
        record = in_flight_record.decode(raw)
        if record is None:
            continue
        for kind, partition, under, sequences in record.parts:
            if (kind, partition) != lane or under != epoch:
                continue
            for sequence in sequences:
                accused = record.suspect == (kind, partition, sequence)
                found[sequence] = InFlightListing(sequence, counts=True, confirmed=accused, at=at)
    return [found[sequence] for sequence in sorted(found)]
