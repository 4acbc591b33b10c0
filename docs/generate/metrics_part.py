"""The list of all metrics in docs/reference/metrics.md: the families that a node serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markup import table

from evenlane.engine.control.subscriptions.subscription_monitor import RunningNodes
from evenlane.engine.telemetry.node_health import Condition
from evenlane.engine.telemetry.prometheus.collector import families
from evenlane.engine.telemetry.prometheus.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIXES = {"counter": "_total", "info": "_info"}
_LABELS_OF_INFO = ("node", "version")


def made() -> str:
    return table(("metric", "type", "labels besides `env`", "HELP"), sorted(_rows()))


def _rows() -> Iterator[tuple[str, str, str, str]]:
    """Without those of the process, which are prometheus-client's own."""
    empty = dict.fromkeys(Condition._fields, 0) | {"epochs": {}, "positions": {}}
    for family in families(
        Snapshot(
            "online",
            "node",
            "0",
            condition=Condition(**empty),
            desired_nodes=0,
            subscriptions=(RunningNodes("", "active", 1),),
        )
    ):
        if family.name.startswith("process_"):
            continue
        labels = family._labelnames + (_LABELS_OF_INFO if family.type == "info" else ())
        named = ", ".join(f"`{label}`" for label in labels if label != "env")
        yield f"`{family.name}{_SUFFIXES.get(family.type, '')}`", family.type, named, family.documentation
