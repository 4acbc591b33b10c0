"""Known loads on real nodes: every surface shows what the ledger has counted, and none contradicts another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cli import evenlane
from tests.ledger.flow_loads import FlowLedger, RunningLoads
from tests.ledger.surface_statuses import Deletion, show_statuses
from tests.ledger.surface_world import LOADS, SECOND, SurfaceWorld
from tests.ledger.surfaces import Surfaces
from tests.ledger.world import ProcessWorld
from tests.support.status_words import different_words, statuses_of
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real


async def commands_agree(shown: SurfaceWorld) -> bool:
    """Whether `top --json` and `why --json` show what the page does, in the same words. Rates fall between two looks,
    so this may have to be asked again.
    """
    top, why = await evenlane(shown.world, "top"), await evenlane(shown.world, "why", "paused")
    seen = await shown.read()
    names = ("state", "backlog", "in_flight")
    pairs = [(seen.why["paused"], why), *((seen.overview[each["project"]], each) for each in top["tenants"])]
    return all(
        [each["name"] for each in statuses_of(page)] == [each["name"] for each in statuses_of(command)]
        and not different_words({"page": statuses_of(page), "command": statuses_of(command)})
        and all(page[name] == command[name] for name in names)
        for page, command in pairs
    )


async def test_surfaces_show_what_the_ledger_has_counted(tmp_path: Path) -> None:
    """X12, X13: under steady, failing, expiring, paused, delayed and other loads at the same time, after two
    topics are deleted, and at rest.
    """
    async with ProcessWorld(tmp_path, lease_ttl=10, meter_interval=1, partitions=4, duplicate_window=4) as world:
        node = await world.node(http_port=0)
        ledger = FlowLedger(world, LOADS)
        async with Surfaces(world, [node]) as surfaces:
            shown = SurfaceWorld(world, ledger, surfaces)
            await shown.make_topics()
            producer = await world.producer()
            async with RunningLoads(ledger, producer) as running:
                await until(lambda: len(ledger.puts["steady"]) >= 150, 60, "three seconds of the loads")
                shown.topics["drained"]["state"] = "draining"
                await shown.make_topics(weight=2)  # rates are measured again: the start of the loads isn't in them
                changed = now_ns()
                await until(lambda: ledger.puts["steady"][-1].arrives - changed > 5 * SECOND, 60, "five more seconds")
                await show_statuses(shown)
                seen = await shown.measured(4)
                assert "" == "; ".join(shown.wrong_rates(seen))
                assert "" == "; ".join(shown.wrong_ages(seen))
                await running.end("gone", "deleted")
                deletion = Deletion(shown)
                await deletion.delete()
                await until(deletion.is_gone, 60, "the empty topic to be gone")
            for project in ("over", "deleted"):
                assert await evenlane(world, "backlog", "purge", project, "--yes")
                ledger.note_drop(project)
            await world.topics("drained", state="draining")
            await shown.at_rest("overview", "why", "metrics")
            await until(lambda: commands_agree(shown), 60, "the commands to show what the page does")
