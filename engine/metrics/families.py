"""What is measured, as Prometheus' metric families."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from engine.metrics import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from engine.metrics.flows import Flow
    from engine.metrics.standing import Standing
    from engine.metrics.tenants import Place, Tenants
    from engine.metrics.waits import Key

_TENANT = ["env", "project", "priority"]


class Snapshot(NamedTuple):
    """What stood at one moment: nothing of it changes while it is written down. `refusals` counts by where."""

    env: str
    priorities: tuple[str, ...] = ()
    table: Mapping[Place, Standing] = {}
    counted: Mapping[Place, Flow] = {}
    seconds: Mapping[Key, float] = {}
    message_seconds: Mapping[Key, float] = {}
    left_out: int = 0
    round_s: float = 0.0
    refused: int = 0
    refusals: Mapping[str, int] = {}


def snapshot(env: str, tenants: Tenants | None, *, refused: int, refusals: Mapping[str, int]) -> Snapshot:
    """On the loop, where all this is kept: copies cost little, writing them down costs more."""
    if tenants is None:
        return Snapshot(env, refused=refused, refusals=refusals)
    return Snapshot(
        env, tenants.priorities, tenants.table.copy(), tenants.counted.copy(),
        tenants.waits.seconds.copy(), tenants.waits.message_seconds.copy(), tenants.left_out, tenants.round_s,
        refused, refusals,
    )  # fmt: skip


def families(seen: Snapshot) -> Iterator[Metric]:
    """In any thread."""
    yield from _waits(seen)
    yield from _counters(seen)
    yield from _gauges(seen)
    yield _one(seen, names.PROJECTS_LEFT_OUT, "Projects that share the label of the rest", seen.left_out)
    yield _one(seen, names.ROUND, "How long the last look at all queues took", seen.round_s)
    yield _one(seen, names.TOPICS_REFUSED, "Wishes that the leader refuses now: the last good ones stay", seen.refused)
    refusals = CounterMetricFamily(
        names.TOPIC_REFUSALS, "Values of topics that were found not to be valid", labels=["env", "where"]
    )
    for where, count in seen.refusals.items():
        refusals.add_metric([seen.env, where], count)
    yield refusals


def _one(seen: Snapshot, name: str, told: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, told, labels=["env"])
    family.add_metric([seen.env], value)
    return family


def _waits(seen: Snapshot) -> Iterator[Metric]:
    labels = [*_TENANT, "reason"]
    for name, told, counters in (
        (names.WAITING_SECONDS, "Time that heads of queues waited, by reason, added up over queues", seen.seconds),
        (names.WAITING_MESSAGE_SECONDS, "The same, times the messages in these queues", seen.message_seconds),
    ):
        family = CounterMetricFamily(name, told, labels=labels)
        for key, seconds in counters.items():
            family.add_metric([seen.env, key.label, seen.priorities[key.band], key.reason], seconds)
        yield family
    now = GaugeMetricFamily(names.WAITING_QUEUES, "Queues whose head waits for this reason", labels=labels)
    for (label, band), standing in seen.table.items():
        for reason, queues in standing.reasons.items():
            now.add_metric([seen.env, label, seen.priorities[band], reason], queues)
    yield now


def _counters(seen: Snapshot) -> Iterator[Metric]:
    for number, (name, told) in enumerate((
        (names.ARRIVED, "Messages that came in; a retry, a message that is due and a backlog taken over come in, too"),
        (names.HANDLED, "Messages handled"),
        (names.FAILED, "Attempts that failed, and messages that expired"),
    )):  # fmt: skip
        family = CounterMetricFamily(name, told, labels=_TENANT)
        for (label, band), flow in seen.counted.items():
            family.add_metric([seen.env, label, seen.priorities[band]], flow[number])
        yield family


def _gauges(seen: Snapshot) -> Iterator[Metric]:
    told: tuple[tuple[str, str, Callable[[Standing], float | None]], ...] = (
        (names.BACKLOG, "Messages that wait, without those that aren't due", lambda each: each.backlog),
        (names.IN_FLIGHT, "Messages that are handled now, or are about to be", lambda each: each.in_flight),
        (names.OLDEST, "For how long the oldest message has waited", lambda each: each.age_s),
        (names.ARRIVAL_RATE, "Messages a second that arrive", lambda each: each.rates.arriving if each.rates else None),
        (names.DRAIN_RATE, "Messages a second that leave", lambda each: each.rates.leaving if each.rates else None),
        (names.TIME_TO_EMPTY, "When nothing waits here any more, at this rate", lambda each: each.empty_in),
    )
    for name, help_, value_of in told:
        family = GaugeMetricFamily(name, help_, labels=_TENANT)
        for (label, band), standing in seen.table.items():
            if (value := value_of(standing)) is not None:
                family.add_metric([seen.env, label, seen.priorities[band]], value)
        yield family
