"""E11: positions of queues from several nodes, and how `why --positions` shows them."""

from io import StringIO

from rich.console import Console

from evenlane.engine.admin.why.positions import list_positions
from evenlane.engine.cli.inspect.why_positions import show_positions
from evenlane.engine.core.records.backlog_answer import NodeAnswer, QueueProgress

PRIORITIES = ("high", "mid", "low")


def listed(*answers):
    return list_positions(answers, PRIORITIES)


def shown(positions):
    console = Console(file=StringIO(), width=120)
    for part in show_positions(positions):
        console.print(part)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]


def test_queues_of_all_nodes_by_priority_and_group():
    """E11."""
    a = NodeAnswer("a", progress=[QueueProgress("mid", 2, 7, 41, 5, 1, 103, 104, 105, 110)])
    b = NodeAnswer(
        "b", progress=[QueueProgress("mid", 1, 9, 42, 0, 0), QueueProgress("high", 3, 9, 42, 0, 0, 8, 9, None, 8)]
    )
    high, first, second = listed(a, b)["queues"]
    assert {
        "priority": "mid", "group": 2, "partition": 7, "epoch": 41, "node": "a", "settled": 103, "head": 104,
        "next": 105, "end": 110, "waiting": 5, "in_flight": 1,
    } == second  # fmt: skip
    assert ("high", 3, "b", 8, None) == tuple(high[key] for key in ("priority", "group", "node", "settled", "next"))
    assert (1, None, None) == (first["group"], first["settled"], first["end"])
    assert [
        "PRIORITY GROUP PARTITION EPOCH NODE SETTLED HEAD NEXT END WAITING IN FLIGHT",
        "high 3 9 42 b 8 9 - 8 0 0",
        "mid 1 9 42 b - - - - 0 0",
        "mid 2 7 41 a 103 104 105 110 5 1",
    ] == [line for line in shown(listed(a, b)) if "─" not in line]


def test_answer_is_bounded():
    """E11: of thousands of groups, those with the largest backlogs are listed, and the rest is counted."""
    many = [QueueProgress("low", group, 1, 1, group, 0) for group in range(1_500)]
    positions = listed(NodeAnswer("a", progress=many, left_out=30))
    assert (1_000, 530) == (len(positions["queues"]), positions["left_out"])
    assert [*range(500, 1_500)] == [queue["group"] for queue in positions["queues"]]
    assert "positions: 1,480 more queues are left out" == shown(positions)[-1]


def test_project_without_queues():
    """E11."""
    assert {"queues": [], "left_out": 0} == listed(NodeAnswer("a"))
    assert ["positions: no node has a queue of the project"] == shown(listed(NodeAnswer("a")))
