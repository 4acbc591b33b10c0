"""A node of a scenario over several nodes, as a process: an engine of the product with the scheduler of an arm."""

from __future__ import annotations

from typing import Any

from evenlane.engine.proof.arms import SCHEDULERS
from evenlane.engine.proof.baselines.schedulers import WholeQuota, stored_at
from evenlane.engine.proof.cluster.node_program import handle, run_node


def main(scheduler: str, whole_of: int, *, shares: bool) -> None:
    """Run until SIGTERM. With `whole_of` above 0, each of that many nodes gives the whole quota; with 0, its share."""

    def make_scheduler(slots: int) -> Any:
        own = SCHEDULERS[scheduler](slots, stored_at)
        return WholeQuota(own, whole_of) if whole_of else own

    run_node(handle, shares=shares, scheduler=make_scheduler)
