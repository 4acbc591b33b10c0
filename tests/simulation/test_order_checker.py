"""Tests of the checker of key order: what it finds in a history written by hand, and what it lets pass."""

from __future__ import annotations

import pytest

from tests.simulation.by_hand import HandWrittenHistory
from tests.simulation.loop import SECOND


@pytest.fixture
def history():
    return HandWrittenHistory()


def test_messages_in_turn_pass(history):
    """K6: a key's messages run in turn, others meanwhile; a failing one keeps its turn until it is a dead letter."""
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


def test_overlapping_messages_are_found(history):
    """K6."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", node)
    history.starts("b", node)
    assert history.broken == "order"


def test_start_before_the_retry_is_found(history):
    """K6: a failed message keeps its turn."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", node, "failed")
    history.starts("b", node)
    assert history.broken == "order"


def test_retry_as_a_copy_is_found(history):
    """K6: other messages could overtake a copy."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.retry("a")
    assert history.broken == "order"


def test_topic_without_order_passes(history):
    """K6: topics that aren't ordered have no promise."""
    node = history.owned("n1", 1)
    history.put("a", project="plain")
    history.put("b", project="plain")
    history.starts("b", node, project="plain")
    history.handles("a", node, "failed", project="plain")
    history.retry("a", project="plain")
    assert history.broken is None


def test_repeats_in_order_after_a_crash_pass(history):
    """K6: a later owner repeats, in put order, what wasn't durable."""
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


def test_repeats_backwards_after_a_crash_are_found(history):
    """K6: one owner never goes back, whatever its predecessor left."""
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


def test_overlap_with_a_lost_lease_passes(history):
    """K6: a handler that runs on under a lease that has ended may overlap."""
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


def test_overlap_across_a_handoff_is_found(history):
    """K6: a handoff is no exemption."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.put("c")
    history.dead("b", "rejected")  # although its handler goes on
    second = history.owned("n2", 2)
    history.starts("c", second)
    assert history.broken == "order"


def test_expired_message_holds_up_no_other(history):
    """K6, K5."""
    node = history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.put("b")
    history.wait(1.1)
    history.handles("b", node)
    assert history.broken is None


def test_replaced_stream_has_no_order(history):
    """K6: for messages of a stream that was rolled back, nothing is promised."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", node)
    history.promises.cut_back("LANES_online_0", 2)
    history.starts("b", node)
    assert history.broken is None
