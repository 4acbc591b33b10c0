"""Decodes the records under an environment's keys; skips, counts and reports values that aren't valid records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.ring.membership.records import NewerFormat, OwnerRecord, RecordError, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.ring.membership.records import R

_log = structlog.get_logger(__name__)


def _warn(reason: str) -> None:
    _log.warning("a value in etcd is passed over", reason=reason)


class RecordReader:
    """Decodes records and counts invalid values in `skipped`. `on_skipped(reason)` is called for each, and logs by
    default.
    """

    def __init__(self, cluster: str, on_skipped: Callable[[str], object] = _warn) -> None:
        self._cluster, self._on_skipped = cluster, on_skipped
        self.skipped = 0

    def pass_over(self, reason: object) -> None:
        self.skipped += 1
        self._on_skipped(str(reason))

    def read(self, kind: type[R], key: str, raw: bytes) -> R | None:
        """Decode a record. Returns None if the value is no record of this kind."""
        try:
            return decode(kind, key, raw)
        except RecordError as error:
            self.pass_over(error)
            return None

    def read_known(self, kind: type[R], key: str, raw: bytes) -> R | None:
        """`read`, for a record without which a partition can't be taken over: raises NewerFormat."""
        try:
            return decode(kind, key, raw)
        except NewerFormat:
            raise
        except RecordError as error:
            self.pass_over(error)
            return None

    def partition(self, name: str, partitions: int) -> int | None:
        """Return the partition that the last part of an owner key names, None if there is no such partition."""
        number = names.number(name)
        if number is not None and number < partitions:
            return number
        self.pass_over(f"{names.key(self._cluster, 'owners', name)} is not a partition: there are {partitions}")
        return None

    def owners(self, values: Iterable[tuple[str, bytes]], partitions: int) -> dict[int, str]:
        """Decode owner keys, given by their last parts, into the owning node by partition."""
        found: dict[int, str] = {}
        for name, raw in values:
            partition = self.partition(name, partitions)
            if partition is not None and (
                owner := self.read(OwnerRecord, names.key(self._cluster, "owners", name), raw)
            ):
                found[partition] = owner.id
        return found
