"""The gate before the handlers: a message that may have been in flight at a death starts once a stored record names it
(X11).

All other messages bypass the gate (engine/core/lane/crash_horizon.py). One record is written at a time; messages that
arrive meanwhile are named together by the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from secrets import token_hex
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.core.lane.in_flight_set import InFlightSet
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
    """Holds units (single messages or batches) until their in-flight record is stored. A unit moves from `_waiting` to
    `_sending` to `open`, from where it may start.

    Invariants:
    - `occupied` is the number of units in the gate, each of which occupies a slot.
    - At most one record is under way; `_sending` isn't None exactly while one is, retries included.
    - `_in_flight` names all messages that are in the gate, or have started and not ended. `_reserved` has those between
      an attempt and its fallback: in flight, yet named by no record.
    - `_by_place` has the current message of each place. A later attempt may have the same place, and so may another
      message after a rollback; `remove` ignores messages that were replaced.

    `events` is notified when the store refuses records or accepts them again, and when no recorded message is in flight
    any more; `signal`, when units may start.
    """

    def __init__(self, store: Store, env: str, signal: WorkSignal, events: NodeEvents) -> None:
        self._store, self._signal, self._events = store, signal, events
        # A random token, not the node's id: a restarted node must not overwrite the record of its previous process.
        self._subject = names.busy_subject(env, token_hex(8))
        self._in_flight = InFlightSet()
        self._reserved: set[tuple[Lane, int]] = set()
        self._by_place: dict[tuple[Lane, int], Message] = {}
        self.open: deque[list[Message]] = deque()
        self._waiting: list[list[Message]] = []  # units for the next record
        self._sending: list[list[Message]] | None = None  # units of the record under way
        self._dirty = False  # a message has ended since the last record
        self._cleaning: asyncio.TimerHandle | None = None
        self._named: list[asyncio.Future[None]] = []  # resolved once the next record is stored
        self._being_named: list[asyncio.Future[None]] = []
        self.occupied = 0
        """Slots occupied by units that haven't started yet."""
        self._failures = 0
        self._closed = False

    @property
    def is_failing(self) -> bool:
        """Whether records can't be written at present: no message that needs one should be handed out."""
        return self._failures > 0

    @property
    def is_busy(self) -> bool:
        """Whether any recorded message has started, or may start."""
        return self._in_flight.count > 0 or bool(self._reserved)

    @property
    def messages(self) -> list[Message]:
        """The messages that haven't started yet."""
        return [message for unit in self._units() for message in unit]

    def _units(self) -> list[list[Message]]:
        return [*self.open, *(self._sending or ()), *self._waiting]

    def list_recorded(self, lane: Lane) -> frozenset[int]:
        """The recorded messages of a lane that have started or may start."""
        return self._in_flight.in_lane(lane)

    def enter(self, unit: list[Message]) -> None:
        """Take in a unit: the next record names its messages, which then start together."""
        for message in unit:
            message.recorded = True
            self.add(message)
        self._waiting.append(unit)
        self.occupied += 1

    def reserve(self, message: Message) -> None:
        """Keep a message in flight between its attempt and its fallback, until `add` has it named again."""
        self._reserved.add(message.place)

    def release(self, message: Message) -> None:
        """End `reserve`: the fallback won't run here after all. No effect if it has run, or none was reserved."""
        if message.place in self._reserved:
            self._reserved.discard(message.place)
            if not self.is_busy:
                self._events.on_records_idle()

    def add(self, message: Message) -> None:
        """Name the message in the next record."""
        self._reserved.discard(message.place)
        lane, sequence = message.place
        self._by_place[message.place] = message
        self._in_flight.add(lane, sequence)
        if message.is_suspect:
            self._in_flight.suspect = message.place

    def pop(self) -> list[Message] | None:
        """The next unit that may start, None if none may. Its slot passes to the caller."""
        if not self.open:
            return None
        self.occupied -= 1
        return self.open.popleft()

    def take_all(self) -> list[list[Message]]:
        """Remove and return all units that haven't started, in order."""
        units = self._units()
        self.open.clear()
        self._waiting = []
        if self._sending is not None:
            self._sending = []
        self.occupied = 0
        return units

    def remove(self, message: Message) -> None:
        """Remove a message that has ended, or won't start. No effect if its place belongs to another message by now."""
        if self._by_place.get(message.place) is not message:
            return
        del self._by_place[message.place]
        if not self._in_flight.remove(*message.place):
            return
        if self._in_flight.suspect == message.place:
            self._in_flight.suspect = None
        self._dirty = True
        self._clean_later()
        if not self.is_busy:
            self._events.on_records_idle()

    def close(self) -> None:
        """Write no more records."""
        self._closed = True
        if self._cleaning is not None:
            self._cleaning.cancel()

    # ---- records, one at a time

    def flush(self) -> None:
        """Write the next record, unless no unit waits for one or one is under way."""
        if self._waiting:
            self._write()

    async def wait_until_named(self) -> None:
        """Wait until all messages added so far are named by a stored record."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._named.append(future)
        self._write()
        await future

    def _clean_later(self) -> None:
        if self._cleaning is None and not self._closed:
            self._cleaning = asyncio.get_running_loop().call_later(_CLEAN_S, self._clean)

    def _clean(self) -> None:
        """Write a record without the messages that have ended: otherwise, if the process died, an attempt would be
        counted for each of them.
        """
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
        put.add_done_callback(self._on_answer)

    def _on_answer(self, future: asyncio.Future[Receipt]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._safe()
        elif isinstance(error, Lost | Refused):
            self._on_refusal(error)
        else:
            raise error

    def _on_refusal(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1 or self._failures % 50 == 0:
            _log.warning("the in-flight record can't be written: messages that need one wait", error=str(error))
        if self._failures == 1:
            self._events.on_records_change()
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
            self._events.on_records_change()
        if opened:
            self._signal.notify()
        if self._waiting or self._named:
            self._write()
        elif self._dirty:
            self._clean_later()
