"""Answers to the requests of a memory connection: in time, late, or never."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.base.aio.futures import fail
from evenlane.engine.base.callbacks import call_all
from evenlane.engine.core.ports import Lost

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PendingAnswers:
    """The requests of one connection that have no answer yet.

    Invariants:
    - `_pending` has the future of each request without an answer. An answer to any other future is ignored: the request
      was lost with its connection.
    - `_withheld` has answers that `release` gives, in this order. Those of lost requests may be among them.
    """

    def __init__(self) -> None:
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._withheld: list[Callable[[], None]] = []

    def begin(self) -> asyncio.Future[Any]:
        """Return the future of a new request's answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[future] = None
        return future

    def confirm(self, future: asyncio.Future[T], result: T) -> None:
        if future in self._pending:
            del self._pending[future]
            if not future.done():
                future.set_result(result)

    def refuse(self, future: asyncio.Future[T], error: Exception) -> None:
        if future in self._pending:
            del self._pending[future]
            fail(future, error)

    def schedule(self, answer: Callable[[], None], delay_s: float) -> None:
        """Give an answer, a call of `confirm` or `refuse`, after this time; with `inf`, when `release` is called."""
        loop = asyncio.get_running_loop()
        if math.isinf(delay_s):
            self.withhold(answer)
        elif delay_s > 0:
            loop.call_later(delay_s, answer)
        else:
            loop.call_soon(answer)

    def withhold(self, answer: Callable[[], None]) -> None:
        """Give an answer when `release` is called."""
        self._withheld.append(answer)

    def release(self) -> None:
        """Give the answers that were withheld."""
        withheld, self._withheld = self._withheld, []
        call_all(withheld)

    def lose(self) -> None:
        """The connection is lost: pending requests may have been carried out, but get no answer."""
        self._withheld.clear()
        pending, self._pending = self._pending, {}
        for future in pending:
            fail(future, Lost("the connection went before the answer came"))
