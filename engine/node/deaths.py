"""Processes that died with messages in flight: who they were, which messages, and that these are suspects now (X11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from engine.clock import now_ns
from engine.inflight import listed
from engine.logged import of_lane
from engine.marks import held_under

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from engine.inflight import Listed
    from engine.lane import Lane
    from engine.names import LaneId
    from engine.ports import BusyRecord, Store
    from engine.settlelog import LogState

_log = structlog.get_logger(__name__)

_CLOCKS = 1_000_000_000  # ns by which the clocks of two servers may differ


def died(log: LogState, peaceful: Collection[int]) -> dict[int, set[int] | None]:
    """The epochs whose owners have died as far as the log knows, oldest first, each with the sequences in question
    (None: all). Who held something and has no record any more is one, as the log hears of the end of what is held
    before the record is deleted in peace.
    """
    held: dict[int, set[int]] = {}
    for sequence, mark in log.marks.items():
        if (epoch := held_under(mark)) and epoch not in peaceful:
            held.setdefault(epoch, set()).add(sequence)
    last = {log.epoch: None} if log.epoch not in peaceful else {}
    return {**dict(sorted(held.items())), **last}


def named(records: Iterable[BusyRecord], lane: LaneId, epoch: int, among: Collection[int] | None) -> list[Listed]:
    """What in-flight records name of a lane under an epoch; but only `among` these, if given."""
    return [each for each in listed(records, lane, epoch) if among is None or each.sequence in among]


async def in_flight(
    store: Store, lane: LaneId, records: list[BusyRecord], epoch: int, among: Collection[int] | None
) -> list[Listed]:
    """What of that is there. What arrived later than the record that names its sequence is another message: the stream
    has been rolled back since. Raises Lost.
    """
    found = named(records, lane, epoch, among)
    while found:
        last = found[-1]
        stored = (await store.get(lane, [last.sequence]))[0]
        if stored is not None and stored.at <= last.at + _CLOCKS:
            break  # and so are those before it, which arrived earlier
        found.pop()
    return found


def suspect(lane: Lane, found: Iterable[Listed]) -> None:
    """Mark what was in flight when its process died."""
    found = [each for each in found if each.sequence not in lane.settled and each.sequence <= lane.high]
    for each in found:
        lane.log.mark_died(each.sequence, now_ns(), counts=each.counts, confirmed=each.confirmed)
    if found:
        _log.warning(
            "a process died, or lost its lease, with messages in flight: they are handled one at a time",
            **of_lane(lane), count=len(found), confirmed=sum(each.confirmed for each in found),
        )  # fmt: skip
