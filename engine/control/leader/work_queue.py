"""Work queue of the leader: collects events and requests until the leader has time to decide on all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.ring.coordination.ports import Event, Watch


class GroupRemoval:
    """A request to remove empty groups of a project."""

    def __init__(self, project: str, groups: Collection[int], number: int | None) -> None:
        self.project, self.groups, self.number = project, groups, number
        self.changed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answer(self, *, changed: bool) -> None:
        if not self.changed.done():
            self.changed.set_result(changed)


class Batch(NamedTuple):
    """Events and requests since the last batch: for each key the latest event, after the latest listing."""

    specs: list[Listing | Event]
    accepted: list[Listing | Event]
    asked: list[GroupRemoval]


class WorkQueue:
    """Reads both watches continuously, so that any number of events makes one batch. The caller that opened the watches
    closes them.

    Invariant: each request is in `_asked` until it is taken, then in `_unanswered` until the next batch; `close`
    answers both.
    """

    def __init__(self, specs: Watch, accepted: Watch) -> None:
        self._arrived = asyncio.Event()
        self._specs = _Latest(specs, self._arrived, "specs")
        self._accepted = _Latest(accepted, self._arrived, "accepted")
        self._asked: list[GroupRemoval] = []
        self._unanswered: list[GroupRemoval] = []

    async def ask(self, project: str, groups: Collection[int], number: int | None) -> bool:
        """Request a removal; return its answer, False if the queue closes first."""
        question = GroupRemoval(project, groups, number)
        self._asked.append(question)
        self._arrived.set()
        return await question.changed

    async def wait(self) -> bool:
        """Wait for something to take. Returns False when a watch has ended."""
        while not (self._specs.has_ended or self._accepted.has_ended):
            if self._specs.updates or self._accepted.updates or self._asked:
                return True
            self._arrived.clear()
            await self._arrived.wait()
        return False

    def take(self) -> Batch:
        self._unanswered, self._asked = self._asked, []
        return Batch(self._specs.take(), self._accepted.take(), self._unanswered)

    async def close(self) -> None:
        for question in (*self._unanswered, *self._asked):
            question.answer(changed=False)
        await asyncio.gather(self._specs.close(), self._accepted.close())


class _Latest:
    """Unread updates of a watch, keyed so that their number is bounded. A listing has the key "" and comes first."""

    def __init__(self, watch: Watch, arrived: asyncio.Event, name: str) -> None:
        self.updates: dict[str, Listing | Event] = {}
        self._watch, self._arrived = watch, arrived
        self._reading = asyncio.create_task(self._read(), name=name)

    @property
    def has_ended(self) -> bool:
        """Whether the watch has ended. Raises the watch's exception."""
        if self._reading.done():
            self._reading.result()
        return self._reading.done()

    def take(self) -> list[Listing | Event]:
        taken, self.updates = [*self.updates.values()], {}
        return taken

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for update in self._watch:
                if isinstance(update, Listing):
                    self.updates = {"": update}
                else:
                    self.updates[update.item.key] = update
                self._arrived.set()
        finally:
            self._arrived.set()
