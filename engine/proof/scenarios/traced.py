"""Scenarios that are a load and a scheduler for each arm, with figures read from the traces."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Protocol

from evenlane.engine.proof.scenarios.placed import NAMES
from evenlane.engine.proof.scenarios.report import Report, middle
from evenlane.engine.proof.scenarios.scenario import Scenario, between, silent
from evenlane.engine.proof.scenarios.simulator import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from evenlane.engine.proof.scenarios.arm import Arm
    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.report import Bar
    from evenlane.engine.proof.scenarios.scenario import Tell
    from evenlane.engine.proof.scenarios.trace import Trace


_PAIR = 2
_COMES_IN, _COMES_IN_OVER_NODES = 2, 10  # s


class Runner(Protocol):
    """Runs arms on a nats-server."""

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        """`passed` is told which share of the load's time is over. Raises EvenlaneError."""


class Traced(Scenario):
    """`scale` shortens the time, and bursts with it: for tests. Only 1.0 is the scenario itself. `nodes`: each has as
    many slots and gets as much as the one node otherwise.
    """

    slots: ClassVar[int] = 50
    together: ClassVar[bool] = False
    """On the broker: whether all arms of one node, or two of several, run at the same time, as light loads can."""

    spreads: ClassVar[bool] = True
    """Whether it can run over several nodes."""

    def __init__(self, scale: float = 1.0, nodes: int = 1) -> None:
        self.scale, self.nodes = scale, nodes

    def over(self, nodes: int) -> Scenario:
        if not self.spreads:
            return super().over(nodes)
        return type(self)(self.scale, between("--nodes", nodes, 1, len(NAMES)))

    @abstractmethod
    def arms(self, seed: int) -> dict[str, Arm]: ...

    @abstractmethod
    def bars(self, figures: Mapping[str, Figures]) -> list[Bar]: ...

    def ns(self, seconds: float) -> int:
        """So many seconds of the scenario in ns of this run."""
        return int(seconds * self.scale * 1e9)

    def count(self, messages: int) -> int:
        """So many messages of a burst for each node, in this run."""
        return max(1, int(messages * self.scale)) * self.nodes

    @property
    def comes_in(self) -> int:
        """How many seconds a backlog gets to come in: that of several nodes takes a machine longer to store."""
        return _COMES_IN if self.nodes == 1 else _COMES_IN_OVER_NODES

    @property
    def all_slots(self) -> int:
        return self.slots * self.nodes

    def simulate(self, seed: int, rounds: int, tell: Tell) -> Report:
        began = monotonic()
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            arms = self.arms(seed + number)
            for done, (name, arm) in enumerate(arms.items()):
                tell(f"{self.name}: {name}", (number + done / len(arms)) / rounds)
                seen.setdefault(name, []).append(arm.read(self.simulated(arm)))
        tell(self.name, 1.0)
        figures = {name: middle(each) for name, each in seen.items()}
        bars = self.bars(figures)
        return Report(
            self.name, "simulator", seed, rounds, figures, bars, monotonic() - began, self.notes(), self.nodes
        )

    def simulated(self, arm: Arm) -> Trace:
        """One arm, on the simulator."""
        return simulate(arm.load, arm.make, self.slots, arm.nodes or self.nodes, arm.quotas, arm.aim)

    async def on_broker(self, url: str, seed: int, rounds: int, tell: Tell) -> Report:
        began = monotonic()
        simulated = self.simulate(seed, rounds, silent)
        one, several = self.broker(url), self._several(url)
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            for name, figures in (await self._round(one, several, seed + number, number, rounds, tell)).items():
                seen.setdefault(name, []).append(figures)
        tell(self.name, 1.0)
        found = {name: middle(each) for name, each in seen.items()}
        bars = [bar.beside(sim) for bar, sim in zip(self.bars(found), simulated.bars, strict=True)]
        beside = {f"{name} (simulator)": figures for name, figures in simulated.arms.items()}
        notes = [*self.notes(), "put is the instant at which the put was sent off, start and end are the handler's own"]
        report = Report(self.name, "broker", seed, rounds, {**found, **beside}, bars, 0.0, notes, self.nodes)
        return replace(report, seconds=monotonic() - began)

    def broker(self, url: str) -> Runner:
        """What runs the arms of one node on a nats-server."""
        from evenlane.engine.proof.scenarios.broker import Broker  # noqa: PLC0415 - the simulator needs no broker's client

        return Broker(url, self.slots)

    def _several(self, url: str) -> Runner:
        """What runs the arms of several nodes."""
        from evenlane.engine.proof.scenarios.nodes_broker import NodesBroker  # noqa: PLC0415 - the same

        return NodesBroker(url, self.slots, self.nodes)

    async def _round(
        self, one: Runner, several: Runner, seed: int, number: int, rounds: int, tell: Tell
    ) -> dict[str, Figures]:
        """All arms once: one after another, or some at the same time."""
        arms = self.arms(seed)
        traces: dict[str, Trace] = {}
        for names in self._turns(arms):
            what = f"{self.name}: round {number + 1}, {names[0] if len(names) == 1 else f'{len(names)} arms at once'}"
            before, part = len(traces) / len(arms), len(names) / len(arms)

            def passed(share: float, what: str = what, before: float = before, part: float = part) -> None:
                tell(what, (number + before + share * part) / rounds)

            runs = (self._runner(arms[name], one, several).run(arms[name], passed) for name in names)
            traces |= zip(names, await _all(runs), strict=True)
        return {name: _read(arm, traces[name]) for name, arm in arms.items()}

    def _turns(self, arms: Mapping[str, Arm]) -> list[list[str]]:
        """Which arms run at the same time, in order. Each arm of several nodes is as many processes."""
        light = [name for name, arm in arms.items() if self.together and not self._over_several(arm)]
        rest, size = [name for name in arms if name not in light], _PAIR if self.together else 1
        return [*([light] if light else []), *(rest[first : first + size] for first in range(0, len(rest), size))]

    def _runner(self, arm: Arm, one: Runner, several: Runner) -> Runner:
        return several if self._over_several(arm) else one

    def _over_several(self, arm: Arm) -> bool:
        return (arm.nodes or self.nodes) > 1


async def _all(runs: Iterable[Coroutine[None, None, Trace]]) -> list[Trace]:
    """All of them, at the same time; if one fails the others have ended before that is told."""
    tasks = [asyncio.ensure_future(each) for each in runs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _read(arm: Arm, trace: Trace) -> Figures:
    return {**arm.read(trace), **trace.figures}
