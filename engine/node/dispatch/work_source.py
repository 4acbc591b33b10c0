"""The source of work: messages that may start now, and messages whose in-flight record is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.dispatch.dispatcher import Dispatcher
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
    from evenlane.engine.node.handlers.invoke import HandlerInvoker
    from evenlane.engine.node.handlers.worker import Workers
    from evenlane.engine.node.settle.completion import CompletionHandler
    from evenlane.engine.node.signals.lease_trust import LeaseTrust
    from evenlane.engine.node.signals.work_signal import WorkSignal


class WorkSource:
    """Takes messages from the dispatcher while there are free slots, and passes those that must be recorded through the
    in-flight gate. `is_batched`: some handler takes several messages at once.

    Invariant: busy workers and units in the gate together never exceed the number of slots, so a unit that leaves the
    gate always finds a slot.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        gate: InFlightGate,
        workers: Workers,
        calls: HandlerInvoker,
        scheduler: Scheduler[Queue],
        completion: CompletionHandler,
        trust: LeaseTrust,
        signal: WorkSignal,
        *,
        is_batched: bool,
    ) -> None:
        self._dispatcher, self._gate, self._workers, self._calls = dispatcher, gate, workers, calls
        self._scheduler, self._completion, self._trust, self._signal = scheduler, completion, trust, signal
        self._slots = len(workers.all)
        self._take, self._is_batched = dispatcher.next_message, is_batched

    def next(self, now: int) -> list[Message] | None:
        """Messages that may start together; None if none may. Messages that must be recorded go to the gate
        on the way.
        """
        gate, signal = self._gate, self._signal
        if gate.occupied and (recorded := self._take_recorded(now)) is not None:
            return recorded
        take, batched, workers = self._take, self._is_batched, self._workers
        while not signal.exhausted and workers.busy + gate.occupied < self._slots:
            message = take(now)
            if message is None:
                signal.exhausted = True
                break
            messages = self._batch(message, now) if batched else [message]
            if not message.recorded and not (batched and any(each.recorded for each in messages)):
                if gate.occupied:  # or a steady flow of unrecorded messages would starve those in the gate
                    gate.flush()
                return messages
            gate.enter(messages)
        gate.flush()
        return None

    def _take_recorded(self, now: int) -> list[Message] | None:
        """The next unit of the gate that may start.

        All units return to their queues when the lease has lapsed or no record can be written. A single unit returns if
        its lane was handed over or replaced, or if a message of it has expired.
        """
        gate = self._gate
        if gate.is_failing or self._trust.until <= now:
            for messages in reversed(gate.take_all()):  # requeueing prepends: in reverse, the first is first again
                self._return(messages, now)
            return None
        while (unit := gate.pop()) is not None:
            if not _is_stale(unit) and not any(self._dispatcher.is_expired(message, now) for message in unit):
                return unit
            self._return(unit, now)
        return None

    def _batch(self, message: Message, now: int) -> list[Message]:
        messages = [message]
        most = self._calls.most(message)
        while len(messages) < most and (another := self._dispatcher.take_another(message, now)) is not None:
            messages.append(another)
        return messages

    def _return(self, messages: list[Message], now: int) -> None:
        for message in reversed(messages):
            self._gate.remove(message)
            self._completion.on_not_started(message)
        self._scheduler.refund(messages[0].queue, now, len(messages))
        self._signal.exhausted = False


def _is_stale(messages: list[Message]) -> bool:
    """Whether the lane of any message was handed over or replaced since it was chosen."""
    return any(message.generation != message.lane.generation for message in messages)
