"""The leader's plans: when it makes them, their content, and how it continues those of its predecessor."""

import pytest

from evenlane.ring.membership.leader import (
    CAME_AT_LATEST_NS,
    CAME_NS,
    GONE_NS,
    LOAD_AT_LATEST_NS,
    LOAD_NS,
    Draft,
    Leader,
    LeaderPhase,
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
    """A leader elected at 0, before its first plan."""
    made = Leader(partitions)
    made.begin(generation, plans or {}, owners or {}, 0)
    made.nodes(dict.fromkeys(nodes, FIT), 0)
    return made


def settled(nodes=("a", "b")):
    """A leader with a written plan: the nodes own partitions in turn."""
    made = leading(nodes=nodes)
    draft(made, [nodes[p % len(nodes)] for p in range(4)])
    made.on_written(0)
    assert None is made.due()
    return made


class TestStart:
    def test_no_plan_is_due_before_plans_and_nodes_are_known(self):
        """P4: a plan without the nodes would take all partitions from their owners."""
        made = Leader(4)
        assert LeaderPhase.ELECTED is made.phase
        made.nodes({"a": FIT}, 0)
        assert None is made.due()
        other = Leader(4)
        other.begin(3, {"a": plan(3, 0, 1, 2, 3)}, {}, 0)
        assert None is other.due()
        other.nodes({"a": FIT}, 50 * MS)
        assert other.due() is not None

    def test_unchanged_plan_is_not_written_again(self):
        made = leading({"a": plan(3, 0, 2), "b": plan(3, 1, 3)})
        assert None is draft(made, ["a", "b", "a", "b"])
        assert LeaderPhase.LEADING is made.phase

    def test_generation_is_never_used_twice(self):
        """C1, Z5: it follows the newest generation written anywhere."""
        made = leading({"a": plan(8, 0)}, generation=5)
        assert 9 == draft(made, ["a"] * 4).generation
        made = leading({"a": plan(3, 0)}, generation=5)
        assert 6 == draft(made, ["a"] * 4).generation

    def test_half_written_plan_is_completed(self):
        """P4, C1: the previous leader died after it had assigned partition 1 to b, before it took it from a."""
        made = leading({"a": plan(3, 0, 1), "b": plan(4, 1, 2, 3)}, generation=4)
        assert {0: "a", 1: "b", 2: "b", 3: "b"} == made.present
        assert Draft(5, {"a": [0]}, []) == draft(made, ["a", "b", "b", "b"])

    def test_partition_without_a_plan_stays_with_its_owner(self):
        """E6."""
        made = leading({"a": plan(3, 0)}, owners={0: "b", 1: "b"})
        assert {0: "a", 1: "b"} == made.present

    def test_unknown_partitions_are_ignored(self):
        made = leading({"a": plan(3, 0, 7, -1)})
        assert {0: "a"} == made.present


class TestDue:
    def test_plan_is_due_at_once_when_a_node_is_gone(self):
        """E14."""
        made = settled()
        made.on_node_gone("a", 100)
        assert 100 + GONE_NS == made.due()

    @pytest.mark.parametrize("record", [LEAVING, NO_STORE])
    def test_plan_is_due_at_once_when_a_node_is_no_longer_fit(self, record):
        """P5."""
        made = settled()
        made.node("a", record, 100)
        assert 100 + GONE_NS == made.due()

    def test_joins_share_a_plan_up_to_a_limit(self):
        """P5: nodes that start one after another cause one plan."""
        made = settled()
        at = 0
        for n in range(30):
            at = n * 200 * MS
            made.node(f"c{n}", FIT, at)
            assert min(at + CAME_NS, CAME_AT_LATEST_NS) == made.due()
        assert at > CAME_AT_LATEST_NS

    def test_unchanged_fitness_makes_no_plan_due(self):
        made = settled()
        made.node("a", NodeRecord(cpu=0.5), 100)
        assert None is made.due()

    def test_changes_of_load_share_a_plan_for_longer(self):
        made = settled()
        made.on_load_change(0)
        assert LOAD_NS == made.due()
        for at in range(0, 12_000 * MS, 1_000 * MS):
            made.on_load_change(at)
        assert LOAD_AT_LATEST_NS == made.due()

    def test_death_is_not_delayed_by_later_changes(self):
        made = settled()
        made.on_node_gone("a", 0)
        made.node("c", FIT, 1)
        made.on_load_change(2)
        assert GONE_NS == made.due()

    def test_join_is_not_delayed_by_later_changes_of_load(self):
        """P5."""
        made = settled()
        made.node("c", FIT, 0)
        for at in range(100 * MS, 5_000 * MS, 250 * MS):
            made.on_load_change(at)
            assert made.due() <= CAME_AT_LATEST_NS

    def test_join_is_not_delayed_by_earlier_changes_of_load(self):
        made = settled()
        made.on_load_change(0)
        made.node("c", FIT, 100 * MS)
        assert 100 * MS + CAME_NS == made.due()

    def test_change_while_a_plan_is_written_makes_the_next_one_due(self):
        made = settled()
        made.on_node_gone("a", 0)
        draft(made, ["b"] * 4)
        assert LeaderPhase.PLANNING is made.phase
        made.on_node_gone("b", 5)
        assert None is made.due()
        made.on_written(10)
        assert 5 + GONE_NS == made.due()


class TestDraft:
    def test_only_changed_plans_are_written(self):
        made = settled(("a", "b", "c"))
        made.on_node_gone("b", 0)
        assert Draft(2, {"c": [1, 2]}, ["b"]) == draft(made, ["a", "c", "c", "a"])

    def test_new_node_gets_a_plan_even_without_partitions(self):
        """Z3: so that it can report that it is on standby."""
        made = settled()
        made.node("c", FIT, 0)
        assert Draft(2, {"c": []}, []) == draft(made, ["a", "b", "a", "b"])

    def test_leaving_node_gets_an_empty_plan(self):
        """P5."""
        made = settled()
        made.node("a", LEAVING, 0)
        assert ["b"] == made.fit
        assert Draft(2, {"a": [], "b": [0, 1, 2, 3]}, []) == draft(made, ["b"] * 4)

    def test_only_leaving_nodes_lose_partitions_without_a_fit_node(self):
        made = settled()
        made.node("a", LEAVING, 0)
        made.node("b", NO_STORE, 0)
        assert Draft(2, {"a": []}, []) == draft(made, [None] * 4)
        made.on_written(0)
        assert {1: "b", 3: "b"} == made.present

    def test_plan_of_an_unknown_node_is_removed(self):
        made = leading({"ghost": plan(3, 0)}, nodes=("a",))
        assert Draft(4, {"a": [0, 1, 2, 3]}, ["ghost"]) == draft(made, ["a"] * 4)

    def test_plan_does_not_depend_on_the_order_of_events(self):
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
    def test_unconfirmed_plan_is_written_again_with_a_newer_generation(self):
        made = settled()
        made.on_node_gone("b", 0)
        before = draft(made, ["a"] * 4)
        made.on_not_written(10)
        assert 10 + GONE_NS == made.due()
        assert Draft(before.generation + 1, before.plans, before.gone) == draft(made, ["a"] * 4)

    def test_unconfirmed_plan_is_replaced_even_by_the_previous_one(self):
        made = settled()
        made.node("c", FIT, 0)
        draft(made, ["a", "b", "c", "c"])
        made.on_not_written(10)
        made.on_node_gone("c", 20)
        assert Draft(3, {"a": [0, 2], "b": [1, 3]}, ["c"]) == draft(made, ["a", "b", "a", "b"])

    @pytest.mark.parametrize("record", [None, plan(0), plan(9, 0, 1, 2, 3)])
    def test_foreign_change_of_a_plan_is_overwritten(self, record):
        """Z5: with a generation that the node accepts."""
        made = settled()
        made.on_plan("a", record, 0)
        assert GONE_NS == made.due()
        drafted = draft(made, ["a", "b", "a", "b"])
        assert Draft(10 if record == plan(9, 0, 1, 2, 3) else 2, {"a": [0, 2]}, []) == drafted
        made.on_written(10)
        assert None is made.due()

    def test_foreign_plan_for_an_unknown_node_is_removed(self):
        made = settled()
        made.on_plan("ghost", plan(1, 0), 0)
        assert ["ghost"] == draft(made, ["a", "b", "a", "b"]).gone

    def test_foreign_change_while_a_plan_is_written_is_overwritten(self):
        """The change may be newer than the plan: the watch can be faster than the answer."""
        made = settled()
        made.on_node_gone("b", 0)
        draft(made, ["a"] * 4)
        made.on_plan("a", plan(1), 5)
        made.on_written(10)
        assert made.due() is not None
        assert {"a": [0, 1, 2, 3]} == draft(made, ["a"] * 4).plans

    def test_deposed_leader_makes_no_plan(self):
        made = settled()
        made.on_node_gone("b", 0)
        made.deposed = True
        assert None is made.due()
        assert LeaderPhase.DEPOSED is made.phase
