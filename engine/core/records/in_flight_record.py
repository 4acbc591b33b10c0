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

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

VERSION = 1

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


def encode(suspect: Suspect | None, parts: Iterable[tuple[str, int, int, Collection[int]]]) -> bytes:
    """The record that names the messages of `parts`."""
    named = list(parts)
    return _encoder.encode((VERSION, max(2, sum([len(part[3]) for part in named])), suspect, named))


def decode(raw: bytes) -> InFlightRecord | None:
    """None if it is unreadable, or of a version that this release doesn't know."""
    try:
        record = _decoder.decode(raw)
    except UNREADABLE:
        return None
    return record if record.version == VERSION else None
