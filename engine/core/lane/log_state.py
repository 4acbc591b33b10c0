"""Folds the records of a settle log into the lane's state. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.records.settle_record import UnknownVersion, decode
from evenlane.engine.core.wire.varint_runs import unpack_pairs, unpack_runs

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 1 << 32  # sequences in the runs of a log; a node that allocated a map for 2**60 would never finish


@dataclass
class LogState:
    """The state of a lane as its log gives it, all records folded.

    `high` is the highest sequence that the last owner had seen. `epoch`, `lease`, `horizon` and `clean` are those of
    the last record, and so is `reset`. `hours` is how far each hour of a delay stream was settled, see HourProgress.
    `unreadable` is the number of records that were skipped.
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
    hours: dict[int, int] = field(default_factory=dict)
    reset: int = 0


def is_same_lease(lease: int, other: int) -> bool:
    """Whether two leases are the same, as far as is known: older releases don't record theirs (0)."""
    return lease == other or not (lease and other)


def fold(records: Iterable[bytes], epoch: int = 0) -> LogState:
    """Fold the records of a log, oldest first, into its state. The caller owns the lane under `epoch` (0: not yet).

    An unreadable record is skipped and counted: its messages are handled again, which loses nothing, while refusing the
    log would stop the partition. Records of an earlier stream incarnation than the last record's are stale: their
    sequences named other messages. So are those of before the subscription was reset: their messages come again.

    Raises UnknownVersion for a record that a newer release may have written, because its settled messages are unknown.
    No node can have written it if its epoch is below that of the record before it (the log refuses previous owners), or
    no higher than `epoch` (the caller hasn't written it). Such a record is skipped, too.
    """
    state, room = LogState(), _MOST
    for index, raw in enumerate(records):
        try:
            record = decode(raw)
            spans = unpack_runs(record.runs, record.watermark)
            marks = unpack_pairs(record.marks, record.watermark)
            hours = _hours_of(record.hours)
            room = _count_left(room, spans)
        except ValueError:
            state.unreadable += 1
            continue
        except UnknownVersion as error:
            if error.record.epoch > epoch and error.record.epoch >= state.epoch:
                raise UnknownVersion(error.record, index) from None
            state.unreadable += 1
            continue
        if record.checkpoint or record.created != state.created or record.reset != state.reset:
            state = LogState(created=record.created, unreadable=state.unreadable, hours=dict(hours), reset=record.reset)
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


def _count_left(room: int, spans: list[tuple[int, int]]) -> int:
    """The number of sequences that a log may still name; raises ValueError if it names more than any stream
    can have.
    """
    left = room - sum(last - first + 1 for first, last in spans)
    if left < 0:
        raise ValueError("the runs of a settle record are longer than those of any stream")
    return left


def _hours_of(packed: bytes) -> list[tuple[int, int]]:
    """The positions by hour; none if they can't be read: then all hours are fed from the beginning."""
    try:
        return unpack_pairs(packed, 0)
    except ValueError:
        return []
