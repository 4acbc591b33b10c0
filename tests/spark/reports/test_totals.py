"""What reports count is what happened: whoever had the queues, whatever was lost or came twice."""

from collections import Counter

import pytest

from evenlane.spark.reports.flows import ENDED
from tests.spark.reports.conftest import WORLDS
from tests.spark.reports.rows import START

pytestmark = pytest.mark.timeout(300)  # the one report for all of them takes long on a busy machine
FLOWS = (*ENDED, "attempts")


def test_totals_are_the_ledgers_over_hand_overs_losses_and_doubles(report):
    """Issue 8.1, E11: what came and what became of it, once each; a backlog that was handed over didn't come."""
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


def test_windows_have_what_happened_in_them(report):
    """Issue 8.3: by event time, where no record was lost."""
    worlds, found = report.worlds, report.rows
    for world in worlds:
        if not (world.lossy or world.deadly):
            for row in found[world.project]:
                window = int((row.window_start.replace(tzinfo=START.tzinfo) - START).total_seconds() // 300)
                assert {name: world.by_window[window, name] for name in FLOWS} == {name: row[name] for name in FLOWS}
                assert world.by_window[window, "came"] == row.arrived


def test_a_kill_costs_what_was_not_told_and_no_more(report):
    """Issue 8.1: the last interval of a killed node is missing; what doesn't add up for it is told as uncounted."""
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
    """Issue 8.3: backlog and flows by priority are those of the tenant, taken apart."""
    for rows in report.rows.values():
        for row in rows:
            for name in ("backlog", "in_flight", "arrived", *FLOWS):
                assert row[name] == sum(each[name] for each in row.priorities)


def _sums(rows):
    found = Counter()
    for row in rows:
        found.update({name: row[name] for name in (*FLOWS, "arrived", "first_puts", "uncounted")})
    return found
