"""One bucket against a limiter that keeps every admission (promise Q, E2)."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.rates.gcra import SECOND, Pace
from tests.oracles.examples import examples
from tests.oracles.limiter import Limiter, excess, steady

rates = st.floats(math.log(0.01), math.log(1_000_000)).map(lambda power: min(1e6, max(0.01, math.exp(power))))
bursts = st.sampled_from([1, 1, 2, 3, 10, 1_000])
gaps = st.lists(st.sampled_from([0.0, 0.001, 0.5, 0.999, 1.0, 1.001, 2.0, 7.0, 2_000.0]) | st.floats(0, 3), max_size=60)
FAR = 10**18


class Bucket:
    """A bucket in use, as `evenlane.quota.rates.groups` uses it."""

    def __init__(self, pace: Pace, at: int) -> None:
        self.pace, self.at = pace, at
        self.times: list[int] = []

    def admit(self, now: int) -> bool:
        if self.at > now:
            return False
        self.at = self.pace.spend(self.at, now)
        self.times.append(now)
        return True

    def drain(self, now: int) -> int:
        """Admit as many messages as possible now, and return their number."""
        before = len(self.times)
        while self.admit(now):
            pass
        return len(self.times) - before


def allowed(burst: int) -> int:
    return max(burst - 1, 1) + 1


@given(rates, bursts, gaps)
@examples(200)
def test_bucket_without_idleness_matches_the_naive_limiter(rate, burst, steps):
    """E2, Q: exactly, at any rate and any instants. At a burst of 1, one late message is made up for."""
    pace = Pace(rate, burst)
    bucket, naive = Bucket(pace, FAR - pace.late), Limiter(pace.interval, allowed(burst))
    now = FAR
    for step in steps:
        now += int(step * pace.interval)
        assert naive.admit(now) == bucket.admit(now)
        assert (max(bucket.at, now) == naive.earliest(now)) or bucket.at <= now


@given(rates, bursts, gaps, st.lists(st.booleans(), min_size=60, max_size=60))
@examples(200)
def test_no_window_holds_more_than_rate_and_burst(rate, burst, steps, idle):
    """Q: a window of w seconds has at most rate * w + max(burst - 1, 1) + 1 messages, within qps * w + burst + 1."""
    pace = Pace(rate, burst)
    bucket, now = Bucket(pace, 0), FAR
    for step, was_idle in zip(steps, idle, strict=False):
        now += int(step * pace.interval)
        if was_idle:
            bucket.at = pace.wake(bucket.at, now)
        if len(bucket.times) < 2_000:
            bucket.drain(now)
    assert excess(map(steady(rate), bucket.times)) <= allowed(burst) + 1e-6 <= burst + 1 + 1e-6


@given(rates, bursts, st.integers(0, 10**15))
@examples(200)
def test_idle_bucket_admits_one_burst_at_once(rate, burst, idle):
    """Q."""
    pace = Pace(rate, burst)
    bucket = Bucket(pace, FAR)
    bucket.drain(FAR)
    now = bucket.at + idle
    bucket.at = pace.wake(bucket.at, now)
    assert min(burst, 1 + idle // pace.interval) == bucket.drain(now)


@pytest.mark.parametrize("rate", [0.01, 1.0, 10.0, 100.0, 150.0])
@pytest.mark.parametrize("burst", [1, 2, 10])
def test_burst_is_added_to_the_rate_once(rate, burst):
    """Q: unlike aiolimiter, which admits 19 messages of 10/s in the first second."""
    pace = Pace(rate, burst)
    bucket, start = Bucket(pace, 0), FAR
    bucket.at = pace.wake(bucket.at, start)
    now = start
    while now < start + SECOND:
        bucket.drain(now)
        now = max(now + 1, bucket.at)
    assert math.ceil(rate) + burst - 1 == len(bucket.times)


@given(rates, bursts, st.lists(st.floats(0, 1), min_size=1, max_size=30))
@examples(100)
def test_rate_does_not_drift(rate, burst, late):
    """E19: asked at once or up to an interval late, the bucket admits rate * t messages, within a burst and one."""
    pace = Pace(rate, burst)
    bucket, now = Bucket(pace, FAR), FAR
    for n in range(3_000):
        now = max(now, bucket.at) + int(late[n % len(late)] * pace.interval * 0.999)
        bucket.drain(now)
    passed = now - FAR
    exact = Fraction(passed, pace.interval)
    assert abs(len(bucket.times) - exact) <= burst + 1
    lost = passed * Fraction(rate) / SECOND - exact
    assert -1e-6 <= lost <= len(bucket.times) * rate / SECOND + 1, "more than the rounding of the interval"


@given(rates)
@examples(100)
def test_interval_is_rounded_up_to_whole_ns(rate):
    exact = SECOND / rate
    assert exact <= Pace(rate).interval < exact + 1
    if rate <= 10_000:
        assert exact > 0.9999 * Pace(rate).interval


@pytest.mark.parametrize(("rate", "interval"), [(0.01, 100 * SECOND), (3.0, 333_333_334), (1e6, 1_000), (1e12, 1)])
def test_interval_of_extreme_rates(rate, interval):
    assert interval == Pace(rate).interval


@given(rates, rates, bursts, bursts, st.integers(0, 40), st.integers(0, 10**10))
@examples(100)
def test_new_pace_takes_effect_at_once(before, after, burst, new_burst, count, idle):
    """X4, Q: a debt or a credit stays the same number of messages, up to what the new pace allows."""
    old, new = Pace(before, burst), Pace(after, new_burst)
    bucket, now = Bucket(old, FAR - old.idle - idle), FAR
    for _ in range(count):
        bucket.admit(now)
    messages = Fraction(bucket.at - now, old.interval)
    bucket.pace, bucket.at = new, new.retune(bucket.at, now, old)
    retuned = Fraction(bucket.at - now, new.interval)
    if messages >= 0:
        assert 0 <= retuned - messages < 1, "rounded up to whole ns"
    else:
        assert max(messages, -Fraction(old.late, old.interval)) <= retuned <= 0
    assert bucket.drain(now) <= allowed(new_burst)


@given(
    rates, bursts, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5), st.booleans()), min_size=1, max_size=30),
    st.lists(st.floats(0.01, 1), min_size=2, max_size=4),
)  # fmt: skip
@examples(200)
def test_several_buckets_share_a_rate_and_its_burst(rate, burst, steps, weights):
    """Q: n buckets whose changing parts always add up to the whole rate admit, in any window of w seconds, at most
    qps * w + burst messages plus one per bucket.
    """
    parts = [weight / sum(weights) for weight in weights]
    paces = [Pace(rate * part, burst, rate) for part in parts]
    buckets = [Bucket(pace, FAR) for pace in paces]
    now, times = FAR, []
    for moved, wait, idle in steps:
        parts = _moved(parts, moved)
        for bucket, part in zip(buckets, parts, strict=True):
            before, bucket.pace = bucket.pace, Pace(rate * part, burst, rate)
            bucket.at = bucket.pace.retune(bucket.at, now, before)
            if idle:
                bucket.at = bucket.pace.wake(bucket.at, now)
            if len(times) < 2_000:
                times += [now] * bucket.drain(now)
        now += int(wait * SECOND / rate)
    assert excess(map(steady(rate), times)) <= max(burst - 1, 1) + len(parts) + 1e-3


def _moved(parts, share):
    """Move some of the last part to the first one, and rotate the parts."""
    moved = parts[-1] * share * 0.9
    return [parts[-1] - moved, parts[0] + moved, *parts[1:-1]]


@examples(300)
@given(rates, bursts, st.integers(-(10**10), 10**10), st.integers(1, 30))
def test_instant_from_which_messages_conform_at_once(rate, burst, at, count):
    """The oracle: an idle bucket wakes at an instant, and admits messages one after another."""
    pace, now = Pace(rate, burst), 0
    then, most = pace.affords_at(at, now, count), min(count, burst)

    def admitted(when):
        bucket = Bucket(pace, max(at, now - pace.idle))
        return bucket.drain(when) if when >= now else 0

    assert most <= admitted(max(then, now))
    if then > now:
        assert most > admitted(then - 1)
