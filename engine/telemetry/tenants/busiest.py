"""Chooses which projects have a label of their own, and which share one. Pure."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from evenlane.engine.telemetry.metric_names import OTHER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_STAYS = 2  # a project keeps its label unless another is this many times as busy


def busiest(scores: Mapping[str, int], named: Collection[str], most: int) -> set[str]:
    """Return up to `most` projects with the highest scores. Those already `named` stay unless another is twice as busy,
    as each change ends a time series and begins another. A project whose name is the label of the rest has none of its
    own.
    """

    def rank(project: str) -> tuple[int, bool, str]:
        stays = project in named
        return scores[project] * (_STAYS if stays else 1), stays, project

    return set(nlargest(most, (project for project in scores if project != OTHER), key=rank))
