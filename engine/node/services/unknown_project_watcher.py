"""Creates topics from templates: a message of a project without a topic, put by a plain client, triggers it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.cluster.topics.template_cache import TemplateCache
    from evenlane.engine.control.templates.provisioner import TopicProvisioner
    from evenlane.engine.core.queue.queue import Queue

_log = structlog.get_logger(__name__)

_AGAIN_S = 10.0  # between two tries for the same project
_MOST = 10_000  # projects; further ones are handled when they are seen again
_IN_A_ROW = 100  # projects before the event loop gets its turn


class UnknownProjectWatcher:
    """Call `note_project(project)` for each project without a topic; `queues_of(project)` returns its queues here.
    `close` closes `template_cache`, too.
    """

    def __init__(
        self,
        provisioner: TopicProvisioner,
        template_cache: TemplateCache,
        queues_of: Callable[[str], Collection[Queue]],
    ) -> None:
        self._provisioner, self._template_cache, self._queues_of = provisioner, template_cache, queues_of
        self._projects: dict[str, None] = {}
        self._fresh: list[str] = []  # projects not examined yet
        self._all_at: float | None = None  # when to examine all of them (the loop's time, s)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        template_cache.on_change = self._on_templates_change

    def note_project(self, project: str) -> None:
        """Note a project; cheap. Call it on the event loop."""
        if project in self._projects or len(self._projects) >= _MOST:
            return
        self._projects[project] = None
        self._fresh.append(project)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="unknown projects")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._template_cache.close()

    def _on_templates_change(self) -> None:
        self._all_at = 0.0
        self._wake.set()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(self._all_at):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            some, self._fresh = self._fresh, []
            if self._all_at is not None and self._all_at <= clock():
                some, self._all_at = list(self._projects), None
            if await self._retry(some) and self._all_at is None:
                self._all_at = clock() + _AGAIN_S

    async def _retry(self, projects: list[str]) -> bool:
        """Try to create topics. True if some projects may have one later."""
        again = False
        try:
            await self._template_cache.open()
            for number, project in enumerate(projects, start=1):
                again = await self._look(project) or again
                if number % _IN_A_ROW == 0:
                    await asyncio.sleep(0)
        except CoordinationError as error:
            _log.debug("templates can't be looked at now", error=str(error))
            return True
        return again

    async def _look(self, project: str) -> bool:
        """Whether the project may have a topic later. Raises CoordinationError."""
        queues = self._queues_of(project)
        if not queues:
            self._projects.pop(project, None)  # it belongs to another node by now
            return False
        if self._provisioner.is_hopeless(project):
            return False
        if not any(queue.backlog for queue in queues):
            return True
        try:
            made = await self._provisioner.make(project)
        except EvenlaneError as error:
            _log.debug("no topic is made", project=project, reason=str(error))
            return True
        if made:
            self._projects.pop(project, None)
        return not made
