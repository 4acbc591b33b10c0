"""What the leader has to decide on, gathered until it has time for all of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.ring.coordination.ports import Event, Watch


class GroupCheck:
    """Whether these groups of a project may be forgotten, since they are empty."""

    def __init__(self, project: str, groups: Collection[int], number: int | None) -> None:
        self.project, self.groups, self.number = project, groups, number
        self.changed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answer(self, *, changed: bool) -> None:
        if not self.changed.done():
            self.changed.set_result(changed)


class Batch(NamedTuple):
    """Since the last time: of each key the last that was told, after the last listing; and what was asked."""

    wishes: list[Listing | Event]
    accepted: list[Listing | Event]
    asked: list[GroupCheck]


class WorkQueue:
    """Reads both watches all the time, so that any number of events are one decision. Whoever opened them closes
    them.
    """

    def __init__(self, wishes: Watch, accepted: Watch) -> None:
        self._arrived = asyncio.Event()
        self._wishes = _Latest(wishes, self._arrived, "wishes")
        self._accepted = _Latest(accepted, self._arrived, "accepted")
        self._asked: list[GroupCheck] = []
        self._unanswered: list[GroupCheck] = []

    async def ask(self, project: str, groups: Collection[int], number: int | None) -> bool:
        """What is answered; False if nobody does any more."""
        question = GroupCheck(project, groups, number)
        self._asked.append(question)
        self._arrived.set()
        return await question.changed

    async def wait(self) -> bool:
        """Wait for something to take; False when a watch has ended."""
        while not (self._wishes.ended or self._accepted.ended):
            if self._wishes.told or self._accepted.told or self._asked:
                return True
            self._arrived.clear()
            await self._arrived.wait()
        return False

    def take(self) -> Batch:
        self._unanswered, self._asked = self._asked, []
        return Batch(self._wishes.take(), self._accepted.take(), self._unanswered)

    async def close(self) -> None:
        for question in (*self._unanswered, *self._asked):
            question.answer(changed=False)
        await asyncio.gather(self._wishes.close(), self._accepted.close())


class _Latest:
    """What a watch tells, until it is taken. By key, so that it is bounded; a listing, which has none, comes first."""

    def __init__(self, watch: Watch, arrived: asyncio.Event, name: str) -> None:
        self.told: dict[str, Listing | Event] = {}
        self._watch, self._arrived = watch, arrived
        self._reading = asyncio.create_task(self._read(), name=name)

    @property
    def ended(self) -> bool:
        """Raises what the watch has raised."""
        if self._reading.done():
            self._reading.result()
        return self._reading.done()

    def take(self) -> list[Listing | Event]:
        told, self.told = [*self.told.values()], {}
        return told

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for told in self._watch:
                if isinstance(told, Listing):
                    self.told = {"": told}
                else:
                    self.told[told.item.key] = told
                self._arrived.set()
        finally:
            self._arrived.set()
