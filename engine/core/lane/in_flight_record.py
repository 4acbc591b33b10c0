"""The in-flight record: what a process may be handling of what may have killed another one (X11). Pure.

A message that may have been in flight at a death (engine/core/lane/crash_horizon.py) starts once a record names it. The
record holds, by lane and epoch, the sequences that have started or may start; if the process dies, the next owner of a
lane finds there what was in flight. A record is msgpack: [version, count, suspect, [[kind, partition, epoch,
sequences], ...]], with `suspect` the one message in it that was in flight at an earlier death. Messages that need no
record run beside these, so that nobody can be the only one: `count` is 2 at the least, by which an older release takes
nobody for the cause.
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
_KEPT = 256  # lanes

_Sequence: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]  # as a server takes it for one
Part: TypeAlias = tuple[str, int, int, list[_Sequence]]  # kind, partition, epoch, sequences
Suspect: TypeAlias = tuple[str, int, int]  # kind, partition, sequence


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One process's; `count` is how many messages it names, and 2 if they are fewer."""

    version: int
    count: int
    suspect: Suspect | None
    parts: list[Part]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class InFlightSet:
    """What a process may be handling of what is recorded: `lanes` has the sequences by lane, `count` of them in all."""

    def __init__(self) -> None:
        self.count = 0
        self.lanes: dict[Lane, set[int]] = {}
        self._parts: dict[Lane, tuple[str, int, int, set[int]]] = {}  # of the record, as it is encoded
        self.suspect: tuple[Lane, int] | None = None

    def of(self, lane: Lane) -> frozenset[int]:
        """What of a lane is in flight."""
        return frozenset(self.lanes.get(lane, ()))

    def add(self, lane: Lane, sequence: int) -> None:
        """It may start as soon as a record with it is safe; no effect if it is there."""
        of = self.lanes.get(lane)
        if of is None:
            of = self.lanes[lane] = set()
            self._parts[lane] = (lane.id.kind, lane.id.partition, lane.epoch, of)
        if sequence not in of:
            of.add(sequence)
            self.count += 1

    def remove(self, lane: Lane, sequence: int) -> bool:
        """It has ended, or won't start. Whether it was there."""
        of = self.lanes.get(lane)
        if of is None or sequence not in of:
            return False
        of.remove(sequence)
        self.count -= 1
        return True

    def record(self) -> bytes:
        """What is to be written now."""
        parts = [part for part in self._parts.values() if part[3]]
        count = max(2, sum([len(part[3]) for part in parts]))
        if len(self.lanes) > 4 * len(parts) + _KEPT:  # most of them have been idle, or are gone
            self.lanes = {lane: of for lane, of in self.lanes.items() if of}
            self._parts = {lane: self._parts[lane] for lane in self.lanes}
        suspect = self.suspect
        said = (suspect[0].id.kind, suspect[0].id.partition, suspect[1]) if suspect is not None else None
        return _encoder.encode((VERSION, count, said, parts))


class InFlightListing(NamedTuple):
    """A message that may have been in flight when its process died, and becomes a suspect. `counts`: an in-flight
    record names it, and an attempt is counted; `confirmed`: it was the record's suspect, and so the cause. `at` is when
    the record arrived, unix ns.
    """

    sequence: int
    counts: bool
    confirmed: bool
    at: int


def list_in_flight(records: Iterable[BusyRecord], lane: LaneId, epoch: int) -> list[InFlightListing]:
    """What of a lane the records name under `epoch`, rising; records that can't be read are passed over.

    Each has an attempt counted, beside a suspect, too: one that went free there could kill its process twice for
    nothing.
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


def _readable(records: Iterable[BusyRecord]) -> Iterator[tuple[int, Record]]:
    for at, raw in records:
        try:
            record = _decoder.decode(raw)
        except UNREADABLE:
            continue
        if record.version == VERSION:
            yield at, record
