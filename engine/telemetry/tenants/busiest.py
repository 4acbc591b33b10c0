"""Which projects have a label of their own, and which share one. Pure."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from evenlane.engine.telemetry.metric_names import OTHER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_STAYS = 2  # so many times as busy another must be to take a project's place


def busiest(scores: Mapping[str, int], named: Collection[str], most: int) -> set[str]:
    """Up to `most` projects with the highest scores. Those `named` already stay unless another is twice as busy: each
    change ends a time series and begins one. A project that is called as the rest is has none of its own.
    """

    def rank(project: str) -> tuple[int, bool, str]:
        stays = project in named
        return scores[project] * (_STAYS if stays else 1), stays, project

    return set(nlargest(most, (project for project in scores if project != OTHER), key=rank))
