"""Topics of many projects, written at once."""

from collections.abc import Mapping

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.plan import Manifest
from evenlane.ring.coordination.ports import Coordination


async def put_specs(
    coordination: Coordination, env: str, cluster_config: ClusterConfig, specs: Mapping[str, str]
) -> None:
    """Write the specs as `topics apply` does. Fails unless all are accepted."""
    applying = ApplyPlan(coordination, env, cluster_config)
    planned = Manifest({project: spec.encode() for project, spec in specs.items()}, {})
    outcome = await applying.carry_out(await applying.plan(planned))
    assert (len(specs), [], None) == (len(outcome.written), outcome.waiting, outcome.broken)
