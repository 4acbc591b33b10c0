"""Puts to a project that has no topic as far as this process knows: etcd may have one, or a template may make one."""

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

_HEARD_S = 2.0  # from a topic's acceptance until this process has heard of it
_MOST = 100  # projects that had none are remembered, and so asked for within that time: random names cost etcd little


class TopicAutoCreate:
    """The topics of projects that have none."""

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        making: TopicProvisioner,
        topics: TopicCache,
        *,
        again_s: float = DEFAULT.create_again_s,
    ) -> None:
        self._coordination, self._env, self._again_s = coordination, env, again_s
        self._making, self._topics = making, topics
        self._one = asyncio.Lock()  # so that many puts to one project ask once
        self._accepted: set[str] = set()  # projects that have one, of which the watch hasn't told yet
        self._had_none: dict[str, float] = {}  # project -> when
        self._silent_at = -inf

    def hopeless(self, project: str) -> bool:
        """Whether it is known, without waiting, that it has none, and that none will be made."""
        return self._making.hopeless(project) and self._asked_just_now(project)

    async def made(self, project: str, refusal: UnknownProject) -> None:
        """Returns when the project has a topic. Raises `refusal`, or another UnknownProject that says more."""
        try:
            if not await self._has_one(project) and not await self._making.make(project):
                raise refusal
        except CoordinationError:
            self._silent_at = monotonic()
            raise refusal from None
        try:
            await self._topics.wait_for(project, _HEARD_S)
        finally:
            self._accepted.discard(project)

    async def _has_one(self, project: str) -> bool:
        """Whether it was accepted a moment ago, and this process hasn't heard of it yet. Raises CoordinationError."""
        async with self._one:
            if project in self._accepted or self._topics.get(project) is not None:
                return True
            if self._asked_just_now(project):
                return False
            if await self._coordination.get(names.key(self._env, "accepted", project)) is not None:
                self._accepted.add(project)
                return True
            self._had_none[project] = monotonic()
            return False

    def _asked_just_now(self, project: str) -> bool:
        """Whether it isn't asked for once more: it was, or too many others were."""
        since = monotonic() - self._again_s
        if self._silent_at > since:
            return True
        if len(self._had_none) >= _MOST:
            self._had_none = {each: at for each, at in self._had_none.items() if at > since}
        return len(self._had_none) >= _MOST or self._had_none.get(project, since) > since
