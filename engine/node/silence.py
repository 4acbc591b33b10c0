"""ack_wait: who gives no sign of life for so long is cancelled, or, in a thread, left to itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from engine.clock import now_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.message import Message
    from engine.node.workers import Worker

_log = structlog.get_logger(__name__)

_SWEEP_S = 0.1
_LATE = 2 * int(_SWEEP_S * 1_000_000_000)


class NoSignOfLife(Exception):
    """The handler ran for longer than ack_wait without a sign of life; the message is given out again."""

    def __init__(self) -> None:
        super().__init__("no sign of life for longer than ack_wait")


class Silence:
    """`failed(message, error)` is told of what a thread works on, `on_hung(threads)` how many are given up."""

    def __init__(
        self,
        workers: Sequence[Worker],
        failed: Callable[[Message, BaseException], None],
        on_hung: Callable[[int], None],
    ) -> None:
        self._workers, self._failed, self._on_hung = workers, failed, on_hung

    async def watch(self) -> None:
        last = now_ns()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = now_ns()
            late, last = now - last - _LATE, now
            for worker in self._workers:
                if late > 0:  # the process stood still, or its loop did: that is no silence of a handler's
                    for message in worker.messages:
                        message.alive_at += late
                if worker.messages:
                    self._check(worker, now)

    def _check(self, worker: Worker, now: int) -> None:
        first = worker.messages[0]
        alive_at = max(message.alive_at for message in worker.messages)
        if first.queue.ack_wait <= 0 or now - alive_at <= first.queue.ack_wait:
            return
        if not worker.threaded:
            for message in worker.messages:
                message.given_up = True
            if worker.task is not None:
                worker.task.cancel()
                _log.warning("handler cancelled: no sign of life within ack_wait", message=repr(first))
            # a handler that swallows the cancellation gets another one only after ack_wait has passed again
            first.alive_at = now
        elif not first.given_up:
            _log.warning("handler thread given up: no sign of life within ack_wait", message=repr(first))
            for message in worker.messages:
                message.given_up = True
                self._failed(message, NoSignOfLife())
            self._on_hung(sum(1 for w in self._workers if w.messages and w.threaded and w.messages[0].given_up))
