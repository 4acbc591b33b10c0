"""Tracks whether a node serves or is on standby, and since which plan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.ring.membership.phase import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.ownership.membership import Membership

_log = structlog.get_logger(__name__)

EARLY_S = 2.0
_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 15.0, 60.0
_FENCED_S = 1.0


class ServingStatus:
    """Status of one session. `on_ready(partitions, generation)` is called at each change.

    A plan that was carried out counts at once if it gives the node partitions. One without counts after `early_s`: it
    may be of the node's earlier session, or the next one is on its way. Without any plan, or with partitions that take
    long to arrive, a node is on standby after `patience_s`.

    Invariant: `current` is None until the node serves or is on standby; after that it is never None again.
    """

    def __init__(self, on_ready: Callable[[int, int], None], *, patience_s: float, early_s: float = EARLY_S) -> None:
        self._on_ready, self._patience_s, self._early_s = on_ready, patience_s, early_s
        self._is_early = True
        self._without: int | None = None  # the generation of a plan without partitions that came early
        self.current: tuple[int, int] | None = None

    def on_carried_out(self, partitions: int, generation: int) -> None:
        """Note that the node owns the partitions assigned by the plan of this generation."""
        if partitions or not self._is_early or self.current is not None:
            self._set(partitions, generation)
        else:
            self._without = generation

    async def limit_waiting(self, membership: Membership) -> None:
        """Put the node on standby if no plan that gives it partitions is carried out in time."""
        await asyncio.sleep(self._early_s)
        self._is_early = False
        if self.current is None and self._without is not None:
            self._set(0, self._without)
        await asyncio.sleep(max(0.0, self._patience_s - self._early_s))
        while membership.phase is Phase.FENCED:  # noqa: ASYNC110 - it is renewed, or rejoins
            await asyncio.sleep(_FENCED_S)
        if self.current is None:
            owned, generation = len(membership.member.owned), membership.member.plan.done
            _log.warning(
                "standing by", phase=membership.phase, partitions=owned, generation=generation,
                reason=explain_waiting(membership),
            )  # fmt: skip
            self._set(owned, generation)

    def _set(self, partitions: int, generation: int) -> None:
        self.current = partitions, generation
        self._on_ready(partitions, generation)


def patience_s(lease_ttl_s: float) -> float:
    """Return how long a node waits for its first partitions. After a crash of all nodes, the lease of the former leader
    must end before there is a plan, and partitions that move among nodes that run take some seconds.
    """
    return min(_MOST_PATIENCE_S, max(_LEAST_PATIENCE_S, 3 * lease_ttl_s))


def explain_waiting(membership: Membership) -> str:
    """Return why the node doesn't serve yet, in words."""
    plan = membership.member.plan
    if not plan.generation:
        return "it waits for a leader to plan partitions for it"
    return f"it waits for its first partitions: it serves {len(membership.member.owned)} of {len(plan.desired)} planned"
