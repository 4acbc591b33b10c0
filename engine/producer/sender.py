"""From addressed puts to acknowledged ones: many on their way at once, sent again until a deadline.

A message whose answer got lost may be stored or not. It is sent again under the same id, which the store
takes once within its duplicate window; so nothing is sent again later than that. Messages of one subject
never overtake one another on the way to be sent again, as their order may matter.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.base.aio.cancellation import cancel_and_wait
from evenlane.engine.core.ports import Full, Lost, QueueFull, Receipt, Refused, TooLarge
from evenlane.engine.errors import (
    BacklogFull,
    EvenlaneError,
    NotAcknowledged,
    PayloadTooLarge,
    ProducerClosed,
    PutRefused,
)
from evenlane.engine.producer.no_reply import AFTER_S, UNKNOWN, ReplyTimeouts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.ports import Store
    from evenlane.engine.producer.put import Completion, Outcome, PendingPut
    from evenlane.engine.producer.window import Window

_TICK_S = 0.25
_TICK_AGAIN_S = 0.02
_ANSWER_S = 5.0  # an answer that takes longer won't come: its server or its leader has changed
_BACKOFF_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_RESTORE_EVERY_S = 2.0
CLOSED = "this producer is closed: put inside `async with Producer(...)`"


class Sender:
    """`timeout_s` bounds all tries of a message together, `window_s` is the store's duplicate window;
    `restore` makes streams that are gone; it is called when messages are lost while the store answers.
    """

    def __init__(
        self,
        store: Store,
        window: Window,
        *,
        timeout_s: float,
        window_s: float,
        restore: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self.window = store, window
        self._timeout_s, self._window_s, self._restore = timeout_s, window_s, restore
        # A try on its way when the store's window ends could be stored a second time.
        self._last_try_s = min(timeout_s, window_s) * 0.95
        self._flying: dict[PendingPut, None] = {}
        self._again: list[PendingPut] = []
        self._held: set[str] = set()  # subjects of `_again`
        self._orders = 0
        self._busy = asyncio.Event()
        self._is_busy = False
        self._silence = ReplyTimeouts(store)
        self._tending: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._restored_at = 0.0
        self._closed = True

    def open(self) -> None:
        self._closed = False
        self._tending = asyncio.create_task(self._tend(), name="producer retries")

    async def close(self) -> None:
        """What waits for its acknowledgement fails with NotAcknowledged."""
        self._closed = True
        for task in (self._tending, self._restoring):
            if task is not None:
                await cancel_and_wait(task)
        await self._silence.close()
        self.window.fail(ProducerClosed(CLOSED))
        for sending in [*self._flying, *self._again]:
            sending.why = "the producer was closed"
            self._end(sending, self._unknown(sending))

    @property
    def closed(self) -> bool:
        return self._closed

    def drop(self, sending: PendingPut) -> None:
        """Nobody waits any more for it; it may be stored or not. Harmless if it has ended."""
        self._end(sending, None)

    def forget(self, landing: Completion) -> None:
        """Nobody waits any more for these; they may be stored or not."""
        for sending in [*self._flying, *self._again]:
            if sending.landing is landing:
                self._end(sending, None)

    async def room(self, sending: PendingPut) -> None:
        """Take room for a message; raises NotAcknowledged, ProducerClosed. The wait is part of its time."""
        try:
            async with asyncio.timeout(sending.deadline - monotonic()):
                await self.window.wait(sending.size)
        except TimeoutError:
            why = self._silence.any_reason(monotonic())
            raise NotAcknowledged(
                f"the message for {sending.project} was not sent and is not stored: "
                f"for {self._timeout_s:g} s the store acknowledged too little of what was put before it"
                + (f" ({why})" if why else "")
            ) from None

    def send(self, sending: PendingPut) -> None:
        """Send what room was taken for; its `landing` gets the receipt or the error, never at once."""
        self._orders += 1
        sending.order = self._orders
        now = monotonic()
        if not sending.deadline:
            sending.deadline = now + self._timeout_s
        if self._closed:
            asyncio.get_running_loop().call_soon(self._end, sending, ProducerClosed(CLOSED))
        elif self._held and sending.subject in self._held:
            self._put_off(sending, "")
        else:
            self._try(sending, now)
        if not self._is_busy:
            self._is_busy = True
            self._busy.set()

    def _try(self, sending: PendingPut, now: float) -> None:
        number = sending.tries + 1
        try:
            self._store.put_then(
                sending.subject, sending.headers, sending.body, partial(self._answered, sending, number)
            )
        except Lost as lost:
            self._put_off(sending, str(lost))
            return
        sending.tries = number
        sending.sent_at = now
        self._flying[sending] = None

    def _answered(self, sending: PendingPut, number: int, answer: Receipt | Exception) -> None:
        """To try number `number`. A receipt counts however late it comes, a no only while its try is waited for."""
        if sending.size < 0:
            return  # it had ended
        if isinstance(answer, Receipt):
            if answer.duplicate and sending.tries > 1 and sending.fresh:
                answer = answer._replace(duplicate=False)  # of a try of our own
            self._end(sending, answer)
        elif number == sending.tries and sending in self._flying:
            if isinstance(answer, Lost):
                self._lost(sending, str(answer))
            else:
                self._end(sending, _refusal(sending, answer))

    def _lost(self, sending: PendingPut, why: str) -> None:
        del self._flying[sending]
        pause = _BACKOFF_S[min(sending.tries, len(_BACKOFF_S)) - 1]
        sending.next_try = monotonic() + uniform(pause / 2, pause)  # noqa: S311 - spreads load, hides nothing
        self._put_off(sending, why)

    def _put_off(self, sending: PendingPut, why: str) -> None:
        sending.why = why
        self._again.append(sending)
        self._held.add(sending.subject)

    def _end(self, sending: PendingPut, outcome: Outcome | None) -> None:
        """The outcome is final; None if nobody waits for it any more."""
        if sending.size < 0:
            return  # it had ended
        self._flying.pop(sending, None)
        self.window.give_back(sending.size)
        self.turn_away(sending, outcome)

    def turn_away(self, sending: PendingPut, outcome: Outcome | None) -> None:
        """The end of a message that has no room; None if nobody waits for it."""
        sending.size = -1
        if sending.backlog is not None:
            sending.backlog.ended(sending.subject, outcome if isinstance(outcome, Receipt) else None, monotonic())
        if outcome is None:
            sending.body = b""  # the store may wait for its answer a while yet
        elif sending.landing is not None:
            sending.landing.landed(sending, outcome)

    # ---- second tries

    async def _tend(self) -> None:
        while True:
            if not self._flying and not self._again:
                self._busy.clear()
                self._is_busy = False
                await self._busy.wait()
            await asyncio.sleep(_TICK_AGAIN_S if self._again else _TICK_S)
            now = monotonic()
            self._ask_why(now)
            for sending in [each for each in self._flying if self._silent(each, now)]:
                self._lost(sending, UNKNOWN)
            if self._again:
                self._go_through(now)
                self._ask_to_restore(now)

    def _ask_why(self, now: float) -> None:
        """Before their time is over, so that it can be said then."""
        if self._store.connected and self._silence.due(now):
            silent = [each.subject for each in self._flying if now - each.sent_at >= AFTER_S]
            self._silence.ask([*silent, *(each.subject for each in self._again if each.tries)], now)

    @staticmethod
    def _silent(sending: PendingPut, now: float) -> bool:
        return now >= sending.deadline or now - sending.sent_at >= _ANSWER_S

    def _go_through(self, now: float) -> None:
        """In the order of their first try; one that must wait holds back those of its subject behind it."""
        connected = self._store.connected
        waiting, self._again = sorted(self._again, key=lambda sending: sending.order), []
        self._held = set()
        for sending in waiting:
            if sending.size < 0:
                continue
            if now >= sending.deadline or self._too_late_to_try(sending, now):
                self._end(sending, self._unknown(sending))
            elif not connected or now < sending.next_try or sending.subject in self._held:
                self._put_off(sending, sending.why)
            else:
                self._try(sending, now)

    def _too_late_to_try(self, sending: PendingPut, now: float) -> bool:
        first_try = sending.deadline - self._timeout_s
        return sending.tries > 0 and now - first_try > self._last_try_s

    def _ask_to_restore(self, now: float) -> None:
        """A store that answers and yet loses messages may have lost their streams, too."""
        if (
            self._store.connected
            and now - self._restored_at >= _RESTORE_EVERY_S
            and any(sending.tries > 1 for sending in self._again)
            and (self._restoring is None or self._restoring.done())
        ):
            self._restored_at = now
            self._restoring = asyncio.create_task(self._restored(), name="producer restores streams")

    async def _restored(self) -> None:
        # What keeps the streams from being made keeps messages from being stored: their error tells of it.
        with contextlib.suppress(Lost, Refused, EvenlaneError):
            await self._restore()

    def _unknown(self, sending: PendingPut) -> NotAcknowledged:
        known = self._silence.why(sending.subject, monotonic()) or sending.why
        why = known or "messages before it wait for the store, too"
        if not sending.tries:
            return NotAcknowledged(
                f"the message for {sending.project} was not sent within {self._timeout_s:g} s and is not stored: {why}"
            )
        left = self._window_s - self._timeout_s
        advice = "put again it may be stored twice"
        if sending.id and left >= 1:
            # The group too, since a stream knows its own ids only.
            group = sending.subject.split(".")[4]
            advice = f"put again with id {sending.id!r} and group {group} within {left:g} s it is stored once"
        elif sending.id:
            advice += f", as the store forgets an id after {self._window_s:g} s"
        return NotAcknowledged(
            f"the message for {sending.project} may or may not be stored, {sending.tries} "
            f"{'try' if sending.tries == 1 else 'tries'} brought no acknowledgement ({why}): {advice}"
        )


def _refusal(sending: PendingPut, refused: Exception) -> EvenlaneError:
    match refused:
        case TooLarge():
            return PayloadTooLarge(f"the message for {sending.project} is too large for the store: {refused}")
        case QueueFull():
            group, priority = sending.subject.split(".")[4:6]
            return BacklogFull(
                f"the message for {sending.project} is not stored: the queue of its group {group}, priority {priority},"
                f" is full, with {refused.limit or 'all'} messages that max_queue_backlog allows"
            )
        case Full():
            return BacklogFull(f"the message for {sending.project} is not stored, there is no room: {refused}")
    return PutRefused(f"the message for {sending.project} is not stored, the store refused it: {refused}")
