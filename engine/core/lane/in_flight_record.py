"""Encodes the in-flight record: the recorded messages that a process may be handling (X11). Pure.

A message that may have been in flight at a death (engine/core/lane/crash_horizon.py) starts once a record names it. The
record has, by lane and epoch, the sequences that have started or may start. If the process dies, the next owner of a
lane finds there the messages that were in flight.

A record is msgpack: [version, count, suspect, [[kind, partition, epoch, sequences], ...]]. `suspect` is the one message
in it that was in flight at an earlier death. Messages that need no record run at the same time, so a recorded message
can never be known to have run alone: `count` is at least 2, from which an older release concludes that no message is
the certain cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import BusyRecord

VERSION = 1
_KEPT = 256  # idle lanes to keep before they are dropped

_Sequence: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]  # the server's range of sequences
Part: TypeAlias = tuple[str, int, int, list[_Sequence]]  # kind, partition, epoch, sequences
Suspect: TypeAlias = tuple[str, int, int]  # kind, partition, sequence


class InFlightRecord(msgspec.Struct, array_like=True, frozen=True):
    """The record of one process. `count` is the number of messages that it names, but at least 2."""

    version: int
    count: int
    suspect: Suspect | None
    parts: list[Part]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(InFlightRecord)


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
        count = max(2, sum([len(part[3]) for part in parts]))
        if len(self.lanes) > 4 * len(parts) + _KEPT:  # most lanes are idle, or gone
            self.lanes = {lane: of for lane, of in self.lanes.items() if of}
            self._parts = {lane: self._parts[lane] for lane in self.lanes}
        suspect = self.suspect
        suspected = (suspect[0].id.kind, suspect[0].id.partition, suspect[1]) if suspect is not None else None
        return _encoder.encode((VERSION, count, suspected, parts))


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
    for at, record in _readable(records):
        for kind, partition, under, sequences in record.parts:
            if (kind, partition) != lane or under != epoch:
                continue
            for sequence in sequences:
                accused = record.suspect == (kind, partition, sequence)
                found[sequence] = InFlightListing(sequence, counts=True, confirmed=accused, at=at)
    return [found[sequence] for sequence in sorted(found)]


def _readable(records: Iterable[BusyRecord]) -> Iterator[tuple[int, InFlightRecord]]:
    for at, raw in records:
        try:
            record = _decoder.decode(raw)
        except UNREADABLE:
            continue
        if record.version == VERSION:
            yield at, record
