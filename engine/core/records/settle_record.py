"""Encodes the settle log's records, which make settled sequences durable at a few bytes per message.

A record is msgpack: [version, epoch, number, created, high, high_at, watermark, runs, checkpoint, marks, horizon,
clean, lease], and in version 2 [..., hours, reset].

- `runs` has the newly settled sequences above the watermark as pairs of varints: the gap to the previous run's end, and
  the length minus one.
- A checkpoint repeats everything that is settled above its watermark, and replaces all earlier records.
- `marks` (engine/core/lane/attempts.py) are pairs of varints, too: the gap to the previous sequence, and the mark, 0 if
  it was removed.
- `horizon` and `clean` (engine/core/lane/crash_horizon.py) and `lease` were added later: records of older releases lack
  them, and older releases ignore them.

A record has version 2 as long as the environment has named subscriptions, else 1. Releases that know only version 1
remove messages without asking whether other subscriptions still need them, so they must not become owners. In version
2, long `runs` are compressed, as they may name many messages that are held for others; and `hours` of a checkpoint are
pairs of varints: the gap to the previous hour, and the sequence up to which all messages of the hour are settled.
`reset` is 0 unless the subscription was reset.

In every version, a record is an array that begins with version, epoch and number. An older release can thus tell
whether a record that it can't read was written by a newer release, or can't have been written by any node (`fold`).
"""

import zlib
from typing import Annotated, TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import ConfigError

VERSION = 1
SHARED_VERSION = 2
"""The version of records as long as there are named subscriptions; also the newest one that this release reads."""
UNOWNED_EPOCH = 1
"""The epoch of a record in the log of a lane that nobody has owned yet, below that of any owner. (It isn't 0, because a
reader skips a record of an unknown version under epoch 0.)
"""
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]  # the range of base plus revision


class SettleRecord(msgspec.Struct, array_like=True, frozen=True):
    """One append to a settle log.

    - `number` counts the appends of an epoch, so that an append whose acknowledgement was lost is recognised.
    - `horizon` is the owner's crash horizon; 0: none.
    - `clean` says that the epoch ends with this record, and that none of its handlers runs any more; None: the writer's
      release didn't know the field.
    - `lease` is the lease under which the owner has claimed the epoch; 0: the writer's release didn't know the field.
    - `hours` is how far the hours of a delay stream are settled (engine/core/lane/hour_progress.py).
    - `reset` (unix ns) is the subscription's last reset that the lane follows; 0: none. A record that follows an older
      one says nothing of what is settled since.
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
    hours: bytes = b""
    reset: _Whole = 0


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
            f"the settle log holds a record of version {record.version}, and this release knows versions up to"
            f" {SHARED_VERSION}{at if stream else ''}: run the release that wrote it, or a newer one; if no node of"
            f" yours wrote it, delete it{delete if stream else ''} (what it alone settles is handled again)"
        )


_FIELDS_OF_FIRST_VERSION = len(SettleRecord.__struct_fields__) - 2
_LONG = 4_096  # bytes
_COMPRESSED = b"\x80\x00"  # begins compressed runs; a varint never begins so
_LONGEST = 1 << 26  # bytes; somebody else may have written the record

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SettleRecord)
_beginning = msgspec.msgpack.Decoder(_Beginning)


def encode(record: SettleRecord, version: int = 0) -> bytes:
    """Encode a record, as one of this `version` if that is given. One that follows a reset has version 2."""
    version = SHARED_VERSION if record.reset else version or record.version
    if version == VERSION:
        return _encoder.encode((version, *astuple(record)[1:_FIELDS_OF_FIRST_VERSION]))
    runs = record.runs
    if len(runs) > _LONG:
        runs = _COMPRESSED + zlib.compress(runs)
    return _encoder.encode(replace(record, version=version, runs=runs))


def decode(raw: bytes) -> SettleRecord:
    """Raises ValueError for bytes that aren't a record, UnknownVersion for a version that this release doesn't know."""
    try:
        beginning = _beginning.decode(raw)
        if beginning.version <= SHARED_VERSION:
            record = _decoder.decode(raw)
            return replace(record, runs=_decompress(record.runs)) if record.runs.startswith(_COMPRESSED) else record
    except (*UNREADABLE, zlib.error) as error:
        raise ValueError(f"not a settle record: {error}") from error
    raise UnknownVersion(beginning)


def _decompress(runs: bytes) -> bytes:
    """Raises ValueError, zlib.error."""
    stream = zlib.decompressobj()
    found = stream.decompress(runs[len(_COMPRESSED) :], _LONGEST)
    if not stream.eof:
        raise ValueError("compressed runs are cut short, or too long")
    return found
