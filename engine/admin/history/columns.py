"""Builds a node's answer from its history. Pure and thread-safe: its input never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.admin.history.messages import Known, LabelColumns, NodeHistory, encode
from evenlane.engine.admin.overview.rows import MOST
from evenlane.engine.telemetry.tenants.history import FIGURES, KEPT_S
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.ports import ClusterLayout
    from evenlane.engine.telemetry.tenants.history import HistoryCopy
    from evenlane.quota.topics.topic import Accepted

_SECOND = 1_000_000_000


def encode_history(
    node: str,
    history: HistoryCopy,
    now: int,
    topic_of: Callable[[str], Accepted | None],
    layout: ClusterLayout,
    most_bytes: int,
) -> bytes:
    """Encode the answer at `now` (unix ns by the store's clock), with as many of the busiest projects as fit."""
    last = now // _SECOND
    seconds = range(last - KEPT_S + 1, last + 1)
    known = [Known(*each) for each in _up_to(history, last)]
    rows = [
        LabelColumns(project, history.columns(project, seconds), _partitions(project, topic_of(project), layout))
        for project in _busiest(history)
    ]
    while True:
        body = encode(NodeHistory(node, now, seconds.start, [*FIGURES], history.sums(seconds), rows, known))
        if len(body) <= most_bytes or not rows:
            return body
        rows = rows[: len(rows) // 2]


def _busiest(history: HistoryCopy) -> list[str]:
    """Return up to `MOST` projects, those with the largest present backlog first, as the overview does."""

    def rank(project: str) -> tuple[float, ...]:
        each = history.labels[project]
        present = each.at(each.last) if project in history.moving else ()
        return (-each.last, *(-figure if figure == figure else 0.0 for figure in present))  # noqa: PLR0124 - NaN

    return sorted(sorted(history.labels), key=rank)[:MOST]


def _up_to(history: HistoryCopy, last: int) -> list[tuple[int, int, list[int]]]:
    """Extend what is known at the last round until now, as its figures are."""
    return [(first, last if until == history.last else until, numbers) for first, until, numbers in history.known]


def _partitions(project: str, accepted: Accepted | None, layout: ClusterLayout) -> list[int]:
    if accepted is None:
        return []
    spread = accepted.topic.spread
    groups = {group % spread for group in (*range(min(accepted.active, spread)), *accepted.draining)}
    return sorted({partition_of(project, group, spread, layout.partitions, layout.layout) for group in groups})
