"""The checker of order finds what breaks its promise in a history made by hand, and lets pass what doesn't."""

from __future__ import annotations

import pytest

from tests.simulation.by_hand import History
from tests.simulation.loop import SECOND


@pytest.fixture
def history():
    return History()


def test_order_one_after_the_other(history):
    """Order: a key's messages in turn, others meanwhile; a failing one again, until its dead letter is stored."""
    node = history.owned("n1", 1)
    for uid in ("a", "b", "c"):
        history.put(uid)
    history.put("other", key="j")
    history.put("none", key=None)
    ends = history.starts("a", node)
    for uid in ("other", "none"):
        history.handles(uid, node)
    ends("failed")
    history.handles("a", node, "failed", attempt=2)
    history.dead("a", "failed 2 times")
    history.handles("b", node, "paused")
    history.handles("b", node)
    history.handles("c", node)
    assert history.broken is None


def test_order_found_overlapping(history):
    """Order: another of the key while one runs, and the same one twice."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", node)
    history.starts("b", node)
    assert history.broken == "order"


def test_order_found_before_the_retry(history):
    """Order: the next one while a failed one still has attempts; or has none, and no dead letter."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", node, "failed")
    history.starts("b", node)
    assert history.broken == "order"


def test_order_found_copied(history):
    """Order: a retry that is put as a copy could be overtaken."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.retry("a")
    assert history.broken == "order"


def test_order_of_plain_topics(history):
    """Order: none is promised to topics that aren't ordered."""
    node = history.owned("n1", 1)
    history.put("a", project="plain")
    history.put("b", project="plain")
    history.starts("b", node, project="plain")
    history.handles("a", node, "failed", project="plain")
    history.retry("a", project="plain")
    assert history.broken is None


def test_order_repeated_after_a_crash(history):
    """Order: a later owner may begin anew with what wasn't durable, in put order."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.crash(first)
    second = history.owned("n2", 2)
    history.handles("a", second)
    history.handles("b", second, attempt=2)
    assert history.broken is None


def test_order_found_backwards(history):
    """Order: one owner never goes back, whatever its predecessor left."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.crash(first)
    second = history.owned("n2", 2)
    history.handles("b", second, attempt=2)
    history.handles("a", second)
    assert history.broken == "order"


def test_order_after_a_lost_lease(history):
    """Order: what runs on under a lease that has ended may overlap; under one that lives it may not."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", first)
    history.lease_ends(1)
    history.fault("pause", first)
    second = history.owned("n2", 2)
    history.handles("a", second)
    history.starts("b", second)
    assert history.broken is None


def test_order_found_overlapping_a_hand_over(history):
    """Order: a hand-over is no excuse."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.put("c")
    history.dead("b", "rejected")  # though its handler goes on
    second = history.owned("n2", 2)
    history.starts("c", second)
    assert history.broken == "order"


def test_order_after_expiry(history):
    """Order, K5: one whose time is over holds up nobody."""
    node = history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.put("b")
    history.wait(1.1)
    history.handles("b", node)
    assert history.broken is None


def test_order_of_what_was_replaced(history):
    """Order: a stream that was rolled back promises nothing of what it held."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", node)
    history.promises.cut_back("LANES_online_0", 2)
    history.starts("b", node)
    assert history.broken is None
