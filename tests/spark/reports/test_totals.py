"""Totals of reports equal the true history, across handoffs, lost and duplicate records."""

from collections import Counter

from evenlane.spark.reports.schemas import ENDED
from tests.spark.reports.conftest import WORLDS
from tests.spark.reports.rows import START

FLOWS = (*ENDED, "attempts")


def test_totals_equal_the_ledger_across_handoffs_losses_and_duplicates(report):
    """E11: each arrival and end counts once; a backlog from a handoff is no arrival."""
    worlds, found = report.worlds, report.rows
    calm = [world for world in worlds if not world.deadly]
    assert len(calm) == WORLDS / 2
    for world in calm:
        reported = _sums(found[world.project])
        assert {name: world.real[name] for name in FLOWS} == {name: reported[name] for name in FLOWS}
        pending = sum(queue.later for queue in world.queues)
        assert world.real["put"] == reported["first_puts"] + pending, world.project
        assert 0 == reported["uncounted"]
        last = found[world.project][-1]
        assert world.waiting == last.backlog + last.in_flight


def test_windows_have_the_events_of_their_time(report):
    """By event time, in histories without lost records."""
    worlds, found = report.worlds, report.rows
    for world in worlds:
        if not (world.lossy or world.deadly):
            for row in found[world.project]:
                window = int((row.window_start.replace(tzinfo=START.tzinfo) - START).total_seconds() // 300)
                assert {name: world.by_window[window, name] for name in FLOWS} == {name: row[name] for name in FLOWS}
                assert world.by_window[window, "came"] == row.arrived


def test_kill_loses_only_the_unreported_interval(report):
    """Messages that don't add up because of it are reported as uncounted."""
    worlds, found = report.worlds, report.rows
    killed = [world for world in worlds if world.kills]
    assert killed
    for world in killed:
        reported = _sums(found[world.project])
        assert {name: world.real[name] - world.gone[name] for name in FLOWS} == {name: reported[name] for name in FLOWS}
        last = found[world.project][-1]
        assert world.waiting == last.backlog + last.in_flight
        gone = sum(reported[name] for name in ENDED)
        assert reported["arrived"] - reported["uncounted"] == gone + world.waiting


def test_priorities_add_up_to_the_tenant(report):
    for rows in report.rows.values():
        for row in rows:
            for name in ("backlog", "in_flight", "arrived", *FLOWS):
                assert row[name] == sum(each[name] for each in row.priorities)


def _sums(rows):
    found = Counter()
    for row in rows:
        found.update({name: row[name] for name in (*FLOWS, "arrived", "first_puts", "uncounted")})
    return found
