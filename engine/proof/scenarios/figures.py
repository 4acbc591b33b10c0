"""Figures read from traces. Times come in ns and go out in ms or s; a figure that isn't there is None.

Percentiles are by nearest rank among what was served, so each stands beside the share that was served: a starved
system has a fine p99 among the few it served.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.scenarios.trace import NEVER
from evenlane.quota.rates.max_min import fair_shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.proof.scenarios.trace import Trace

Figures = dict[str, float | None]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest of the sorted values that at least this share of them doesn't exceed."""
    if not values:
        return None
    return values[max(0, ceil(share * len(values)) - 1)]


def dwell(trace: Trace, numbers: Iterable[int]) -> Figures:
    """How long these messages were there: from put to start (`wait`), and to the handler's end (`dwell`), in ms;
    and which share of them was handled in the load's time.
    """
    numbers = list(numbers)
    served = [n for n in numbers if trace.handled(n)]
    waits = sorted((trace.started[n] - trace.put[n]) / MILLISECOND for n in served)
    stays = sorted((trace.ended[n] - trace.put[n]) / MILLISECOND for n in served)
    return {
        "wait_p50_ms": percentile(waits, 0.5),
        "wait_p99_ms": percentile(waits, 0.99),
        "wait_max_ms": waits[-1] if waits else None,
        "dwell_p50_ms": percentile(stays, 0.5),
        "dwell_p99_ms": percentile(stays, 0.99),
        "dwell_max_ms": stays[-1] if stays else None,
        "offered": len(numbers),
        "served": len(served) / len(numbers) if numbers else None,
    }


def since(trace: Trace, numbers: Iterable[int], start: int) -> list[int]:
    """Those of the messages that the load plans at or after `start` ns."""
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
    """What each tenant got over what max-min fairness by weight gives it, of the slot time that was used in
    [start, end) ns. A tenant's demand is what it has offered before `end`, and not had before `start`. The tenant `but`
    is looked past, and what it had.
    """
    load = trace.load
    wanted = [n for n, tenant in enumerate(load.tenant) if load.tenants[tenant].name != but]
    return _shares(trace, start, end, wanted, [each.topic.weight for each in load.tenants])


def shares_on_nodes(trace: Trace, start: int, end: int, but: str = "") -> list[float]:
    """The same on each node by itself: of what was used there, by the part of each weight that is the node's."""
    load, where = trace.load, trace.where
    parts = [[len(groups) for groups in where.groups_of(each)] for each in load.tenants]
    place = {(t, g): where.node_of(load.tenants[t], g) for t, g in set(zip(load.tenant, load.group, strict=True))}
    wanted: list[list[int]] = [[] for _ in range(where.nodes)]
    for n, key in enumerate(zip(load.tenant, load.group, strict=True)):
        if load.tenants[key[0]].name != but:
            wanted[place[key]].append(n)
    found: list[float] = []
    for node, numbers in enumerate(wanted):
        own = zip(load.tenants, parts, strict=True)
        weights = [each.topic.weight * part[node] / each.topic.groups or 1.0 for each, part in own]
        found += _shares(trace, start, end, numbers, weights)
    return found


def _shares(trace: Trace, start: int, end: int, numbers: Iterable[int], weights: Sequence[float]) -> list[float]:
    """Of these messages; tenants who want nothing are left out."""
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
    starts = sorted(trace.started[n] for n in numbers if trace.started[n] != NEVER)
    worst = first = 0
    for last, at in enumerate(starts):
        while starts[first] <= at - length:
            first += 1
        worst = max(worst, last - first + 1)
    return worst


def ratio(above: float | None, below: float | None) -> float | None:
    """None if either isn't there, or nothing is below."""
    return above / below if above is not None and below else None
