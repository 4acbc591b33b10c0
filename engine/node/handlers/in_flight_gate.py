"""The gate before the handlers: what may have been in flight at a death starts once a record that names it is safe
(X11).

All other messages start at once (engine/core/lane/crash_horizon.py). One record is on its way at a time: what comes
meanwhile is named together by the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from secrets import token_hex
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.core.lane.in_flight_record import InFlightSet
from evenlane.engine.core.ports import Lost, Refused

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Receipt, Store
    from evenlane.engine.node.signals.events import NodeEvents
    from evenlane.engine.node.signals.work_signal import WorkSignal

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.2
_CLEAN_S = 0.1


class InFlightGate:
    """`open` holds the units that may start, in turn: single messages or batches.

    `events` learns when the store refuses records or takes them again, and when no recorded message is in flight any
    more; `signal`, when units may start.
    """

    def __init__(self, store: Store, env: str, signal: WorkSignal, events: NodeEvents) -> None:
        self._store, self._signal, self._events = store, signal, events
        # A token, not the node's id: one that is started anew must not overwrite what its former life has left.
        self._subject = names.busy_subject(env, token_hex(8))
        self._in_flight = InFlightSet()
        self._reserved: set[tuple[Lane, int]] = set()  # by no record, and yet in flight
        # The message that has a place now. A later attempt may have the same one, or another message after a roll-back.
        self._by_place: dict[tuple[Lane, int], Message] = {}
        self.open: deque[list[Message]] = deque()
        self._waiting: list[list[Message]] = []  # for the next record
        self._sending: list[list[Message]] | None = None  # for the record that is on its way, or is tried again
        self._dirty = False  # something has ended since the last record
        self._cleaning: asyncio.TimerHandle | None = None
        self._named: list[asyncio.Future[None]] = []  # resolved when the record after this one is safe
        self._being_named: list[asyncio.Future[None]] = []
        self.held = 0
        """Slots taken by what has not started yet."""
        self._failures = 0
        self._closed = False

    @property
    def failing(self) -> bool:
        """The record can't be written now: nothing that needs one should be handed out."""
        return self._failures > 0

    @property
    def busy(self) -> bool:
        """Whether anything that is recorded has started, or may start."""
        return self._in_flight.count > 0 or bool(self._reserved)

    @property
    def messages(self) -> list[Message]:
        """What hasn't started yet."""
        return [message for unit in self._units() for message in unit]

    def _units(self) -> list[list[Message]]:
        return [*self.open, *(self._sending or ()), *self._waiting]

    def of(self, lane: Lane) -> frozenset[int]:
        """What of a lane is recorded, and has started or may start."""
        return self._in_flight.of(lane)

    def enter(self, unit: list[Message]) -> None:
        """Have its messages named by the next record: they start together."""
        for message in unit:
            message.recorded = True
            self.add(message)
        self._waiting.append(unit)
        self.held += 1

    def reserve(self, message: Message) -> None:
        """Its attempt has ended, and its fallback follows: it counts as in flight until `add` has it named again."""
        self._reserved.add(message.place)

    def release(self, message: Message) -> None:
        """Its fallback won't be handled here after all; no effect if it was, or none was to follow."""
        if message.place in self._reserved:
            self._reserved.discard(message.place)
            if not self.busy:
                self._events.records_idle()

    def add(self, message: Message) -> None:
        """Name it by the next record."""
        self._reserved.discard(message.place)
        lane, sequence = message.place
        self._by_place[message.place] = message
        self._in_flight.add(lane, sequence)
        if message.suspect:
            self._in_flight.suspect = message.place

    def pop(self) -> list[Message] | None:
        """What may start next, None if nothing may: it has the slot from now on."""
        if not self.open:
            return None
        self.held -= 1
        return self.open.popleft()

    def take_all(self) -> list[list[Message]]:
        """All that hasn't started, in turn: it is in the gate no more."""
        units = self._units()
        self.open.clear()
        self._waiting = []
        if self._sending is not None:
            self._sending = []
        self.held = 0
        return units

    def left(self, message: Message) -> None:
        """It has ended, or won't start after all. No effect if its place is another's by now."""
        if self._by_place.get(message.place) is not message:
            return
        del self._by_place[message.place]
        if not self._in_flight.remove(*message.place):
            return
        if self._in_flight.suspect == message.place:
            self._in_flight.suspect = None
        self._dirty = True
        self._clean_later()
        if not self.busy:
            self._events.records_idle()

    def close(self) -> None:
        """Write nothing more."""
        self._closed = True
        if self._cleaning is not None:
            self._cleaning.cancel()

    # ---- records, one after another

    def flush(self) -> None:
        """Write the next record, unless nothing waits for one, or one is on its way."""
        if self._waiting:
            self._write()

    async def named(self) -> None:
        """Wait until what was added so far is named by a record that is safe."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._named.append(future)
        self._write()
        await future

    def _clean_later(self) -> None:
        if self._cleaning is None and not self._closed:
            self._cleaning = asyncio.get_running_loop().call_later(_CLEAN_S, self._clean)

    def _clean(self) -> None:
        """What has ended long ago must not be named for ever: it would count as an attempt if the process dies."""
        self._cleaning = None
        if self._dirty:
            self._write()

    def _write(self) -> None:
        if self._closed or self._sending is not None:
            return
        self._sending, self._waiting = self._waiting, []
        self._being_named, self._named = self._named, []
        self._send()

    def _send(self) -> None:
        if self._closed:
            return
        self._dirty = False
        put = self._store.put(self._subject, b"", self._in_flight.record())
        put.add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[Receipt]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._safe()
        elif isinstance(error, Lost | Refused):
            self._refused(error)
        else:
            raise error

    def _refused(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1 or self._failures % 50 == 0:
            _log.warning("the in-flight record can't be written: messages that need one wait", error=str(error))
        if self._failures == 1:
            self._events.records_changed()
        asyncio.get_running_loop().call_later(_PAUSE_S, self._send)

    def _safe(self) -> None:
        recovered, self._failures = self._failures > 0, 0
        opened, self._sending = self._sending or [], None
        named, self._being_named = self._being_named, []
        self.open.extend(opened)
        for each in named:
            if not each.done():
                each.set_result(None)
        if recovered:
            self._events.records_changed()
        if opened:
            self._signal.notify()
        if self._waiting or self._named:
            self._write()
        elif self._dirty:
            self._clean_later()
