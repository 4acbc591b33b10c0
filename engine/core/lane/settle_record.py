"""The settle log's records: what makes a lane's settled sequences durable, at a few bytes a message.

A record is msgpack: [version, epoch, number, created, high, high_at, watermark, runs, checkpoint, marks, horizon,
clean, lease]. `runs` holds the newly settled sequences above the watermark as pairs of varints (gap to the previous
run's end, length minus one). A checkpoint repeats everything that is settled above its watermark, and replaces what
stood before. `marks` (engine/core/lane/attempts.py) are pairs of varints, too: gap to the previous sequence, and the
mark, 0 for none any more. `horizon` and `clean` (engine/core/lane/crash_horizon.py) came later, and so did `lease`: a
record of an older release has none of them, and an older release ignores them.

Whatever the version, a record is an array that begins with version, epoch and number. So an older release sees who
wrote what it can't read: a newer release, or nobody that could have (`fold`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import msgspec

from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import ConfigError

VERSION = 1
_LONGEST = 133  # bits of a number; a mark with an epoch of 63 has 117
_MOST = 1 << 32  # sequences in the runs of a log; a node that laid out a map for 2**60 would never come back
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]  # what a base and a revision make


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One append. `number` counts an epoch's appends, so that an append whose ack was lost is recognised. `horizon` is
    the owner's crash horizon, 0 for none; `clean` says that the epoch ends with this record, and that no handler of it
    runs any more. None: the writer's release did not know the field. `lease` is the one under which the owner has
    claimed the epoch, 0 if the writer's release did not know the field.
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
    """What a lane's log says, folded. `high` is the highest sequence the last owner had seen; `horizon` and `clean` are
    those of the last record, and so are `epoch` and `lease`.
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
    """What records of all versions have."""

    version: Annotated[int, msgspec.Meta(gt=0)]
    epoch: _Epoch
    number: _Whole


class UnknownVersion(ConfigError):
    """The record at `index` of a log has a version that this code doesn't know; `stream` and `sequence` are where it is
    stored, if that is known.
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
_decoder = msgspec.msgpack.Decoder(Record)
_beginning = msgspec.msgpack.Decoder(_Beginning)


def is_same_lease(lease: int, other: int) -> bool:
    """As far as is known: older releases don't say under which lease they own a partition."""
    return lease == other or not (lease and other)


def encode(record: Record) -> bytes:
    return _encoder.encode(record)


def decode(raw: bytes) -> Record:
    """Raises ValueError for what is no record, UnknownVersion for a version this code doesn't know."""
    try:
        beginning = _beginning.decode(raw)
        if beginning.version == VERSION:
            return _decoder.decode(raw)
    except UNREADABLE as error:
        raise ValueError(f"not a settle record: {error}") from error
    raise UnknownVersion(beginning)


def pack(spans: Iterable[tuple[int, int]], base: int) -> bytes:
    """Rising runs (first, last), all above `base`, as varints."""
    out = bytearray()
    for first, last in spans:
        _varint(out, first - base - 1)
        _varint(out, last - first)
        base = last
    return bytes(out)


def pack_marks(rising: Iterable[tuple[int, int]], base: int) -> bytes:
    """(sequence, mark), all above `base`, as varints."""
    out = bytearray()
    for sequence, mark in rising:
        _varint(out, sequence - base - 1)
        _varint(out, mark)
        base = sequence
    return bytes(out)


def unpack_marks(packed: bytes, base: int) -> list[tuple[int, int]]:
    """The inverse of `pack_marks`; raises ValueError if the bytes end in the middle."""
    values = _values(packed)
    marks = []
    for gap, mark in zip(values[::2], values[1::2], strict=True):
        base += gap + 1
        marks.append((base, mark))
    return marks


def unpack(packed: bytes, base: int) -> list[tuple[int, int]]:
    """The inverse of `pack`; raises ValueError if the bytes end in the middle."""
    values = _values(packed)
    spans = []
    for gap, extra in zip(values[::2], values[1::2], strict=True):
        first = base + gap + 1
        base = first + extra
        spans.append((first, base))
    return spans


def _values(packed: bytes) -> list[int]:
    """Varints, an even number of them."""
    values: list[int] = []
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > _LONGEST:  # (or a megabyte of them would cost its square in time)
                raise ValueError("a number of a settle record has no end")
        else:
            values.append(value)
            value = shift = 0
    if shift or len(values) % 2:
        raise ValueError("the runs of a settle record are cut short")
    return values


def fold(records: Iterable[bytes], epoch: int = 0) -> LogState:
    """The state after these records, oldest first. The caller owns the lane under `epoch` (0: not yet).

    One that can't be read is passed over and counted: what it settled is handled again, which loses nothing, while
    refusing the log would stop its partition. Records of another stream incarnation than the last one's are void:
    their sequences named other messages.

    Raises UnknownVersion for what a newer release may have written: nobody can tell what it settles. No node has
    written it if its epoch is below that of the record before it, as the log refuses former owners, or no higher than
    `epoch`, and the caller hasn't. Then it is passed over, too.
    """
    state, room = LogState(), _MOST
    for index, raw in enumerate(records):
        try:
            record = decode(raw)
            spans = unpack(record.runs, record.watermark)
            marks = unpack_marks(record.marks, record.watermark)
            room = _left(room, spans)
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


def _left(room: int, spans: list[tuple[int, int]]) -> int:
    """How many sequences more a log may name; raises ValueError for more than any stream has above its watermark."""
    left = room - sum(last - first + 1 for first, last in spans)
    if left < 0:
        raise ValueError("the runs of a settle record are longer than those of any stream")
    return left


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
