"""X10, Q, V, W, fault 22: on the simulator, the product holds the bars of each scenario. The unfair controls don't."""

import pytest

from evenlane.engine.proof.load.load import Arrival
from evenlane.engine.proof.registry import SCENARIOS
from evenlane.engine.proof.scenario import silent
from evenlane.engine.proof.scenarios.delay.load import DelaySize
from evenlane.engine.proof.scenarios.delay.scenario import DelayScenario
from evenlane.engine.proof.scenarios.hot import HotBurst
from evenlane.engine.proof.scenarios.priority import PriorityScenario
from evenlane.engine.proof.scenarios.reserve import ReserveScenario
from evenlane.engine.proof.scenarios.scale.scenario import ScaleScenario, ScaleSize, ScaleSizes

SMALLER = {"hot-burst": 0.25, "hot-slow": 0.25, "shares": 0.25, "reserve": 0.5, "priority": 0.25, "push": 0.25}
"""Scales that show as much as the full size."""


def scaled(name, nodes=1):
    if name == "delay":
        return DelayScenario(DelaySize(waiting=100_000))
    return SCENARIOS[name](SMALLER[name], nodes) if name in SMALLER else SCENARIOS[name]()


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "scale"])
def test_product_passes_and_controls_fail(name):
    report = scaled(name).simulate(1, 1, silent)
    assert [] == [(bar.name, bar.value, bar.limit) for bar in report.bars if not bar.is_met]
    assert {"product", "control"} == {bar.arm for bar in report.bars}
    assert report.has_passed


@pytest.mark.parametrize("name", ["hot-burst", "hot-slow", "shares", "reserve", "priority"])
def test_same_bars_hold_over_three_nodes(name):
    """E3, X10: with the same slots and load for each node."""
    report = scaled(name, nodes=3).simulate(1, 1, silent)
    assert [] == [(bar.name, bar.value, bar.limit) for bar in report.bars if not bar.is_met]
    assert 3 == report.nodes


def test_topic_of_little_weight_gets_its_reserve():
    """W: the others share the rest by weight, and no slot is idle."""
    report = ReserveScenario(0.1).simulate(1, 1, silent)
    got = {name: figures["reserved_msg_s"] for name, figures in report.arms.items()}
    assert 300 == pytest.approx(got["reserve"], rel=0.02)
    assert 1_111 / 11 == pytest.approx(got["no reserve"], rel=0.05), "an eleventh, by its weight"
    assert 0 == got["reserve not used"]
    assert 1_111 == pytest.approx(got["reserved alone"], rel=0.02)


def test_load_of_hot_burst_is_the_documented_one():
    """99 victims with 5 messages per second over 40 s, and 50,000 hot messages at t = 10."""
    load = HotBurst().arms(1)["with hot"].load
    hot = load.numbers(tenants=["hot"])
    assert ([10 * 10**9] * 50_000, 100) == ([load.at[n] for n in hot], len(load.tenants))
    assert abs(len(load) - 50_000 - 99 * 5 * 40) < 4 * (99 * 5 * 40) ** 0.5
    assert {each.topic.groups for each in load.tenants} == {10}
    assert {each.service for each in load} == {45 * 10**6}


def test_arms_differ_in_the_hot_tenant_only():
    arms = HotBurst(0.1).arms(1)
    victims = arms["with hot"].load.without("hot")
    assert list(victims) == list(arms["without hot"].load)
    assert list(arms["with hot"].load) == list(arms["fifo"].load)


def test_seed_determines_the_load():
    first, again, other = (list(HotBurst(0.05).arms(seed)["without hot"].load) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_one_queue_arm_has_the_same_load_in_one_band():
    arms = PriorityScenario(0.05).arms(1)
    meant, mixed = arms["0.8 with low"].load, arms["0.8 one queue"].load
    assert [each._replace(band=0) for each in meant] == list(mixed)
    assert {0, 2} == {each.band for each in meant}
    assert {0} == {each.band for each in arms["0.8 without low"].load}
    assert Arrival(0, 0, 0, 2, 10**7) == next(iter(meant))


def test_rounds_take_the_next_seeds_and_figures_are_medians():
    seen = [HotBurst(0.02).simulate(seed, 1, silent).arms["with hot"]["offered"] for seed in (4, 5, 6)]
    together = HotBurst(0.02).simulate(4, 3, silent)
    assert sorted(seen)[1] == together.arms["with hot"]["offered"]
    assert len(set(seen)) > 1


def test_progress_rises_from_zero_to_one():
    progress = []
    HotBurst(0.02).simulate(1, 2, lambda what, share: progress.append((what, share)))
    shares = [share for _what, share in progress]
    assert sorted(shares) == shares
    assert (0.0, 1.0) == (shares[0], shares[-1])
    assert "hot-burst: with hot" in dict(progress)


def test_steps_of_a_decision_do_not_grow_with_idle_queues():
    """E16: counted, not timed. The scanning limiter is the control."""
    few, most = ScaleSize(30, 10), ScaleSize(3_000, 10)
    sizes = ScaleSizes((few, ScaleSize(300, 10), most), (ScaleSize(30, 30), ScaleSize(300, 300)))
    report = ScaleScenario(sizes, decisions=200).simulate(1, 1, silent)
    steps = {name: figures["steps"] for name, figures in report.arms.items()}
    assert steps[str(most)] <= 1.05 * steps[str(few)]
    assert steps[f"scanning, {most}"] > 50 * steps[f"scanning, {few}"]
    assert {"us_a_decision", "us_lowest", "steps"} <= set(report.arms[str(few)])
