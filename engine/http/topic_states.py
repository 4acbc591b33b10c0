"""Changes a topic's state by HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.cluster import connections
from evenlane.engine.control.topics.client import TopicClient, read_config_or_defaults
from evenlane.engine.control.topics.switch import VERBS, set_paused
from evenlane.engine.errors import EvenlaneError, InvalidTopic

if TYPE_CHECKING:
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.engine.control.topics.switch import State
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)


async def change_state(coordination: Coordination, env: str, project: str, state: State, by: str) -> dict[str, Any]:
    """Set the state; return the topic like `evenlane topics get --json`. `by` is its author. Raises EvenlaneError."""
    with connections.translate_errors():
        topic_client = TopicClient(coordination, env, await read_config_or_defaults(coordination, env), by)
        status = await set_paused(topic_client, project, state, f"topics {VERBS[state]}")
    _log.info("a topic was changed by HTTP", project=project, state=state, accepted=status.is_accepted)
    _check(status)
    return status.document()


def _check(status: TopicStatus) -> None:
    """Raise EvenlaneError if the written spec isn't in effect."""
    if status.problem is not None or status.unreadable is not None:
        raise InvalidTopic(f"the spec of topic {status.project} can't be accepted: {status.reason}")
    if not status.is_accepted:
        raise EvenlaneError(
            f"the change of topic {status.project} is written, but the leader has not accepted it yet: look again in"
            " a moment"
        )
