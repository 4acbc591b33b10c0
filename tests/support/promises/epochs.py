"""Checks promise O by the starts of handlers."""

from __future__ import annotations


class Epochs:
    """Promise O: no handler of a partition starts under an older epoch than an earlier handler of that partition."""

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}  # partition -> the newest epoch under which a handler has started

    def record_start(self, partition: int, epoch: int) -> bool:
        """Record that a handler starts, and return whether its epoch is as new as all before it."""
        newest = self._newest.get(partition, epoch)
        self._newest[partition] = max(newest, epoch)
        return epoch >= newest
