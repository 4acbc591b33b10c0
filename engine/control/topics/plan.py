"""Computes the changes that a manifest would make: the plan that `topics apply` shows before it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from evenlane.engine.control.topics.status import describe_spec, try_decode
from evenlane.quota.topics.fields import FIELDS
from evenlane.quota.topics.strict_json import TopicError
from evenlane.quota.topics.topic import complete, parse_spec, would_move_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.quota.topics.topic import Accepted, Topic
    from evenlane.ring.coordination.ports import KeyValue

Action = Literal["new", "changed", "unchanged", "wrong", "held"]
Effect = Literal["resumes", "revives"]
ACTIONS: tuple[Action, ...] = ("new", "changed", "unchanged", "wrong", "held")
DUE: tuple[Action, ...] = ("new", "changed")


class Manifest(NamedTuple):
    """Content of a manifest: the spec of each project, or its problem."""

    specs: dict[str, bytes]
    wrong: dict[str, str]


class PlanRow(NamedTuple):
    """Planned change of one project. `changes` maps a field to its value before and after, None where it is left to its
    default; `spec` and `accepted` are etcd's values. `effect`: a paused or draining topic resumes, or a deleted one
    returns. If `moves_keys`, the row is held while messages of the ordered topic wait.
    """

    project: str
    action: Action
    changes: dict[str, tuple[Any, Any]]
    problem: str | None = None
    raw: bytes = b""
    spec: KeyValue | None = None
    accepted: KeyValue | None = None
    effect: Effect | None = None
    moves_keys: bool = False

    def document(self) -> dict[str, Any]:
        revision = 0 if self.spec is None else self.spec.mod_revision
        return {
            "project": self.project,
            "action": self.action,
            "changes": self.changes,
            "problem": self.problem,
            "effect": self.effect,
            "revision": revision,
        }


def counts(rows: Iterable[PlanRow]) -> dict[str, int]:
    """Count rows by action."""
    found = dict.fromkeys(map(str, ACTIONS), 0)
    for row in rows:
        found[row.action] += 1
    return found


def plan_changes(
    described: Manifest,
    specs: Mapping[str, KeyValue],
    accepted: Mapping[str, KeyValue],
    cluster_config: ClusterConfig,
) -> list[PlanRow]:
    """Plan changes by project, from etcd's values."""
    wrong = [PlanRow(project, "wrong", {}, problem) for project, problem in described.wrong.items()]
    rows = (
        _row(project, raw, specs.get(project), accepted.get(project), cluster_config)
        for project, raw in described.specs.items()
    )
    return sorted((*wrong, *rows), key=lambda row: row.project)


def _row(
    project: str, raw: bytes, spec: KeyValue | None, accepted: KeyValue | None, cluster_config: ClusterConfig
) -> PlanRow:
    try:
        parsed, in_effect = parse_spec(raw), try_decode(accepted)
        topic = complete(parsed, cluster_config, in_effect)
    except TopicError as error:
        return PlanRow(project, "wrong", {}, str(error))
    before, after = _present(spec), _plain(parsed.given)
    changes = {
        field: (before.get(field), after.get(field))
        for field in (*FIELDS, *sorted(before.keys() - FIELDS.keys()))
        if before.get(field) != after.get(field)
    }
    action: Action = "new" if spec is None else "changed" if changes else "unchanged"
    if action == "unchanged":
        return PlanRow(project, action, changes, None, raw, spec, accepted)
    return PlanRow(
        project,
        action,
        changes,
        None,
        raw,
        spec,
        accepted,
        _effect(in_effect, topic),
        would_move_keys(in_effect, topic),
    )


def _effect(before: Accepted | None, after: Topic) -> Effect | None:
    if before is None:
        return None
    if before.deleted:
        return "revives"
    return "resumes" if before.topic.state != after.state == "active" else None


def _present(spec: KeyValue | None) -> dict[str, Any]:
    """Return the fields of the present spec, as far as it can be decoded: anybody may have written it."""
    if spec is None:
        return {}
    try:
        return _plain(parse_spec(spec.value).given)
    except TopicError:
        found = describe_spec(spec.value)
    return found if isinstance(found, dict) else {}


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    return {field: msgspec.to_builtins(value) for field, value in given.items() if value is not None}
