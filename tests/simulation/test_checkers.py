"""Tests of the checkers of repeats, attempts, poison, progress, pauses and expiry: what they find, and let pass."""

from __future__ import annotations

import pytest

from tests.simulation.by_hand import HandWrittenHistory
from tests.simulation.loop import SECOND


@pytest.fixture
def history():
    return HandWrittenHistory()


def test_repeat_under_the_same_number_is_found(history):
    """D: a failed attempt is followed by the next number; only a crash repeats the same number."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.wait(1)
    history.handles("a", node, "failed", attempt=1)
    assert history.broken == "D"


def test_attempt_number_above_the_handlers_is_found(history):
    """E13: the number of an attempt counts the handlers that started."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "paused")
    history.handles("a", node, attempt=2)
    assert history.broken in {"attempts", "D"}


def test_dead_letter_before_the_last_attempt_is_found(history):
    """E13, K4: a message is dead-lettered after its last attempt."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.dead("a", "failed 2 times")
    assert history.broken == "attempts"


def _kill(history: HandWrittenHistory, uid: str, name: str, epoch: int, attempt: int) -> None:
    node = history.owned(name, epoch)
    history.starts(uid, node, attempt)
    history.promises.attempts.kills(uid, node)
    node.dead = True
    history.fault("crash", node, by=uid)


def test_killer_dead_lettered_after_its_attempts_passes():
    """X11: the first kill is free, N kills are counted, then comes the dead letter."""
    history = HandWrittenHistory("p")
    history.put("p", key=None)
    for number, attempt in enumerate((1, 1, 2), 1):
        _kill(history, "p", f"n{number}", number, attempt)
    history.dead("p", "its process died in attempt 2")
    assert history.broken is None


@pytest.mark.parametrize("fault", [None, "nats down"])
def test_killer_with_more_than_n_plus_1_kills_is_found(fault):
    """X11: N + 1 kills and no more, whatever else happens."""
    history = HandWrittenHistory("p")
    history.put("p", key=None)
    _kill(history, "p", "n1", 1, 1)
    if fault is not None:
        history.fault(fault)
    for number, attempt in enumerate((1, 2), 2):
        _kill(history, "p", f"n{number}", number, attempt)
    assert history.broken is None
    _kill(history, "p", "n4", 4, 3)
    assert history.broken == "poison"


def test_alternating_killer_has_n_plus_2_handlers():
    """X11: a message that kills and fails by turns has N + 2 handlers, and no more."""
    history = HandWrittenHistory("p", unsteady=("p",))
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


def _second_kill_alongside(neighbour: str, project: str) -> HandWrittenHistory:
    """The killer has killed once, and kills again while another message is in flight."""
    history = HandWrittenHistory("p")
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


def test_neighbour_pays_one_attempt_for_the_second_kill():
    """X11: one attempt each, and no more."""
    history = _second_kill_alongside("m", "plain")
    history.handles("m", history.owned("n3", 3), attempt=2, project="plain")
    assert history.broken is None


@pytest.mark.parametrize(("project", "broken"), [("plain", "poison"), ("once", None)])
def test_neighbour_paying_for_the_first_kill_is_found(project, broken):
    """X11: only messages with a single attempt pay for the first kill: they were recorded."""
    history = HandWrittenHistory("p")
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


def test_neighbour_dead_lettered_for_a_killer_is_found():
    """X11: no other message is dead-lettered for a lone killer."""
    history = _second_kill_alongside("m", "plain")
    history.dead("m", "its process died in attempt 2", project="plain")
    assert history.broken in {"poison", "attempts"}


def test_two_suspects_at_once_are_found():
    """X11: under one lease a node runs one suspect after another."""
    history = HandWrittenHistory("p")
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


def test_reason_with_too_many_attempts_is_found(history):
    """X11: no message is blamed for more attempts than it had."""
    node = history.owned("n1", 1)
    history.put("a", key=None)
    history.starts("a", node)
    history.crash(node)
    history.handles("a", history.owned("n2", 2), "failed", attempt=2)
    history.dead("a", "its process died in attempt 3")
    assert history.broken == "poison"


def test_late_start_without_a_reason_is_found(history):
    """W: a message without a reason to wait starts soon."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b", key="j")
    history.handles("a", node)
    history.wait(4)
    history.starts("b", node)
    assert history.broken == "progress"


def test_late_start_with_a_reason_passes(history):
    """W: a key, a pause and a long handler are reasons to wait."""
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


def test_start_during_a_pause_is_found(history):
    """No message of a paused topic starts on the node that paused it."""
    node = history.owned("n1", 1)
    history.put("a", key=None)
    history.put("b", key=None)
    history.starts("a", node)("paused", 2.0)
    history.wait(1)
    history.starts("b", node)
    assert history.broken == "pause"


def test_start_after_expiry_is_found(history):
    """K5: no handler of an expired message starts."""
    node = history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.wait(2)
    history.starts("a", node)
    assert history.broken == "K5"


def test_settlement_without_an_end_is_found(history):
    """L: a message that was neither handled nor dead-lettered, expired or dropped may not be settled."""
    history.owned("n1", 1)
    history.put("a")
    history.settles(1)
    assert history.broken == "L"


def test_settlement_after_expiry_passes(history):
    """L, K5: an expired message may be settled."""
    history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.wait(1.1)
    history.settles(1)
    assert history.broken is None
    assert history.promises.ended == {"a"}


def test_settlement_without_the_dead_letter_of_an_expired_message_is_found(history):
    """L, K5: a topic with `dead_letter_expired` needs the dead letter first."""
    history.owned("n1", 1)
    history.put("a", project="plain", expires=history.now + SECOND)
    history.wait(1.1)
    history.settles(1)
    assert history.broken == "L"


def test_purge_settles_only_messages_that_waited(history):
    """L: a purge covers the messages that wait, not those that come later."""
    history.owned("n1", 1)
    history.put("a")
    history.promises.purged("shop", None)
    history.settles(1)
    assert history.broken is None
    history.wait(1)
    history.put("b")
    history.settles(2)
    assert history.broken == "L"


def test_settlement_by_a_purge_of_others_is_found(history):
    """L: a purge of one priority covers no other priority, and no other topic."""
    history.owned("n1", 1)
    history.put("a")
    history.promises.purged("shop", "high")
    history.promises.purged("plain", None)
    history.settles(1)
    assert history.broken == "L"
