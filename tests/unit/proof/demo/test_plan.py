"""The demo's load: bounded, the same for all arms, and hot far above its quota."""

import pytest

from evenlane.engine.proof.demo.plan import ARMS, HOT, HOT_RATE, LAST_S, QUOTA, SERVICE_S, SLOTS, Plan

CAPACITY = SLOTS / SERVICE_S  # msg/s


@pytest.mark.parametrize("projects", [2, 3, 20, 21, 22, 300, 5000])
@pytest.mark.parametrize("seconds", [3, 4, 8.9, 9, 20, 61, 600, 3600])
def test_time_is_divided_into_rounds_of_three_turns(seconds, projects):
    plan = Plan(seconds, projects)
    assert seconds == pytest.approx(plan.rounds * len(ARMS) * plan.turn_s)
    assert 1 <= plan.turn_s <= 20
    assert 3 * LAST_S < plan.turn_s


@pytest.mark.parametrize("projects", [2, 20, 5000])
def test_node_has_room_for_victims_and_hots_quota_only(projects):
    """E18: hot's messages above its quota must wait, or they would delay the others."""
    plan = Plan(20, projects)
    victims = plan.victim_rate * len(plan.victims)
    assert victims + QUOTA <= 0.65 * CAPACITY
    assert HOT_RATE >= 2 * CAPACITY
    assert HOT_RATE >= 20 * QUOTA
    assert HOT_RATE >= 100 * plan.victim_rate
    assert 2 * plan.victim_rate <= QUOTA


def test_victims_load_is_equal_in_each_arm_of_a_round():
    plan = Plan(9, 20)
    without, hot, control = (plan.load(arm, 0) for arm in ARMS)
    assert [*without] == [each for each in hot if hot.tenants[each.tenant].name != HOT]
    assert [*hot] == [*control]
    assert [*without] != [*plan.load("without hot", 1)]
    assert hot.until == int(plan.turn_s * 1e9)
    assert max(without.at) < hot.until - LAST_S * 1e9
    assert int(HOT_RATE * plan.turn_s) == len(hot) - len(without)
