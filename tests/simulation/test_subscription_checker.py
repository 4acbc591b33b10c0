"""Tests of the checker of a named subscription: what it finds in a history written by hand, and what it lets pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from evenlane.engine.core.wire import headers as h
from tests.simulation.by_hand import HandWrittenHistory
from tests.simulation.loop import SECOND
from tests.simulation.nodes import AUDIT, ENV
from tests.simulation.subscription_promises import SubscriptionPromises, Witnesses

_RETRIES = f"AGAIN_{AUDIT}"


class AuditHistory(HandWrittenHistory):
    """One partition of the subscription `audit`."""

    cluster, checkers = AUDIT, SubscriptionPromises

    def begins(self, after: int, kind: str = "lanes") -> None:
        """A creator writes the first record of a settle log."""
        assert self.epoch == 0
        self.settles(after, kind=kind)

    def store_retry(self, uid: str, stream: str) -> None:
        """A retry of a message in the lane is stored in this stream, of whichever subscription."""
        kind, _, cluster = stream.removesuffix("_0").partition("_")
        origin = f"LANES_online_0:{self._at[uid]}"
        headers = {h.ID: f"plain:{uid}:{origin}:1", h.ORIGIN: origin, h.ATTEMPT: "2"}
        self._at[f"{uid} again"] = len(self._at) + 1
        subject = f"{kind.lower()}.{cluster}.0.plain.0.mid.1"
        self._store(stream, subject, headers, self._at[f"{uid} again"])


@pytest.fixture
def history():
    return AuditHistory()


class TestBeginning:
    """K10: a subscription begins with the first record of each settle log."""

    def test_earlier_messages_pass_without_a_handler(self, history):
        for uid in "abc":
            history.put(uid, key=None)
        history.remove("a")
        history.begins(2)
        history.remove("b")
        assert history.broken is None
        assert history.promises.unfinished() == ["LANES_online_0 3 (c) isn't settled"]

    def test_handler_of_an_earlier_message_is_found(self, history):
        history.put("a", key=None)
        history.begins(1)
        history.starts("a", history.owned("a1", 1))
        assert history.broken == "K10"

    def test_removal_of_a_later_message_is_found(self, history):
        """L: although nobody works for the subscription yet."""
        history.begins(0)
        history.put("a", key=None)
        history.remove("a")
        assert history.broken == "L"

    def test_later_message_that_nobody_handled_is_found(self, history):
        """L: no owner can settle it."""
        history.begins(0)
        history.put("a", key=None)
        history.owned("a1", 1)
        history.settles(1)
        assert history.broken == "L"

    @pytest.mark.parametrize(("since", "broken"), [(10, None), (5, "L")])
    def test_delayed_message_passes_if_it_was_due_before(self, history, since, broken):
        history.delay("a", history.now + 5 * SECOND)
        history.promises.since = history.now + since * SECOND
        history.begins(0, "later")
        history.owned("a1", 1)
        history.settles(1, kind="later")
        assert history.broken == broken

    @pytest.mark.parametrize(("since", "broken"), [(10, "K10"), (5, None)])
    def test_handler_of_a_message_that_was_due_before_is_found(self, history, since, broken):
        history.delay("a", history.now + 5 * SECOND)
        history.promises.since = history.now + since * SECOND
        history.begins(0, "later")
        history.starts("a", history.owned("a1", 1), project="plain", stream="LATER_online_0")
        assert history.broken == broken


class TestRetries:
    """K10: a retry is of one subscription alone."""

    @pytest.fixture
    def failed(self, history):
        """A message whose first attempt failed; and the owner."""
        history.begins(0)
        history.put("a", key=None, project="plain")
        node = history.owned("a1", 1)
        history.handles("a", node, "failed", project="plain")
        return history, node

    def test_retry_in_the_own_stream_passes(self, failed):
        history, node = failed
        history.store_retry("a", _RETRIES)
        history.settles(1)
        history.starts("a", node, 2, "plain", stream=_RETRIES)
        assert history.broken is None

    def test_removal_of_a_retry_is_found(self, failed):
        """L."""
        history, _ = failed
        history.store_retry("a", _RETRIES)
        history.remove("a again", stream=_RETRIES)
        assert history.broken == "L"

    def test_retry_in_the_shared_stream_settles_nothing(self, failed):
        """L: it is taken for one of another subscription."""
        history, _ = failed
        history.store_retry("a", "LATER_online_0")
        history.settles(1)
        assert history.broken == "L"

    def test_handler_of_another_subscriptions_retry_is_found(self, failed):
        history, node = failed
        history.store_retry("a", "LATER_online_0")
        history._at["a"] = history._at["a again"]
        history.starts("a", node, 2, "plain", stream="LATER_online_0")
        assert history.broken == "K10"


def test_removal_needs_all_subscriptions():
    """L: what one has settled, another one may still need; other streams concern one alone."""
    for late in (None, ENV, AUDIT):
        histories = {ENV: HandWrittenHistory(), AUDIT: AuditHistory()}
        histories[AUDIT].begins(0)
        for cluster, history in histories.items():
            history.put("a")
            node = history.owned("n1", 1)
            if cluster != late:
                history.handles("a", node)
                history.settles(1)
        lane: Any = SimpleNamespace(name="LANES_online_0")
        Witnesses({cluster: each.promises for cluster, each in histories.items()}).removing(lane, [1])
        assert [cluster for cluster, each in histories.items() if each.broken] == ([late] if late else [])
