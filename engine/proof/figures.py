"""Figures: pure functions from traces and handler records to numbers. A missing figure is None.

Times go in as ns and come out as ms or s. Percentiles are of the served messages, so each is shown with the share that
was served: a starved system has a good p99 among the few messages that it served.
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import TYPE_CHECKING

from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.load.trace import NEVER
from evenlane.quota.rates.max_min import fair_shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.proof.cluster.records import HandlerRecord
    from evenlane.engine.proof.load.trace import Trace

Figures = dict[str, float | None]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest rank: the smallest of the sorted values that at least this share of them doesn't exceed."""
    if not values:
        return None
    return values[max(0, ceil(share * len(values)) - 1)]


def spread(values: Iterable[float], name: str) -> Figures:
    """The median, p99 and maximum of values in ms."""
    found = sorted(values)
    return {
        f"{name}_p50_ms": percentile(found, 0.5),
        f"{name}_p99_ms": percentile(found, 0.99),
        f"{name}_max_ms": found[-1] if found else None,
    }


def count_most_within(times: Iterable[int], length: int = SECOND) -> int:
    """The most of these instants within any half-open window of `length` ns."""
    ordered = sorted(times)
    most = first = 0
    for last, at in enumerate(ordered):
        while ordered[first] <= at - length:
            first += 1
        most = max(most, last - first + 1)
    return most


def ratio(above: float | None, below: float | None) -> float | None:
    """Divide two figures. None if either is missing, or if the divisor is 0."""
    return above / below if above is not None and below else None


# ---- of traces


def dwell(trace: Trace, numbers: Iterable[int]) -> Figures:
    """The time of these messages from put to start (`wait`) and to the handler's end (`dwell`), in ms, and the share of
    them that was handled in the load's time.
    """
    numbers = list(numbers)
    served = [n for n in numbers if trace.was_handled(n)]
    return {
        **spread(((trace.started[n] - trace.put[n]) / MILLISECOND for n in served), "wait"),
        **spread(((trace.ended[n] - trace.put[n]) / MILLISECOND for n in served), "dwell"),
        "offered": len(numbers),
        "served": len(served) / len(numbers) if numbers else None,
    }


def filter_since(trace: Trace, numbers: Iterable[int], start: int) -> list[int]:
    """The messages among these that the load plans at or after `start` ns."""
    return [n for n in numbers if trace.load.at[n] >= start]


def busy(trace: Trace, start: int, end: int, numbers: Iterable[int] | None = None) -> float:
    """Slot time in [start, end) ns that went to these messages (None: all), in s."""
    total = 0
    for n in range(len(trace.load)) if numbers is None else numbers:
        began = trace.started[n]
        if began != NEVER:
            ended = trace.ended[n] if trace.ended[n] != NEVER else end
            total += max(0, min(end, ended) - max(start, began))
    return total / SECOND


def utilisation(trace: Trace, slots: int, start: int, end: int) -> float:
    """Busy slot time over all slot time in [start, end) ns."""
    return busy(trace, start, end) * SECOND / (slots * (end - start))


def shares(trace: Trace, start: int, end: int, but: str = "") -> list[float]:
    """Each tenant's share of the slot time used in [start, end) ns, over the share that weighted max-min fairness gives
    it.

    A tenant's demand is the messages that it has offered before `end` and that were not handled before `start`. The
    tenant `but` and its slot time are left out.
    """
    load = trace.load
    included = [n for n, tenant in enumerate(load.tenant) if load.tenants[tenant].name != but]
    return _shares(trace, start, end, included, [each.topic.weight for each in load.tenants])


def shares_on_nodes(trace: Trace, start: int, end: int, but: str = "") -> list[float]:
    """The same ratios on each node separately, with the node's part of each weight."""
    load, where = trace.load, trace.where
    parts = [[len(groups) for groups in where.groups_of(each)] for each in load.tenants]
    place = {(t, g): where.node_of(load.tenants[t], g) for t, g in set(zip(load.tenant, load.group, strict=True))}
    by_node: list[list[int]] = [[] for _ in range(where.nodes)]
    for n, key in enumerate(zip(load.tenant, load.group, strict=True)):
        if load.tenants[key[0]].name != but:
            by_node[place[key]].append(n)
    found: list[float] = []
    for node, numbers in enumerate(by_node):
        own = zip(load.tenants, parts, strict=True)
        weights = [each.topic.weight * part[node] / each.topic.groups or 1.0 for each, part in own]
        found += _shares(trace, start, end, numbers, weights)
    return found


def _shares(trace: Trace, start: int, end: int, numbers: Iterable[int], weights: Sequence[float]) -> list[float]:
    """The shares, counting these messages; tenants without demand are left out."""
    got, demand = [0.0] * len(weights), [0.0] * len(weights)
    for n in numbers:
        tenant = trace.load.tenant[n]
        began, ended = trace.started[n], trace.ended[n]
        if trace.load.at[n] < end and (NEVER in (began, ended) or ended > start):
            demand[tenant] += trace.load.service[n] / SECOND
            if began != NEVER:
                got[tenant] += max(0, min(end, ended if ended != NEVER else end) - max(start, began)) / SECOND
    fair = fair_shares(sum(got), weights, demand)
    return [has / due for has, due in zip(got, fair, strict=True) if due > 0]


def worst_window(trace: Trace, numbers: Iterable[int], length: int = SECOND) -> int:
    """The most of these messages that started within any half-open window of `length` ns."""
    return count_most_within((at for n in numbers if (at := trace.started[n]) != NEVER), length)


# ---- of what the handlers of a cluster wrote: times are ns since boot, put and due times unix ns, and `offset` is what
# has to be added to unix ns to get ns since boot


def begins(records: Iterable[HandlerRecord], project: str = "") -> list[HandlerRecord]:
    """The begins of projects whose names start with `project`, in order of time."""
    found = (record for record in records if record.began and record.project.startswith(project))
    return sorted(found, key=lambda record: record.at)


def waits(begun: Iterable[HandlerRecord], start: int, end: int, offset: int) -> list[float]:
    """From put to the first begin, ms, sorted, of messages put in [start, end); `begun` in order of time."""
    found: dict[tuple[int, str, int], float] = {}
    for record in begun:
        if start <= record.put + offset < end:
            found.setdefault(record.message, (record.at - record.put - offset) / MILLISECOND)
    return sorted(found.values())


def count_begun_again(records: Iterable[HandlerRecord]) -> int:
    """Begins of messages that had begun before."""
    counts = Counter(record.message for record in records if record.began)
    return counts.total() - len(counts)
