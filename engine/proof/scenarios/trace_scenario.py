"""Scenarios whose arms are a load and a scheduler each, with figures read from their traces."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from evenlane.engine.proof.load.load import Load, config_for
from evenlane.engine.proof.load.placement import NAMES
from evenlane.engine.proof.runners.one_node import Broker
from evenlane.engine.proof.runners.several_nodes import NodesBroker
from evenlane.engine.proof.scenario import Scenario, check_between, part
from evenlane.engine.proof.simulator.simulator import simulate

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from evenlane.engine.proof.arms import Arm
    from evenlane.engine.proof.load.load import Arrival, LoadTenant
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.scenario import Arms, Progress

_PAIR = 2
_COMES_IN, _COMES_IN_OVER_NODES = 2, 10  # s
_MEASURED = 20  # s, after the arrival of the backlog
_USUAL = 22.0  # s of both together, for which backlogs are given

PUT_NOTE = "put is the instant at which the put was sent off, start and end are the handler's own"


class TraceScenario(Scenario):
    """`scale` shortens the time and the bursts, for tests; only 1.0 is the scenario itself. With several `nodes`, each
    has the slots and the load of the single node.
    """

    slots: ClassVar[int] = 50
    reference = "simulator"
    together: ClassVar[bool] = False
    """On the broker: whether all arms of one node run at the same time, and arms of several nodes in pairs. Light loads
    can.
    """

    spreads: ClassVar[bool] = True
    """Whether it can run over several nodes."""

    def __init__(self, scale: float = 1.0, nodes: int = 1) -> None:
        self.scale, self.nodes = scale, nodes

    def __init_subclass__(cls) -> None:
        cls.broker_notes = (*cls.sim_notes, PUT_NOTE)

    @abstractmethod
    def arms(self, seed: int) -> dict[str, Arm]: ...

    def over(self, nodes: int) -> Scenario:
        if not self.spreads:
            return super().over(nodes)
        return type(self)(self.scale, check_between("--nodes", nodes, 1, len(NAMES)))

    # ---- sizes

    def ns(self, seconds: float) -> int:
        """Seconds of the scenario in ns of this run."""
        return int(seconds * self.scale * 1e9)

    def count(self, messages: int) -> int:
        """The messages of a burst in this run, for all nodes."""
        return max(1, int(messages * self.scale)) * self.nodes

    @property
    def comes_in(self) -> int:
        """The seconds for the arrival of a backlog: one machine takes longer to store that of several nodes."""
        return _COMES_IN if self.nodes == 1 else _COMES_IN_OVER_NODES

    @property
    def all_slots(self) -> int:
        return self.slots * self.nodes

    # ---- on the simulator

    def sim_round(self, seed: int, progress: Progress) -> Arms:
        arms, found = self.arms(seed), {}
        for done, (name, arm) in enumerate(arms.items()):
            progress(f"{self.name}: {name}", done / len(arms))
            trace = simulate(arm.load, arm.make, self.slots, arm.nodes or self.nodes, arm.quotas, arm.aim)
            found[name] = arm.read(trace)
        return found

    # ---- on the broker

    def broker(self, url: str) -> Broker:
        """The runner of arms on one node."""
        return Broker(url, self.slots)

    async def broker_round(self, url: str, seed: int, number: int, progress: Progress) -> Arms:
        """The arms one after another, or some at the same time."""
        arms, runners = self.arms(seed), (self.broker(url), NodesBroker(url, self.slots, self.nodes))
        traces: dict[str, Trace] = {}
        for names in self._turns(arms):
            what = f"{self.name}: round {number + 1}, {names[0] if len(names) == 1 else f'{len(names)} arms at once'}"
            own = part(progress, len(traces) / len(arms), len(names) / len(arms))

            def report(share: float, what: str = what, own: Progress = own) -> None:
                own(what, share)

            runs = (runners[self._has_several_nodes(arms[name])].run(arms[name], report) for name in names)
            traces |= zip(names, await _all(runs), strict=True)
        return {name: {**arm.read(traces[name]), **traces[name].figures} for name, arm in arms.items()}

    def _turns(self, arms: Mapping[str, Arm]) -> list[list[str]]:
        """The arms that run at the same time, in order. Each arm of several nodes is as many processes."""
        light = [name for name, arm in arms.items() if self.together and not self._has_several_nodes(arm)]
        rest, size = [name for name in arms if name not in light], _PAIR if self.together else 1
        return [*([light] if light else []), *(rest[first : first + size] for first in range(0, len(rest), size))]

    def _has_several_nodes(self, arm: Arm) -> bool:
        return (arm.nodes or self.nodes) > 1


class BacklogScenario(TraceScenario):
    """All tenants have a backlog from the beginning: first it arrives, then some seconds are measured."""

    groups_each: ClassVar[int]
    """Groups of a tenant, for each node."""

    @property
    def groups(self) -> int:
        return self.groups_each * self.nodes

    @property
    def span(self) -> tuple[int, int]:
        """The measured time, in ns; it ends with the load."""
        return self.ns(self.comes_in), self.ns(self.comes_in + _MEASURED)

    def load(self, tenants: Iterable[LoadTenant], arrivals: Iterable[Arrival]) -> Load:
        return Load.of(tenants, arrivals, self.span[1], config_for(self.nodes))

    def backlog(self, messages: int) -> int:
        """This number of messages, or more if they have to last longer than usual."""
        return self.count(int(messages * (self.comes_in + _MEASURED) / _USUAL))


async def _all(runs: Iterable[Coroutine[None, None, Trace]]) -> list[Trace]:
    """Await all of these concurrently. If one fails, the others are cancelled, and its error is raised once they
    have ended.
    """
    tasks = [asyncio.ensure_future(each) for each in runs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
