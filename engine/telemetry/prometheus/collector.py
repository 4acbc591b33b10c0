"""Converts a snapshot to Prometheus metric families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from evenlane.engine.core.stats.histogram import BOUNDS_S
from evenlane.engine.telemetry import metric_names
from evenlane.engine.telemetry.prometheus.node_families import node_families
from evenlane.engine.telemetry.prometheus.tenant_families import tenant_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.core import Metric

    from evenlane.engine.core.stats.histogram import BucketCounts
    from evenlane.engine.telemetry.prometheus.snapshot import Snapshot

_LES = [*map(floatToGoString, BOUNDS_S), "+Inf"]
_PROCESS = ProcessCollector(registry=None)


def families(seen: Snapshot) -> Iterator[Metric]:
    """Yield all families. Thread-safe."""
    for family in _own_families(seen):
        if seen.subscription:
            _add_subscription(family, seen.subscription)
        yield family
    yield from _PROCESS.collect()


def _add_subscription(family: Metric, subscription: str) -> None:
    """Add the label `subscription` to all samples, unless they have one. To Prometheus, an empty label is an absent
    one, so the unnamed subscription has none.
    """
    family.samples = [
        sample._replace(labels={"subscription": subscription, **sample.labels}) for sample in family.samples
    ]


def _own_families(seen: Snapshot) -> Iterator[Metric]:
    yield from tenant_families(seen)
    yield _histogram(seen, metric_names.DWELL, "How long messages waited until their handler was started", seen.dwell)
    yield _histogram(seen, metric_names.HANDLING, "How long handlers took; a batch is one", seen.handling)
    yield from node_families(seen)


def _histogram(seen: Snapshot, name: str, help_text: str, bands: Sequence[BucketCounts]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=["env", "priority"])
    for priority, counted in zip(seen.priorities, bands, strict=False):
        total, buckets = 0, []
        for le, count in zip(_LES, counted.counts, strict=True):
            total += count
            buckets.append((le, total))
        family.add_metric([seen.env, priority], buckets, counted.seconds)
    return family
