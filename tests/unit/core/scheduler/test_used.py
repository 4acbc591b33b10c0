"""The scheduler's report of a project's quota use, from which quota shares over nodes are computed (W)."""

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
    return made.measure_use("acme", NOW)


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
def test_used_has_spent_messages_and_whether_more_wait(state, spent, has, waits):
    assert (spent, has, waits) == used(**state)


def test_unknown_project_has_used_nothing():
    assert NOTHING_USED == FairScheduler(8).measure_use("nobody", NOW)
