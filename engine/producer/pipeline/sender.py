"""Sends admitted puts concurrently, and retries each until it is acknowledged or its deadline has passed.

A message whose answer was lost may or may not be stored. A retry has the same id, which the store accepts once within
its duplicate window, so there are no retries after that window. Retries never reorder messages of one subject, as their
order may matter.
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
from evenlane.engine.producer.no_reply import AFTER_S, LOST, UNKNOWN
from evenlane.engine.producer.pipeline.pending_put import DONE, IN_FLIGHT, RETRYING
from evenlane.engine.producer.tuning import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.ports import Store
    from evenlane.engine.producer.no_reply import ReplyTimeouts
    from evenlane.engine.producer.pipeline.pending_put import Completion, PendingPut
    from evenlane.engine.producer.pipeline.window import PutWindow
    from evenlane.engine.producer.put import Outcome

_TICK_S = 0.25
_TICK_AGAIN_S = 0.02
_BACKOFF_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_RESTORE_EVERY_S = 2.0
CLOSED = "this producer is closed: put inside `async with Producer(...)`"
NOT_OPEN = "this producer is not open yet: put inside `async with Producer(...)`, or await its `open` before"


class Sender:
    """Sends and retries puts. `timeout_s` bounds all tries of a message together; `window_s` is the store's duplicate
    window. `restore` creates missing streams; it is called when messages are lost while the store answers.
    """

    def __init__(
        self,
        store: Store,
        window: PutWindow,
        replies: ReplyTimeouts,
        *,
        timeout_s: float,
        window_s: float,
        restore: Callable[[], Awaitable[None]],
        answer_s: float = DEFAULT.answer_s,
    ) -> None:
        self._answer_s = answer_s
        self._store, self.window, self._replies = store, window, replies
        self._timeout_s, self._window_s, self._restore = timeout_s, window_s, restore
        # A try in flight at the end of the store's window could be stored a second time.
        self._last_try_s = min(timeout_s, window_s) * 0.95
        self._in_flight: dict[PendingPut, None] = {}  # exactly the puts whose state is IN_FLIGHT
        self._retrying: list[PendingPut] = []  # the puts whose state is RETRYING, and some that have since become DONE
        self._blocked_subjects: set[str] = set()  # subjects of `_retrying`
        self._orders = 0
        self._busy = asyncio.Event()
        self._is_busy = False
        self._tending: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._restored_at = 0.0
        self._closed = True

    def open(self) -> None:
        self._closed = False
        self._tending = asyncio.create_task(self._tend(), name="producer retries")

    async def close(self) -> None:
        """Fail puts that wait for their acknowledgement with NotAcknowledged."""
        self._closed = True
        for task in (self._tending, self._restoring):
            if task is not None:
                await cancel_and_wait(task)
        self.window.fail(ProducerClosed(CLOSED))
        for pending in [*self._in_flight, *self._retrying]:
            pending.why = "the producer was closed"
            self.complete(pending, self._unknown(pending))

    @property
    def is_closed(self) -> bool:
        return self._closed

    def discard(self, completion: Completion) -> None:
        """Complete these puts without an outcome, as their caller has gone. They may or may not be stored."""
        for pending in [*self._in_flight, *self._retrying]:
            if pending.completion is completion:
                self.complete(pending, None)

    def send(self, pending: PendingPut) -> None:
        """Send a put that has room in the window. Its `completion` gets the receipt or the error, never
        during this call.
        """
        self._orders += 1
        pending.order = self._orders
        now = monotonic()
        if not pending.deadline:
            pending.deadline = now + self._timeout_s
        if self._closed:
            pending.state = RETRYING
            asyncio.get_running_loop().call_soon(self.complete, pending, ProducerClosed(CLOSED))
        elif self._blocked_subjects and pending.subject in self._blocked_subjects:
            self._defer(pending, "")
        else:
            self._try(pending, now)
        if not self._is_busy:
            self._is_busy = True
            self._busy.set()

    def _try(self, pending: PendingPut, now: float) -> None:
        number = pending.tries + 1
        pending.sender = self
        try:
            answered = pending.on_first_answer if number == 1 else partial(self.on_answer, pending, number)
            self._store.put_then(pending.subject, pending.headers, pending.body, answered)
        except Lost as lost:
            self._defer(pending, str(lost))
            return
        pending.tries = number
        pending.sent_at = now
        pending.state = IN_FLIGHT
        self._in_flight[pending] = None

    def on_answer(self, pending: PendingPut, number: int, answer: Receipt | Exception) -> None:
        """Handle the answer to a try. A receipt always counts; an error counts only while its try is awaited."""
        if pending.state is DONE:
            return
        if isinstance(answer, Receipt):
            if answer.duplicate and pending.tries > 1 and pending.fresh:
                answer = answer._replace(duplicate=False)  # of an earlier try of this producer
            self.complete(pending, answer)
        elif number == pending.tries and pending.state is IN_FLIGHT:
            if isinstance(answer, Lost):
                self._on_lost(pending, str(answer))
            else:
                self.complete(pending, _refusal(pending, answer))

    def _on_lost(self, pending: PendingPut, why: str) -> None:
        del self._in_flight[pending]
        pause = _BACKOFF_S[min(pending.tries, len(_BACKOFF_S)) - 1]
        pending.next_try = monotonic() + uniform(pause / 2, pause)  # noqa: S311 - spreads load, hides no secret
        self._defer(pending, why)

    def _defer(self, pending: PendingPut, why: str) -> None:
        pending.state = RETRYING
        pending.why = why
        self._retrying.append(pending)
        self._blocked_subjects.add(pending.subject)

    def complete(self, pending: PendingPut, outcome: Outcome | None) -> None:
        """Complete a put of any state; without an `outcome` its caller has gone. No effect if it is DONE."""
        before = pending.state
        if before is DONE:
            return
        pending.state = DONE
        if before is IN_FLIGHT:
            del self._in_flight[pending]
            self.window.release(pending)
        elif before is RETRYING:
            self.window.release(pending)
        if pending.backlog is not None:
            pending.backlog.note_outcome(
                pending.subject, outcome if isinstance(outcome, Receipt) else None, monotonic()
            )
        if outcome is None:
            pending.body = b""  # frees memory: the store may still wait for the answer
        elif pending.completion is not None:
            pending.completion.complete(pending, outcome)

    # ---- retries

    async def _tend(self) -> None:
        while True:
            if not self._in_flight and not self._retrying:
                self._busy.clear()
                self._is_busy = False
                await self._busy.wait()
            await asyncio.sleep(_TICK_AGAIN_S if self._retrying else _TICK_S)
            now = monotonic()
            self._ask_why(now)
            for pending in [each for each in self._in_flight if self._is_silent(each, now)]:
                self._on_lost(pending, UNKNOWN)
            if self._retrying:
                self._go_through(now)
                self._ask_to_restore(now)

    def _ask_why(self, now: float) -> None:
        """Ask the store for reasons before the puts' deadlines, so that their errors can name them."""
        if self._store.is_connected and self._replies.is_due(now):
            silent = [each.subject for each in self._in_flight if now - each.sent_at >= AFTER_S]
            self._replies.ask([*silent, *(each.subject for each in self._retrying if each.tries)], now)

    def _is_silent(self, pending: PendingPut, now: float) -> bool:
        return now >= pending.deadline or now - pending.sent_at >= self._answer_s

    def _go_through(self, now: float) -> None:
        """Retry in the order of first tries. A put that must wait holds back later puts of its subject."""
        connected = self._store.is_connected
        waiting, self._retrying = sorted(self._retrying, key=lambda pending: pending.order), []
        self._blocked_subjects = set()
        for pending in waiting:
            if pending.state is DONE:
                continue
            if now >= pending.deadline or self._is_too_late(pending, now):
                self.complete(pending, self._unknown(pending))
            elif not connected or now < pending.next_try or pending.subject in self._blocked_subjects:
                self._defer(pending, pending.why)
            else:
                self._try(pending, now)

    def _is_too_late(self, pending: PendingPut, now: float) -> bool:
        first_try = pending.deadline - self._timeout_s
        return pending.tries > 0 and now - first_try > self._last_try_s

    def _ask_to_restore(self, now: float) -> None:
        """Restore streams: a store that answers but loses messages may have lost their streams."""
        if (
            self._store.is_connected
            and now - self._restored_at >= _RESTORE_EVERY_S
            and any(pending.tries > 1 for pending in self._retrying)
            and (self._restoring is None or self._restoring.done())
        ):
            self._restored_at = now
            self._restoring = asyncio.create_task(self._try_restore(), name="producer restores streams")

    async def _try_restore(self) -> None:
        # A failure to create the streams also keeps messages from being stored, and their errors report it.
        with contextlib.suppress(Lost, Refused, EvenlaneError):
            await self._restore()

    def _unknown(self, pending: PendingPut) -> NotAcknowledged:
        known = self._replies.reason_for(pending.subject, monotonic()) or pending.why
        if not known and not self._store.is_connected:
            known = LOST
        why = known or "messages before it are waiting for the store, too"
        if not pending.tries:
            return NotAcknowledged(
                f"the message for {pending.project} was not sent within {self._timeout_s:g} s and is not stored: {why}"
            )
        left = self._window_s - self._timeout_s
        advice = "if put again, it may be stored twice"
        if pending.id and left >= 1:
            # The group too, as a stream knows only its own ids.
            group = pending.subject.split(".")[4]
            advice = f"if put again with id {pending.id!r} and group {group} within {left:g} s, it is stored once"
        elif pending.id:
            advice += f", as the store forgets an id after {self._window_s:g} s"
        return NotAcknowledged(
            f"the message for {pending.project} may or may not be stored, {pending.tries} "
            f"{'try' if pending.tries == 1 else 'tries'} brought no acknowledgement ({why}): {advice}"
        )


def _refusal(pending: PendingPut, refused: Exception) -> EvenlaneError:
    match refused:
        case TooLarge():
            return PayloadTooLarge(f"the message for {pending.project} is too large for the store: {refused}")
        case QueueFull():
            group, priority = pending.subject.split(".")[4:6]
            return BacklogFull(
                f"the message for {pending.project} is not stored: the queue of its group {group}, priority {priority},"
                f" is full, with {refused.limit or 'all'} messages that max_queue_backlog allows"
            )
        case Full():
            return BacklogFull(f"the message for {pending.project} is not stored, there is no room: {refused}")
    return PutRefused(f"the message for {pending.project} is not stored, the store refused it: {refused}")
