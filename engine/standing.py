"""How a project's topic stands: what is wished, what is in force, and what is between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from engine.errors import InvalidTopic
from quota.topic import TopicError, complete, decode_accepted, encode, parse_wish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.facts import Facts
    from quota.topic import Accepted, Topic
    from ring.coordination import KeyValue

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a project's topic stands. `problem` says why the wish can't be accepted; `revision` is that of the wish, 0
    where there is none.
    """

    project: str
    wish: Mapping[str, Any] | None
    wanted: Topic | None  # the wish with its defaults
    in_force: Accepted | None
    problem: str | None = None
    revision: int = 0

    @property
    def accepted(self) -> bool:
        if self.problem is not None or self.in_force is None:
            return False
        if self.wish is None or self.in_force.deleted:
            return self.wish is None and self.in_force.deleted
        return self.wanted == self.in_force.topic

    def document(self) -> dict[str, Any]:
        in_force = None if self.in_force is None else msgspec.json.decode(encode(self.in_force))
        wish = None if self.wish is None else msgspec.to_builtins(dict(self.wish))
        return {
            "project": self.project,
            "accepted": self.accepted,
            "problem": self.problem,
            "revision": self.revision,
            "wish": wish,
            "in_force": in_force,
        }


def standing(project: str, wish: KeyValue | None, accepted: KeyValue | None, facts: Facts) -> Standing:
    in_force = decoded(accepted)
    if wish is None:
        return Standing(project, None, None, in_force)
    try:
        parsed = parse_wish(wish.value)
        wanted = complete(parsed, facts, in_force)
    except TopicError as error:
        return Standing(project, {}, None, in_force, str(error), wish.mod_revision)
    return Standing(project, parsed.given, wanted, in_force, None, wish.mod_revision)


def decoded(accepted: KeyValue | None) -> Accepted | None:
    """A value that can't be read counts as none, as for the leader."""
    try:
        return None if accepted is None else decode_accepted(accepted.value)
    except TopicError:
        return None


def not_drained(project: str, waiting: int) -> str:
    """Why an ordered topic may not get other groups yet, in one sentence."""
    return (
        f"topic {project} is ordered and {waiting:,} of its messages still wait or are being handled: with other"
        " groups the next ones of a key would pass them by, so leave it draining until its backlog is empty"
    )


def checked(project: str, make: Callable[[], T]) -> T:
    """Raises InvalidTopic for a TopicError."""
    try:
        return make()
    except TopicError as error:
        raise InvalidTopic(f"topic {project}: {error}") from None
