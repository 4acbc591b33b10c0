"""Processes that died with messages in flight: who they were, which messages, and that these are suspects now (X11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.attempts import held_under
from evenlane.engine.core.lane.in_flight_record import InFlightListing, list_in_flight
from evenlane.engine.core.message.log_fields import lane_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.lane.settle_record import LogState
    from evenlane.engine.core.ports import BusyRecord, Store
    from evenlane.ring.membership.records import BlockedLane, HeldRecord

_log = structlog.get_logger(__name__)

_CLOCKS = 1_000_000_000  # ns by which the clocks of two servers may differ


def died(log: LogState, released: Collection[int], *, clean: bool) -> dict[int, set[int] | None]:
    """The epochs whose owners have died as far as the log knows, oldest first, each with the sequences in question
    (None: all). Who held something and has no key any more is one, as the log hears of the end of what is held
    before the key is deleted. `clean`: the log's last epoch isn't one.
    """
    held: dict[int, set[int]] = {}
    for sequence, mark in log.marks.items():
        if (epoch := held_under(mark)) and epoch not in released:
            held.setdefault(epoch, set()).add(sequence)
    last = {} if clean else {log.epoch: None}
    return {**dict(sorted(held.items())), **last}


def mark_suspects(
    records: Iterable[BusyRecord], lane: LaneId, epoch: int, held: Collection[int] | None
) -> list[InFlightListing]:
    """What may have killed the owner of an epoch: what its in-flight record names. Of an owner that had released the
    partition it is what it `held` at its death, recorded or not: the key, or the mark in the log, names that exactly.
    """
    recorded = {each.sequence: each for each in list_in_flight(records, lane, epoch)}
    if held is None:
        return [*recorded.values()]
    unrecorded = InFlightListing(0, counts=False, confirmed=False, at=0)
    return [recorded.get(sequence) or unrecorded._replace(sequence=sequence) for sequence in sorted(held)]


async def read_in_flight(
    store: Store, lane: LaneId, records: list[BusyRecord], epoch: int, held: Collection[int] | None
) -> list[InFlightListing]:
    """What of that is there. What arrived later than the record that names its sequence is another message: the stream
    has been rolled back since. Raises Lost.
    """
    among = mark_suspects(records, lane, epoch, held)
    found = [each for each in among if each.counts]
    while found:
        last = found[-1]
        stored = (await store.get(lane, [last.sequence]))[0]
        if stored is not None and stored.at <= last.at + _CLOCKS:
            break  # and so are those before it, which arrived earlier
        found.pop()
    return sorted([*found, *(each for each in among if not each.counts)])


def blocked(held: Iterable[HeldRecord], kind: str, created: str) -> dict[int, BlockedLane]:
    """By epoch, what blocked former owners of a stream until their processes ended themselves."""
    found = {record.epoch: part for record in held if (part := record.blocked.get(kind)) is not None}
    return {epoch: part for epoch, part in found.items() if part.created == created}


def accused(
    blockers: Mapping[int, BlockedLane], dead: Collection[int], found: Iterable[InFlightListing]
) -> list[InFlightListing]:
    """What blocked owners who have `died`, of which the log hasn't heard yet: the cause is known, so an attempt counts
    whether a record names the message or not. What is `found` as the cause counts already. Of a batch it is one of
    several.
    """
    counted = {each.sequence: each for each in found if each.counts}
    accusations = []
    for epoch, part in blockers.items():
        alone = len(part.sequences) == 1
        for sequence in part.sequences if epoch in dead else ():
            counts = sequence not in counted
            if counts or (alone and not counted[sequence].confirmed):
                accusations.append(InFlightListing(sequence, counts=counts, confirmed=alone, at=0))
    return accusations


def suspect(lane: Lane, found: Iterable[InFlightListing]) -> None:
    """Mark what was in flight when its process died."""
    found = [each for each in found if each.sequence not in lane.settled and each.sequence <= lane.high]
    for each in found:
        lane.log.mark_died(each.sequence, now_ns(), counts=each.counts, confirmed=each.confirmed)
    if found:
        _log.warning(
            "a process died, or lost its lease, with messages in flight: they are handled one at a time",
            **lane_fields(lane), count=len(found), confirmed=sum(each.confirmed for each in found),
        )  # fmt: skip
