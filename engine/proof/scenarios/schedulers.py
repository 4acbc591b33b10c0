"""The product's scheduler and the unfair ones beside it, by name, so that a node's process can make them, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.proof.baselines.fifo import FifoScheduler
from evenlane.engine.proof.baselines.plain import PlainScheduler

if TYPE_CHECKING:
    from evenlane.engine.core.scheduler.interface import Scheduler

Make = Callable[[int, Callable[[Any], int]], "Scheduler[Any]"]
"""(slots, when the head of a queue came) -> scheduler"""


def product(slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FairScheduler(slots)


def without_headroom(slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FairScheduler(slots, headroom=False)


def fifo(_slots: int, arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FifoScheduler(arrived_at)


def in_turn(_slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    """Round robin over groups."""
    return PlainScheduler()


BY_NAME: dict[str, Make] = {each.__name__: each for each in (product, without_headroom, fifo, in_turn)}
