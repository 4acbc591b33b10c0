"""PromQL expressions, built from the metric names; `$...` are a dashboard's variables."""

from __future__ import annotations

from evenlane.engine.telemetry import metric_names

CLUSTER = 'env="$env",subscription=~"$subscription"'
"""Selects the series of one subscription of an environment."""

NODES = f'{CLUSTER},instance=~"$instance"'
"""Selects the series of the chosen nodes."""

PROJECTS = 'project=~"$project"'
PRIORITIES = 'priority=~"$priority"'


def series(name: str, *matchers: str) -> str:
    """Select the series of the chosen nodes."""
    return _select(name, NODES, *matchers)


def of_env(name: str, *matchers: str) -> str:
    """Select the series of all nodes, whichever are chosen. Results of recording rules belong to no node."""
    return _select(name, CLUSTER, *matchers)


def rate(name: str, *matchers: str) -> str:
    return f"rate({series(name, *matchers)}[$__rate_interval])"


def increase(name: str, *matchers: str, over: str = "$__range") -> str:
    """Return the increase of a counter, over the dashboard's time range by default."""
    return f"increase({series(name, *matchers)}[{over}])"


def _select(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join(matchers)}}}"


def total(expr: str, *by: str) -> str:
    return aggregate("sum", expr, *by)


def most(expr: str, *by: str) -> str:
    return aggregate("max", expr, *by)


def least(expr: str, *by: str) -> str:
    return aggregate("min", expr, *by)


def aggregate(operator: str, expr: str, *by: str) -> str:
    return f"{operator} by ({', '.join(by)}) ({expr})" if by else f"{operator}({expr})"


def or_zero(expr: str) -> str:
    """Show 0 instead of "no data" while a node is scraped. Only for expressions without labels."""
    return f"{expr} or 0 * count({series(metric_names.ROUND)})"


def or_always_zero(expr: str) -> str:
    """Show 0 instead of "no data", also if no node is scraped: for the number of nodes or alerts."""
    return f"{expr} or vector(0)"


def over(numerator: str, denominator: str) -> str:
    """Divide, where the denominator is above 0."""
    return f"{numerator} / ({denominator} > 0)"


def quantile(q: float, histogram: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
    buckets = rate(f"{histogram}_bucket", *matchers)
    return f"histogram_quantile({q}, {total(buckets, 'le', *by)})"


def in_each_span(name: str, *matchers: str) -> str:
    """Return the increase of a counter between two points of a panel, so that the bars of a panel add up."""
    return increase(name, *matchers, over="$__interval")


def add_node_name(expr: str) -> str:
    """Add the label `node`, which reads better than an address; `expr` has one series per instance."""
    return f"{expr} * on (env, instance) group_left (node) {series(metric_names.NODE)}"


def among(expr: str, few: str, *on: str) -> str:
    """Filter `expr` to the series that are in `few`."""
    return f"{expr} and on ({', '.join(on)}) {few}"


def clamp(expr: str, cap: float) -> str:
    return f"clamp_max({expr}, {cap})"


COMPETES = 'reason=~"fairness|handlers_busy|headroom"'
"""Wait reasons that are caused by other projects."""

ENDED = 'outcome=~"handled|retried|dead"'
"""Outcomes of attempts; `dead` includes messages that crashed their process."""

# Metrics that prometheus-client adds for each process, without an environment.
PROCESS_CPU = "process_cpu_seconds_total"
PROCESS_MEMORY = "process_resident_memory_bytes"
PROCESS_BEGAN = "process_start_time_seconds"
