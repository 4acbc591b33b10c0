"""Encodes the settle log's records, which make settled sequences durable at a few bytes per message.

A record is msgpack: [version, epoch, number, created, high, high_at, watermark, runs, checkpoint, marks, horizon,
clean, lease].

- `runs` has the newly settled sequences above the watermark as pairs of varints: the gap to the previous run's end, and
  the length minus one.
- A checkpoint repeats everything that is settled above its watermark, and replaces all earlier records.
- `marks` (engine/core/lane/attempts.py) are pairs of varints, too: the gap to the previous sequence, and the mark, 0 if
  it was removed.
- `horizon` and `clean` (engine/core/lane/crash_horizon.py) and `lease` were added later: records of older releases lack
  them, and older releases ignore them.

In every version, a record is an array that begins with version, epoch and number. An older release can thus tell
whether a record that it can't read was written by a newer release, or can't have been written by any node (`fold`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import msgspec

from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import ConfigError

VERSION = 1
_LONGEST = 133  # bits of a number; a mark with a 63-bit epoch has 117
_MOST = 1 << 32  # sequences in the runs of a log; a node that allocated a map for 2**60 would never finish
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]  # the range of base plus revision


class SettleRecord(msgspec.Struct, array_like=True, frozen=True):
    """One append to a settle log.

    - `number` counts the appends of an epoch, so that an append whose acknowledgement was lost is recognised.
    - `horizon` is the owner's crash horizon; 0: none.
    - `clean` says that the epoch ends with this record, and that none of its handlers runs any more; None: the writer's
      release didn't know the field.
    - `lease` is the lease under which the owner has claimed the epoch; 0: the writer's release didn't know the field.
    """

    version: int
    epoch: _Epoch
    number: _Whole
    created: str
    high: _Whole
    high_at: _Whole
    watermark: _Whole
    runs: bytes
    checkpoint: bool = False
    marks: bytes = b""
    horizon: _Whole = 0
    clean: bool | None = None
    lease: _Whole = 0


@dataclass
class LogState:
    """The state of a lane as its log gives it, all records folded.

    `high` is the highest sequence that the last owner had seen. `epoch`, `lease`, `horizon` and `clean` are those of
    the last record. `unreadable` is the number of records that were skipped.
    """

    epoch: int = 0
    lease: int = 0
    number: int = 0
    created: str = ""
    high: int = 0
    high_at: int = 0
    settled: SettledSet = field(default_factory=SettledSet)
    unreadable: int = 0
    marks: dict[int, int] = field(default_factory=dict)
    horizon: int = 0
    clean: bool | None = None


class _Beginning(msgspec.Struct, array_like=True, frozen=True):
    """The fields that records of all versions have."""

    version: Annotated[int, msgspec.Meta(gt=0)]
    epoch: _Epoch
    number: _Whole


class UnknownVersion(ConfigError):
    """A record of a log has a version that this release doesn't know. `index` is its position in the log; `stream` and
    `sequence` locate it in the store, if known.
    """

    def __init__(self, record: _Beginning, index: int = 0, stream: str = "", sequence: int = 0) -> None:
        self.record, self.index = record, index
        at, delete = f" (stream {stream}, sequence {sequence})", f": `nats stream rmm {stream} {sequence}`"
        super().__init__(
            f"the settle log holds a record of version {record.version}, and this release knows only {VERSION}"
            f"{at if stream else ''}: run the release that wrote it, or a newer one; if no node of yours wrote it,"
            f" delete it{delete if stream else ''} (what it alone settles is handled again)"
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SettleRecord)
_beginning = msgspec.msgpack.Decoder(_Beginning)


def is_same_lease(lease: int, other: int) -> bool:
    """Whether two leases are the same, as far as is known: older releases don't record theirs (0)."""
    return lease == other or not (lease and other)


def encode(record: SettleRecord) -> bytes:
    return _encoder.encode(record)


def decode(raw: bytes) -> SettleRecord:
    """Raises ValueError for bytes that aren't a record, UnknownVersion for a version that this release doesn't know."""
    try:
        beginning = _beginning.decode(raw)
        if beginning.version == VERSION:
            return _decoder.decode(raw)
    except UNREADABLE as error:
        raise ValueError(f"not a settle record: {error}") from error
    raise UnknownVersion(beginning)


def pack(spans: Iterable[tuple[int, int]], base: int) -> bytes:
    """Pack rising runs (first, last), all above `base`, as varints."""
    out = bytearray()
    for first, last in spans:
        _varint(out, first - base - 1)
        _varint(out, last - first)
        base = last
    return bytes(out)


def pack_marks(rising: Iterable[tuple[int, int]], base: int) -> bytes:
    """Pack rising (sequence, mark) pairs, all above `base`, as varints."""
    out = bytearray()
    for sequence, mark in rising:
        _varint(out, sequence - base - 1)
        _varint(out, mark)
        base = sequence
    return bytes(out)


def unpack_marks(packed: bytes, base: int) -> list[tuple[int, int]]:
    """The inverse of `pack_marks`. Raises ValueError if the bytes are truncated."""
    values = _values(packed)
    marks = []
    for gap, mark in zip(values[::2], values[1::2], strict=True):
        base += gap + 1
        marks.append((base, mark))
    return marks


def unpack(packed: bytes, base: int) -> list[tuple[int, int]]:
    """The inverse of `pack`. Raises ValueError if the bytes are truncated."""
    values = _values(packed)
    spans = []
    for gap, extra in zip(values[::2], values[1::2], strict=True):
        first = base + gap + 1
        base = first + extra
        spans.append((first, base))
    return spans


def _values(packed: bytes) -> list[int]:
    """Decode an even number of varints."""
    values: list[int] = []
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > _LONGEST:  # (a megabyte of continuation bytes would take quadratic time)
                raise ValueError("a number of a settle record has no end")
        else:
            values.append(value)
            value = shift = 0
    if shift or len(values) % 2:
        raise ValueError("the runs of a settle record are cut short")
    return values


def fold(records: Iterable[bytes], epoch: int = 0) -> LogState:
    """Fold the records of a log, oldest first, into its state. The caller owns the lane under `epoch` (0: not yet).

    An unreadable record is skipped and counted: its messages are handled again, which loses nothing, while refusing the
    log would stop the partition. Records of an earlier stream incarnation than the last record's are stale: their
    sequences named other messages.

    Raises UnknownVersion for a record that a newer release may have written, because its settled messages are unknown.
    No node can have written it if its epoch is below that of the record before it (the log refuses previous owners), or
    no higher than `epoch` (the caller hasn't written it). Such a record is skipped, too.
    """
    state, room = LogState(), _MOST
    for index, raw in enumerate(records):
        try:
            record = decode(raw)
            spans = unpack(record.runs, record.watermark)
            marks = unpack_marks(record.marks, record.watermark)
            room = _count_left(room, spans)
        except ValueError:
            state.unreadable += 1
            continue
        except UnknownVersion as error:
            if error.record.epoch > epoch and error.record.epoch >= state.epoch:
                raise UnknownVersion(error.record, index) from None
            state.unreadable += 1
            continue
        if record.checkpoint or record.created != state.created:
            state = LogState(created=record.created, unreadable=state.unreadable)
        state.epoch, state.lease, state.number = record.epoch, record.lease, record.number
        state.high, state.high_at = record.high, record.high_at
        state.horizon, state.clean = record.horizon, record.clean
        if record.watermark > 0:
            state.settled.add_run(1, record.watermark)
        for first, last in spans:
            state.settled.add_run(first, last)
        state.marks |= marks
    state.marks = {sequence: mark for sequence, mark in state.marks.items() if mark and sequence not in state.settled}
    return state


def _count_left(room: int, spans: list[tuple[int, int]]) -> int:
    """The number of sequences that a log may still name; raises ValueError if it names more than any stream
    can have.
    """
    left = room - sum(last - first + 1 for first, last in spans)
    if left < 0:
        raise ValueError("the runs of a settle record are longer than those of any stream")
    return left


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
