"""Which messages of the shared streams a subscription gets (K10): pure."""

import pytest

from evenlane.engine.core.queue.subscription_filter import ALL_MESSAGES, SubscriptionFilter, is_of_another
from evenlane.engine.core.wire import headers as h

_CREATED = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [((), ["acme", "other"]), (("*",), ["acme", "other"]), (("a*e", "b"), ["acme"]), (("acm",), [])],
)
def test_patterns_choose_projects(patterns, taken):
    """K10: no pattern chooses all."""
    chosen = SubscriptionFilter(projects=patterns)
    assert taken == [project for project in ("acme", "other") if chosen.takes_project(project)]


def test_delayed_messages_are_taken_from_the_time_of_creation_on():
    """K10: by the time at which they are due, or without one by their arrival."""
    chosen = SubscriptionFilter(since=_CREATED)
    due = [h.encode({h.DUE: str(at)}) for at in (_CREATED - 1, _CREATED)]
    assert [False, True] == [chosen.takes_delayed(headers, _CREATED - 9) for headers in due]
    assert [False, True] == [chosen.takes_delayed(b"", at) for at in (_CREATED - 1, _CREATED)]
    assert chosen.takes_delayed(due[0], _CREATED), "it was put later"
    assert ALL_MESSAGES.takes_delayed(b"", 0)


def test_copies_are_of_the_unnamed_subscription():
    """K10: a retry, or a replayed dead letter."""
    copy = h.encode({h.ID: "acme:1", h.ORIGIN: "LANES_online_3:17"})
    assert is_of_another(copy)
    assert not is_of_another(h.encode({h.ID: "acme:1"}))
    assert not SubscriptionFilter().takes_delayed(copy, 5)
