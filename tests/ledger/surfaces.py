"""Reads what each surface shows of projects: overview, `why` and metrics of nodes by HTTP, and meter records."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from evenlane.engine.base.clock import now_ns
from evenlane.engine.telemetry import metric_names
from tests.support.figures import Figures, Measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.ledger.process import NodeProcess
    from tests.ledger.world import ProcessWorld

RATES = ("arriving", "leaving", "handled", "failed", "dead", "expired")
_METRICS = {
    metric_names.ARRIVED: "arrived",
    metric_names.ATTEMPTS: "attempts",
    metric_names.BACKLOG: "backlog",
    metric_names.IN_FLIGHT: "in_flight",
    metric_names.ARRIVAL_RATE: "arriving",
    metric_names.DRAIN_RATE: "leaving",
}
_SHOWN_RATES = ("arriving", "leaving")  # of the metrics, which have counters for the others
_OLDEST = "oldest_seconds"
_ABSENT: dict[str, Any] = {"backlog": 0, "in_flight": 0, _OLDEST: None, **dict.fromkeys(RATES, 0.0)}
"""What the overview says of a project of which no node has a queue: it leaves it out."""
_ROUND_S = 1.5  # two surfaces may show two rounds of a node


class Seen(NamedTuple):
    """What surfaces showed between `asked` and `answered` (ns since boot): the documents of the overview and of `why`
    by project, and figures of metrics by project.
    """

    asked: int
    answered: int
    overview: dict[str, dict[str, Any]]
    why: dict[str, dict[str, Any]]
    metrics: dict[str, Figures]

    @classmethod
    def of(
        cls,
        asked: int,
        answered: int,
        overview: dict[str, Any],
        why: dict[str, dict[str, Any]],
        pages: Iterable[Mapping[str, Figures]],
    ) -> Seen:
        """`overview` is the whole document; `pages` are the metrics of each node, by project."""
        metrics: dict[str, Figures] = {project: {} for project in why}
        for page in pages:
            for project in why:
                add(metrics[project], page[project])
        tenants = dict.fromkeys(why, _ABSENT) | {tenant["project"]: tenant for tenant in overview["tenants"]}
        return cls(asked, answered, tenants, why, metrics)

    def counts(self, project: str) -> dict[str, Figures]:
        """Return a project's counts by surface."""
        tenant, why, none = self.overview[project], self.why[project], {"backlog": 0.0, "in_flight": 0.0}
        delayed = sum(part["delayed"] for part in why["priorities"])
        return {
            "overview": {name: tenant[name] for name in none},
            "why": {**{name: why[name] for name in none}, "delayed": delayed},
            "metrics": {
                name: value for name, value in self.metrics[project].items() if name not in (*_SHOWN_RATES, _OLDEST)
            },
        }

    def rates(self, project: str) -> dict[str, Measured]:
        """Return a project's rates by surface. Fails if `why` doesn't know them."""
        why, tenant = self.why[project]["rates"], self.overview[project]
        seconds = why["measured_seconds"]
        assert seconds is not None, why["sentence"]
        shown = {
            "why": {name: why[name] for name in RATES},
            "overview": {name: tenant[name] for name in RATES},
            "metrics": {name: value for name, value in self.metrics[project].items() if name in _SHOWN_RATES},
        }
        about = [length for length in (seconds - _ROUND_S, seconds, seconds + _ROUND_S) if length > 0]
        return {
            name: Measured(rates, self.asked, self.answered, [seconds] if name == "why" else about)
            for name, rates in shown.items()
        }

    def ages(self, project: str) -> dict[str, float | None]:
        """Return the age of a project's oldest message by surface, in seconds."""
        metrics = self.metrics[project].get(_OLDEST)
        return {"overview": self.overview[project][_OLDEST], "why": self.why[project][_OLDEST], "metrics": metrics}

    def answers(self, project: str) -> dict[str, dict[str, Any]]:
        """Return a project's document by surface, of those that say its status."""
        known = {"overview": self.overview[project], "why": self.why[project]}
        return {name: document for name, document in known.items() if document is not _ABSENT}


class Surfaces:
    """`async with Surfaces(world, nodes) as surfaces:` asks nodes by HTTP. `nodes` may be changed."""

    def __init__(self, world: ProcessWorld, nodes: Sequence[NodeProcess]) -> None:
        self._world, self.nodes = world, list(nodes)

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def read(self, *projects: str) -> Seen:
        """Read all surfaces at once."""
        asked = now_ns()
        first = await self._address(self.nodes[0])
        overview, pages, *answers = await asyncio.gather(
            self._json(f"{first}/api/overview"),
            asyncio.gather(*(self.metrics_of(node) for node in self.nodes)),
            *(self._json(f"{first}/api/why/{project}") for project in projects),
        )
        return Seen.of(asked, now_ns(), overview, dict(zip(projects, answers, strict=True)), pages)

    async def metrics_of(self, node: NodeProcess) -> defaultdict[str, Figures]:
        """Return one node's metrics by project."""
        async with self._client.get(f"{await self._address(node)}/metrics") as response:
            return read_metrics(await response.text())

    async def _address(self, node: NodeProcess) -> str:
        address = await self._world.address(node.name)
        assert address is not None
        return address

    async def _json(self, url: str) -> Any:
        async with self._client.get(url) as response:
            assert response.status == 200, f"{url}: {response.status}: {await response.text()}"
            return await response.json()


def read_metrics(page: str) -> defaultdict[str, Figures]:
    """Return figures by project, summed over priorities."""
    found: defaultdict[str, Figures] = defaultdict(dict)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == metric_names.OUTCOMES:
                name = sample.labels["outcome"]
            elif sample.name == metric_names.OLDEST:
                name = _OLDEST
            elif sample.name in _METRICS:
                name = _METRICS[sample.name]
            else:
                continue
            add(found[sample.labels["project"]], {name: sample.value})
    return found


def add(figures: Figures, more: Figures) -> None:
    """Add figures of another node or priority: the sum, or the larger age."""
    for name, value in more.items():
        before = figures.get(name, 0.0)
        figures[name] = max(before, value) if name == _OLDEST else before + value
