"""Scopes of tokens, and what a token grants. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_PATTERN = re.compile(r"[A-Za-z0-9_*-]{1,64}")


class Scope(StrEnum):
    """What a request does."""

    READ = "read"  # shows something
    PUT = "put"  # puts messages
    CHANGE = "change"  # changes topics, replays and drops dead letters


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs. `names_projects` is False if its answer is the same for all clusters. Without a `project`
    in its path, a request that names projects is about all of them.
    """

    scope: Scope
    names_projects: bool = True


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token is for. `projects` are patterns, in which `*` stands for any characters; None: all projects."""

    name: str
    digest: bytes  # SHA-256 of the token
    scopes: frozenset[Scope]
    projects: tuple[str, ...] | None = None

    def missing(self, need: Need, project: str | None) -> str | None:
        """Return what this token lacks, as the end of a sentence that begins with the token's name; None: nothing."""
        if need.scope not in self.scopes:
            return f"has no scope {need.scope.value!r}, only {', '.join(sorted(self.scopes))}"
        if self.projects is None or not need.names_projects:
            return None
        own = ", ".join(self.projects)
        if project is None:
            return f"is only for projects {own}, and this is about all projects"
        if not any(_matches(pattern, project) for pattern in self.projects):
            return f"is not for project {project[:80]!r}, only for {own}"
        return None


def check_pattern(pattern: str) -> None:
    """Raise ValueError, with a clause, for a pattern that fits no project."""
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(f"{pattern[:80]!r} is not a project, nor a pattern such as 'shop-*'")


def _matches(pattern: str, project: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), project) is not None
