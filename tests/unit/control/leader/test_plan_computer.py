"""A defect of a strategy that shows only at rest."""

import structlog

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.plan_computer import PlanComputer
from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.strategy import PlacementNode
from tests.unit.control.leader.placement_cluster import FakeTopicCache


def fail(_request):
    raise KeyError("rack")


async def test_failure_to_gather_is_logged():
    """C2: nothing moves, and the log names the defect."""
    computer = PlanComputer(ClusterConfig(partitions=4), FakeTopicCache(), ("racks", fail), 4_096)
    with structlog.testing.capture_logs() as log:
        assert None is await computer.gather([PlacementNode("a")], dict.fromkeys(range(4), "a"))
    [line] = log
    assert "placement strategy failed, so partitions aren't gathered" == line["event"]
    assert ("error", "racks", "the placement strategy failed: KeyError: 'rack'") == (
        line["log_level"], line["strategy"], line["error"]
    )  # fmt: skip


async def test_only_projects_of_the_cluster_put_load_on_it():
    """K10, E6: a subscription to some projects has its nodes placed by their load."""
    seen = []

    def place(request):
        seen.append(request.loads)
        return place_in_bounds(request)

    topics, config = FakeTopicCache(), ClusterConfig(partitions=4, max_group_qps=1_000_000)
    topics.put("acme", 100, config)
    topics.put("other", 900, config)
    for takes in (lambda _project: True, lambda project: project == "acme"):
        computer = PlanComputer(config, topics, ("own", place), 4_096, takes)
        await computer.place([PlacementNode("a")], {})
    assert [1_000, 100] == [round(sum(loads)) for loads in seen]
