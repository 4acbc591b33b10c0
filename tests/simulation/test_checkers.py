"""The checkers of repeats, attempts, poison, progress, pauses and expiry: what they find, and what they let pass."""

from __future__ import annotations

import pytest

from tests.simulation.by_hand import History
from tests.simulation.loop import SECOND


@pytest.fixture
def history():
    return History()


def test_repeat_needs_a_higher_number(history):
    """D, attempts: one that failed is made again under the next number; under the same one after a crash only."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.wait(1)
    history.handles("a", node, "failed", attempt=1)
    assert history.broken == "D"


def test_attempts_found_too_many(history):
    """Attempts: the number says how often a handler was begun."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "paused")
    history.handles("a", node, attempt=2)
    assert history.broken in {"attempts", "D"}


def test_attempts_found_dead_too_early(history):
    """Attempts, K4: the last attempt must have been made."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.dead("a", "failed 2 times")
    assert history.broken == "attempts"


def _kill(history: History, uid: str, name: str, epoch: int, attempt: int) -> None:
    node = history.owned(name, epoch)
    history.starts(uid, node, attempt)
    history.promises.attempts.kills(uid, node)
    node.dead = True
    history.fault("crash", node, by=uid)


def test_poison_dead_after_its_attempts():
    """X11: the first kill is free, N are counted, then the dead letter."""
    history = History("p")
    history.put("p", key=None)
    for number, attempt in enumerate((1, 1, 2), 1):
        _kill(history, "p", f"n{number}", number, attempt)
    history.dead("p", "its process died in attempt 2")
    assert history.broken is None


@pytest.mark.parametrize("fault", [None, "nats down"])
def test_poison_found_one_too_many(fault):
    """X11: N + 1 kills and no more, whatever else happens."""
    history = History("p")
    history.put("p", key=None)
    _kill(history, "p", "n1", 1, 1)
    if fault is not None:
        history.fault(fault)
    for number, attempt in enumerate((1, 2), 2):
        _kill(history, "p", f"n{number}", number, attempt)
    assert history.broken is None
    _kill(history, "p", "n4", 4, 3)
    assert history.broken == "poison"


def test_poison_that_fails_too():
    """X11: whoever kills and fails by turns has N + 2 handlers, and no more."""
    history = History("p", unsteady=("p",))
    history.put("p")
    _kill(history, "p", "n1", 1, 1)
    node = history.owned("n2", 2)
    history.handles("p", node, "failed", attempt=1)
    history.starts("p", node, 2)
    history.promises.attempts.kills("p", node)
    node.dead = True
    history.fault("crash", node, by="p")
    history.handles("p", history.owned("n3", 3), "failed", attempt=3)
    assert history.broken is None
    history.starts("p", history.owned("n4", 4), attempt=4)
    assert history.broken == "poison"


def _second_kill_alongside(neighbour: str, project: str) -> History:
    """The killer has killed once, and kills again beside another message."""
    history = History("p")
    history.put("p", key=None)
    _kill(history, "p", "n1", 1, 1)
    history.put(neighbour, key=None, project=project)
    node = history.owned("n2", 2)
    history.starts("p", node, 1)
    history.starts(neighbour, node, project=project)
    history.promises.attempts.kills("p", node)
    node.dead = True
    history.fault("crash", node, by="p")
    return history


def test_poison_neighbours_pay_for_the_second_kill():
    """X11: one attempt each, and no more."""
    history = _second_kill_alongside("m", "plain")
    history.handles("m", history.owned("n3", 3), attempt=2, project="plain")
    assert history.broken is None


@pytest.mark.parametrize(("project", "broken"), [("plain", "poison"), ("once", None)])
def test_poison_found_neighbours_paying_for_the_first_kill(project, broken):
    """X11: nobody pays for the first kill but those that may be tried only once: they were recorded."""
    history = History("p")
    history.put("p", key=None)
    history.put("m", key=None, project=project)
    node = history.owned("n1", 1)
    history.starts("p", node)
    history.starts("m", node, project=project)
    history.promises.attempts.kills("p", node)
    node.dead = True
    history.fault("crash", node, by="p")
    history.starts("m", history.owned("n2", 2), attempt=2, project=project)
    assert history.broken == broken


def test_poison_found_neighbours_dead():
    """X11: nobody else is dead-lettered for a lone killer."""
    history = _second_kill_alongside("m", "plain")
    history.dead("m", "its process died in attempt 2", project="plain")
    assert history.broken in {"poison", "attempts"}


def test_poison_found_suspects_side_by_side():
    """X11: under one lease a node runs one suspect after another."""
    history = History("p")
    node = history.owned("n1", 1)
    for own in "abc":
        history.put(own, key=None, project="plain")
    history.starts("a", node, project="plain", suspect=True)()
    ends = history.starts("b", node, project="plain", suspect=True)
    again = history.owned("n1", 2)  # another lease
    history.put("d", key=None, project="plain")
    history.starts("d", again, project="plain", suspect=True)()
    ends()
    assert history.broken is None
    history.starts("b", again, project="plain", suspect=True)
    history.starts("c", again, project="plain", suspect=True)
    assert history.broken is not None


def test_poison_found_wrong_reason(history):
    """X11: nobody is blamed for more attempts than it had."""
    node = history.owned("n1", 1)
    history.put("a", key=None)
    history.starts("a", node)
    history.crash(node)
    history.handles("a", history.owned("n2", 2), "failed", attempt=2)
    history.dead("a", "its process died in attempt 3")
    assert history.broken == "poison"


def test_progress_found(history):
    """Progress: a message that waits for nobody is begun soon."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b", key="j")
    history.handles("a", node)
    history.wait(4)
    history.starts("b", node)
    assert history.broken == "progress"


def test_progress_of_who_has_to_wait(history):
    """Progress: nor the next of a key that waited, nor what a pause or a long handler held up, is late."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    ends = history.starts("a", node)
    history.wait(4)
    ends()
    history.handles("b", node)
    history.put("c")
    history.put("d", key="j")
    history.starts("c", node)("paused", 5.0)
    history.wait(5)
    history.handles("c", node)
    history.handles("d", node)
    assert history.broken is None


def test_pause_found_ignored(history):
    """Pause: nothing of the topic starts on that node meanwhile; elsewhere it does."""
    node = history.owned("n1", 1)
    history.put("a", key=None)
    history.put("b", key=None)
    history.starts("a", node)("paused", 2.0)
    history.wait(1)
    history.starts("b", node)
    assert history.broken == "pause"


def test_expired_found_handled(history):
    """K5: nobody's handler starts when its time is over; while it isn't, it may not be settled unhandled."""
    node = history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.wait(2)
    history.starts("a", node)
    assert history.broken == "K5"


def test_settled_found_unhandled(history):
    """L: what neither was handled, nor is dead, expired or dropped, may not be settled."""
    history.owned("n1", 1)
    history.put("a")
    history.settles(1)
    assert history.broken == "L"


def test_settled_after_expiry(history):
    """L, K5: it may be once its time is over."""
    history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.wait(1.1)
    history.settles(1)
    assert history.broken is None
    assert history.promises.ended == {"a"}


def test_settled_found_without_its_dead_letter(history):
    """L, K5: unless its topic wants a dead letter first."""
    history.owned("n1", 1)
    history.put("a", project="plain", expires=history.now + SECOND)
    history.wait(1.1)
    history.settles(1)
    assert history.broken == "L"


def test_settled_by_a_purge(history):
    """L: what waited when somebody purged its topic, and not what came afterwards."""
    history.owned("n1", 1)
    history.put("a")
    history.promises.purged("shop", None)
    history.settles(1)
    assert history.broken is None
    history.wait(1)
    history.put("b")
    history.settles(2)
    assert history.broken == "L"


def test_settled_found_purged_with_another(history):
    """L: a purge of one priority drops no other, nor another topic's."""
    history.owned("n1", 1)
    history.put("a")
    history.promises.purged("shop", "high")
    history.promises.purged("plain", None)
    history.settles(1)
    assert history.broken == "L"


class TestEtcdGoesBack:
    """O: at each moment one may start handlers, though etcd doesn't know who."""

    @staticmethod
    def rolled_back(*, begun=True):
        """The owner of epoch 5, whose lease ends in 2 s; etcd has nothing of it any more."""
        history = History()
        node = history.owned("n1", 5)
        for uid in "ab":
            history.put(uid, key=None)
        if begun:
            history.settles(0)
        history.promises.owners.went_back([], lambda _lease: history.now + 2 * SECOND)
        return history, node

    def test_who_is_forgotten_may_until_the_end_of_its_lease(self):
        history, node = self.rolled_back()
        history.handles("a", node)
        history.wait(2)
        assert history.broken is None
        history.starts("b", node)
        assert history.broken == "O"

    @pytest.mark.parametrize(("wait", "begun", "broken"), [(1, True, "O"), (2, True, None), (1, False, None)])
    def test_another_may_not_before_unless_the_first_has_not_begun(self, wait, begun, broken):
        history, _ = self.rolled_back(begun=begun)
        history.wait(wait)
        history.starts("a", history.owned("n2", 3))
        assert history.broken == broken

    def test_nor_may_the_first_when_another_has_started_something(self):
        history, node = self.rolled_back(begun=False)
        history.starts("a", history.owned("n2", 3))
        assert history.broken is None
        history.epoch = 5
        history.starts("b", node)
        assert history.broken == "O"

    def test_who_has_said_that_it_ends_is_not_outlived(self):
        history, _ = self.rolled_back()
        history.settles(0, clean=True)
        history.starts("a", history.owned("n2", 6))
        assert history.broken is None
