"""Loads on real nodes, and the differences between what surfaces show and what the ledger has counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.ledger.flow_loads import FlowLoad
from tests.ledger.meter import meter_bodies
from tests.ledger.surface_differences import wrong_attempts, wrong_counts, wrong_rates
from tests.support.figures import Figures, different_counts
from tests.support.meter_totals import Totals, rows, totals
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.ledger.flow_loads import FlowLedger
    from tests.ledger.process import NodeProcess
    from tests.ledger.surfaces import Seen, Surfaces
    from tests.ledger.world import ProcessWorld

SECOND = 1_000_000_000
_TTL_S = 1.0
_AGE_S = 5.0  # the look of a node that is a few seconds late
_BRIEF = {"qps": 20, "ttl": _TTL_S}

LOADS = (
    FlowLoad("steady", rate=50),
    FlowLoad("burst", at_once=300),
    FlowLoad("failing", rate=20, orders=("fail 9",)),
    FlowLoad("third", rate=30, orders=("", "", "fail 1")),
    FlowLoad("ordered", rate=30, orders=("", "", "fail 1"), topic={"ordered": True}, keys=1000),
    FlowLoad("over", rate=60, topic={"qps": 20}, unbegun="backlog"),
    FlowLoad("brief", rate=60, topic=_BRIEF, unbegun="expired"),
    FlowLoad("kept", rate=30, topic={**_BRIEF, "dead_letter_expired": True}, unbegun="expired"),
    FlowLoad("paused", at_once=40, topic={"state": "paused"}),
    FlowLoad("due", at_once=30, delay_s=2.0, topic={"state": "paused"}),
    FlowLoad("soon", at_once=40, delay_s=3.0),
    FlowLoad("later", at_once=20, delay_s=240.0),
    FlowLoad("drained", at_once=100, topic={"qps": 2}),
    FlowLoad("gone", rate=40),
    FlowLoad("deleted", rate=60, topic={"qps": 20}),
)


class SurfaceWorld:
    """A world with the loads' topics, and what surfaces and ledger say of them."""

    def __init__(self, world: ProcessWorld, ledger: FlowLedger, surfaces: Surfaces) -> None:
        self.world, self.ledger, self.surfaces = world, ledger, surfaces
        self.projects = [*ledger.loads]
        self.topics = {load.project: dict(load.topic) for load in ledger.loads.values()}

    async def make_topics(self, **fields: object) -> None:
        """Write all topics, with these fields besides their own."""
        await asyncio.gather(*(self.world.topics(name, **{**own, **fields}) for name, own in self.topics.items()))

    async def quicken(self, *projects: str) -> None:
        """Let the backlogs of these go at once."""
        for project in projects:
            await self.world.topics(project, **{**self.topics[project], "qps": 100_000, "weight": 2})

    async def read(self) -> Seen:
        return await self.surfaces.read(*self.projects)

    async def measured(self, seconds: float) -> Seen:
        """Wait until the rates of all projects are over at least `seconds`."""

        async def known() -> Seen | None:
            seen = await self.read()
            lengths = [why["rates"]["measured_seconds"] or 0.0 for why in seen.why.values()]
            return seen if min(lengths) >= seconds else None

        seen = await until(known, 90, f"rates over {seconds:g} s")
        assert seen is not None
        return seen

    def wrong_rates(self, seen: Seen) -> list[str]:
        """Return a sentence for each wrong rate."""
        return wrong_rates(seen, self.ledger)

    def wrong_ages(self, seen: Seen) -> list[str]:
        """Return a sentence for each age that isn't that of the first message due: of a project in which none begin."""
        found = []
        for project in ("paused", "due"):
            first = min(put.arrives for put in self.ledger.puts[project])
            oldest = (seen.answered - first) / SECOND
            for surface, age in seen.ages(project).items():
                if age is None or not oldest - _AGE_S - (seen.answered - seen.asked) / SECOND <= age <= oldest + 0.5:
                    found.append(f"{project}: {surface} has {age}, and the ledger {oldest:.1f} s")
        return found

    async def at_rest(self, *surfaces: str) -> None:
        """Wait until nothing runs, and until all surfaces then have the ledger's counts."""
        ledger = self.ledger
        await until(lambda: all(ledger.is_at_rest(project) for project in self.projects), 120, "rest")
        wrong: list[str] = ["nothing was read"]

        async def agree() -> bool:
            wrong[:] = await self.wrong_counts(surfaces)
            return not wrong

        try:
            await until(agree, 60, "all surfaces to have the ledger's counts")
        except AssertionError:
            raise AssertionError("\n".join(wrong)) from None
        assert [] == await self.wrong_counts(surfaces)  # and it stays so

    async def wrong_counts(self, surfaces: Collection[str]) -> list[str]:
        """Return a sentence for each wrong count of these surfaces, and of the meter records."""
        found = wrong_counts(await self.read(), self.ledger, surfaces)
        records = rows(await meter_bodies(self.world))
        for project in self.projects:
            shown = {"records": _counts(totals(records, project))}
            found += [f"{project}: {each}" for each in different_counts(self.ledger.counts(project), shown)]
        return found

    async def wrong_metrics(self, node: NodeProcess) -> list[str]:
        """Return a sentence for each wrong counter of attempts of one node, by what the handlers in it have noted."""
        return wrong_attempts(await self.surfaces.metrics_of(node), self.ledger, node.pid)


def _counts(found: Totals) -> Figures:
    return {
        "arrived": found.arrived,
        "backlog": found.waiting,
        **{name: found.ended[name] for name in ("handled", "retried", "dead", "expired", "dropped", "attempts")},
    }
