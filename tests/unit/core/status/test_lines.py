"""Statuses as lines of a terminal (X13)."""

from evenlane.engine.core.status.judge import judge
from evenlane.engine.core.status.lines import status_lines
from tests.unit.core.status.cases import facts, mid, rates


def lines(**fields):
    status, *also = (each.describe() for each in judge(facts(**fields)))
    return [*status_lines({"status": status, "also": also})]


def test_label_is_not_said_twice():
    """X13: a sentence that begins with the label is enough; one that doesn't follows the label."""
    assert [
        "status: paused by jo since 10:02: 3 wait, the oldest for 9s",
        "  to do: `evenlane topics resume acme --env online` ends the pause",
    ] == lines(state="paused", waiting=mid(3, 9.0), stopped_by=" by jo since 10:02")
    assert ["status: ok - nothing waits"] == lines()


def test_all_statuses_have_lines():
    """X13: the most urgent one first."""
    found = lines(waiting=mid(9, 90.0), reasons={"quota": 1}, rates=rates(arriving=60.0, handled=15.0, failed=5.0))
    assert found[0].startswith("status: failing 25 % - 25 % of its attempts fail")
    assert [line for line in found if line.startswith("also: ")] == [
        "also: over quota 3 x - it offers 3 x its quota: 60/s arrive, 20/s are allowed; 9 wait, the oldest for 1m 30s"
    ]
