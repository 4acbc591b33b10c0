"""What the leader asks of nodes about groups that may be empty, and what a node says."""

from __future__ import annotations

import msgspec


class GroupQuestion(msgspec.Struct, frozen=True):
    """Groups of a project of which the leader wants to know whether they hold anything."""

    project: str
    groups: tuple[int, ...]


class GroupRequest(msgspec.Struct, frozen=True):
    """One question to all nodes, to be answered at `reply`. `deep`: the streams are looked at as well, and not only
    what the node knows.
    """

    number: int
    reply: str
    wanted: tuple[GroupQuestion, ...]
    deep: bool = False


class GroupReply(msgspec.Struct, frozen=True):
    """A node's answer. `epochs`: the partitions that it has looked at, and under which epoch it owns each; `full`: of
    each project the groups that hold something there.
    """

    number: int
    node: str
    epochs: dict[int, int]
    full: dict[str, list[int]]


def subject(env: str) -> str:
    """What a question is published to."""
    return f"ask.{env}.empty"
