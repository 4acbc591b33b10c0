"""What a scheduler tells of a project's quota, for shares over nodes (W)."""

import pytest

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import NOTHING_USED, start_next
from tests.support.scheduler.parts import SECOND, Queue, topic_of

NOW = 20 * SECOND


def used(ready=True, taken=0, **rules):
    made, queue = FairScheduler(8), Queue("acme")
    made.configure("acme", topic_of(**rules), 0)
    if ready:
        made.ready(queue, SECOND)
    for _ in range(taken):
        assert start_next(made, NOW) is queue
    return made.used("acme", NOW)


@pytest.mark.parametrize(
    ("state", "spent", "has", "waits"),
    [
        ({}, 0, True, False),
        ({"taken": 2}, 2, True, True),
        ({"taken": 1, "burst": 5}, 1, True, False),
        ({"taken": 1, "concurrency": 1}, 1, False, False),
        ({"ready": False}, 0, False, False),
        ({"state": "paused"}, 0, False, False),
    ],
)
def test_what_has_something_that_might_go_and_whether_it_waits_for_quota(state, spent, has, waits):
    assert (spent, has, waits) == used(**state)


def test_of_an_unknown_project_nothing():
    assert NOTHING_USED == FairScheduler(8).used("nobody", NOW)
