"""Mutants of the product, each with one defect: the crash horizon, and the suspects of a death (X11)."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import msgspec

from evenlane.engine.core.lane import crash_horizon
from evenlane.engine.core.lane.attempts import SUSPECT
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.records import in_flight_record, settle_record
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.dispatch import dispatcher
from evenlane.engine.node.eligibility.suspects import Suspects
from evenlane.engine.node.partitions import crash_suspects, previous_owners, takeover
from tests.simulation.mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.core.lane.in_flight_set import InFlightListing
    from evenlane.engine.core.lane.log_state import LogState
    from evenlane.engine.core.lane.settle_log import Append
    from evenlane.engine.core.ports import BusyRecord, LaneState
    from evenlane.engine.core.queue.entry import Entry
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.in_flight_record import InFlightRecord
    from evenlane.engine.core.records.settle_record import SettleRecord

_POISON = ("poison",)


# ---- the place of the horizon


@contextmanager
def _noted_late() -> Iterator[None]:
    """The fence has the previous owner's horizon; the owner's own one follows with the first settlement."""
    real_recover, real_next_append = Lane.recover, Lane.next_append
    late: WeakKeyDictionary[Lane, int] = WeakKeyDictionary()

    def recover(self: Lane, log: LogState, state: LaneState, high_at: int | None, own: int = 0) -> bool:
        late[self] = own
        return real_recover(self, log, state, high_at, log.horizon)

    def next_append(self: Lane, now: int, *, fence: bool = False) -> Append | None:
        if not fence:
            self.horizon = late.pop(self, self.horizon)
        return real_next_append(self, now, fence=fence)

    with patch.object(Lane, "recover", recover), patch.object(Lane, "next_append", next_append):
        yield


@contextmanager
def _not_carried() -> Iterator[None]:
    """A clean end ends the horizon."""

    def horizon_of(log: LogState, state: LaneState, *, clean: bool) -> int:
        return 0 if log.clean else crash_horizon.horizon_of(log, state, clean=clean)

    with patch.object(takeover, "horizon_of", horizon_of):
        yield


@contextmanager
def _dropped_early() -> Iterator[None]:
    """The first settlement drops the horizon."""
    real = Lane.next_append

    def next_append(self: Lane, now: int, *, fence: bool = False) -> Append | None:
        if not fence:
            self.horizon = 0
        return real(self, now, fence=fence)

    with patch.object(Lane, "next_append", next_append):
        yield


@contextmanager
def _lower_one() -> Iterator[None]:
    """Of two deaths the lower horizon counts."""

    def horizon_of(log: LogState, state: LaneState, *, clean: bool) -> int:
        if log.horizon and not clean:
            return min(log.horizon, state.last)
        return crash_horizon.horizon_of(log, state, clean=clean)

    with patch.object(takeover, "horizon_of", horizon_of):
        yield


@contextmanager
def _lanes_only() -> Iterator[None]:
    """Delay streams have no horizon."""
    real = Lane.recover

    def recover(self: Lane, log: LogState, state: LaneState, high_at: int | None, own: int = 0) -> bool:
        return real(self, log, state, high_at, 0 if self.later else own)

    with patch.object(Lane, "recover", recover):
        yield


# ---- clean and unclean ends


@contextmanager
def _clean_while_it_runs() -> Iterator[None]:
    """The log records a clean end while handlers run; all else is right."""
    real = Lane.next_append
    records: list[SettleRecord] = []

    def next_append(self: Lane, now: int, *, fence: bool = False) -> Append | None:
        early = self.handoff is not None and not self.has_ended and self.log.has_begun
        if early:
            self.log.checkpoint_due = True
        append = real(self, now, fence=fence)
        if early and append is not None:
            records[:] = [append.record]
        return append

    real_encode = settle_record.encode

    def encode(record: SettleRecord, version: int = 0) -> bytes:
        early = records and records[0] is record
        return real_encode(msgspec.structs.replace(record, clean=True) if early else record, version)

    with patch.object(Lane, "next_append", next_append), patch.object(settle_record, "encode", encode):
        yield


@contextmanager
def _unclean_by_records() -> Iterator[None]:
    """An end is unclean only if an in-flight record names something."""
    real = crash_suspects.read_in_flight
    named: ContextVar[bool] = ContextVar("named", default=False)

    async def in_flight(*of: Any) -> list[InFlightListing]:
        found = await real(*of)
        named.set(bool(found))
        return found

    def horizon_of(log: LogState, state: LaneState, *, clean: bool) -> int:
        return crash_horizon.horizon_of(log, state, clean=clean or not named.get())

    with patch.object(takeover, "read_in_flight", in_flight), patch.object(takeover, "horizon_of", horizon_of):
        yield


@contextmanager
def never_clean() -> Iterator[None]:
    """Harmless: every end sets a horizon."""

    def horizon_of(log: LogState, state: LaneState, *, clean: bool) -> int:
        return crash_horizon.horizon_of(log, state, clean=clean and not log.created)

    with patch.object(takeover, "horizon_of", horizon_of):
        yield


@contextmanager
def own_epoch_unclean() -> Iterator[None]:
    """Harmless: a takeover that is repeated under its epoch takes its own first record for an unclean end."""

    def has_ended_cleanly(log: LogState, state: LaneState, _epoch: int, released: Any) -> bool:
        return crash_horizon.has_ended_cleanly(log, state, -1, released)

    with patch.object(takeover, "has_ended_cleanly", has_ended_cleanly):
        yield


# ---- in-flight records and their effect


@contextmanager
def _single_attempts_free() -> Iterator[None]:
    """Messages with a single attempt start unrecorded, as others do."""

    def is_recorded(queue: Queue, entry: Entry, mark: int) -> bool:
        fresh = entry[1] > entry[0].horizon and not mark & SUSPECT and h.value(entry[3], h.RECORDED) is None
        return not fresh

    with patch.object(dispatcher, "_is_recorded", is_recorded):
        yield


@contextmanager
def _copies_free() -> Iterator[None]:
    """The copy of a message that was recorded in flight starts unrecorded."""
    real = dispatcher._is_recorded

    def is_recorded(queue: Queue, entry: Entry, mark: int) -> bool:
        return real(queue, (*entry[:3], b"", *entry[4:]), mark)  # type: ignore[arg-type]

    with patch.object(dispatcher, "_is_recorded", is_recorded):
        yield


def _readable(records: Iterable[BusyRecord]) -> Iterator[tuple[int, InFlightRecord]]:
    read = ((at, in_flight_record.decode(raw)) for at, raw in records)
    return ((at, record) for at, record in read if record is not None)


@contextmanager
def _lone_confirmed() -> Iterator[None]:
    """The only message that a record names is taken for the confirmed cause."""
    real = crash_suspects.list_in_flight

    def listed(records: Any, *of: Any) -> list[InFlightListing]:
        lone = {at for at, record in _readable(records) if sum(len(part[3]) for part in record.parts) == 1}
        return [each._replace(confirmed=each.confirmed or each.at in lone) for each in real(records, *of)]

    with patch.object(crash_suspects, "list_in_flight", listed):
        yield


@contextmanager
def _company_free() -> Iterator[None]:
    """If a record names a suspect, no attempt of the other messages in it is counted."""
    real = crash_suspects.list_in_flight

    def listed(records: Any, *of: Any) -> list[InFlightListing]:
        accusing = {at for at, record in _readable(records) if record.suspect is not None}
        return [each._replace(counts=each.confirmed or each.at not in accusing) for each in real(records, *of)]

    with patch.object(crash_suspects, "list_in_flight", listed):
        yield


@contextmanager
def _held_and_gone_unsuspected() -> Iterator[None]:
    """A message that a previous owner held at its death is no suspect unless a record names it."""
    real = crash_suspects.mark_suspects

    def suspects(*of: Any) -> list[InFlightListing]:
        return [each for each in real(*of) if each.counts]

    with (
        patch.object(crash_suspects, "mark_suspects", suspects),
        patch.object(previous_owners, "mark_suspects", suspects),
    ):
        yield


@contextmanager
def _last_attempt_in_company() -> Iterator[None]:
    """A suspect's last attempt runs at the same time as other recorded messages."""
    with patch.object(Suspects, "_prepare_last", lambda *_: True):
        yield


@contextmanager
def _suspects_all_at_once() -> Iterator[None]:
    """All messages that were in flight when a process died may run at the same time."""
    real = Suspects.judge

    def judge(self: Suspects, *of: Any, **rest: Any) -> bool:
        self._running = None
        return real(self, *of, **rest)

    with patch.object(Suspects, "judge", judge):
        yield


HORIZON_MUTANTS = {
    "horizon noted after the start": Mutant(_noted_late, _POISON, 50, 10),
    "horizon not carried": Mutant(_not_carried, _POISON, 50, 968),
    "horizon dropped early": Mutant(_dropped_early, _POISON, 50, 17),
    "lower horizon counts": Mutant(_lower_one, _POISON, 50, 373),
    "horizon of lanes only": Mutant(_lanes_only, _POISON, 50, 74),
    "clean while handlers run": Mutant(_clean_while_it_runs, _POISON, 20, 193),
    "unclean by records": Mutant(_unclean_by_records, _POISON, 50, 10),
    "single attempts unrecorded": Mutant(_single_attempts_free, _POISON, 50, 10),
    "copies unrecorded": Mutant(_copies_free, _POISON, 50, 839),
    "lone one confirmed": Mutant(_lone_confirmed, _POISON, 50, 1519),
    "company of a suspect goes free": Mutant(_company_free, _POISON, 50, 1280),
    "held and gone unsuspected": Mutant(_held_and_gone_unsuspected, _POISON, 50, 35),
    "last attempt in company": Mutant(_last_attempt_in_company, _POISON, 50, 3548),
    "suspects all at once": Mutant(_suspects_all_at_once, _POISON, 50, 10),
}
