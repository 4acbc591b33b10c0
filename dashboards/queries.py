"""PromQL, put together from the names of the metrics; `$...` are the variables of a dashboard."""

from __future__ import annotations

from evenlane.engine.telemetry import metric_names

ENVIRONMENT = 'env="$env"'
NODES = f'{ENVIRONMENT},instance=~"$instance"'
"""The series of the nodes that are looked at."""

PROJECTS = 'project=~"$project"'
PRIORITIES = 'priority=~"$priority"'


def series(name: str, *matchers: str) -> str:
    """Of the nodes that are looked at."""
    return _selected(name, NODES, *matchers)


def of_env(name: str, *matchers: str) -> str:
    """Of all nodes, whichever are looked at; what a recording rule made is never of one."""
    return _selected(name, ENVIRONMENT, *matchers)


def rate(name: str, *matchers: str) -> str:
    return f"rate({series(name, *matchers)}[$__rate_interval])"


def increase(name: str, *matchers: str, over: str = "$__range") -> str:
    """By how much a counter rose: over the time range of the dashboard, or between two points of a panel."""
    return f"increase({series(name, *matchers)}[{over}])"


def _selected(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join(matchers)}}}"


def total(expr: str, *by: str) -> str:
    return aggregated("sum", expr, *by)


def most(expr: str, *by: str) -> str:
    return aggregated("max", expr, *by)


def least(expr: str, *by: str) -> str:
    return aggregated("min", expr, *by)


def aggregated(operator: str, expr: str, *by: str) -> str:
    return f"{operator} by ({', '.join(by)}) ({expr})" if by else f"{operator}({expr})"


def or_zero(expr: str) -> str:
    """Nothing is shown as 0 rather than as "no data". Only for what has no labels."""
    return f"{expr} or vector(0)"


def over(numerator: str, denominator: str) -> str:
    """A share, where there is something to have a share of."""
    return f"{numerator} / ({denominator} > 0)"


def quantile(q: float, histogram: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
    buckets = rate(f"{histogram}_bucket", *matchers)
    return f"histogram_quantile({q}, {total(buckets, 'le', *by)})"


def in_each_span(name: str, *matchers: str) -> str:
    """By how much a counter rose between two points of a panel, so that the bars of a panel add up."""
    return increase(name, *matchers, over="$__interval")


def named(expr: str) -> str:
    """With the label `node`, which reads better than an address; `expr` has one series for each instance."""
    return f"{expr} * on (env, instance) group_left (node) {series(metric_names.NODE)}"


def among(expr: str, few: str, *on: str) -> str:
    """Those of `expr` that are among `few`."""
    return f"{expr} and on ({', '.join(on)}) {few}"


def capped(expr: str, cap: float) -> str:
    return f"clamp_max({expr}, {cap})"


COMPETES = 'reason=~"fairness|handlers_busy|headroom"'
"""A head that waits for one of these waits because of other projects."""

ENDED = 'outcome=~"handled|retried|dead"'
"""How attempts end; dead are also messages that expired and are kept, and those that killed their process."""

# What prometheus-client tells of each process; it knows no environment.
PROCESS_CPU = "process_cpu_seconds_total"
PROCESS_MEMORY = "process_resident_memory_bytes"
PROCESS_BEGAN = "process_start_time_seconds"
