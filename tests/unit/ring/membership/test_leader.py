"""The leader's part: when it plans, what it plans, and how it goes on where another stopped."""

import pytest

from evenlane.ring.membership.leader import (
    CAME_AT_LATEST_NS,
    CAME_NS,
    GONE_NS,
    LOAD_AT_LATEST_NS,
    LOAD_NS,
    Draft,
    Leader,
    Phase,
)
from evenlane.ring.membership.records import NodeRecord, PlanRecord

FIT, LEAVING, NO_STORE = NodeRecord(), NodeRecord(leaving=True), NodeRecord(store=False)
MS = 1_000_000


def plan(generation, *partitions):
    return PlanRecord(generation=generation, partitions=list(partitions))


def draft(leader, placement):
    leader.placement_input()
    return leader.draft(placement)


def leading(plans=None, nodes=("a", "b"), *, generation=0, owners=None, partitions=4):
    """Begun at 0, before its first plan."""
    made = Leader(partitions)
    made.begin(generation, plans or {}, owners or {}, 0)
    made.nodes(dict.fromkeys(nodes, FIT), 0)
    return made


def settled(nodes=("a", "b")):
    """With a plan that stands: partitions by turns."""
    made = leading(nodes=nodes)
    draft(made, [nodes[p % len(nodes)] for p in range(4)])
    made.written(0)
    assert None is made.due()
    return made


class TestBeginning:
    def test_nothing_is_due_before_plans_and_nodes_are_known(self):
        """P4: a plan without the nodes would take everything from everybody."""
        made = Leader(4)
        assert Phase.ELECTED is made.phase
        made.nodes({"a": FIT}, 0)
        assert None is made.due()
        other = Leader(4)
        other.begin(3, {"a": plan(3, 0, 1, 2, 3)}, {}, 0)
        assert None is other.due()
        other.nodes({"a": FIT}, 50 * MS)
        assert other.due() is not None

    def test_what_stands_is_not_written_again(self):
        made = leading({"a": plan(3, 0, 2), "b": plan(3, 1, 3)})
        assert None is draft(made, ["a", "b", "a", "b"])
        assert Phase.LEADING is made.phase

    def test_a_generation_is_never_used_twice(self):
        """C1, Z5: the newest of what is written anywhere counts."""
        made = leading({"a": plan(8, 0)}, generation=5)
        assert 9 == draft(made, ["a"] * 4).generation
        made = leading({"a": plan(3, 0)}, generation=5)
        assert 6 == draft(made, ["a"] * 4).generation

    def test_half_a_plan_is_read_by_generation_and_both_keys_are_made_good(self):
        """P4, C1: the last leader died when it had given partition 1 to b, but hadn't taken it from a."""
        made = leading({"a": plan(3, 0, 1), "b": plan(4, 1, 2, 3)}, generation=4)
        assert {0: "a", 1: "b", 2: "b", 3: "b"} == made.present
        assert Draft(5, {"a": [0]}, []) == draft(made, ["a", "b", "b", "b"])

    def test_what_nobody_is_planned_for_stays_with_its_owner(self):
        """E6: even if no plan is left."""
        made = leading({"a": plan(3, 0)}, owners={0: "b", 1: "b"})
        assert {0: "a", 1: "b"} == made.present

    def test_partitions_that_are_none_are_passed_over(self):
        made = leading({"a": plan(3, 0, 7, -1)})
        assert {0: "a"} == made.present


class TestWhen:
    def test_one_that_went_is_replaced_at_once(self):
        made = settled()
        made.node_gone("a", 100)
        assert 100 + GONE_NS == made.due()

    @pytest.mark.parametrize("record", [LEAVING, NO_STORE])
    def test_so_is_one_that_is_no_longer_fit(self, record):
        """P5."""
        made = settled()
        made.node("a", record, 100)
        assert 100 + GONE_NS == made.due()

    def test_joins_are_gathered_but_not_for_ever(self):
        """P2: five that start one after the other are one plan."""
        made = settled()
        at = 0
        for n in range(30):
            at = n * 200 * MS
            made.node(f"c{n}", FIT, at)
            assert min(at + CAME_NS, CAME_AT_LATEST_NS) == made.due()
        assert at > CAME_AT_LATEST_NS

    def test_a_record_that_says_nothing_new_is_no_reason(self):
        made = settled()
        made.node("a", NodeRecord(cpu=0.5), 100)
        assert None is made.due()

    def test_changes_of_load_are_gathered_longer(self):
        made = settled()
        made.load_changed(0)
        assert LOAD_NS == made.due()
        for at in range(0, 12_000 * MS, 1_000 * MS):
            made.load_changed(at)
        assert LOAD_AT_LATEST_NS == made.due()

    def test_a_death_is_not_put_off_by_what_comes_with_it(self):
        made = settled()
        made.node_gone("a", 0)
        made.node("c", FIT, 1)
        made.load_changed(2)
        assert GONE_NS == made.due()

    def test_a_join_is_not_put_off_by_changes_of_load(self):
        """P2: what is due sooner stays so."""
        made = settled()
        made.node("c", FIT, 0)
        for at in range(100 * MS, 5_000 * MS, 250 * MS):
            made.load_changed(at)
            assert made.due() <= CAME_AT_LATEST_NS

    def test_a_join_is_not_put_off_because_loads_had_changed_before(self):
        made = settled()
        made.load_changed(0)
        made.node("c", FIT, 100 * MS)
        assert 100 * MS + CAME_NS == made.due()

    def test_nothing_is_due_while_a_plan_is_written_but_what_came_meanwhile_is_after_it(self):
        made = settled()
        made.node_gone("a", 0)
        draft(made, ["b"] * 4)
        assert Phase.PLANNING is made.phase
        made.node_gone("b", 5)
        assert None is made.due()
        made.written(10)
        assert 5 + GONE_NS == made.due()


class TestWhat:
    def test_only_what_changes_is_written(self):
        made = settled(("a", "b", "c"))
        made.node_gone("b", 0)
        assert Draft(2, {"c": [1, 2]}, ["b"]) == draft(made, ["a", "c", "c", "a"])

    def test_a_new_node_gets_a_plan_even_an_empty_one(self):
        """Z3: so that it can say that it stands by."""
        made = settled()
        made.node("c", FIT, 0)
        assert Draft(2, {"c": []}, []) == draft(made, ["a", "b", "a", "b"])

    def test_one_that_leaves_is_told_to_own_nothing(self):
        """P5."""
        made = settled()
        made.node("a", LEAVING, 0)
        assert ["b"] == made.fit
        assert Draft(2, {"a": [], "b": [0, 1, 2, 3]}, []) == draft(made, ["b"] * 4)

    def test_without_a_fit_node_nothing_moves_but_from_those_that_leave(self):
        made = settled()
        made.node("a", LEAVING, 0)
        made.node("b", NO_STORE, 0)
        assert Draft(2, {"a": []}, []) == draft(made, [None] * 4)
        made.written(0)
        assert {1: "b", 3: "b"} == made.present

    def test_a_plan_for_nobody_is_removed(self):
        made = leading({"ghost": plan(3, 0)}, nodes=("a",))
        assert Draft(4, {"a": [0, 1, 2, 3]}, ["ghost"]) == draft(made, ["a"] * 4)

    def test_the_same_facts_give_the_same_plan_whatever_their_order(self):
        """Z2."""
        drafts = []
        for order in (["a", "b", "c"], ["c", "a", "b"]):
            made = leading({name: plan(2, n) for n, name in enumerate("abc") if name in order}, nodes=())
            for name in order:
                made.node(name, FIT, 0)
            drafts.append(draft(made, ["a", "b", "c", "a"]))
        assert drafts[0] == drafts[1]
        assert list(drafts[0].plans) == list(drafts[1].plans)


class TestWriting:
    def test_what_was_perhaps_written_is_said_again_under_a_newer_generation(self):
        made = settled()
        made.node_gone("b", 0)
        before = draft(made, ["a"] * 4)
        made.not_written(10)
        assert 10 + GONE_NS == made.due()
        assert Draft(before.generation + 1, before.plans, before.gone) == draft(made, ["a"] * 4)

    def test_even_if_it_is_as_it_was_before(self):
        made = settled()
        made.node("c", FIT, 0)
        draft(made, ["a", "b", "c", "c"])
        made.not_written(10)
        made.node_gone("c", 20)
        assert Draft(3, {"a": [0, 2], "b": [1, 3]}, ["c"]) == draft(made, ["a", "b", "a", "b"])

    @pytest.mark.parametrize("record", [None, plan(0), plan(9, 0, 1, 2, 3)])
    def test_a_plan_that_somebody_changed_is_written_anew(self, record):
        """Z5: under a generation that the node takes."""
        made = settled()
        made.plan_seen("a", record, 0)
        assert GONE_NS == made.due()
        drafted = draft(made, ["a", "b", "a", "b"])
        assert Draft(10 if record == plan(9, 0, 1, 2, 3) else 2, {"a": [0, 2]}, []) == drafted
        made.written(10)
        assert None is made.due()

    def test_one_for_a_node_that_there_is_not_is_removed(self):
        made = settled()
        made.plan_seen("ghost", plan(1, 0), 0)
        assert ["ghost"] == draft(made, ["a", "b", "a", "b"]).gone

    def test_what_is_changed_while_a_plan_is_written_is_not_forgotten(self):
        """The change may have come after the plan: the watch can be quicker than the answer."""
        made = settled()
        made.node_gone("b", 0)
        draft(made, ["a"] * 4)
        made.plan_seen("a", plan(1), 5)
        made.written(10)
        assert made.due() is not None
        assert {"a": [0, 1, 2, 3]} == draft(made, ["a"] * 4).plans

    def test_one_that_is_deposed_plans_no_more(self):
        made = settled()
        made.node_gone("b", 0)
        made.deposed = True
        assert None is made.due()
        assert Phase.DEPOSED is made.phase
