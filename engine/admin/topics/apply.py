"""Writes many topics for a program: the plan, and its execution or the sentence that says why not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.admin.topics.change import count_waiting
from evenlane.engine.base.plural import format_count
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.plan import DUE, counts
from evenlane.engine.errors import EvenlaneError, InvalidTopic, hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.topics.apply import ApplyOutcome
    from evenlane.engine.control.topics.plan import Manifest, PlanRow
    from evenlane.ring.coordination.ports import Coordination

_MOST_NAMED = 10  # in a sentence


class AppliedTopics(NamedTuple):
    """Result of `Topics.apply`: projects by what was planned (`new`, `changed`, `unchanged`), and those `written`: none
    with `dry_run`.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    written: tuple[str, ...]


def document(rows: list[PlanRow], outcome: ApplyOutcome | None) -> dict[str, Any]:
    """Build the document. `applied` and the fields after it describe what was written: nothing, if it wasn't begun."""
    written, waiting = ([], []) if outcome is None else (outcome.written, outcome.waiting)
    refused = {} if outcome is None else outcome.refused
    return {
        "plan": [row.document() for row in rows],
        **counts(rows),
        "applied": len(written),
        "accepted": len(written) - len(waiting),
        "waiting": waiting,
        "refused": [{"project": project, "error": error} for project, error in refused.items()],
        "problem": None if outcome is None else outcome.broken,
    }


async def apply_manifest(
    etcd: Coordination,
    settings: Settings,
    cluster_config: ClusterConfig,
    described: Manifest,
    *,
    by: str,
    dry_run: bool,
) -> AppliedTopics:
    """Write the topics that differ. Raises InvalidTopic if any is wrong, and nothing was written; EvenlaneError if not
    all were written and accepted.
    """
    applying = ApplyPlan(etcd, settings.env, cluster_config, by, partial(count_waiting, settings))
    rows = await applying.plan(described)
    if wrong := {row.project: row.problem or "" for row in rows if row.action == "wrong"}:
        raise InvalidTopic(f"{_say(len(wrong), 'wrong')}: {_list(wrong)}: nothing was written")
    written: tuple[str, ...] = ()
    if dry_run:
        if held := {row.project: row.problem or "" for row in rows if row.action == "held"}:
            raise EvenlaneError(f"{_say(len(held), 'held')}: {_list(held)}")
    else:
        outcome = await applying.carry_out(rows)
        _check(outcome, sum(row.action in (*DUE, "held") for row in rows), settings.env)
        written = tuple(outcome.written)
    new, changed, unchanged = (
        tuple(row.project for row in rows if row.action == action) for action in ("new", "changed", "unchanged")
    )
    return AppliedTopics(new, changed, unchanged, written)


def _check(outcome: ApplyOutcome, due: int, env: str) -> None:
    """Raise EvenlaneError unless all is written and in effect."""
    if outcome.broken:
        raise EvenlaneError(
            f"{len(outcome.written):,} of {format_count(due, 'topic', 'is', 'are')} known to be written, then:"
            f" {outcome.broken}: apply them again to continue"
        )
    if refused := outcome.refused:
        raise EvenlaneError(
            f"{len(refused):,} of {format_count(due, 'topic', 'is', 'are')} not written: {_list(refused)}"
        )
    if outcome.waiting:
        named = ", ".join(outcome.waiting[:_MOST_NAMED])
        raise EvenlaneError(f"{len(outcome.waiting):,} not accepted yet: {named}: {hint('topics list', env)} shows why")


def _say(count: int, what: str) -> str:
    return f"{format_count(count, 'topic', 'is', 'are')} {what}"


def _list(problems: Mapping[str, str]) -> str:
    named = "; ".join(f"{project}: {why}" for project, why in list(problems.items())[:_MOST_NAMED])
    return named if len(problems) <= _MOST_NAMED else f"{named}; and {len(problems) - _MOST_NAMED:,} more"
