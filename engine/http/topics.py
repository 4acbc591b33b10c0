"""Topics by HTTP: reads and changes them like the commands of `evenlane topics`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.cluster import connections
from evenlane.engine.control.topics.client import TopicClient, read_config_or_defaults
from evenlane.engine.control.topics.status import explain_not_drained
from evenlane.engine.control.topics.wait import WAIT_S
from evenlane.engine.errors import EvenlaneError, InvalidTopic, TopicDraining

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)

_LISTS = 4  # concurrent lists, as each reads all topics


class InvalidSpec(InvalidTopic):
    """The fields of a request make no valid topic."""


class TopicService:
    """Reads and changes topics. `by` is the author of changes; `count_waiting` counts a project's messages that wait or
    are being handled. A change waits for the leader, at most `timeout_s` seconds.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        by: str,
        count_waiting: Callable[[str], Awaitable[int]],
        *,
        timeout_s: float = WAIT_S,
    ) -> None:
        self._coordination, self._env, self._by = coordination, env, by
        self._count_waiting, self._timeout_s = count_waiting, timeout_s
        self._lists = asyncio.Semaphore(_LISTS)

    def acting_for(self, name: str) -> TopicService:
        """Return a service whose changes also name this person or token as the author."""
        author = f"{self._by} ({name})"
        return TopicService(self._coordination, self._env, author, self._count_waiting, timeout_s=self._timeout_s)

    async def list(self, after: str, limit: int) -> tuple[list[TopicStatus], bool]:
        """Return the first `limit` topics whose names come after `after`, and whether there are more. Raises
        EvenlaneError.
        """
        if self._lists.locked():
            raise EvenlaneError(f"{_LISTS} requests are already listing topics: try again in a second")
        async with self._lists, self._client() as topics:
            return await topics.page(after, limit)

    async def get(self, project: str) -> TopicStatus:
        """Raise UnknownProject, EvenlaneError."""
        async with self._client() as topics:
            return await topics.get(project)

    async def replace(self, project: str, fields: Mapping[str, object], if_revision: int | None) -> TopicStatus:
        """Create the topic, or replace its spec. Raises InvalidSpec, RevisionConflict, EvenlaneError."""
        async with self._client() as topics:
            await self._check_keys(project, await _moves_keys(topics, project, fields, whole=True))
            with_spec = topics.change(project, fields, whole=True, if_revision=if_revision, via="topics set")
            return self._report(await _checked(with_spec))

    async def change(self, project: str, fields: Mapping[str, object], if_revision: int | None) -> TopicStatus:
        """Change the named fields of a topic; None restores the default. Raises UnknownProject, TopicDraining for a
        deleted topic, InvalidSpec, RevisionConflict, EvenlaneError.
        """
        async with self._client() as topics:
            before = await topics.get(project)
            if before.spec is None:
                raise TopicDraining.of(project, self._env, deleted=True)
            await self._check_keys(project, await _moves_keys(topics, project, fields))
            return self._report(
                await _checked(topics.change(project, fields, if_revision=if_revision, via="topics set"))
            )

    async def set_state(self, project: str, state: str, verb: str, if_revision: int | None) -> TopicStatus:
        """Set the state, as `evenlane topics VERB` does. Raises UnknownProject, InvalidTopic, RevisionConflict,
        EvenlaneError.
        """
        changes = {"state": state}
        async with self._client() as topics:
            await self._check_keys(project, await topics.would_move_keys(project, changes, known=True))
            return self._report(
                await topics.change(project, changes, known=True, if_revision=if_revision, via=f"topics {verb}")
            )

    async def delete(self, project: str, if_revision: int | None) -> TopicStatus:
        """Delete the topic. Raises UnknownProject, TopicDraining if it was already deleted, RevisionConflict,
        EvenlaneError.
        """
        async with self._client() as topics:
            return self._report(await topics.delete(project, if_revision=if_revision, via="topics delete"))

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[TopicClient]:
        with connections.translate_errors():
            config = await read_config_or_defaults(self._coordination, self._env)
            yield TopicClient(self._coordination, self._env, config, self._by, timeout_s=self._timeout_s)

    async def _check_keys(self, project: str, moves_keys: bool) -> None:
        """Raise InvalidTopic if keys of an ordered topic would leave messages behind in other groups."""
        if moves_keys and (waiting := await self._count_waiting(project)):
            raise InvalidTopic(explain_not_drained(project, waiting))

    def _report(self, status: TopicStatus) -> TopicStatus:
        _log.info("a topic was changed by HTTP", project=status.project, by=self._by, accepted=status.is_accepted)
        if status.problem is not None:
            raise InvalidTopic(f"the spec of topic {status.project} can't be accepted: {status.reason}")
        return status


async def _checked(change: Awaitable[TopicStatus]) -> TopicStatus:
    try:
        return await change
    except InvalidTopic as error:
        raise InvalidSpec(str(error)) from error


async def _moves_keys(topics: TopicClient, project: str, fields: Mapping[str, object], *, whole: bool = False) -> bool:
    try:
        return await topics.would_move_keys(project, fields, whole=whole)
    except InvalidTopic as error:
        raise InvalidSpec(str(error)) from error
