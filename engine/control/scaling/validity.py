"""Finds the node records that no node has written: anybody who may write to etcd can write them, with any numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

from evenlane.engine.base import names
from evenlane.engine.base.config.scaling import Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlane.ring.membership.records import LoadRecord, NodeRecord

_MODES = get_args(Scaling)
# No node reports more. The first is the greatest value of the setting `concurrency`.
_MOST_SLOTS, _MOST_CORES, _MOST_PROJECTS = 100_000, 100_000, 1_000_000_000
_MOST_WANTED, _MOST_MESSAGES = 1e9, 10**15
_LEAST_S, _MOST_S = 1e-6, 1e9  # of a handler; nodes round to the first
_MOST_REASONS, _REASON_CHARS = 100, 100


class NodeRecords(NamedTuple):
    """Records of nodes by name: those that count, and for each other one a clause that says why it doesn't."""

    valid: dict[str, NodeRecord]
    invalid: dict[str, str]


def check_records(nodes: Mapping[str, NodeRecord]) -> NodeRecords:
    """Take out the records that no node can have written. The others count as if these didn't exist."""
    found = NodeRecords({}, {})
    for name, node in nodes.items():
        if (reason := next(_problems(name, node), "")) == "":
            found.valid[name] = node
        else:
            found.invalid[name[:128]] = reason
    return found


def _problems(name: str, node: NodeRecord) -> Iterator[str]:
    if not names.is_node(name):
        yield "its name is no name of a node"
    if node.scaling not in _MODES:
        yield f"its scaling is none of {', '.join(_MODES)}"
    values = {"slots": (node.slots, _MOST_SLOTS), "projects": (node.projects, _MOST_PROJECTS),
              "cpu": (node.cpu, _MOST_CORES), "cores": (node.cores, _MOST_CORES)}  # fmt: skip
    yield from _outside(values)
    if node.load is not None:
        yield from _problems_of_load(node.load)


def _problems_of_load(load: LoadRecord) -> Iterator[str]:
    yield from _outside({"used": (load.used, _MOST_SLOTS), "wanted": (load.wanted, _MOST_WANTED)})
    if load.handling and not _LEAST_S <= load.handling <= _MOST_S:
        yield f"handling isn't 0, or from {_LEAST_S:g} to {_MOST_S:g}"
    if len(load.blocked) > _MOST_REASONS or any(len(reason) > _REASON_CHARS for reason in load.blocked):
        yield "blocked has more than wait reasons"
    for count in load.blocked.values():
        yield from _outside({"blocked": (count, _MOST_MESSAGES)})


def _outside(values: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Yield a clause for each value that isn't from 0 to its limit. It doesn't repeat the value, of any length."""
    for field, (value, most) in values.items():
        if not 0 <= value <= most:
            yield f"{field} isn't from 0 to {most:g}"
