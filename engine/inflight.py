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

VERSION = 1

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
    """What a process may be handling, by lane. Parts that didn't change since the last record are kept."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, set[int]] = {}
        self._parts: dict[Lane, Part] = {}
        self._changed: set[Lane] = set()
        self.suspect: tuple[Lane, int] | None = None

    def add(self, lane: Lane, sequence: int) -> None:
        """It may start as soon as a record with it is safe."""
        of = self._lanes.get(lane)
        if of is None:
            of = self._lanes[lane] = set()
        of.add(sequence)
        self._changed.add(lane)

    def remove(self, lane: Lane, sequence: int) -> None:
        """It has ended, or won't start."""
        of = self._lanes.get(lane)
        if of is not None and sequence in of:
            of.remove(sequence)
            self._changed.add(lane)

    @property
    def busy(self) -> bool:
        """Whether anything is in flight."""
        return any(self._lanes.values())

    def of(self, lane: Lane) -> frozenset[int]:
        """What of a lane is in flight."""
        return frozenset(self._lanes.get(lane, ()))

    def record(self) -> bytes:
        """What is to be written now."""
        for lane in self._changed:
            if of := self._lanes.get(lane):
                self._parts[lane] = (lane.id.kind, lane.id.partition, lane.epoch, [*of])
            else:
                self._lanes.pop(lane, None)
                self._parts.pop(lane, None)
        self._changed.clear()
        suspect = self.suspect
        said = (suspect[0].id.kind, suspect[0].id.partition, suspect[1]) if suspect is not None else None
        count = sum(map(len, self._lanes.values()))
        return _encoder.encode(Record(VERSION, count, said, list(self._parts.values())))


class Listed(NamedTuple):
    """A message that was in flight when its process died. `counts`: it may have been the cause, and an attempt is
    counted; `confirmed`: nothing else can have been.
    """

    sequence: int
    counts: bool
    confirmed: bool


def listed(records: Iterable[bytes], lane: LaneId, epoch: int | None) -> list[Listed]:
    """What of a lane was in flight under `epoch` (None: under any); records that can't be read are passed over.

    If a record has a suspect only that one counts. The others become suspects without it, as they can have been the
    cause all the same, and will be run one at a time.
    """
    found: dict[int, Listed] = {}
    for record in _readable(records):
        for kind, partition, under, sequences in record.parts:
            if (kind, partition) != lane or (epoch is not None and under != epoch):
                continue
            for sequence in sequences:
                accused = record.suspect == (kind, partition, sequence)
                alone = record.count == 1 or accused
                found[sequence] = Listed(sequence, record.suspect is None or accused, alone)
    return [found[sequence] for sequence in sorted(found)]


def _readable(records: Iterable[bytes]) -> Iterator[Record]:
    for raw in records:
        try:
            record = _decoder.decode(raw)
        except msgspec.DecodeError:
            continue
        if record.version == VERSION:
            yield record
