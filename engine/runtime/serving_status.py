"""Tracks whether a node serves or is on standby, and since which plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.ownership.membership import Membership

_log = structlog.get_logger(__name__)


class ServingStatus:
    """Status of one session. `on_ready(partitions, generation)` is called at each change.

    Invariant: `current` is None until the node serves, or has waited too long for its first plan; after that it is
    never None again.
    """

    def __init__(self, env: str, on_ready: Callable[[int, int], None]) -> None:
        self._env, self._on_ready = env, on_ready
        self._has_plan = False
        self.current: tuple[int, int] | None = None

    def on_carried_out(self, partitions: int, generation: int) -> None:
        """Note that the node owns the partitions assigned by the plan of this generation."""
        self._has_plan = True
        _log.info(
            "serving" if partitions else "standing by", env=self._env, partitions=partitions, generation=generation
        )
        self._set(partitions, generation)

    def on_standby(self, membership: Membership) -> None:
        """Note that the first plan, or its partitions, take long to arrive. No effect if a plan was carried out."""
        if not self._has_plan:
            member = membership.member
            _log.info("standing by", phase=membership.phase, partitions=len(member.owned), generation=member.plan.done)
            self._set(len(member.owned), member.plan.done)

    def _set(self, partitions: int, generation: int) -> None:
        self.current = partitions, generation
        self._on_ready(partitions, generation)
