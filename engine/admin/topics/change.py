"""Changes one topic, after a look at its backlog where its order depends on that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.backlog.peek import peek
from evenlane.engine.cluster.subscriptions.registry import no_such_subscription
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.control.topics.status import explain_not_drained
from evenlane.engine.errors import EvenlaneError, UnknownProject, hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.control.topics.client import TopicClient
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.ring.coordination.ports import Coordination


class Changed(NamedTuple):
    """The topic after its change. `waiting` is the number of its messages from before it was ordered, if it now is."""

    status: TopicStatus
    waiting: int


async def change_topic(
    topic_client: TopicClient,
    settings: Settings,
    project: str,
    changes: Mapping[str, object],
    *,
    via: str,
    if_revision: int | None = None,
    known: bool = False,
) -> Changed:
    """Change these fields, as `TopicClient.change` does. Raises EvenlaneError, too, if an ordered topic would get other
    groups while its messages wait.
    """
    if await topic_client.would_move_keys(project, changes, known=known) and (
        waiting := await count_waiting(settings, project)
    ):
        raise EvenlaneError(explain_not_drained(project, waiting))
    begins = changes.get("ordered") is True and await topic_client.is_unordered(project)
    status = await topic_client.change(project, changes, known=known, if_revision=if_revision, via=via)
    return Changed(status, await count_waiting(settings, project) if begins else 0)


async def check_quota_owner(
    coordination: Coordination, env: str, topic_client: TopicClient, project: str, subscription: str
) -> None:
    """Raise EvenlaneError unless the subscription exists, or the topic has a quota for it, which may be taken back."""
    known = await SubscriptionClient(coordination, env).list_names()
    if subscription in known:
        return
    try:
        status = await topic_client.get(project)
    except UnknownProject:
        raise no_such_subscription(subscription, env, known) from None
    topics = (status.desired, status.in_effect.topic if status.in_effect is not None else None)
    if not any(subscription in (topic.subscriptions or ()) for topic in topics if topic is not None):
        raise no_such_subscription(subscription, env, known)


async def count_waiting(settings: Settings, project: str) -> int:
    """Count messages that wait or are being handled, in the subscription that has most of them. Raises
    EvenlaneError.
    """
    shown = await peek(replace(settings, subscription=None), project, None, 0)
    found = [shown, *[await peek(replace(settings, subscription=name), project, None, 0) for name in shown["others"]]]
    return max(sum(int(part["waiting"] + part["delayed"]) for part in each["priorities"]) for each in found)


def explain_not_in_effect(status: TopicStatus, env: str) -> str | None:
    """Return why a change that is written isn't in effect: a put that relies on it would fail. None if it is."""
    if status.is_accepted or (status.in_effect, status.spec, status.unreadable) == (None, None, None):
        return None
    return explain_refusal(status, env)


def explain_refusal(status: TopicStatus, env: str) -> str:
    """Return, in one sentence, why the spec isn't accepted."""
    project = status.project
    if status.problem is not None:
        return f"the spec of topic {project} can't be accepted: {status.reason}"
    if status.unreadable is not None:
        makes = f": {hint(f'topics set {project} --qps 100', env)} creates a new one" if status.spec is None else ""
        return f"topic {project}: {status.reason}{makes}"
    return (
        f"the change of topic {project} is written, but the leader has not accepted it: "
        f"{hint(f'topics get {project}', env)} shows when it has"
    )
