"""Messages between the leader and nodes about groups that may be empty."""

from __future__ import annotations

import msgspec


class GroupQuestion(msgspec.Struct, frozen=True):
    """Groups of a project; the leader asks which of them are empty."""

    project: str
    groups: tuple[int, ...]


class GroupRequest(msgspec.Struct, frozen=True):
    """A request to all nodes, to be answered at `reply`. `deep`: nodes inspect the streams as well, not
    only their memory.
    """

    number: int
    reply: str
    wanted: tuple[GroupQuestion, ...]
    deep: bool = False


class GroupReply(msgspec.Struct, frozen=True):
    """A node's reply. `epochs` has the partitions that it inspected, and the epoch under which it owns each; `full`
    has, by project, the groups that hold messages there.
    """

    number: int
    node: str
    epochs: dict[int, int]
    full: dict[str, list[int]]


def subject(cluster: str) -> str:
    """The subject of requests."""
    return f"ask.{cluster}.empty"
