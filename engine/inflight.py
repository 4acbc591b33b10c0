"""The in-flight record: what a process may be handling, written before it begins (X11). Pure.

A feed has no delivery count, so a message that kills its process would be handed out for ever. The record names, by
lane and epoch, the sequences that have started or may start; if the process dies, the next owner of a lane finds there
what was in flight. A record is msgpack: [version, count, suspect, [[kind, partition, epoch, sequences], ...]], with
`suspect` the one message in it that was in flight at an earlier death.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.lane import Lane
    from engine.names import LaneId
    from engine.ports import BusyRecord

VERSION = 1
_KEPT = 256  # lanes

Part: TypeAlias = tuple[str, int, int, list[int]]  # kind, partition, epoch, sequences
Suspect: TypeAlias = tuple[str, int, int]  # kind, partition, sequence


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One process's; `count` is how many messages it names."""

    version: int
    count: int
    suspect: Suspect | None
    parts: list[Part]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class InFlight:
    """What a process may be handling: `lanes` has the sequences by lane."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, set[int]] = {}
        self._parts: dict[Lane, tuple[str, int, int, set[int]]] = {}  # of the record, as it is encoded
        self.suspect: tuple[Lane, int] | None = None

    @property
    def busy(self) -> bool:
        """Whether anything is in flight."""
        return any(self.lanes.values())

    def of(self, lane: Lane) -> frozenset[int]:
        """What of a lane is in flight."""
        return frozenset(self.lanes.get(lane, ()))

    def add(self, lane: Lane, sequence: int) -> None:
        """It may start as soon as a record with it is safe."""
        of = self.lanes.get(lane)
        if of is None:
            of = self.lanes[lane] = set()
            self._parts[lane] = (lane.id.kind, lane.id.partition, lane.epoch, of)
        of.add(sequence)

    def remove(self, lane: Lane, sequence: int) -> None:
        """It has ended, or won't start."""
        of = self.lanes.get(lane)
        if of is not None:
            of.discard(sequence)

    def record(self) -> bytes:
        """What is to be written now."""
        parts = [part for part in self._parts.values() if part[3]]
        count = sum([len(part[3]) for part in parts])
        if len(self.lanes) > 4 * len(parts) + _KEPT:  # most of them have been idle, or are gone
            self.lanes = {lane: of for lane, of in self.lanes.items() if of}
            self._parts = {lane: self._parts[lane] for lane in self.lanes}
        suspect = self.suspect
        said = (suspect[0].id.kind, suspect[0].id.partition, suspect[1]) if suspect is not None else None
        return _encoder.encode((VERSION, count, said, parts))


class Listed(NamedTuple):
    """A message that was in flight when its process died. `counts`: it may have been the cause, and an attempt is
    counted; `confirmed`: nothing else can have been. `at` is when the record that says so arrived, unix ns.
    """

    sequence: int
    counts: bool
    confirmed: bool
    at: int


def listed(records: Iterable[BusyRecord], lane: LaneId, epoch: int) -> list[Listed]:
    """What of a lane was in flight under `epoch`, rising; records that can't be read are passed over.

    If a record has a suspect only that one counts. The others become suspects without it, as they can have been the
    cause all the same, and will be run one at a time.
    """
    found: dict[int, Listed] = {}
    for at, record in _readable(records):
        for kind, partition, under, sequences in record.parts:
            if (kind, partition) != lane or under != epoch:
                continue
            for sequence in sequences:
                accused = record.suspect == (kind, partition, sequence)
                alone = record.count == 1 or accused
                found[sequence] = Listed(sequence, record.suspect is None or accused, alone, at)
    return [found[sequence] for sequence in sorted(found)]


def _readable(records: Iterable[BusyRecord]) -> Iterator[tuple[int, Record]]:
    for at, raw in records:
        try:
            record = _decoder.decode(raw)
        except msgspec.DecodeError:
            continue
        if record.version == VERSION:
            yield at, record
