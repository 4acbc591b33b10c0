"""Settle records for tests: this release's, and another one's."""

import msgspec

from evenlane.engine.core.records.settle_record import VERSION, SettleRecord


def record(**fields) -> SettleRecord:
    values = {
        "version": VERSION, "epoch": 7, "number": 1, "created": "s", "high": 9, "high_at": 90, "watermark": 0,
        "runs": b"", "checkpoint": False,
    }  # fmt: skip
    return SettleRecord(**(values | fields))


def newer(epoch=9, version=3, *rest) -> bytes:
    """A record of another release: only its first three fields are known."""
    return msgspec.msgpack.encode([version, epoch, 1, *rest])
