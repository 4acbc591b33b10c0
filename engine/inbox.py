"""What the leader has to decide on, gathered until it has time for all of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ring.coordination import Listing

if TYPE_CHECKING:
    from collections.abc import Collection

    from ring.coordination import Event, Watch


class Question:
    """Whether these groups of a project may be forgotten, since they are empty."""

    def __init__(self, project: str, groups: Collection[int], number: int | None) -> None:
        self.project, self.groups, self.number = project, groups, number
        self.changed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answer(self, *, changed: bool) -> None:
        if not self.changed.done():
            self.changed.set_result(changed)


class Inbox:
    """Reads a watch all the time, so that any number of events are one decision."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._told: dict[
            str, Listing | Event
        ] = {}  # by key, so that it is bounded; a listing, which has none, is first
        self._asked: list[Question] = []
        self._unanswered: list[Question] = []
        self._arrived = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="wishes")

    async def ask(self, project: str, groups: Collection[int], number: int | None) -> bool:
        """What is answered; False if nobody does any more."""
        question = Question(project, groups, number)
        self._asked.append(question)
        self._arrived.set()
        return await question.changed

    async def waited(self) -> bool:
        """True as soon as there is something; False when the watch has ended."""
        if not self._told and not self._asked and not self._reading.done():
            self._arrived.clear()
            await self._arrived.wait()
        if self._reading.done():
            self._reading.result()
            return False
        return True

    def take(self) -> tuple[list[Listing | Event], list[Question]]:
        """What has come since the last time: the last of each key, after the last listing."""
        told, self._told = [*self._told.values()], {}
        self._unanswered, self._asked = self._asked, []
        return told, self._unanswered

    async def close(self) -> None:
        self._reading.cancel()
        for question in (*self._unanswered, *self._asked):
            question.answer(changed=False)
        await self._watch.aclose()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for told in self._watch:
                if isinstance(told, Listing):
                    self._told = {"": told}
                else:
                    self._told[told.item.key] = told
                self._arrived.set()
        finally:
            self._arrived.set()
