"""The lists of docs/reference/figures.md: the counts of messages, and the statuses of a project."""

from __future__ import annotations

from markup import joined, table

from evenlane.engine.core.stats.flow_counts import FLOW_MEANINGS
from evenlane.engine.core.status.status import MEANINGS, NAMES


def made() -> str:
    counts = table(("figure", "counts"), ((f"`{name}`", meaning) for name, meaning in FLOW_MEANINGS.items()))
    statuses = table(("status", "severity", "it holds if"), ((f"`{name}`", *MEANINGS[name]) for name in NAMES))
    return joined(["### Counts", counts, "### Statuses, the most urgent first", statuses])
