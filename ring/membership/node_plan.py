"""The leader's plan for one node, and how much of it the node has carried out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evenlane.ring.membership.claims import ClaimStage

if TYPE_CHECKING:
    from evenlane.ring.membership.claims import Claim


@dataclass(slots=True)
class NodePlan:
    """The partitions that the node must own (`desired`), by the plan of `generation`, and its progress.

    Invariants:
    - `generation` never falls.
    - A partition is in `pending` unless it is desired and open, or neither desired nor claimed.
    - `done` follows `generation` once `pending` is empty.
    """

    revision: int = 0  # mod-revision of the plan key
    generation: int = 0
    desired: frozenset[int] = frozenset()
    pending: set[int] = field(default_factory=set)
    done: int = 0  # the last generation that was carried out completely
    stale: int = 0  # plans that were ignored

    @property
    def is_expecting(self) -> bool:
        """Whether the plan gives the node a partition that isn't open."""
        return bool(self.desired) and any(p in self.desired for p in self.pending)

    def accept(self, revision: int, generation: int) -> bool:
        """Accept a plan. False, and the plan is ignored, if its generation is older than the present one (Z5)."""
        if generation < self.generation:
            self.stale += 1
            return False
        self.revision, self.generation = revision, generation
        return True

    def want(self, partitions: frozenset[int]) -> list[int]:
        """Set the desired partitions. Returns those that need a decision, in order."""
        before, self.desired = self.desired, partitions
        return sorted((before ^ partitions) | self.pending)

    def note(self, partition: int, claim: Claim | None) -> None:
        """Note the progress of a partition, by its claim."""
        if partition in self.desired:
            is_settled = claim is not None and claim.stage is ClaimStage.OPEN
        else:
            is_settled = claim is None
        if is_settled:
            self.pending.discard(partition)
        else:
            self.pending.add(partition)

    def complete(self) -> bool:
        """Whether the generation is carried out now, and was not before."""
        if self.pending or self.done >= self.generation:
            return False
        self.done = self.generation
        return True
