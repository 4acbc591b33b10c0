"""Makes the leader's plans that gather neighbouring partitions while the cluster is at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.control.leader.plan_check import is_carried_out
from evenlane.ring.coordination.ports import CoordinationError
from evenlane.ring.membership.rest import most_steps

if TYPE_CHECKING:
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.control.leader.plan_computer import PlanComputer
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.leader import Draft, Leader

_log = structlog.get_logger(__name__)


class Gatherer:
    """`strategy_name` is that of the strategy that `computer` uses."""

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        records: RecordReader,
        computer: PlanComputer,
        strategy_name: str,
    ) -> None:
        self._coordination, self._cluster, self._records = coordination, cluster, records
        self._computer = computer
        self._strategy_name = strategy_name

    async def draft(self, leader: Leader) -> Draft | None:
        """The plan of the next step, if the last plan is carried out and nothing changes meanwhile. If there is none,
        the leader's rest knows when to ask again.
        """
        nodes, present = leader.placement_nodes, leader.present
        try:
            is_over = await is_carried_out(self._coordination, self._cluster, self._records, present)
        except CoordinationError:  # gathering can wait, and needn't end the term
            is_over = False
        if not leader.is_at_rest:
            return None
        if not is_over:
            leader.rest.wait(now_ns())
            return None
        if leader.rest.steps >= most_steps(len(nodes)):
            _log.error(
                "gathering doesn't end, so it is stopped until nodes change", strategy=self._strategy_name,
                steps=leader.rest.steps,
            )  # fmt: skip
            leader.rest.end()
            return None
        placement = await self._computer.gather(nodes, present)
        if not leader.is_at_rest:
            return None
        draft = leader.draft(placement, gathers=True) if placement is not None else None
        if draft is None:
            leader.rest.end()
        return draft
