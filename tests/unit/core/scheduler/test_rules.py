"""The rules of topics, their changes, and time: nothing is saved up, lost or polled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.examples import examples
from tests.support.scheduler.parts import MS, SECOND
from tests.support.scheduler.world import GONE, SchedulerWorld
from tests.unit.core.scheduler.backlogs import PLENTY, backlogged


def test_paused_topics_set_no_timer():
    """W: the node sleeps until a topic resumes."""
    world = SchedulerWorld()
    for n in range(30):
        backlogged(world, f"t{n}")
    world.run(100 * MS)
    for n in range(30):
        world.topic(f"t{n}", state="paused")
    assert [] == world.run(0)
    assert None is world.scheduler.wake_at(), "timers from before the pause"
    assert [] == world.run(100 * SECOND)
    assert {"paused"} == {world.why(f"t{n}/0/mid") for n in range(30)}
    world.topic("t7", state="active")
    assert {"t7": 150} == pytest.approx(dict(world.counts(SECOND)), abs=2)


def test_tenant_at_its_concurrency_saves_nothing_up():
    world = SchedulerWorld(slots=2)
    for name in ("capped", "other"):
        backlogged(world, name, groups=20)
    world.topic("capped", concurrency=1)
    world.topic("other", concurrency=1, weight=1.0)
    world.topic("capped", weight=100.0)
    world.run(10 * SECOND)
    for name in ("capped", "other"):
        world.topic(name, weight=1.0, concurrency=None)
    assert {"capped": 200, "other": 200} == pytest.approx(dict(world.counts(2 * SECOND)), abs=5)


def test_number_of_decisions_is_proportional_to_messages():
    """The node never polls: it asks at most once too often per message and per timer."""
    world = SchedulerWorld()
    for n, qps in enumerate([0.1, 3.0, 10.0, 50.0]):
        backlogged(world, f"t{n}", qps=qps)
    messages = sum(world.counts(20 * SECOND).values())
    assert world.decisions <= 4 * messages


@pytest.mark.parametrize("qps", [0.01, 1.0, 1_000_000.0])
def test_stopped_clock_admits_one_burst_only(qps):
    """Q."""
    world = SchedulerWorld(slots=10_000, start=10**18)
    world.topic("a", qps=qps, burst=7, groups=1 if qps < 2 else 6_667)
    world.put("a/0/mid", PLENTY)
    assert 1 <= len(world.run(0)) <= 8
    assert 0 == len(world.run(0))


def test_weights_from_1_to_10_000_are_exact():
    """X1."""
    world = SchedulerWorld(slots=1)
    backlogged(world, "small", groups=10, weight=1.0)
    backlogged(world, "big", groups=10, weight=10_000.0)
    for name in ("small", "big"):
        world.handler(name, MS)
    counts = world.counts(50 * SECOND)
    assert 5 == pytest.approx(counts["small"], abs=1)
    assert 50_000 == sum(counts.values())


@given(st.integers(1, 6), st.floats(0.01, 140))
@examples(20)
def test_topic_written_each_10_ms_keeps_its_rate(groups, qps):
    """X4, Q."""
    world = SchedulerWorld()
    world.topic("a", qps=qps, groups=max(groups, 2))
    for group in range(groups):
        world.put(f"a/{group}/mid", PLENTY)
    counts = 0
    for _ in range(500):
        counts += world.counts(10 * MS)["a"]
        world.topic("a")
    assert qps * 5 == pytest.approx(counts, abs=2)


def test_topic_written_each_7_ms_keeps_its_share():
    """X4."""
    world = SchedulerWorld(slots=1)
    backlogged(world, "one", weight=1.0)
    backlogged(world, "three", weight=3.0)
    counts = {"one": 0, "three": 0}
    for _ in range(2_000):
        for name, number in world.counts(7 * MS).items():
            counts[name] += number
        world.topic("one")
    assert counts["three"] / counts["one"] == pytest.approx(3, rel=0.02)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a/0/mid", "a/1/high", "b/0/mid", "c/0/low"]), st.integers(0, 5), st.integers(1, 9)),
        max_size=6,
    ),
    st.integers(1, 3),
    st.sampled_from([10.0, 100.0]),
    st.booleans(),
)
@examples(60)
def test_missing_messages_cost_nothing(puts, slots, qps, borrow):
    """E10: they don't change the start of any other message, to the nanosecond."""
    traces = []
    for lost in (True, False):
        world = SchedulerWorld(slots)
        for name, weight in zip("abc", (1.0, 3.0, 7.0), strict=True):
            world.topic(name, qps=qps, groups=2, weight=weight, borrow=borrow)
        for name, gone, there in puts:
            if lost and gone and not world.waiting[name]:
                world.put(name, gone)
                world.lose(name, gone)
            world.put(name, there)
            world.run(35 * MS)
        world.run(10 * SECOND)
        traces.append([(at, name[0]) for at, name, gone in world.trace if gone != GONE])
    assert sorted(traces[1]) == sorted(traces[0])
