"""Combines requests made at the same time into one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from evenlane.engine.base.aio.futures import fail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

Key = TypeVar("Key")
Value = TypeVar("Value")


class RequestBatch(Generic[Key, Value]):
    """Calls `answer` for all keys requested in one turn of the event loop, at most `most` at once."""

    def __init__(self, answer: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Value]]], most: int) -> None:
        self._answer, self._most = answer, most
        self._asked: dict[Key, asyncio.Future[Value | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: Key) -> Value | None:
        """The answer for this key, None if there is none. Raises the errors of `answer`."""
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._begin)
        if key not in self._asked:
            self._asked[key] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._asked[key])  # others may wait for it, too

    def _begin(self) -> None:
        asked, self._asked = self._asked, {}
        keys = list(asked)
        for start in range(0, len(keys), self._most):
            some = {key: asked[key] for key in keys[start : start + self._most]}
            task = asyncio.create_task(self._carry_out(some))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, asked: Mapping[Key, asyncio.Future[Value | None]]) -> None:
        try:
            answers = await self._answer(list(asked))
        except Exception as error:  # noqa: BLE001 - it is raised in the callers
            for future in asked.values():
                fail(future, error)
        else:
            for key, future in asked.items():
                future.set_result(answers.get(key))
