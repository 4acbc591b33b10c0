"""Tests of the checker of owners when etcd loses some: what it finds, and what it lets pass."""

from __future__ import annotations

import pytest

from tests.simulation.by_hand import HandWrittenHistory
from tests.simulation.loop import SECOND


class TestEtcdGoesBack:
    """O: at each moment one node may start handlers, although etcd doesn't name it."""

    @staticmethod
    def rolled_back(*, begun=True):
        """The owner of epoch 5, whose lease ends in 2 s, after etcd has lost it."""
        history = HandWrittenHistory()
        node = history.owned("n1", 5)
        for uid in "ab":
            history.put(uid, key=None)
        if begun:
            history.settles(0)
        history.promises.owners.went_back([], lambda _lease: history.now + 2 * SECOND)
        return history, node

    def test_lost_owner_serves_until_its_lease_ends(self):
        history, node = self.rolled_back()
        history.handles("a", node)
        history.wait(2)
        assert history.broken is None
        history.starts("b", node)
        assert history.broken == "O"

    @pytest.mark.parametrize(("wait", "begun", "broken"), [(1, True, "O"), (2, True, None), (1, False, None)])
    def test_next_owner_waits_for_a_lost_one_that_has_begun(self, wait, begun, broken):
        history, _ = self.rolled_back(begun=begun)
        history.wait(wait)
        history.starts("a", history.owned("n2", 3))
        assert history.broken == broken

    def test_lost_owner_stops_once_another_has_started(self):
        history, node = self.rolled_back(begun=False)
        history.starts("a", history.owned("n2", 3))
        assert history.broken is None
        history.epoch = 5
        history.starts("b", node)
        assert history.broken == "O"

    def test_next_owner_follows_a_clean_end_at_once(self):
        history, _ = self.rolled_back()
        history.settles(0, clean=True)
        history.starts("a", history.owned("n2", 6))
        assert history.broken is None
