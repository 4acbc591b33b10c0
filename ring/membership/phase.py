"""The phase of a node, for people and dashboards. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from evenlane.ring.membership.claims import ClaimStage

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from evenlane.ring.membership.claims import Claims


class Phase(StrEnum):
    FENCED = "fenced"  # its lease can't be trusted: no message starts
    RELEASING = "releasing"
    WAITING = "waiting for release"
    OWNING = "owning"
    STANDBY = "standby"
    JOINING = "joining"  # no plan names it yet


def phase_of(generation: int, desired: AbstractSet[int], claims: Claims, *, departs: bool) -> Phase:
    """The phase of a node whose lease is trusted. `departs` says that open partitions wait for their turn to close."""
    if departs or any(claim.stage in {ClaimStage.CLOSING, ClaimStage.RELEASING} for claim in claims.values()):
        return Phase.RELEASING
    if generation == 0:
        return Phase.JOINING
    if desired - claims.open():
        return Phase.WAITING
    return Phase.OWNING if desired else Phase.STANDBY
