"""Pauses or resumes a topic on a click or key press, like `evenlane topics pause` and `resume`. Refuses topics that are
deleted or draining.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from evenlane.engine.errors import InvalidTopic

if TYPE_CHECKING:
    from evenlane.engine.control.topics.client import TopicClient
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.quota.topics.topic import Accepted

State = Literal["paused", "active"]
VERBS: dict[State, str] = {"paused": "pause", "active": "resume"}


async def set_paused(topic_client: TopicClient, project: str, state: State, via: str) -> TopicStatus:
    """Set the state and return the topic's status. Raises EvenlaneError."""
    _check((await topic_client.get(project)).in_effect, project, VERBS[state])
    return await topic_client.change(project, {"state": state}, known=True, via=via)


def _check(before: Accepted | None, project: str, verb: str) -> None:
    """Raise InvalidTopic if the topic is deleted or draining: one click must not bring it back."""
    if before is not None and (before.deleted or before.topic.state == "draining"):
        what = "was deleted" if before.deleted else "is draining"
        raise InvalidTopic(f"topic {project} {what}: `evenlane topics {verb} {project}` changes that")
