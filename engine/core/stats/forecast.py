"""Forecasts when a project's backlog will be gone, and which quota would clear it by a given time (X7). Pure.

A backlog B that gains a messages per second and loses d is gone after B / (d - a) seconds if d > a, and never
otherwise. To have it gone after T seconds, d must be a + B / T.

Both a and d are measured, between two samples of the node's counters. A failed attempt counts in both: it is taken
away, and comes back when its retry is due. d can't stay above the topic's quota; if too few messages ended to measure
it, and messages wait for quota, d is the quota.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.stats.flow_counts import FlowCounts  # noqa: TC001 - a compiled NamedTuple needs it
from evenlane.quota.topics.fields import MOST_QPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.quota.topics.topic import Topic

_SECOND = 1_000_000_000
LONGEST = 30 * _SECOND  # default of the longest time between the two samples of a measurement
LONG = 90 * _SECOND  # the same for a measurement on which a change of the quota is to rest
LONG_APART = 5 * _SECOND  # between the samples of such a measurement
_STEADY_S = 60.0  # a quota from shorter measurements is called rough
_KEPT = 32  # samples per project
_ENOUGH = 10  # messages that must have ended for a rate to be relied on
MEASURED_AGAIN = "rates are being measured again, as partitions have just moved"


class Sample(NamedTuple):
    """A project's counts on one node at `at` (monotonic ns), since the node's start."""

    at: int
    counts: FlowCounts


UNKNOWN = Rates()


def measure_rates(first: Sample, last: Sample) -> Rates:
    """The rates between two samples. Raises ValueError if the second isn't later."""
    if last.at <= first.at:
        raise ValueError(f"a rate needs two instants, not {first.at} and {last.at}")
    seconds = (last.at - first.at) / _SECOND
    before, now = first.counts, last.counts
    return Rates(
        arriving=(now.arrived - before.arrived) / seconds,
        handled=(now.handled - before.handled) / seconds,
        failed=(now.failed - before.failed) / seconds,
        seconds=seconds,
        dead=(now.dead - before.dead) / seconds,
        expired=(now.expired - before.expired) / seconds,
        dropped=(now.dropped - before.dropped) / seconds,
    )


def add_rates(rates: Iterable[Rates]) -> Rates:
    """The sum over several nodes; `seconds` is the shortest measurement in which something moved, as the others add
    nothing to the sum. Unknown if one node's rates are: a partial sum would be too low.
    """
    each = list(rates)
    if not all(rate.is_known for rate in each):
        return UNKNOWN
    return Rates(
        arriving=sum([rate.arriving for rate in each], 0.0),
        handled=sum([rate.handled for rate in each], 0.0),
        failed=sum([rate.failed for rate in each], 0.0),
        seconds=min((rate.seconds for rate in [rate for rate in each if rate.moves] or each), default=0.0),
        dead=sum([rate.dead for rate in each], 0.0),
        expired=sum([rate.expired for rate in each], 0.0),
        dropped=sum([rate.dropped for rate in each], 0.0),
    )


class SampleHistory:
    """The last samples of one project on one node, at least `apart` ns from one another."""

    __slots__ = ("_apart", "_samples")

    def __init__(self, apart: int) -> None:
        self._apart = max(1, apart)
        self._samples: deque[Sample] = deque(maxlen=_KEPT)

    def add(self, sample: Sample) -> None:
        if not self._samples or sample.at - self._samples[-1].at >= self._apart:
            self._samples.append(sample)

    def note_rest(self, until: int, longest: int = LONGEST) -> None:
        """No counter has changed since the last sample: fill in the samples that would have been taken until then, as
        far as `find_before` uses them.
        """
        if self._samples:
            last = self._samples[-1]
            for at in range(max(last.at + self._apart, until - longest), until + 1, self._apart):
                self._samples.append(last._replace(at=at))

    def find_before(self, now: int, longest: int = LONGEST) -> Sample | None:
        """The oldest sample of the last `longest` ns, if it is old enough to measure from; None if there is none. Older
        samples are dropped.
        """
        samples = self._samples
        while samples and now - samples[0].at > longest:
            samples.popleft()
        return samples[0] if samples and now - samples[0].at >= self._apart else None


class ForecastInput(NamedTuple):
    """The input of a forecast. `deepest` is the number of messages in the largest group, `reason` the reason for which
    most queues wait, `max_group_qps` the highest rate of one group. `grows`: the backlog has grown all the time over
    the last half minute, or nothing has left (engine/core/stats/backlog_trend.py).
    """

    waiting: int
    deepest: int
    rates: Rates
    topic: "Topic | None"
    reason: str | None
    max_group_qps: float
    grows: bool = False


class ResumeForecast(NamedTuple):
    """The forecast for a paused topic once it resumes: the time until no message waits (s), None if never."""

    seconds: float | None
    sentence: str


class QuotaForecast(NamedTuple):
    """The whole QPS that clear a backlog in time; None if none does or none is needed. `flags` are the options of
    `evenlane topics set` for it, empty if no change is needed.
    """

    qps: int | None
    flags: str
    sentence: str


def is_stopped(topic: Topic | None) -> bool:
    """Whether no message is handed out, whatever the quota."""
    return topic is None or topic.state == "paused"


def predict_rate(load: ForecastInput) -> float:
    """The rate (msg/s) at which the backlog will shrink, as far as it can be predicted."""
    topic, measured = load.topic, load.rates.taken
    if topic is None or is_stopped(topic):
        return 0.0
    if load.reason == "quota" and measured * load.rates.seconds < _ENOUGH:
        return topic.qps
    return min(measured, topic.qps)


def predict_end(load: ForecastInput) -> tuple[float | None, str]:
    """The time (s) until no message waits, None if never at this rate (`is_never`) or unknown; and a sentence."""
    arriving, left = load.rates.arriving, predict_rate(load)
    if not load.waiting:
        return 0.0, "nothing waits"
    if load.topic is None:
        return None, "never, as long as it has no topic"
    if load.topic.state == "paused":
        return None, "never, as long as it is paused"
    if not load.rates.is_known:
        return None, f"not known yet: {load.waiting:,} wait, and {MEASURED_AGAIN}"
    flow = f"{load.waiting:,} wait, {_rate(arriving)} arrive and {_rate(left)} are taken"
    seconds = load.waiting / (left - arriving) if left > arriving else math.inf
    if math.isfinite(seconds):
        return seconds, f"gone in {format_spoken(seconds)} at this rate: {flow}"
    unclear = f"not known: {flow}, but the backlog has not grown all the time over the last half minute"
    return None, f"never at this rate: {flow}" if load.grows else unclear


def is_never(load: ForecastInput) -> bool:
    """Whether the backlog will never be gone, unless something changes."""
    if not load.waiting:
        return False
    if is_stopped(load.topic):
        return True
    return load.rates.is_known and load.grows and predict_rate(load) <= load.rates.arriving


def predict_resumption(load: ForecastInput, deleted: bool = False) -> ResumeForecast | None:
    """The effect that a paused topic's quota would have on its backlog; None if the topic isn't paused, nothing waits,
    or it is unknown.
    """
    topic, arriving = load.topic, load.rates.arriving
    if topic is None or topic.state != "paused" or not load.waiting or not load.rates.is_known:
        return None
    when = "once it is drained" if deleted else "once it is resumed"
    quota = f"its quota of {figure(topic.qps)} QPS"
    if topic.qps <= arriving:
        return ResumeForecast(None, f"{when}, never at {quota}: {_rate(arriving)} arrive")
    alone = load.max_group_qps if topic.borrow else min(load.max_group_qps, topic.qps / topic.groups)
    seconds = max(load.waiting / (topic.qps - arriving), load.deepest / alone)
    return ResumeForecast(seconds, f"{when}, gone in {format_spoken(seconds)} at {quota}, if nothing else holds it up")


def clears(load: ForecastInput, within: float) -> QuotaForecast:
    """The quota with which no message waits after `within` seconds (more than 0)."""
    topic, time = load.topic, format_spoken(within)
    if not load.waiting:
        return QuotaForecast(None, "", "nothing waits: no other quota is needed")
    if not load.rates.is_known:
        return QuotaForecast(None, "", f"not known yet: {MEASURED_AGAIN}")
    exact = load.rates.arriving + load.waiting / within
    qps = max(1, math.ceil(exact - 1e-9)) if exact <= MOST_QPS else None
    if qps is None:
        return QuotaForecast(None, "", f"no quota that a topic may have ({MOST_QPS:,} QPS) clears it within {time}")
    if load.deepest / within > load.max_group_qps:
        return QuotaForecast(None, "", _too_deep(load, time))
    if topic is not None and qps <= topic.qps:
        return QuotaForecast(
            qps, "", f"the quota of {figure(topic.qps)} QPS is enough to clear it within {time}{_but(load)}"
        )
    flags = f"--qps {qps}{_further_options(load, qps, within)}"
    return QuotaForecast(qps, flags, f"{qps:,} QPS would clear it within {time}{_but(load)}")


def explain_roughness(rates: Rates) -> str:
    """The end of a sentence about a quota: how rough it is, if the rates were measured over less than a minute."""
    if rates.seconds >= _STEADY_S:
        return ""
    return f", from only {max(1, round(rates.seconds))} s of measurements; ask again in a minute"


def _too_deep(load: ForecastInput, time: str) -> str:
    return (
        f"no quota clears it within {time}: one group holds {load.deepest:,} messages and may have"
        f" at most {figure(load.max_group_qps)} QPS, which takes {format_spoken(load.deepest / load.max_group_qps)}"
    )


def _further_options(load: ForecastInput, qps: int, within: float) -> str:
    """The further options needed: as many groups as the rate needs, and borrowing if one group has most of
    the backlog.
    """
    topic = load.topic
    if topic is None:
        return ""
    groups = " --groups default" if qps / topic.groups > load.max_group_qps else ""
    alone = not topic.borrow and load.deepest / within > qps / topic.groups
    return groups + (" --borrow" if alone else "")


def _but(load: ForecastInput) -> str:
    if load.topic is not None and load.topic.state == "paused":
        return ", once it is resumed"
    if load.reason in {None, "quota", "not_due", "paused"}:
        return ""
    return f", but most of it waits for {load.reason}, which a quota doesn't change"


def _rate(rate: float) -> str:
    return f"{figure(round(rate, 0 if rate >= 100 else 2))}/s"


def figure(number: float) -> str:
    """A rate as people write it: 0.05, 100, 1,000,000."""
    return f"{number:,.10g}"


_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def format_spoken(seconds: float) -> str:
    """A duration in at most two units, as people say it: `3m 20s`, `0.4s`."""
    if seconds < 9.95:
        return f"{seconds:.{1 if seconds >= 0.95 else 2}f}".rstrip("0").rstrip(".") + "s"
    left = round(seconds)
    words: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or words:
            words.append((count, unit))
        if len(words) == 2:
            break
    return " ".join(f"{count}{unit}" for count, unit in words if count)
