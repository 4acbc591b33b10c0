"""Finds the owners that died with messages in flight, and marks these messages as suspects (X11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.attempts import holder_of
from evenlane.engine.core.lane.in_flight_set import InFlightListing, list_in_flight
from evenlane.engine.core.message.log_fields import lane_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.lane.log_state import LogState
    from evenlane.engine.core.ports import BusyRecord, Store
    from evenlane.ring.membership.records import BlockedLane, HeldRecord

_log = structlog.get_logger(__name__)

_CLOCKS = 1_000_000_000  # ns; the largest difference assumed between the clocks of two servers


def find_dead(log: LogState, released: Collection[int], *, clean: bool) -> dict[int, set[int] | None]:
    """The epochs whose owners have died as far as the log shows, oldest first, each with the sequences in question
    (None: all).

    An owner that held messages and no longer has a key has died, because the log records the end of held messages
    before the key is deleted. `clean`: the log's last epoch ended cleanly.
    """
    held: dict[int, set[int]] = {}
    for sequence, mark in log.marks.items():
        if (epoch := holder_of(mark)) and epoch not in released:
            held.setdefault(epoch, set()).add(sequence)
    last = {} if clean else {log.epoch: None}
    return {**dict(sorted(held.items())), **last}


def mark_suspects(
    records: Iterable[BusyRecord], lane: LaneId, epoch: int, held: Collection[int] | None
) -> list[InFlightListing]:
    """The messages that may have killed the owner of an epoch: those that its in-flight record names.

    If the owner had released the partition, these are the messages that it `held` at its death, recorded or not: the
    key, or the mark in the log, names them exactly.
    """
    recorded = {each.sequence: each for each in list_in_flight(records, lane, epoch)}
    if held is None:
        return [*recorded.values()]
    unrecorded = InFlightListing(0, counts=False, confirmed=False, at=0)
    return [recorded.get(sequence) or unrecorded._replace(sequence=sequence) for sequence in sorted(held)]


async def read_in_flight(
    store: Store, lane: LaneId, records: list[BusyRecord], epoch: int, held: Collection[int] | None
) -> list[InFlightListing]:
    """The suspects of an epoch that still exist. A message that arrived after the record that names its sequence is
    another message: the stream has been rolled back since. Raises Lost.
    """
    among = mark_suspects(records, lane, epoch, held)
    found = [each for each in among if each.counts]
    while found:
        last = found[-1]
        stored = (await store.get(lane, [last.sequence]))[0]
        if stored is not None and stored.at <= last.at + _CLOCKS:
            break  # earlier sequences arrived earlier, so they are still there, too
        found.pop()
    return sorted([*found, *(each for each in among if not each.counts)])


def find_blocked(held: Iterable[HeldRecord], kind: str, created: str) -> dict[int, BlockedLane]:
    """By epoch, the messages that blocked previous owners of a stream until their processes ended themselves."""
    found = {record.epoch: part for record in held if (part := record.blocked.get(kind)) is not None}
    return {epoch: part for epoch, part in found.items() if part.created == created}


def choose_accused(
    blockers: Mapping[int, BlockedLane], dead: Collection[int], found: Iterable[InFlightListing]
) -> list[InFlightListing]:
    """The messages that blocked an owner whose epoch is in `dead`, and that `found` doesn't accuse yet.

    The cause is known, so an attempt counts whether or not a record names the message. A message already `found` as the
    cause isn't counted twice. A message of a batch is one of several possible causes.
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
    """Mark messages that were in flight when their process died as suspects."""
    found = [each for each in found if each.sequence not in lane.settled and each.sequence <= lane.high]
    for each in found:
        lane.log.mark_died(each.sequence, now_ns(), counts=each.counts, confirmed=each.confirmed)
    if found:
        _log.warning(
            "a process died, or lost its lease, with messages in flight: they are handled one at a time",
            **lane_fields(lane), count=len(found), confirmed=sum(each.confirmed for each in found),
        )  # fmt: skip
