"""Reads what the surfaces of nodes on virtual time show, as tests/ledger/surfaces.py does by HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.admin.overview.client import OverviewClient
from evenlane.engine.admin.why.client import WhyClient
from evenlane.engine.telemetry.prometheus.exposition import TEXT, write_page
from evenlane.engine.telemetry.prometheus.snapshot import snapshot
from tests.ledger.surface_differences import wrong_attempts, wrong_counts, wrong_rates
from tests.ledger.surface_statuses import wrong_words
from tests.ledger.surfaces import Seen, read_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.days.cluster import VirtualCluster
    from tests.ledger.flow_loads import FlowLedger
    from tests.support.figures import Figures

_GAUGES = ("backlog", "in_flight")


class VirtualSurfaces:
    """Compares the overview, which page and `top` show, `why` and metrics with the ledger."""

    def __init__(self, cluster: VirtualCluster, ledger: FlowLedger) -> None:
        self._cluster, self._ledger = cluster, ledger
        etcd = cluster.coordination()
        self._overview = OverviewClient(etcd, cluster.env, cluster.line)
        self._why = WhyClient(etcd, cluster.env, cluster.line)

    async def look(self) -> list[str]:
        """Return a sentence for each wrong rate and status."""
        seen = await self._read()
        unknown = [project for project, why in seen.why.items() if why["rates"]["measured_seconds"] is None]
        if unknown:
            return [f"{project}: why has no rates" for project in unknown]
        return wrong_words(seen, self._ledger.loads) + wrong_rates(seen, self._ledger)

    async def look_at_rest(self) -> list[str]:
        """Return a sentence for each wrong count and status, at a time when nothing comes or ends."""
        seen = await self._read()
        gauges = {
            project: {name: figures[name] for name in _GAUGES if name in figures}
            for project, figures in seen.metrics.items()
        }  # counters are of one process each
        found = wrong_counts(seen._replace(metrics=gauges), self._ledger, ("overview", "why", "metrics"))
        for pid, page in self._pages().items():
            found += wrong_attempts(page, self._ledger, pid)
        return wrong_words(seen, self._ledger.loads) + found

    async def _read(self) -> Seen:
        projects, asked = [*self._ledger.loads], self._cluster.now
        overview, *answers = await asyncio.gather(self._overview.overview(), *map(self._why.why, projects))
        whys = dict(zip(projects, answers, strict=True))
        return Seen.of(asked, self._cluster.now, overview, whys, self._pages().values())

    def _pages(self) -> dict[int, Mapping[str, Figures]]:
        """Return the metrics of each process by project."""
        nodes = self._cluster.nodes
        return {node.pid: read_metrics(write_page(snapshot(node.engine), TEXT).body.decode()) for node in nodes}
