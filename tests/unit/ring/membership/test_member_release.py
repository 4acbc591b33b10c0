"""A node loses and releases partitions: each rule by example. test_member_machine.py covers any order of events."""

import pytest

from evenlane.ring.membership.actions import Acquire, Close, ConfirmGeneration, Drop, Mark, Open, Release
from evenlane.ring.membership.departures import MOST_GAP_NS, MOST_WAIT_NS
from evenlane.ring.membership.owner_keys import Owner
from evenlane.ring.membership.phase import Phase
from tests.unit.ring.membership.members import OTHER_LEASE, OWN_LEASE, member, owning, owning_two, releasing


class TestLosing:
    def test_key_of_another_owner_drops_the_partition(self):
        """O: after a listing that skips the events in between."""
        made = owning()
        assert [Drop(0, 5)] == made.on_listing(12, {0: Owner(9, OTHER_LEASE)}, 0)
        assert [] == made.owned

    def test_events_before_the_own_key_are_ignored(self):
        made = owning()
        assert [] == made.on_listing(4, {}, 0)
        assert [] == made.on_listing(4, {0: Owner(2, OTHER_LEASE)}, 0)
        assert [] == made.on_owner_delete(0, 4, 0)
        assert [0] == made.owned

    @pytest.mark.parametrize("stage", ["opening", "closing"])
    def test_vanished_key_drops_the_partition_in_any_stage(self, stage):
        """O."""
        made = member()
        made.on_plan(3, 1, [0], 0)
        made.on_acquired(0, 5, 0)
        if stage == "closing":
            made.on_plan(6, 2, [], 0)
        assert Drop(0, 5) in made.on_owner_delete(0, 9, 0)
        assert [] == made.on_closed(0, 5)
        made.on_opened(0, 5, 0)
        assert [] == made.owned

    def test_release_ends_when_the_key_is_seen_to_go(self):
        made = releasing()
        assert [ConfirmGeneration(2)] == made.on_owner_delete(0, 9, 0)
        assert None is made.wake_at()
        assert [] == made.on_released(0, 5, 0)


class TestEtcdRollback:
    """F2, F3, O: after a rollback, etcd reaches the same revisions again, so that an epoch is assigned twice."""

    @pytest.mark.parametrize("update", ["an event", "a listing"])
    def test_own_epoch_under_another_lease_drops_the_partition(self, update):
        made, other = owning(), Owner(5, OTHER_LEASE)
        actions = made.on_owner_put(0, other, 0) if update == "an event" else made.on_listing(12, {0: other}, 0)
        assert ([Drop(0, 5)], []) == (actions, made.owned)

    def test_own_epoch_under_no_lease_is_marked_again(self):
        made = owning()
        assert [Mark(0, 5)] == made.on_owner_put(0, Owner(5, 0), 0)
        assert [0] == made.owned

    @pytest.mark.parametrize("revision", [5, 12])
    def test_listing_with_an_earlier_own_epoch_drops_the_partition(self, revision):
        """The node has acquired the partition twice, and etcd knows only the first key."""
        made = owning()
        assert [Drop(0, 5)] == made.on_listing(revision, {0: Owner(3, OWN_LEASE)}, 0)
        assert [] == made.owned

    def test_listing_from_before_the_own_key_is_ignored(self):
        made = owning()
        assert [] == made.on_listing(4, {0: Owner(3, OWN_LEASE)}, 0)
        assert [0] == made.owned


class TestDeparting:
    """Z6: partitions that a plan takes away leave one after another, and are served until their turn comes."""

    def test_next_partition_closes_when_the_last_is_served(self):
        """Z6: its new owner then writes its key a second time."""
        made = owning_two()
        assert [Close(0, 5)] == made.on_plan(9, 2, [], 0)
        assert ([1], Phase.RELEASING) == (made.owned, made.phase(0))
        made.on_closed(0, 5)
        made.on_released(0, 5, 0)
        assert [] == made.on_owner_delete(0, 10, MOST_GAP_NS)
        assert [] == made.on_owner_put(0, Owner(11, OTHER_LEASE, 11), MOST_GAP_NS)
        assert [Close(1, 6)] == made.on_owner_put(0, Owner(11, OTHER_LEASE, 12), MOST_GAP_NS)

    def test_next_partition_closes_after_a_timeout(self):
        """Z1, P5: a dead new owner delays the others only for a moment."""
        made = owning_two()
        made.on_plan(9, 2, [], 0)
        assert MOST_WAIT_NS == made.wake_at()
        assert [] == made.tick(MOST_WAIT_NS - 1)
        assert [Close(1, 6)] == made.tick(MOST_WAIT_NS)

    def test_plan_is_confirmed_when_all_are_released(self):
        """Z5."""
        made = owning_two()
        made.on_plan(9, 2, [], 0)
        made.on_closed(0, 5)
        assert [] == made.on_released(0, 5, 0)
        assert made.is_busy
        made.tick(MOST_WAIT_NS)
        made.on_closed(1, 6)
        assert [ConfirmGeneration(2)] == made.on_released(1, 6, MOST_WAIT_NS)

    def test_partition_planned_again_before_its_turn_stays_open(self):
        made = owning_two()
        made.on_plan(9, 2, [], 0)
        made.on_plan(10, 3, [1], 0)
        assert [] == made.tick(MOST_WAIT_NS)
        assert ([1], None) == (made.owned, made.wake_at())

    def test_vanished_key_drops_a_partition_before_its_turn(self):
        """O."""
        made = owning_two()
        made.on_plan(9, 2, [], 0)
        assert [Drop(1, 6)] == made.on_owner_delete(1, 10, 0)
        assert [] == made.tick(MOST_WAIT_NS)

    def test_node_that_cannot_serve_closes_all_at_once(self):
        """Fault 10: it has had no NATS for 5 s."""
        made = owning_two()
        made.serving = False
        assert [Close(0, 5), Close(1, 6)] == made.on_plan(9, 2, [], 0)

    def test_leaving_node_closes_all_at_once(self):
        """P5."""
        made = owning_two()
        assert [Close(0, 5), Close(1, 6)] == made.leave(0)


class TestReopening:
    def test_partitions_are_released_and_acquired_again(self):
        """K10: a reset must reach those that are open, and those that are being opened."""
        made = owning_two()
        made.on_plan(8, 2, [0, 1, 2], 0)
        made.on_acquired(2, 9, 0)
        assert [Close(0, 5), Close(1, 6), Close(2, 9)] == made.reopen()
        assert [] == made.owned
        assert [Release(1, 6)] == made.on_closed(1, 6)
        assert [Acquire(1, 8)] == made.on_owner_delete(1, 12, 0)

    def test_partition_whose_key_is_under_way(self):
        """K10: the claim may have been carried out before the reset; it is given up and made again."""
        made = owning()
        made.on_plan(8, 2, [0, 1], 0)
        assert [Close(0, 5)] == made.reopen()
        assert [Open(1, 9), Close(1, 9)] == made.on_acquired(1, 9, 0)
        assert [Release(1, 9)] == made.on_closed(1, 9)
        assert [Acquire(1, 8)] == made.on_owner_delete(1, 12, 0)
        assert [Open(1, 13)] == made.on_acquired(1, 13, 0)

    def test_again_while_they_are_closing(self):
        """K10: they are taken over once, by an owner that knows of both resets."""
        made = owning()
        assert [Close(0, 5)] == made.reopen()
        assert [] == made.reopen()

    def test_partition_that_leaves_is_released_for_good(self):
        made = owning_two()
        made.on_plan(8, 2, [], 0)
        assert [Close(1, 6)] == made.reopen()
        made.on_closed(1, 6)
        assert Acquire(1, 8) not in made.on_released(1, 6, 0)
