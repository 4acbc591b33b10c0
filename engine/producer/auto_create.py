"""Handles puts for a project without a known topic: etcd may have one, or a template may create one."""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.producer.tuning import DEFAULT
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.control.templates.provisioner import TopicProvisioner
    from evenlane.engine.errors import UnknownProject
    from evenlane.ring.coordination.ports import Coordination

_RECEIVED_S = 2.0  # from a topic's acceptance until this process has received it
_MOST = 100  # projects remembered as having no topic: random names cause at most as many etcd reads per `again_s`


class TopicAutoCreate:
    """Finds or creates topics for projects that have none in this process.

    Invariant: `_accepted` has projects whose topic is in etcd but may not have arrived through the watch yet.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        provisioner: TopicProvisioner,
        topics: TopicCache,
        *,
        again_s: float = DEFAULT.create_again_s,
    ) -> None:
        self._coordination, self._env, self._again_s = coordination, env, again_s
        self._provisioner, self._topics = provisioner, topics
        self._one = asyncio.Lock()  # so that concurrent puts for one project cause one request
        self._accepted: set[str] = set()  # projects with a topic that the watch hasn't reported yet
        self._had_none: dict[str, float] = {}  # project -> time of the answer
        self._silent_at = -inf

    def is_hopeless(self, project: str) -> bool:
        """Whether a topic is known not to exist and not to be created. Doesn't wait."""
        return self._provisioner.is_hopeless(project) and self._should_skip(project)

    async def ensure_topic(self, project: str, refusal: UnknownProject) -> None:
        """Return when the project has a topic. Raises `refusal`, or another UnknownProject with more detail."""
        try:
            if not await self._has_one(project) and not await self._provisioner.make(project):
                raise refusal
        except CoordinationError:
            self._silent_at = monotonic()
            raise refusal from None
        try:
            await self._topics.wait_for(project, _RECEIVED_S)
        finally:
            self._accepted.discard(project)

    async def _has_one(self, project: str) -> bool:
        """Whether a topic was accepted that this process hasn't received yet. Raises CoordinationError."""
        async with self._one:
            if project in self._accepted or self._topics.get(project) is not None:
                return True
            if self._should_skip(project):
                return False
            if await self._coordination.get(names.key(self._env, "accepted", project)) is not None:
                self._accepted.add(project)
                return True
            self._had_none[project] = monotonic()
            return False

    def _should_skip(self, project: str) -> bool:
        """Whether to skip the request: this project was asked for recently, etcd didn't answer, or too many projects
        were asked for.
        """
        since = monotonic() - self._again_s
        if self._silent_at > since:
            return True
        if len(self._had_none) >= _MOST:
            self._had_none = {each: at for each, at in self._had_none.items() if at > since}
        return len(self._had_none) >= _MOST or self._had_none.get(project, since) > since
