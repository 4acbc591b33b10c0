"""Forecasts of when a backlog will be gone, and of the quota that clears it in time (X7)."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.stats.flow_counts import FlowCounts
from evenlane.engine.core.stats.forecast import (
    MEASURED_AGAIN,
    UNKNOWN,
    ForecastInput,
    QuotaForecast,
    Sample,
    SampleHistory,
    add_rates,
    clears,
    explain_roughness,
    figure,
    format_spoken,
    is_never,
    measure_rates,
    predict_end,
    predict_rate,
    predict_resumption,
)
from evenlane.quota.topics.topic import Topic

SECOND = 1_000_000_000
NOTHING = Rates(seconds=1.0)  # neither arrivals nor departures


def topic(**fields) -> Topic:
    given = {"qps": 100.0, "groups": 2, "burst": 1, "weight": 100.0, "spread": 2, **fields}
    return Topic(**given)


def load(**fields) -> ForecastInput:
    given = {
        "waiting": 1_000, "deepest": 500, "rates": Rates(20.0, 70.0, 0.0, 1.0), "topic": topic(),
        "reason": "quota", "max_group_qps": 150.0,
        **fields,
    }  # fmt: skip
    return ForecastInput(**given)


# ---- rates


def test_rates_are_differences_per_second():
    """X7, computed by hand, in 2 s: 10 arrived, 6 were handled, 2 failed (one for good), 4 expired, 6 were dropped."""
    rates = measure_rates(
        Sample(5 * SECOND, FlowCounts(100, 50, 1)), Sample(7 * SECOND, FlowCounts(110, 56, 2, 1, 4, 6))
    )
    assert Rates(5.0, 3.0, 1.0, 2.0, dead=0.5, expired=2.0, dropped=3.0) == rates
    assert (9.0, 6.0) == (rates.leaving, rates.taken)


def test_rate_needs_two_instants():
    with pytest.raises(ValueError, match="two instants"):
        measure_rates(Sample(5, FlowCounts()), Sample(5, FlowCounts(1, 1, 1)))


def test_rates_of_several_nodes_add_up():
    assert Rates(3.0, 5.0, 1.0, 1.0) == add_rates([Rates(1.0, 2.0, 0.0, 1.0), Rates(2.0, 3.0, 1.0, 9.0)])
    assert UNKNOWN == add_rates([])


def test_sum_is_over_the_time_in_which_something_moved():
    """X7: a node where nothing moves may have measured for less time, as after a partition moved to it."""
    assert Rates(2.0, 3.0, 1.0, 9.0) == add_rates([NOTHING, Rates(2.0, 3.0, 1.0, 9.0)])
    assert 0.5 == add_rates([NOTHING, Rates(seconds=0.5)]).seconds


def test_sum_with_an_unknown_rate_is_unknown():
    """X7: after a takeover, the sum of the other nodes' rates would be too low."""
    total = add_rates([Rates(1.0, 2.0, 0.0, 1.0), UNKNOWN, Rates(2.0, 3.0, 1.0, 9.0)])
    assert (UNKNOWN, False) == (total, total.is_known)
    assert NOTHING.is_known


def test_history_reaches_back_as_far_as_asked():
    history = SampleHistory(SECOND)
    history.add(Sample(0, FlowCounts()))
    assert history.find_before(40 * SECOND, 60 * SECOND) is not None
    assert history.find_before(61 * SECOND, 60 * SECOND) is None


def test_history_measures_from_the_oldest_sample_of_30_seconds():
    history = SampleHistory(SECOND)
    assert history.find_before(0) is None
    samples = [Sample(at * SECOND, FlowCounts(at)) for at in (10, 12, 39)]
    for sample in samples:
        history.add(sample)
    history.add(Sample(39 * SECOND + 1, FlowCounts()))  # too close to the previous sample
    assert samples[0] == history.find_before(40 * SECOND)
    assert samples[1] == history.find_before(41 * SECOND)
    assert samples[2] == history.find_before(60 * SECOND)
    assert history.find_before(70 * SECOND) is None
    history.add(samples[0])
    assert history.find_before(10 * SECOND + SECOND // 2) is None


@given(st.lists(st.integers(0, 200), max_size=60).map(sorted), st.integers(0, 260))
def test_history_sample_is_1_to_30_seconds_old(instants, now):
    history = SampleHistory(SECOND)
    for at in instants:
        history.add(Sample(at * SECOND, FlowCounts()))
    found = history.find_before(now * SECOND)
    assert found is None or 1 <= now - found.at // SECOND <= 30


# ---- time until the backlog is gone


@pytest.mark.parametrize(
    ("fields", "seconds", "sentence"),
    [
        ({}, 20.0, "gone in 20s at this rate: 1,000 wait, 20/s arrive and 70/s are taken"),
        ({"waiting": 0}, 0.0, "nothing waits"),
        (
            {"rates": Rates(70.0, 70.0, 0.0, 1.0), "grows": True},
            None,
            "never at this rate: 1,000 wait, 70/s arrive and 70/s are",
        ),
        ({"rates": Rates(70.0, 0.0, 0.0, 1.0), "reason": "fairness"}, None, "70/s arrive and 0/s are taken"),
        ({"rates": Rates(0.0, 30.0, 20.0, 1.0)}, 20.0, "gone in 20s"),  # failed attempts leave the backlog, too
        ({"topic": topic(state="paused")}, None, "never, as long as it is paused"),
        ({"topic": None}, None, "never, as long as it has no topic"),
        ({"topic": topic(qps=30.0)}, 100.0, "gone in 1m 40s"),  # a rate above the quota lasts only for its burst
        ({"topic": topic(qps=0.01, groups=1), "rates": NOTHING}, 100_000.0, "gone in 1d 3h"),
        ({"rates": NOTHING, "reason": "handlers_busy", "grows": True}, None, "never at this rate"),
        (
            {"rates": NOTHING, "reason": "handlers_busy"},
            None,
            "not known: 1,000 wait, 0/s arrive and 0/s are taken, but",
        ),
        ({"rates": Rates(9.0, 9.0, 0.0, 30.0)}, None, "not known: 1,000 wait, 9/s arrive and 9/s are taken, but"),
        ({"grows": True}, 20.0, "gone in 20s"),
        ({"rates": UNKNOWN}, None, f"not known yet: 1,000 wait, and {MEASURED_AGAIN}"),
        ({"rates": UNKNOWN, "waiting": 0}, 0.0, "nothing waits"),
        ({"rates": UNKNOWN, "topic": topic(state="paused")}, None, "never, as long as it is paused"),
    ],
)
def test_gone_in_gives_seconds_and_sentence(fields, seconds, sentence):
    """X7: computed by hand."""
    found = predict_end(load(**fields))
    assert seconds == found[0]
    assert sentence in found[1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"grows": True}, False),
        ({"rates": Rates(70.0, 70.0, 0.0, 30.0)}, False),
        ({"rates": Rates(70.0, 70.0, 0.0, 30.0), "grows": True}, True),
        ({"rates": UNKNOWN, "grows": True}, False),
        ({"topic": topic(state="paused")}, True),
        ({"topic": None}, True),
        ({"topic": None, "waiting": 0}, False),
        ({"waiting": 0, "grows": True, "rates": NOTHING}, False),
    ],
)
def test_never_is_said_only_of_a_growing_backlog(fields, expected):
    """X7."""
    assert expected == is_never(load(**fields))
    assert not expected or predict_end(load(**fields))[1].startswith("never")


rates = st.builds(
    Rates, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0.5, 30.0)
)  # fmt: skip
topics = st.builds(
    lambda qps, groups, borrow, state: topic(qps=qps, groups=groups, borrow=borrow, state=state, weight=1.0),
    st.floats(0.01, 1e6), st.integers(1, 1_000), st.booleans(), st.sampled_from(["active", "paused", "draining"]),
)  # fmt: skip
loads = st.builds(
    lambda waiting, part, rates, topic, reason: ForecastInput(
        waiting, int(waiting * part), rates, topic, reason, 150.0
    ),
    st.integers(0, 10**9), st.floats(0.0, 1.0), rates, st.none() | topics,
    st.sampled_from([None, "quota", "fairness", "handlers_busy", "concurrency"]),
)  # fmt: skip


@given(loads)
@example(load(waiting=2, rates=Rates(0.0, 0.0, 1e-308, 1.0)))
def test_backlog_and_arrivals_leave_by_the_forecast_time(load):
    """X7."""
    seconds, sentence = predict_end(load)
    assert sentence
    if seconds is None:
        assert load.waiting > 0
        assert predict_rate(load) - load.rates.arriving <= load.waiting / 1e300  # practically zero
    else:
        left = predict_rate(load) * seconds
        entered = load.waiting + load.rates.arriving * seconds
        assert load.waiting == 0 or math.isclose(left, entered, rel_tol=1e-6)
    assert predict_rate(load) <= (load.topic.qps if load.topic else 0.0)


@pytest.mark.parametrize(
    ("fields", "seconds", "sentence"),
    [
        # 1,000 / (100 - 20); the group with 500 may borrow up to 150/s
        ({}, 12.5, "once it is resumed, gone in 12s at its quota of 100 QPS"),
        ({"deepest": 3_000}, 20.0, "gone in 20s"),
        ({"topic": topic(state="paused", borrow=False)}, 12.5, "gone in 12s"),
        ({"topic": topic(state="paused", borrow=False), "deepest": 900}, 18.0, "gone in 18s"),  # the group has 50/s
        ({"rates": Rates(100.0, 0.0, 0.0, 1.0)}, None, "resumed, never at its quota of 100 QPS: 100/s arrive"),
    ],
)  # fmt: skip
def test_once_resumed_gives_seconds_and_sentence(fields, seconds, sentence):
    """X7: computed by hand."""
    found = predict_resumption(load(**{"topic": topic(state="paused"), "reason": "paused", **fields}))
    assert seconds == found.seconds
    assert sentence in found.sentence


def test_once_resumed_needs_a_paused_backlog():
    assert predict_resumption(load()) is None
    assert predict_resumption(load(topic=None)) is None
    assert predict_resumption(load(topic=topic(state="paused"), waiting=0)) is None
    assert predict_resumption(load(topic=topic(state="paused"), rates=UNKNOWN)) is None


# ---- the quota that clears a backlog


@pytest.mark.parametrize(
    ("fields", "within", "expected"),
    [
        # 20/s arrive, plus 1,000 / 10 s = 100/s
        ({}, 10.0, QuotaForecast(120, "--qps 120", "120 QPS would clear it within 10s")),
        ({}, 3.0, QuotaForecast(None, "", "no quota clears it within 3s: one group holds 500 messages and may have "
                                        "at most 150 QPS, which takes 3.3s")),
        ({}, 600.0, QuotaForecast(22, "", "the quota of 100 QPS is enough to clear it within 10m")),
        ({"waiting": 0}, 10.0, QuotaForecast(None, "", "nothing waits: no other quota is needed")),
        ({"reason": "fairness"}, 10.0,
         QuotaForecast(120, "--qps 120", "120 QPS would clear it within 10s, but most of it waits for "
                                 "fairness, which a quota doesn't change")),
        ({"topic": topic(state="paused"), "reason": "paused"}, 10.0,
         QuotaForecast(120, "--qps 120", "120 QPS would clear it within 10s, once it is resumed")),
        ({"waiting": 4_000, "deepest": 10}, 10.0,  # 2 groups may have up to 300 QPS
         QuotaForecast(420, "--qps 420 --groups default", "420 QPS would clear it within 10s")),
        ({"topic": topic(borrow=False), "deepest": 900}, 10.0,  # one group would have 60 of the 120 QPS
         QuotaForecast(120, "--qps 120 --borrow", "120 QPS would clear it within 10s")),
        ({"topic": None, "reason": "paused"}, 10.0,
         QuotaForecast(120, "--qps 120", "120 QPS would clear it within 10s")),
        ({"waiting": 10**9}, 10.0,
         QuotaForecast(None, "", "no quota that a topic may have (1,000,000 QPS) clears it within 10s")),
        ({"rates": UNKNOWN}, 10.0,
         QuotaForecast(None, "", f"not known yet: {MEASURED_AGAIN}")),
        ({"waiting": 1, "rates": NOTHING, "topic": topic(qps=0.5)}, 10.0,
         QuotaForecast(1, "--qps 1", "1 QPS would clear it within 10s")),
    ],
)  # fmt: skip
def test_clears_gives_quota_flags_and_sentence(fields, within, expected):
    """X7: computed by hand."""
    assert expected == clears(load(**fields), within)


@given(loads, st.floats(0.1, 1e6))
@example(load(waiting=3, rates=Rates(0.0, 0.0, 0.0, 1.0), deepest=1), 3.0)
def test_quota_that_clears_is_the_smallest(load, within):
    """X7: the full quota empties the backlog within the given time, and one QPS less doesn't."""
    quota = clears(load, within)
    assert quota.sentence
    if quota.qps is None:
        assert not quota.flags
        return
    demand = load.waiting + load.rates.arriving * within
    assert quota.qps * within >= demand * (1 - 1e-9) - 1e-6
    assert (quota.qps - 1) * within <= demand or quota.qps == 1
    assert load.deepest <= load.max_group_qps * within
    assert bool(quota.flags) == (load.topic is None or quota.qps > load.topic.qps)


# ---- formatting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.4, "0.4s"), (0.004, "0s"), (0.999, "1s"), (9.94, "9.9s"), (9.96, "10s"), (59.7, "1m"),
        (90, "1m 30s"), (3_600, "1h"), (3_601, "1h"), (86_400 + 7_200, "1d 2h"), (1e9, "11574d 1h"),
    ],
)  # fmt: skip
def test_spoken_gives_at_most_two_units(seconds, text):
    assert text == format_spoken(seconds)


@given(st.floats(0, 1e10))
def test_spoken_is_accurate_within_6_percent(seconds):
    """Or within 6 ms."""
    sizes = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    read = sum(float(word[:-1]) * sizes[word[-1]] for word in format_spoken(seconds).split())
    assert math.isclose(read, seconds, rel_tol=0.06, abs_tol=0.006)


def test_figure_groups_digits_and_keeps_decimals():
    assert ["0.01", "100", "1,000,000", "99.5"] == [figure(number) for number in (0.01, 100.0, 1e6, 99.5)]


@pytest.mark.parametrize(
    ("seconds", "end"),
    [
        (60.0, ""),
        (87.5, ""),
        (5.1, ", from only 5 s of measurements; ask again in a minute"),
        (0.2, ", from only 1 s of measurements; ask again in a minute"),
    ],
)
def test_quota_from_a_short_measurement_is_called_rough(seconds, end):
    """X7."""
    assert end == explain_roughness(Rates(arriving=1.0, seconds=seconds))
