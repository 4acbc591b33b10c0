"""Compares what surfaces have shown with what the ledger has counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.figures import different_counts, different_rates

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tests.ledger.flow_loads import FlowLedger
    from tests.ledger.surfaces import Seen
    from tests.support.figures import Figures


def wrong_rates(seen: Seen, ledger: FlowLedger) -> list[str]:
    """Return a sentence for each wrong rate. The quota paces expired messages that are kept as dead letters, so the
    ledger doesn't know when each of them left.
    """
    found = []
    for project, load in ledger.loads.items():
        events = ledger.events(project)
        if load.topic.get("dead_letter_expired"):
            del events["expired"], events["leaving"]
        for surface, measured in seen.rates(project).items():
            found += [f"{project}: {sentence}" for sentence in different_rates(events, surface, measured)]
    return found


def wrong_counts(seen: Seen, ledger: FlowLedger, surfaces: Collection[str]) -> list[str]:
    """Return a sentence for each wrong count of these surfaces."""
    found = []
    for project in ledger.loads:
        shown = {name: figures for name, figures in seen.counts(project).items() if name in surfaces}
        found += [f"{project}: {each}" for each in different_counts(ledger.counts(project), shown)]
    return found


def wrong_attempts(page: Mapping[str, Figures], ledger: FlowLedger, pid: int) -> list[str]:
    """Return a sentence for each wrong counter of attempts in a process's metrics, by what the handlers in it noted."""
    found = []
    for project in ledger.loads:
        expected, shown = ledger.ended_in(project, pid), page.get(project, {})
        found += [f"{project}: no {name} in the metrics" for name in expected if expected[name] and name not in shown]
        found += [f"{project}: {each}" for each in different_counts(expected, {"metrics": shown})]
    return found
