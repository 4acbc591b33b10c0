"""Columns of integers as bytes that compress well. Pure.

A column is one byte for the width of its numbers (0 to 8 bytes), then all lowest bytes, then all second lowest, and so
on: neighbours are alike that way (the shuffle filter of Blosc and HDF5). A column of zeros is a single byte.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = 8


def pack(values: Sequence[int]) -> bytes:
    """Pack integers from 0 to 2**64 - 1; raises OverflowError for others."""
    words = array("Q", values)
    width = (max(words, default=0).bit_length() + 7) // 8
    raw = _little(words)
    return bytes((width,)) + b"".join(raw[plane::_WORD] for plane in range(width))


def join(first: bytes, count: int, second: bytes, more: int) -> bytes:
    """The packed column of `count` numbers, followed by that of `more` numbers."""
    width = max(first[0], second[0])
    planes = (_plane(first, count, n) + _plane(second, more, n) for n in range(width))
    return bytes((width,)) + b"".join(planes)


def _plane(column: bytes, count: int, number: int) -> bytes:
    return column[1 + number * count : 1 + (number + 1) * count] if number < column[0] else bytes(count)


def unpack(column: bytes, count: int) -> bytearray:
    """`count` numbers as little-endian words of 8 bytes. Raises ValueError for bytes that aren't a column
    of this length.
    """
    width = column[0] if column else _WORD + 1
    if width > _WORD or len(column) != 1 + width * count:
        raise ValueError(f"a column of {count} numbers has {len(column)} bytes")
    words = bytearray(_WORD * count)
    for plane in range(width):
        words[plane::_WORD] = column[1 + plane * count : 1 + (plane + 1) * count]
    return words


def numbers(words: bytes | bytearray) -> list[int]:
    """The result of `unpack` as Python integers."""
    found = array("Q")
    found.frombytes(words)
    if _BIG_ENDIAN:
        found.byteswap()
    return found.tolist()


_BIG_ENDIAN = array("H", b"\x00\x01")[0] == 1


def _little(words: array[int]) -> bytes:
    if _BIG_ENDIAN:
        words.byteswap()
    return words.tobytes()
