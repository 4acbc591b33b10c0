"""The formulas by which a producer, in any language, finds a message's group and partition.

They are part of the public surface (docs/reference/headers-and-subjects.md has test vectors) and never change: a change
would send a key to another group while its older messages still wait in the first one.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["consecutive", "hashed"]

_LOW_64 = (1 << 64) - 1
_JUMP = 2862933555777941757


def digest(text: str) -> int:
    """SHA-256 of the UTF-8 text, read as one big-endian integer."""
    return int.from_bytes(sha256(text.encode()).digest(), "big")


def jump_hash(key: int, buckets: int) -> int:
    """The bucket in [0, buckets) of a 64-bit key. Growing from n to n + 1 buckets moves 1 / (n + 1) of the keys.

    Source: Lamping, Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014.
    """
    if buckets < 1:
        raise ValueError(f"buckets must be at least 1, not {buckets}")
    bucket, candidate = -1, 0
    while candidate < buckets:
        bucket = candidate
        key = (key * _JUMP + 1) & _LOW_64
        candidate = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket


def group_of(key: str, groups: int) -> int:
    """The group of all messages with this key."""
    return jump_hash(digest(key) & _LOW_64, groups)


@lru_cache(maxsize=1 << 16)
def partition_of(project: str, group: int, spread: int, partitions: int, layout: Layout) -> int:
    """The partition of a project's group. A project is on at most `spread` partitions (P13).

    `layout` is the environment's, which never changes: with `consecutive` they are neighbours, beginning at the
    project's hash, so that a few nodes can hold all of them; with `hashed` each is anywhere.
    """
    slot = group % spread
    if layout == "consecutive":
        return (digest(project) + slot) % partitions
    return digest(project if slot == 0 else f"{project}/{slot}") % partitions
