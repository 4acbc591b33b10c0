"""A topic's state, changed by HTTP: what `evenlane topics pause` and `resume` do; not one on its way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import structlog

from engine import clients
from engine.backlog.command import peek
from engine.errors import EvenlaneError, InvalidTopic
from engine.standing import not_drained
from engine.wishes import Wishes, known_facts

if TYPE_CHECKING:
    from engine.settings import Settings
    from engine.standing import Standing
    from quota.topic import Accepted
    from ring.coordination import Coordination

_log = structlog.get_logger(__name__)

State = Literal["paused", "active"]
_VERBS: dict[State, str] = {"paused": "pause", "active": "resume"}


async def change_state(
    coordination: Coordination, settings: Settings, project: str, state: State, by: str
) -> dict[str, Any]:
    """The topic as it stands then, as `evenlane topics get --json`; `by` is for its history. Raises EvenlaneError."""
    changes: dict[str, object] = {"state": state}
    with clients.explained():
        facts = await known_facts(coordination, settings.env)
        wishes = Wishes(coordination, settings.env, facts, by)
        check_switched((await wishes.get(project)).in_force, project, _VERBS[state])
        if await wishes.moves_keys(project, changes, known=True) and (waiting := await _waiting(settings, project)):
            raise InvalidTopic(not_drained(project, waiting))
        standing = await wishes.change(project, changes, known=True, via=f"topics {_VERBS[state]}")
    _log.info("a topic was changed by HTTP", project=project, state=state, accepted=standing.accepted)
    _check(standing)
    return standing.document()


def check_switched(before: Accepted | None, project: str, verb: str) -> None:
    """One click is too little for a topic that was deleted or drains: it would be back. Raises InvalidTopic."""
    if before is not None and (before.deleted or before.topic.state == "draining"):
        what = "was deleted" if before.deleted else "is draining"
        raise InvalidTopic(f"topic {project} {what}: `evenlane topics {verb} {project}` changes that")


def _check(standing: Standing) -> None:
    """Raises EvenlaneError for what is written and not in force."""
    if standing.problem is not None or standing.damage is not None:
        raise InvalidTopic(f"the wish of topic {standing.project} can't be accepted: {standing.why_not}")
    if not standing.accepted:
        raise EvenlaneError(
            f"the change of topic {standing.project} is written, but the leader has not accepted it yet: look again in"
            " a moment"
        )


async def _waiting(settings: Settings, project: str) -> int:
    parts = (await peek(settings, project, None, 0))["priorities"]
    return sum(part["waiting"] + part["delayed"] for part in parts)
