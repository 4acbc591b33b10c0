"""Topics of a process's node, across its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.cluster.topics.template_cache import TemplateCache
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.templates.provisioner import TopicProvisioner
from evenlane.engine.node.services.unknown_project_watcher import UnknownProjectWatcher

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.topics.lost_topics import LostTopics
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.node import Node
    from evenlane.quota.topics.topic import Accepted, Topic
    from evenlane.ring.coordination.ports import Coordination


class NodeTopics:
    """Reads topics from `cache`, with the quotas of the process's subscription, and has topics created from templates
    for projects without one.

    Invariant: changes reach only the attached node; between two sessions there is none.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        config: ClusterConfig,
        troubles: Troubles,
        subscription: str | None = None,
    ) -> None:
        self.cache = TopicCache(coordination, env, subscription=subscription)
        self.cache.on_change.append(self._on_change)
        self.cache.on_lost = self._on_lost
        self._troubles = troubles
        self._node: Node | None = None
        templates = TemplateCache(coordination, env)
        provisioner = TopicProvisioner(coordination, env, config, templates, via="a message")
        self._unknown = UnknownProjectWatcher(provisioner, templates, self._queues_of)

    async def start(self) -> None:
        """Return when all topics are known. Raises CoordinationError if etcd doesn't answer."""
        await self.cache.start()

    async def close(self) -> None:
        """Close. No effect if never started."""
        await self._unknown.close()
        await self.cache.close()

    def attach(self, node: Node) -> None:
        self._node = node

    def detach(self) -> None:
        self._node = None

    def topic(self, project: str) -> Topic | None:
        """Return the project's topic; None if it has none yet."""
        found = self.cache.get(project)
        if found is None:
            self._unknown.note_project(project)
            return None
        return found.topic

    def list_draining(self, project: str) -> tuple[int, ...]:
        """Return the groups that take no more puts and are being emptied."""
        found = self.cache.get(project)
        return found.draining if found is not None else ()

    def _queues_of(self, project: str) -> Collection[Queue]:
        return self._node.queues.of_project(project) if self._node is not None else ()

    def _on_change(self, project: str, accepted: Accepted | None) -> None:
        if accepted is None:
            self._unknown.note_project(project)
        if self._node is not None:
            self._node.on_topic_change(project, accepted.topic if accepted is not None else None)

    def _on_lost(self, lost: LostTopics) -> None:
        """Report topics lost in an etcd rollback: they stay in effect here, but a node that joins has none of them."""
        if lost:
            self._troubles.begin("topics", lost.sentence)
        else:
            self._troubles.end("topics")
