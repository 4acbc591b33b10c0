"""The gate before the handlers: a message starts once an in-flight record that names it is safe (X11).

What comes while a record is on its way is named together in the next. So it costs a round trip of delay, and at most
one small write a millisecond or for each few messages (docs/adr/0018). Where the store takes long, a second record
follows the first as soon as it has half as much to name: slots shouldn't wait for two round trips.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

import structlog

from engine import names
from engine.clock import now_ns
from engine.inflight import InFlight
from engine.ports import Lost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.lane import Lane
    from engine.message import Message
    from engine.ports import Receipt, Store

_log = structlog.get_logger(__name__)

_TICK = 1_000_000  # ns between two records, unless there is much to be named
_LATE = 20_000_000  # ns
_PAUSE_S = 0.2
_CLEAN_S = 0.1
_SAID_S = 1.0
_AT_ONCE = 2  # records
_CLOSED_S = 0.5


class _Record:
    """On its way: what may start when it is safe, who is told then, and when it was tried for the first time."""

    __slots__ = ("since", "told", "units")

    def __init__(self, units: list[list[Message]], told: list[asyncio.Future[None]], since: int) -> None:
        self.units, self.told, self.since = units, told, since


class Gate:
    """`open` holds what may start, in turn: single messages or batches. `on_open` is called when some came in. As soon
    as `much` waits to be named, no tick is waited for. `on_late(message, ns)` is told, for one message of each topic,
    that a record took unusually long: what the quota allowed in that time starts all at once. `held_up` is set when
    what came in had waited long enough for its time to live to be over.
    """

    def __init__(
        self, store: Store, env: str, on_open: Callable[[], None], on_late: Callable[[Message, int], None], much: int
    ) -> None:
        self._store, self._on_open, self._on_late, self._much = store, on_open, on_late, much
        # A token, not the node's id: one that is started anew must not overwrite what its former life has left.
        self._subject = names.busy_subject(env, token_hex(8))
        self._in_flight = InFlight()
        self.open: deque[list[Message]] = deque()
        self._waiting: list[list[Message]] = []
        self._records: deque[_Record] = deque()  # on their way, or to be tried again; each names what the former did
        self._dirty = False  # something has ended since the last record
        self._cleaning: asyncio.TimerHandle | None = None
        self._last = 0
        self.held_up = False
        self.opened_at = 0  # when messages were last allowed to start, monotonic ns
        self._usual = 0.0  # ns until a record is safe, moving average
        self._told_late: dict[str, int] = {}  # by project, when it was told last
        self._timer: asyncio.TimerHandle | None = None
        self._next: list[asyncio.Future[None]] = []  # told when the record after those is safe
        self._ever = False
        self._failures = 0
        self._closed = False

    @property
    def failing(self) -> bool:
        """The record can't be written now: nothing more should be handed out."""
        return self._failures > 0

    @property
    def naming(self) -> bool:
        """Something waits for a record to be safe."""
        return bool(self._waiting) or any(record.units for record in self._records)

    @property
    def held(self) -> int:
        """Slots taken by what hasn't started yet."""
        return len(self.open) + len(self._waiting) + sum([len(record.units) for record in self._records])

    @property
    def messages(self) -> list[Message]:
        """What hasn't started yet."""
        return [message for messages in self._units() for message in messages]

    def _units(self) -> list[list[Message]]:
        return [*self.open, *(unit for record in self._records for unit in record.units), *self._waiting]

    def enter(self, units: list[list[Message]]) -> None:
        """Have them named by the next record."""
        lanes = self._in_flight.lanes
        for messages in units:
            for message in messages:
                entry = message._entry  # noqa: SLF001 - saves some calls for each message
                of = lanes.get(entry[0])
                if of is not None:
                    of.add(entry[1])
                else:
                    self._in_flight.add(entry[0], entry[1])
                if message._mark and message.suspect:  # noqa: SLF001
                    self._in_flight.suspect = message.place
        self._waiting += units

    def take_all(self) -> list[list[Message]]:
        """All that hasn't started, in turn: it is in the gate no more."""
        units = self._units()
        self._forget_units()
        return units

    def _forget_units(self) -> None:
        self.open.clear()
        self._waiting = []
        for record in self._records:
            record.units = []

    def add(self, message: Message) -> None:
        """Name it, too."""
        lane, sequence = message.place
        self._in_flight.add(lane, sequence)

    def left(self, message: Message) -> None:
        """It has ended, or won't start after all."""
        entry = message._entry  # noqa: SLF001
        of = self._in_flight.lanes.get(entry[0])
        if of is not None:
            of.discard(entry[1])
        if not self._dirty:
            self._dirty = True
            if self._cleaning is None:
                self._clean_later()
        if message._mark and self._in_flight.suspect == message.place:  # noqa: SLF001
            self._in_flight.suspect = None

    def of(self, lane: Lane) -> frozenset[int]:
        """What of a lane has started, or may start at any moment."""
        return self._in_flight.of(lane)

    def flush(self, now: int) -> bool:
        """Write the next record, now or in a moment; True if it is on its way to the store's connection."""
        if not self._waiting or self._closed:
            return False
        waiting = len(self._waiting)
        if self._records:
            due = 2 * waiting >= max(self._much, len(self._records[0].units))
        else:
            due = waiting >= self._much or now - self._last >= _TICK
        if due:
            return self._write(now)
        if self._timer is None and not self._records:
            self._timer = asyncio.get_running_loop().call_later(_TICK / 1e9, self._rung)
        return False

    def _clean_later(self) -> None:
        if not self._closed:
            self._cleaning = asyncio.get_running_loop().call_later(_CLEAN_S, self._clean)

    def _clean(self) -> None:
        """What has ended long ago must not be named for ever: it would count as an attempt if the process dies."""
        self._cleaning = None
        if self._dirty and not self._records:
            self._write(now_ns())

    async def named(self) -> None:
        """Wait until what was added so far is named by a record that is safe."""
        await self._next_record()

    async def without(self, lane: Lane, running: set[int]) -> bool:
        """Have no record name more of a lane than what is still running; False if that takes longer than a second."""
        if not self._ever:
            return True
        for sequence in self._in_flight.of(lane) - running:
            self._in_flight.remove(lane, sequence)
        try:
            async with asyncio.timeout(_SAID_S):
                await self._next_record()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """The node ends in peace: what it had to leave running has killed nothing, and isn't named any more."""
        self._dirty = self._dirty or self._in_flight.busy
        self._in_flight = InFlight()
        self._forget_units()
        if self._ever and self._dirty:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSED_S):
                    await self._next_record()
        self._closed = True
        for timer in (self._timer, self._cleaning):
            if timer is not None:
                timer.cancel()

    # ---- one record after another

    async def _next_record(self) -> None:
        """Wait for a record that isn't made yet. All who wait meanwhile share it: each with its own, or one that is
        made for new messages in between, a hand-over of many partitions would take as many round trips.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next.append(future)
        self._write(now_ns())
        await future

    def _rung(self) -> None:
        self._timer = None
        self.flush(now_ns())

    def _write(self, now: int) -> bool:
        if self._closed or self.failing or len(self._records) == _AT_ONCE:
            return False
        self._last = now
        record = _Record(self._waiting, self._next, now)
        self._waiting, self._next = [], []
        self._records.append(record)
        self._ever = True
        self._send(record)
        return True

    def _send(self, record: _Record) -> None:
        self._dirty = False
        put = self._store.put(self._subject, b"", self._in_flight.record())
        put.add_done_callback(partial(self._answered, record))

    def _answered(self, record: _Record, future: asyncio.Future[Receipt]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if record not in self._records:  # a later one is safe, and names the same
            return
        if error is None:
            self._safe(record)
        elif isinstance(error, Lost | Refused):
            self._failures += 1
            if self._failures == 1 or self._failures % 50 == 0:
                _log.warning("the in-flight record can't be written: nothing new is started", error=str(error))
            self._not_written(record)
        else:
            raise error

    def _not_written(self, record: _Record) -> None:
        """A later one that is on its way names the same; else it is tried again."""
        last = self._records[-1]
        if last is record:
            asyncio.get_running_loop().call_later(_PAUSE_S, self._again, record)
            return
        last.units, last.told, last.since = record.units + last.units, record.told + last.told, record.since
        self._records.remove(record)

    def _again(self, record: _Record) -> None:
        if record in self._records and not self._closed:
            self._send(record)

    def _safe(self, record: _Record) -> None:
        recovered, self._failures = self._failures > 0, 0
        now = now_ns()
        took = now - self._records[0].since  # what was named first has waited longest
        late = took > _LATE and took > 4 * self._usual
        self._usual += (took - self._usual) / 16
        opened: list[list[Message]] = []
        told: list[asyncio.Future[None]] = []
        while record in self._records:  # and those before it
            safe = self._records.popleft()
            opened += safe.units
            told += safe.told
        if opened:
            self.open.extend(opened)
            self.opened_at = now
            self.held_up = self.held_up or took > _LATE
            if late:
                self._tell_late(opened)
        for each in told:
            if not each.done():
                each.set_result(None)
        if opened or recovered:
            self._on_open()
        if self._dirty and self._cleaning is None:
            self._clean_later()
        if self._next:
            self._write(now_ns())
        else:
            self.flush(now_ns())

    def _tell_late(self, opened: list[list[Message]]) -> None:
        now = now_ns()
        oldest: dict[str, Message] = {}
        for messages in opened:
            oldest.setdefault(messages[0].project, messages[0])
        for project, message in oldest.items():
            self._on_late(message, now - max(message.chosen, self._told_late.get(project, 0)))
            self._told_late[project] = now
        if not self._records:  # (of two that were late together the second has only what came after the first)
            self._told_late.clear()
