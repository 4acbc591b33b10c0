"""Scenarios on a cluster of node processes, with figures read from the records of their handlers."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.proof.broker.putter import Putter
from evenlane.engine.proof.cluster.cluster import ENV, PATIENCE_S, cluster
from evenlane.engine.proof.cluster.records import SERVICE_S
from evenlane.engine.proof.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from evenlane.engine.proof.cluster.cluster import Cluster
    from evenlane.engine.proof.cluster.records import HandlerRecord
    from evenlane.engine.proof.load.load import Load
    from evenlane.engine.proof.scenario import Arms, Progress

LEAD_NS = 100_000_000  # from the moment all are ready to the load's first instant
_LOOK_S = 0.1


class RunSpan(NamedTuple):
    """The span of a run, ns since boot."""

    start: int
    end: int


class ClusterRun:
    """One round on a cluster: causes events, notes their times, and computes the figures afterwards. `offset` converts
    unix ns to ns since boot.
    """

    def __init__(self, made: Cluster, projects: Any, seed: int, progress: Progress) -> None:
        self.cluster, self.history, self.projects, self.size = made, made.history, projects, projects.size
        self.seed, self.step = seed, progress
        self.offset = now_ns() - time_ns()

    @property
    def records(self) -> list[HandlerRecord]:
        return self.cluster.handlers.records

    async def happen(self) -> None:
        """Raises EvenlaneError, CoordinationError."""
        raise NotImplementedError

    def arms(self) -> Arms:
        """Return the figures, after all events."""
        raise NotImplementedError

    async def put_all(self, loads: Iterable[Load]) -> int:
        """Put loads immediately, one after another. Returns the number of messages. Raises EvenlaneError."""
        count = 0
        for load in loads:
            count += len(load)
            async with Putter(self.cluster.url, ENV, load) as putter:
                await putter.put(now_ns())
        return count

    @asynccontextmanager
    async def put_during(self, load: Load) -> AsyncIterator[None]:
        """Put a load as long as the block runs. Raises EvenlaneError."""
        async with Putter(self.cluster.url, ENV, load) as putter, putter.put_during(now_ns() + LEAD_NS):
            yield

    async def wait_until_handled(self, expected: Mapping[str, int], within_s: float = PATIENCE_S) -> None:
        """Wait until these numbers of messages have been handled, by kind of project; the figures show messages that
        never are.
        """
        handlers = self.cluster.handlers
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    handlers.read()
                    if all(len(handlers.handled[kind]) >= count for kind, count in expected.items()):
                        return
                    await asyncio.sleep(_LOOK_S)


class ClusterScenario(Scenario):
    broker_rounds = 1
    notes_load = True
    service_s: ClassVar[float] = SERVICE_S

    size_type: ClassVar[type[Any]]
    """Its defaults are the size of the scenario itself."""

    projects_type: ClassVar[type[Any]]
    """Makes the tenants of a size."""

    run_type: ClassVar[type[ClusterRun]]

    def __init__(self, size: Any = None) -> None:
        self.size = size or self.size_type()

    def settings(self) -> dict[str, object]:
        """The settings of all nodes."""
        return {"lease_ttl": self.size.lease_ttl}

    async def broker_round(self, url: str, seed: int, number: int, progress: Progress) -> Arms:  # noqa: ARG002
        projects = self.projects_type(self.size)

        def step(what: str, share: float) -> None:
            progress(f"{self.name}: {what}", share)

        step("servers and topics", 0.0)
        async with cluster(
            url, projects.all, projects.cluster_config, self.settings(), service_s=self.service_s
        ) as made:
            run = self.run_type(made, projects, seed, step)
            await run.happen()
        return run.arms()
