"""Merges nodes' answers about how far a project's queues have come (E11), for `evenlane why --json`. Pure."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.core.records.backlog_answer import NodeAnswer, QueueProgress

MOST = 1_000  # queues in a document, some 150 bytes each


def list_positions(answers: Sequence[NodeAnswer], priorities: Sequence[str]) -> dict[str, Any]:
    """Build the positions in JSON types: the queues with the largest backlogs, by priority and group, and the number of
    queues left out. docs/reference/positions.md defines the fields.
    """
    ranks = {priority: rank for rank, priority in enumerate(priorities)}

    def rank(found: tuple[str, QueueProgress]) -> tuple[int, int]:
        return ranks.get(found[1].priority, len(ranks)), found[1].group

    known = [(answer.node, each) for answer in answers for each in answer.progress]
    shown = nsmallest(MOST, known, key=lambda found: (-found[1].waiting, *rank(found)))
    left_out = len(known) - len(shown) + sum(answer.left_out for answer in answers)
    return {"queues": [_queue(*found) for found in sorted(shown, key=rank)], "left_out": left_out}


def _queue(node: str, found: QueueProgress) -> dict[str, Any]:
    return {
        "priority": found.priority,
        "group": found.group,
        "partition": found.partition,
        "epoch": found.epoch,
        "node": node,
        "settled": found.settled,
        "head": found.head,
        "next": found.next,
        "end": found.end,
        "waiting": found.waiting,
        "in_flight": found.in_flight,
    }
