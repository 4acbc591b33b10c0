"""A node acquires partitions: each rule by example. test_member_machine.py covers any order of events."""

import pytest

from evenlane.ring.membership.actions import Acquire, Close, ConfirmGeneration, Open, Release
from evenlane.ring.membership.claims import RETRY_NS
from evenlane.ring.membership.member import Member
from evenlane.ring.membership.owner_keys import Owner
from evenlane.ring.membership.phase import Phase
from tests.unit.ring.membership.members import FAR, OTHER_LEASE, OWN_LEASE, member, owning, releasing


class TestAcquiring:
    def test_node_acquires_nothing_before_it_knows_the_owners(self):
        """Z1: an unreported owner may exist."""
        made = Member(OWN_LEASE, FAR)
        assert [] == made.on_plan(3, 1, [0], 0)
        assert [Acquire(0, 3)] == made.on_listing(4, {}, 0)

    def test_owned_partition_is_acquired_once_its_key_is_seen_to_go(self):
        """Z1: never because time has passed."""
        made = member()
        made.on_owner_put(0, Owner(2, OTHER_LEASE), 0)
        assert [] == made.on_plan(3, 1, [0], 0)
        assert Phase.WAITING is made.phase(0)
        assert None is made.wake_at()
        assert [] == made.tick(FAR - 1)
        assert [Acquire(0, 3)] == made.on_owner_delete(0, 9, 0)

    def test_node_expects_more_until_all_planned_partitions_are_open(self):
        """Z6: partitions that leave don't count."""
        made = member()
        made.on_owner_put(1, Owner(2, OTHER_LEASE), 0)
        assert not made.plan.is_expecting
        made.on_plan(3, 1, [0, 1], 0)
        made.on_acquired(0, 5, 0)
        made.on_opened(0, 5, 0)
        assert made.plan.is_expecting
        made.on_plan(4, 2, [0], 0)
        assert not made.plan.is_expecting
        made.on_plan(5, 3, [], 0)
        assert not made.plan.is_expecting

    def test_acquire_names_the_revision_of_the_plan(self):
        made = owning()
        assert [Acquire(1, 11)] == made.on_plan(11, 2, [0, 1], 0)

    def test_refused_request_is_repeated_unless_an_owner_is_seen(self):
        made = member()
        made.on_plan(3, 1, [0, 1], 0)
        made.on_acquired(0, 0, 100)
        made.on_acquired(1, 0, 100)
        made.on_owner_put(1, Owner(4, OTHER_LEASE), 100)
        assert 100 + RETRY_NS == made.wake_at()
        assert [] == made.tick(99 + RETRY_NS)
        assert [Acquire(0, 3)] == made.tick(100 + RETRY_NS)

    def test_unplanned_partition_is_not_requested_again(self):
        made = member()
        made.on_plan(3, 1, [0], 0)
        made.on_plan(4, 2, [], 0)
        made.unsure(0, 0)
        assert [ConfirmGeneration(2)] == made.tick(RETRY_NS)
        assert None is made.wake_at()

    def test_fenced_node_acquires_nothing_until_renewed(self):
        """Fault 9: it keeps its partitions, since etcd hasn't reported a loss."""
        made = Member(OWN_LEASE, 100)
        made.on_listing(1, {}, 0)
        assert [] == made.on_plan(3, 1, [0], 100)
        assert Phase.FENCED is made.phase(100)
        assert [Acquire(0, 3)] == made.on_renewed(300, 200)


class TestAnswers:
    def test_key_acquired_after_a_change_of_plan_is_released(self):
        """The transaction took long."""
        made = member()
        made.on_plan(3, 1, [0], 0)
        made.unsure(0, 0)
        made.on_plan(4, 2, [], 0)
        made.tick(RETRY_NS)
        assert [Open(0, 5), Close(0, 5)] == made.on_owner_put(0, Owner(5, OWN_LEASE), 0)

    def test_answer_after_the_watch_has_no_effect(self):
        made = member()
        made.on_plan(3, 1, [0], 0)
        assert [Open(0, 5)] == made.on_owner_put(0, Owner(5, OWN_LEASE), 0)
        assert [] == made.on_acquired(0, 5, 0)
        assert [] == made.on_acquired(0, 0, 0)
        assert [ConfirmGeneration(1)] == made.on_opened(0, 5, 0)

    def test_released_epoch_is_not_adopted_again(self):
        """O: a late event of the watch reports a key that is released already."""
        made = releasing()
        made.on_released(0, 5, 0)
        assert [] == made.on_owner_put(0, Owner(5, OWN_LEASE), 0)
        assert [] == made.on_listing(5, {0: Owner(5, OWN_LEASE)}, 0)
        assert [] == made.owned

    @pytest.mark.parametrize(
        "owners", [{}, {0: Owner(9, OTHER_LEASE)}, {0: Owner(9, 0)}], ids=["no key", "another owner", "no lease"]
    )
    def test_answer_older_than_the_listing_opens_nothing(self, owners):
        """Z1: the key was deleted by hand and the watch restarted in between, so the deletion isn't reported."""
        made = member()
        made.on_plan(3, 1, [0], 0)
        assert [] == made.on_listing(12, owners, 0)
        assert ([] if owners else [Acquire(0, 3)]) == made.on_acquired(0, 5, 0)
        assert [] == made.owned

    def test_answer_newer_than_the_listing_counts(self):
        made = member()
        made.on_plan(3, 1, [0], 0)
        assert [] == made.on_listing(4, {}, 0)
        assert [Open(0, 5)] == made.on_acquired(0, 5, 0)

    def test_answer_with_a_released_epoch_opens_nothing(self):
        """O: the answer to the first transaction arrives while the second is under way."""
        made = member()
        made.on_plan(3, 1, [0], 0)
        made.on_owner_put(0, Owner(5, OWN_LEASE), 0)
        made.on_plan(6, 2, [], 0)
        made.on_closed(0, 5)
        made.on_released(0, 5, 0)
        made.on_owner_delete(0, 7, 0)
        assert [Acquire(0, 8)] == made.on_plan(8, 3, [0], 0)
        assert [] == made.on_acquired(0, 5, 0)
        assert [Open(0, 9)] == made.on_acquired(0, 9, 0)


class TestPlans:
    def test_plan_of_an_older_generation_is_ignored(self):
        """Z5."""
        made = owning()
        made.on_plan(6, 4, [0], 0)
        assert [] == made.on_plan(7, 3, [1, 2], 0)
        assert (1, {0}, 4) == (made.plan.stale, made.plan.desired, made.plan.generation)

    def test_plan_is_confirmed_when_carried_out_completely(self):
        """Z5, C1."""
        made = owning()
        assert [Close(0, 5), Acquire(1, 6)] == made.on_plan(6, 2, [1], 0)
        made.on_acquired(1, 7, 0)
        assert [] == made.on_opened(1, 7, 0)
        assert made.plan.done < made.plan.generation
        assert [Release(0, 5)] == made.on_closed(0, 5)
        assert [ConfirmGeneration(2)] == made.on_released(0, 5, 0)
        assert made.plan.done == made.plan.generation

    def test_standby_confirms_an_empty_plan(self):
        made = member()
        assert Phase.JOINING is made.phase(0)
        assert [ConfirmGeneration(1)] == made.on_plan(3, 1, [], 0)
        assert Phase.STANDBY is made.phase(0)

    def test_partition_planned_again_while_closing_gets_a_new_epoch(self):
        """Z1: so that no result of the old epoch counts."""
        made = releasing()
        assert [] == made.on_plan(8, 3, [0], 0)
        assert [Acquire(0, 8)] == made.on_released(0, 5, 0)
        assert [] == made.on_owner_delete(0, 9, 0)
        assert [Open(0, 10)] == made.on_acquired(0, 10, 0)

    def test_leaving_node_ignores_later_plans(self):
        """P5."""
        made = owning()
        assert [Close(0, 5)] == made.leave(0)
        made.on_plan(9, 2, [0, 1], 0)
        assert [Release(0, 5)] == made.on_closed(0, 5)
        assert [ConfirmGeneration(2)] == made.on_released(0, 5, 0)
        assert [] == made.owned
        assert not made.is_busy


class TestWithdrawing:
    """F2: the settle log has a higher epoch than the new owner key."""

    def test_withdrawn_partition_is_released_and_acquired_again(self):
        made = member()
        made.on_plan(3, 1, [0], 0)
        made.on_acquired(0, 5, 0)
        assert [Release(0, 5)] == made.on_withdrawn(0, 5)
        assert [Acquire(0, 3)] == made.on_released(0, 5, 0)
        assert [Open(0, 9)] == made.on_acquired(0, 9, 0)

    @pytest.mark.parametrize("epoch", [4, 6])
    def test_withdrawal_of_another_epoch_is_ignored(self, epoch):
        made = member()
        made.on_plan(3, 1, [0], 0)
        made.on_acquired(0, 5, 0)
        assert [] == made.on_withdrawn(0, epoch)

    def test_withdrawal_of_an_open_or_closing_partition_is_ignored(self):
        assert [] == owning().on_withdrawn(0, 5)
        assert [] == releasing().on_withdrawn(0, 5)


def test_served_and_known_follow_the_stages():
    """O: `served` has the keys that must be in etcd; `known` adds those being created or deleted."""
    made = member()
    made.on_plan(3, 1, [0], 0)
    assert (frozenset(), {0}) == (made.served, made.known)
    made.on_acquired(0, 5, 0)
    assert ({0}, {0}) == (made.served, made.known)
    made.on_opened(0, 5, 0)
    made.on_plan(6, 2, [], 0)
    assert ({0}, {0}) == (made.served, made.known)
    made.on_closed(0, 5)
    assert (frozenset(), {0}) == (made.served, made.known)
    made.on_released(0, 5, 0)
    assert (frozenset(), frozenset()) == (made.served, made.known)
