"""The settle log's records: what makes a lane's settled sequences durable, at a few bytes a message.

A record is msgpack: [version, epoch, number, created, high, high_at, watermark, runs, checkpoint, marks, horizon,
clean]. `runs` holds the newly settled sequences above the watermark as pairs of varints (gap to the previous run's end,
length minus one). A checkpoint repeats everything that is settled above its watermark, and replaces what stood before.
`marks` (engine/marks.py) are pairs of varints, too: gap to the previous sequence, and the mark, 0 for none any more.
`horizon` and `clean` (engine/horizon.py) came later: a record of an older release has neither, and an older release
ignores them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from engine.errors import ConfigError
from engine.settled import SettledSet

VERSION = 1


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One append. `number` counts an epoch's appends, so that an append whose ack was lost is recognised. `horizon` is
    the owner's crash horizon, 0 for none; `clean` says that the epoch ends with this record, and that no handler of it
    runs any more. None: the writer's release did not know the field.
    """

    version: int
    epoch: int
    number: int
    created: str
    high: int
    high_at: int
    watermark: int
    runs: bytes
    checkpoint: bool = False
    marks: bytes = b""
    horizon: int = 0
    clean: bool | None = None


@dataclass
class LogState:
    """What a lane's log says, folded. `high` is the highest sequence the last owner had seen; `horizon` and `clean` are
    those of the last record.
    """

    epoch: int = 0
    number: int = 0
    created: str = ""
    high: int = 0
    high_at: int = 0
    settled: SettledSet = field(default_factory=SettledSet)
    unreadable: int = 0
    marks: dict[int, int] = field(default_factory=dict)
    horizon: int = 0
    clean: bool | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    return _encoder.encode(record)


def decode(raw: bytes) -> Record:
    """Raises ValueError for what is no record, ConfigError for a version this code doesn't know."""
    try:
        record = _decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a settle record: {error}") from error
    if record.version != VERSION:
        raise ConfigError(
            f"the settle log holds a record of version {record.version}, but this node knows only {VERSION}:"
            " run the version that the last owner ran, or a newer one"
        )
    return record


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
        else:
            values.append(value)
            value = shift = 0
    if shift or len(values) % 2:
        raise ValueError("the runs of a settle record are cut short")
    return values


def fold(records: Iterable[bytes]) -> LogState:
    """The state after these records, oldest first.

    One that can't be read is passed over and counted: what it settled is handled again, which loses nothing, while
    refusing the log would stop its partition. Records of another stream incarnation than the last one's are void:
    their sequences named other messages. Raises ConfigError for a record of a version this code doesn't know.
    """
    state = LogState()
    for raw in records:
        try:
            record = decode(raw)
            spans = unpack(record.runs, record.watermark)
            marks = unpack_marks(record.marks, record.watermark)
        except ValueError:
            state.unreadable += 1
            continue
        if record.checkpoint or record.created != state.created:
            state = LogState(created=record.created, unreadable=state.unreadable)
        state.epoch, state.number = record.epoch, record.number
        state.high, state.high_at = record.high, record.high_at
        state.horizon, state.clean = record.horizon, record.clean
        if record.watermark > 0:
            state.settled.add_run(1, record.watermark)
        for first, last in spans:
            state.settled.add_run(first, last)
        state.marks |= marks
    state.marks = {sequence: mark for sequence, mark in state.marks.items() if mark and sequence not in state.settled}
    return state


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
