"""Finds nodes whose handlers differ: each node handles the messages of its partitions by its own handlers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.ring.membership.records import NodeRecord

_MOST_NODES = 3  # named per group
_MOST_GROUPS = 4
_LONGEST = 120  # characters of one group's handlers


def explain_differences(nodes: Mapping[str, NodeRecord]) -> str | None:
    """A sentence that names the groups of nodes with equal handlers; None if all have the same. A node of an older
    release doesn't say what it handles, and isn't counted.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(nodes):
        if nodes[name].handlers:
            groups.setdefault(nodes[name].handlers, []).append(name)
    if len(groups) < 2:
        return None
    parts = [f"{_named(names)} by {_shorten(handlers)}" for handlers, names in groups.items()]
    more = f"; {len(parts) - _MOST_GROUPS} more groups" if len(parts) > _MOST_GROUPS else ""
    return (
        f"the nodes' handlers differ: {'; '.join(parts[:_MOST_GROUPS])}{more}; a message goes to the handlers of the"
        " node that owns its partition"
    )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
    return f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names[:_MOST_NODES])}{more}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
