"""The topics of a test."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.errors import InvalidTopic
from evenlane.quota.topics.resolve import resolve
from evenlane.quota.topics.topic import Accepted, Topic, TopicError, accept, complete, merge, parse_spec

if TYPE_CHECKING:
    from collections.abc import Mapping


class FixedTopics:
    """Accepted topics, made of topic fields by project. Raises InvalidName, InvalidTopic."""

    def __init__(self, fields: Mapping[str, Mapping[str, Any]], priorities: tuple[str, ...]) -> None:
        config = ClusterConfig(priorities=priorities)  # of a usual cluster: a topic that is valid there is valid here
        self._accepted = {names.check_project(project): _accept(project, of, config) for project, of in fields.items()}

    @property
    def projects(self) -> list[str]:
        return list(self._accepted)

    @property
    def longest_burst_s(self) -> int:
        """The time in which each topic that is idle saves up its burst, in any subscription, and a new node calms
        down.
        """
        topics = (
            resolve(each, name).topic
            for each in self._accepted.values()
            for name in (None, *(each.topic.subscriptions or ()))
        )
        return 1 + max((ceil(topic.burst / topic.qps) for topic in topics), default=0)

    def get(self, project: str) -> Accepted | None:
        return self._accepted.get(project)

    def topic_of(self, project: str, subscription: str | None = None) -> Topic | None:
        """Return a project's topic, with the quota of this subscription."""
        accepted = self._accepted.get(project)
        return None if accepted is None else resolve(accepted, subscription).topic


def _accept(project: str, fields: Mapping[str, Any], config: ClusterConfig) -> Accepted:
    try:
        topic = complete(parse_spec(merge(None, fields)), config)
    except TopicError as error:
        raise InvalidTopic(f"the topic of project {project!r} is not valid: {error}") from error
    # One partition is enough for a test, and nothing is pushed: the application's handlers take all messages.
    return accept(msgspec.structs.replace(topic, spread=1, push=None), 1, None)
