"""The accepted topics of an environment, kept up to date: what nodes and producers go by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from engine import names
from engine.errors import InvalidName, UnknownProject
from engine.logged import cut, refusal
from quota.topic import Accepted, TopicError, decode_accepted
from ring.coordination import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ring.coordination import Coordination, Event, KeyValue, Watch

    OnChange = Callable[[str, Accepted | None], None]

_log = structlog.get_logger(__name__)


class TopicBook:
    """`start` before anything is asked, `close` in the end.

    `on_change` is called on the loop with the project and its new topic (None: it is gone), for each change,
    those of the first listing included. A bad value under `accepted/` changes nothing; `refused` counts them.
    """

    def __init__(self, coordination: Coordination, env: str) -> None:
        self.on_change: list[OnChange] = []
        self.refused = 0
        self._coordination = coordination
        self._env = env
        self._prefix = names.key(env, "accepted", "")
        self._topics: dict[str, Accepted] = {}
        self._bad: dict[str, int] = {}  # at which revision, so that one is counted and logged once
        self._watch: Watch | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when all topics are known. Raises CoordinationError if etcd doesn't answer now."""
        if self._watch is not None:
            raise RuntimeError("the topics are followed already")
        await self._coordination.get(names.key(self._env, "settings"))  # a watch would wait in silence
        self._watch = self._coordination.watch(self._prefix)
        try:
            self._take(await anext(self._watch))
        except BaseException:
            await self.close()
            raise
        self._following = asyncio.create_task(self._follow(self._watch), name="topics")

    def get(self, project: str) -> Accepted | None:
        return self._topics.get(project)

    def all(self) -> dict[str, Accepted]:
        """A copy: project -> its topic."""
        return dict(self._topics)

    async def wait_for(self, project: str, timeout: float) -> Accepted:  # noqa: ASYNC109 - part of the sentence
        """The project's topic, as soon as it has one. Raises UnknownProject after `timeout` seconds."""
        known = self.get(project)
        if known is not None:
            return known
        appeared: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()

        def look(changed: str, accepted: Accepted | None) -> None:
            if changed == project and accepted is not None and not appeared.done():
                appeared.set_result(accepted)

        self.on_change.append(look)
        try:
            async with asyncio.timeout(timeout):
                return await appeared
        except TimeoutError:
            raise UnknownProject.of(project, self._env, f", nor got one within {timeout:g} s") from None
        finally:
            self.on_change.remove(look)

    async def close(self) -> None:
        """What was known stays; nothing changes any more. Harmless when closed already."""
        if self._watch is not None:
            await self._watch.aclose()
        if self._following is not None:
            await self._following

    async def _follow(self, watch: Watch) -> None:
        async for told in watch:
            self._take(told)

    def _take(self, told: Listing | Event) -> None:
        if isinstance(told, Listing):
            listed = {self._project(item): item for item in told.items}
            for project in [*self._topics.keys() - listed.keys()]:
                self._set(project, None)
            for item in told.items:
                self._put(item)
        elif told.kind == "put":
            self._put(told.item)
        else:
            self._bad.pop(self._project(told.item), None)
            self._set(self._project(told.item), None)

    def _put(self, item: KeyValue) -> None:
        project = self._project(item)
        try:
            names.check_project(project)
            accepted = decode_accepted(item.value)
        except (TopicError, InvalidName) as error:
            if self._bad.get(project) != item.mod_revision:
                self._bad[project] = item.mod_revision
                self.refused += 1
                _log.warning(
                    "an accepted topic is not valid and is passed over", project=cut(project), reason=refusal(error)
                )
            return
        self._bad.pop(project, None)
        self._set(project, accepted)

    def _set(self, project: str, accepted: Accepted | None) -> None:
        if self._topics.get(project) == accepted:
            return
        if accepted is None:
            del self._topics[project]
        else:
            self._topics[project] = accepted
        for tell in tuple(self.on_change):
            try:
                tell(project, accepted)
            except Exception:  # noqa: BLE001 - one listener's defect must not stop the topics of all
                _log.exception("a listener failed at a change of a topic", project=project)

    def _project(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._prefix)
