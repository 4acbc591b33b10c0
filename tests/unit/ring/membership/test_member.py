"""A node's part in ownership: each rule by example, then any order of answers, events, losses and plans."""

import pytest

from evenlane.ring.membership.departures import MOST_GAP_NS, PATIENCE_NS
from evenlane.ring.membership.member import (
    AGAIN_NS,
    Acquire,
    Close,
    Confirm,
    Drop,
    Mark,
    Member,
    Open,
    Owner,
    Phase,
    Release,
)

MINE, OTHERS = 7, 8  # leases
FAR = 1 << 62


def member(**fields):
    """One that knows that nothing is owned."""
    made = Member(MINE, FAR, **fields)
    made.listed(1, {}, 0)
    return made


def owning(partition=0, epoch=5):
    made = member()
    assert [Acquire(partition, 3)] == made.planned(3, 1, [partition], 0)
    assert [Open(partition, epoch)] == made.acquired(partition, epoch, 0)
    assert [Confirm(1)] == made.opened(partition, epoch, 0)
    return made


def releasing():
    made = owning()
    assert [Close(0, 5)] == made.planned(6, 2, [], 0)
    assert [Release(0, 5)] == made.closed(0, 5)
    return made


class TestAsking:
    def test_nothing_is_asked_before_the_owners_are_known(self):
        """Z1: that no owner was heard of isn't that there is none."""
        made = Member(MINE, FAR)
        assert [] == made.planned(3, 1, [0], 0)
        assert [Acquire(0, 3)] == made.listed(4, {}, 0)

    def test_what_another_owns_is_asked_for_when_its_key_is_seen_to_go(self):
        """Z1: after that, and not after any time."""
        made = member()
        made.owner_seen(0, Owner(2, OTHERS), 0)
        assert [] == made.planned(3, 1, [0], 0)
        assert Phase.WAITING is made.phase(0)
        assert None is made.wake_at()
        assert [] == made.tick(FAR - 1)
        assert [Acquire(0, 3)] == made.owner_gone(0, 9, 0)

    def test_more_is_expected_until_all_that_is_planned_is_open(self):
        """Z6: a node knows from the plan which partitions will come, and does not wait for those that leave."""
        made = member()
        made.owner_seen(1, Owner(2, OTHERS), 0)
        assert not made.expects_more
        made.planned(3, 1, [0, 1], 0)
        made.acquired(0, 5, 0)
        made.opened(0, 5, 0)
        assert made.expects_more
        made.planned(4, 2, [0], 0)
        assert not made.expects_more
        made.planned(5, 3, [], 0)
        assert not made.expects_more

    def test_the_plan_that_wants_it_is_named(self):
        made = owning()
        assert [Acquire(1, 11)] == made.planned(11, 2, [0, 1], 0)

    def test_a_refusal_is_followed_by_another_try_unless_an_owner_is_seen(self):
        made = member()
        made.planned(3, 1, [0, 1], 0)
        made.acquired(0, 0, 100)
        made.acquired(1, 0, 100)
        made.owner_seen(1, Owner(4, OTHERS), 100)
        assert 100 + AGAIN_NS == made.wake_at()
        assert [] == made.tick(99 + AGAIN_NS)
        assert [Acquire(0, 3)] == made.tick(100 + AGAIN_NS)

    def test_what_is_no_longer_planned_is_not_asked_again(self):
        made = member()
        made.planned(3, 1, [0], 0)
        made.planned(4, 2, [], 0)
        made.unsure(0, 0)
        assert [Confirm(2)] == made.tick(AGAIN_NS)
        assert None is made.wake_at()

    def test_a_fenced_node_asks_for_nothing_until_it_is_renewed(self):
        """Fault 9: what it holds it keeps, as etcd hasn't said otherwise."""
        made = Member(MINE, 100)
        made.listed(1, {}, 0)
        assert [] == made.planned(3, 1, [0], 100)
        assert Phase.FENCED is made.phase(100)
        assert [Acquire(0, 3)] == made.renewed(300, 200)


class TestEpochs:
    def test_a_lost_answer_is_made_good_by_the_watch(self):
        made = member()
        made.planned(3, 1, [0], 0)
        made.unsure(0, 0)
        assert [Open(0, 5)] == made.owner_seen(0, Owner(5, MINE), 0)
        assert [] == made.tick(FAR - 1)

    def test_a_key_that_came_after_the_plan_changed_is_opened_and_given_back(self):
        """A transaction that was long under way."""
        made = member()
        made.planned(3, 1, [0], 0)
        made.unsure(0, 0)
        made.planned(4, 2, [], 0)
        made.tick(AGAIN_NS)
        assert [Open(0, 5), Close(0, 5)] == made.owner_seen(0, Owner(5, MINE), 0)

    def test_an_answer_after_the_watch_changes_nothing(self):
        made = member()
        made.planned(3, 1, [0], 0)
        assert [Open(0, 5)] == made.owner_seen(0, Owner(5, MINE), 0)
        assert [] == made.acquired(0, 5, 0)
        assert [] == made.acquired(0, 0, 0)
        assert [Confirm(1)] == made.opened(0, 5, 0)

    def test_an_epoch_given_up_is_not_adopted_again(self):
        """O: the watch tells late of a key that is released already."""
        made = releasing()
        made.released(0, 5, 0)
        assert [] == made.owner_seen(0, Owner(5, MINE), 0)
        assert [] == made.listed(5, {0: Owner(5, MINE)}, 0)
        assert [] == made.owned

    @pytest.mark.parametrize(
        "owners", [{}, {0: Owner(9, OTHERS)}, {0: Owner(9, 0)}], ids=["none", "others", "nobody's"]
    )
    def test_an_answer_that_a_newer_listing_has_overtaken_opens_nothing(self, owners):
        """Z1: its key was deleted by hand, and the watch began anew in between: nobody tells of that again."""
        made = member()
        made.planned(3, 1, [0], 0)
        assert [] == made.listed(12, owners, 0)
        assert ([] if owners else [Acquire(0, 3)]) == made.acquired(0, 5, 0)
        assert [] == made.owned

    def test_an_answer_that_is_newer_than_the_listing_counts(self):
        made = member()
        made.planned(3, 1, [0], 0)
        assert [] == made.listed(4, {}, 0)
        assert [Open(0, 5)] == made.acquired(0, 5, 0)

    def test_an_answer_that_speaks_of_an_epoch_given_up_opens_nothing(self):
        """O: the first transaction's answer comes when the second one is under way."""
        made = member()
        made.planned(3, 1, [0], 0)
        made.owner_seen(0, Owner(5, MINE), 0)
        made.planned(6, 2, [], 0)
        made.closed(0, 5)
        made.released(0, 5, 0)
        made.owner_gone(0, 7, 0)
        assert [Acquire(0, 8)] == made.planned(8, 3, [0], 0)
        assert [] == made.acquired(0, 5, 0)
        assert [Open(0, 9)] == made.acquired(0, 9, 0)


class TestLosing:
    def test_a_key_that_vanishes_ends_the_work_at_once(self):
        """O."""
        made = owning()
        assert [Drop(0, 5), Acquire(0, 3)] == made.owner_gone(0, 9, 0)
        assert [] == made.owned

    def test_a_key_that_is_anothers_ends_the_work_at_once(self):
        """O: after a listing, say, that passed over what happened meanwhile."""
        made = owning()
        assert [Drop(0, 5)] == made.listed(12, {0: Owner(9, OTHERS)}, 0)
        assert [] == made.owned

    def test_what_is_from_before_the_own_key_says_nothing(self):
        made = owning()
        assert [] == made.listed(4, {}, 0)
        assert [] == made.listed(4, {0: Owner(2, OTHERS)}, 0)
        assert [] == made.owner_gone(0, 4, 0)
        assert [0] == made.owned

    @pytest.mark.parametrize("stage", ["opening", "closing"])
    def test_so_it_does_in_any_stage(self, stage):
        made = member()
        made.planned(3, 1, [0], 0)
        made.acquired(0, 5, 0)
        if stage == "closing":
            made.planned(6, 2, [], 0)
        assert Drop(0, 5) in made.owner_gone(0, 9, 0)
        assert [] == made.closed(0, 5)
        made.opened(0, 5, 0)
        assert [] == made.owned

    def test_a_release_is_over_when_the_key_is_seen_to_go(self):
        made = releasing()
        assert [Confirm(2)] == made.owner_gone(0, 9, 0)
        assert None is made.wake_at()
        assert [] == made.released(0, 5, 0)


class TestEtcdGoesBack:
    """F2, F3, O: it comes to the same revisions again, so that an epoch is given twice."""

    @pytest.mark.parametrize("update", ["an event", "a listing"])
    def test_a_key_of_the_own_epoch_under_anothers_lease_is_anothers(self, update):
        made, other = owning(), Owner(5, OTHERS)
        actions = made.owner_seen(0, other, 0) if update == "an event" else made.listed(12, {0: other}, 0)
        assert ([Drop(0, 5)], []) == (actions, made.owned)

    def test_under_no_lease_it_is_the_own_one_that_somebody_has_put_by_hand(self):
        made = owning()
        assert [Mark(0, 5)] == made.owner_seen(0, Owner(5, 0), 0)
        assert [0] == made.owned

    @pytest.mark.parametrize("revision", [5, 12])
    def test_a_listing_with_an_earlier_claim_of_its_own_ends_the_work(self, revision):
        """The node has claimed the partition twice, and etcd knows only of the first time."""
        made = owning()
        assert [Drop(0, 5)] == made.listed(revision, {0: Owner(3, MINE)}, 0)
        assert [] == made.owned

    def test_one_from_before_the_last_claim_says_nothing(self):
        made = owning()
        assert [] == made.listed(4, {0: Owner(3, MINE)}, 0)
        assert [0] == made.owned


def owning_two():
    made = member()
    made.planned(3, 1, [0, 1], 0)
    for partition in (0, 1):
        made.acquired(partition, 5 + partition, 0)
        made.opened(partition, 5 + partition, 0)
    return made


class TestDeparting:
    """Z6: what a plan takes away goes one after another, and is served until its turn comes."""

    def test_the_next_is_closed_when_the_new_owner_of_the_last_one_serves_it(self):
        """Z6: that owner writes its key a second time then."""
        made = owning_two()
        assert [Close(0, 5)] == made.planned(9, 2, [], 0)
        assert ([1], Phase.RELEASING) == (made.owned, made.phase(0))
        made.closed(0, 5)
        made.released(0, 5, 0)
        assert [] == made.owner_gone(0, 10, MOST_GAP_NS)
        assert [] == made.owner_seen(0, Owner(11, OTHERS, 11), MOST_GAP_NS)
        assert [Close(1, 6)] == made.owner_seen(0, Owner(11, OTHERS, 12), MOST_GAP_NS)

    def test_it_is_closed_after_a_while_even_if_nobody_serves_the_last_one(self):
        """Z1, P5: a dead new owner holds nothing up for ever."""
        made = owning_two()
        made.planned(9, 2, [], 0)
        assert PATIENCE_NS == made.wake_at()
        assert [Close(1, 6)] == made.tick(PATIENCE_NS)

    def test_the_plan_is_confirmed_when_all_are_released(self):
        """Z5."""
        made = owning_two()
        made.planned(9, 2, [], 0)
        made.closed(0, 5)
        assert [] == made.released(0, 5, 0)
        assert made.busy
        made.tick(PATIENCE_NS)
        made.closed(1, 6)
        assert [Confirm(2)] == made.released(1, 6, PATIENCE_NS)

    def test_what_is_wanted_again_before_its_turn_stays_open(self):
        made = owning_two()
        made.planned(9, 2, [], 0)
        made.planned(10, 3, [1], 0)
        assert [] == made.tick(PATIENCE_NS)
        assert ([1], None) == (made.owned, made.wake_at())

    def test_a_key_that_vanishes_before_its_turn_ends_the_work_at_once(self):
        """O."""
        made = owning_two()
        made.planned(9, 2, [], 0)
        assert [Drop(1, 6)] == made.owner_gone(1, 10, 0)
        assert [] == made.tick(PATIENCE_NS)

    def test_one_that_cannot_serve_gives_all_away_at_once(self):
        """Fault 10: it has been without NATS for 5 s."""
        made = owning_two()
        made.serving = False
        assert [Close(0, 5), Close(1, 6)] == made.planned(9, 2, [], 0)

    def test_one_that_leaves_without_a_plan_waits_for_nobody(self):
        """P5."""
        made = owning_two()
        assert [Close(0, 5), Close(1, 6)] == made.leave(0)


class TestPlans:
    def test_an_older_plan_is_passed_over(self):
        """Z5."""
        made = owning()
        made.planned(6, 4, [0], 0)
        assert [] == made.planned(7, 3, [1, 2], 0)
        assert (1, {0}, 4) == (made.stale_plans, made.wanted, made.generation)

    def test_a_plan_is_confirmed_when_nothing_of_it_is_missing_nor_too_much(self):
        """Z5, C1."""
        made = owning()
        assert [Close(0, 5), Acquire(1, 6)] == made.planned(6, 2, [1], 0)
        made.acquired(1, 7, 0)
        assert [] == made.opened(1, 7, 0)
        assert made.done < made.generation
        assert [Release(0, 5)] == made.closed(0, 5)
        assert [Confirm(2)] == made.released(0, 5, 0)
        assert made.done == made.generation

    def test_a_standby_confirms_too(self):
        made = member()
        assert Phase.JOINING is made.phase(0)
        assert [Confirm(1)] == made.planned(3, 1, [], 0)
        assert Phase.STANDBY is made.phase(0)

    def test_what_comes_back_while_it_closes_is_released_and_asked_for_anew(self):
        """Z1: a new epoch, so that nothing of the old one counts."""
        made = releasing()
        assert [] == made.planned(8, 3, [0], 0)
        assert [Acquire(0, 8)] == made.released(0, 5, 0)
        assert [] == made.owner_gone(0, 9, 0)
        assert [Open(0, 10)] == made.acquired(0, 10, 0)

    def test_one_that_leaves_releases_all_whatever_is_planned(self):
        """P5."""
        made = owning()
        assert [Close(0, 5)] == made.leave(0)
        made.planned(9, 2, [0, 1], 0)
        assert [Release(0, 5)] == made.closed(0, 5)
        assert [Confirm(2)] == made.released(0, 5, 0)
        assert [] == made.owned
        assert not made.busy


class TestWithdrawing:
    """F2: the settle log has a higher epoch than the owner key gives."""

    def test_the_key_is_released_and_asked_for_again(self):
        made = member()
        made.planned(3, 1, [0], 0)
        made.acquired(0, 5, 0)
        assert [Release(0, 5)] == made.withdrawn(0, 5)
        assert [Acquire(0, 3)] == made.released(0, 5, 0)
        assert [Open(0, 9)] == made.acquired(0, 9, 0)

    @pytest.mark.parametrize("epoch", [4, 6])
    def test_not_under_another_epoch(self, epoch):
        made = member()
        made.planned(3, 1, [0], 0)
        made.acquired(0, 5, 0)
        assert [] == made.withdrawn(0, epoch)

    def test_not_what_is_open_or_goes(self):
        assert [] == owning().withdrawn(0, 5)
        assert [] == releasing().withdrawn(0, 5)


def test_what_must_stand_in_etcd_and_what_may():
    """O: an owner key that is asked for may be there, and so may one that is being deleted."""
    made = member()
    made.planned(3, 1, [0], 0)
    assert (frozenset(), {0}) == (made.served, made.known)
    made.acquired(0, 5, 0)
    assert ({0}, {0}) == (made.served, made.known)
    made.opened(0, 5, 0)
    made.planned(6, 2, [], 0)
    assert ({0}, {0}) == (made.served, made.known)
    made.closed(0, 5)
    assert (frozenset(), {0}) == (made.served, made.known)
    made.released(0, 5, 0)
    assert (frozenset(), frozenset()) == (made.served, made.known)
