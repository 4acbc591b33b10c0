"""Packs the settled runs, the marks and the hours of a settle record as varints. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 133  # bits of a number; a mark with a 63-bit epoch has 117


def pack_runs(spans: Iterable[tuple[int, int]], base: int) -> bytes:
    """Pack rising runs (first, last), all above `base`, as varints."""
    out = bytearray()
    for first, last in spans:
        _varint(out, first - base - 1)
        _varint(out, last - first)
        base = last
    return bytes(out)


def pack_pairs(rising: Iterable[tuple[int, int]], base: int) -> bytes:
    """Pack (key, value) pairs with rising keys, all above `base`, as varints."""
    out = bytearray()
    for key, value in rising:
        _varint(out, key - base - 1)
        _varint(out, value)
        base = key
    return bytes(out)


def unpack_pairs(packed: bytes, base: int) -> list[tuple[int, int]]:
    """The inverse of `pack_pairs`. Raises ValueError if the bytes are truncated."""
    values = _values(packed)
    pairs = []
    for gap, value in zip(values[::2], values[1::2], strict=True):
        base += gap + 1
        pairs.append((base, value))
    return pairs


def unpack_runs(packed: bytes, base: int) -> list[tuple[int, int]]:
    """The inverse of `pack_runs`. Raises ValueError if the bytes are truncated."""
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


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
