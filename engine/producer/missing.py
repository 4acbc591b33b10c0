"""Puts to a project that has no topic: a template may have one made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ring.coordination import CoordinationError

if TYPE_CHECKING:
    from engine.errors import UnknownProject
    from engine.templates.making import Making
    from engine.topics import TopicBook

_HEARD_S = 2.0  # from a topic's acceptance until this process has heard of it


class Missing:
    """The topics of projects that have none."""

    def __init__(self, making: Making, topics: TopicBook) -> None:
        self._making, self._topics = making, topics

    def hopeless(self, project: str) -> bool:
        """Whether it is known, without waiting, that none will be made."""
        return self._making.hopeless(project)

    async def made(self, project: str, refusal: UnknownProject) -> None:
        """Returns when the project has a topic. Raises `refusal`, or another UnknownProject that says more."""
        try:
            if not await self._making.make(project):
                raise refusal
        except CoordinationError:
            raise refusal from None
        await self._topics.wait_for(project, _HEARD_S)
