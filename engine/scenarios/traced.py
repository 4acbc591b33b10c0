"""Scenarios that are a load and a scheduler for each arm, with figures read from the traces."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from engine.scenarios.report import Report, middle
from engine.scenarios.scenario import Scenario, silent
from engine.scenarios.simulator import simulate
from engine.scheduler.fair import FairScheduler
from engine.scheduler.fifo import FifoScheduler
from engine.scheduler.plain import PlainScheduler

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from engine.scenarios.broker import Broker
    from engine.scenarios.figures import Figures
    from engine.scenarios.load import Load
    from engine.scenarios.report import Bar
    from engine.scenarios.scenario import Tell
    from engine.scenarios.trace import Trace
    from engine.scheduler.interface import Scheduler

Make = Callable[[int, Callable[[Any], int]], "Scheduler[Any]"]
"""(slots, when the head of a queue came) -> scheduler"""


def product(slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FairScheduler(slots)


def without_headroom(slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FairScheduler(slots, headroom=False)


def fifo(_slots: int, arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FifoScheduler(arrived_at)


def in_turn(_slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    """Round robin over groups."""
    return PlainScheduler()


@dataclass(frozen=True)
class Arm:
    """`read` takes the figures from a trace. `at_hand`: on the broker the node holds every message that waits, so
    that a scheduler that goes by age really sees which is the oldest.
    """

    load: Load
    make: Make
    read: Callable[[Trace], Figures]
    at_hand: bool = False


class Traced(Scenario):
    """`scale` shortens the time, and bursts with it: for tests. Only 1.0 is the scenario itself."""

    slots: ClassVar[int] = 50
    together: ClassVar[bool] = False
    """On the broker: whether all arms run at the same time, as light loads can."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @abstractmethod
    def arms(self, seed: int) -> dict[str, Arm]: ...

    @abstractmethod
    def bars(self, figures: Mapping[str, Figures]) -> list[Bar]: ...

    def ns(self, seconds: float) -> int:
        """So many seconds of the scenario in ns of this run."""
        return int(seconds * self.scale * 1e9)

    def count(self, messages: int) -> int:
        """So many messages of a burst, in this run."""
        return max(1, int(messages * self.scale))

    def simulate(self, seed: int, rounds: int, tell: Tell) -> Report:
        began = monotonic()
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            arms = self.arms(seed + number)
            for done, (name, arm) in enumerate(arms.items()):
                tell(f"{self.name}: {name}", (number + done / len(arms)) / rounds)
                seen.setdefault(name, []).append(arm.read(simulate(arm.load, arm.make, self.slots)))
        tell(self.name, 1.0)
        figures = {name: middle(each) for name, each in seen.items()}
        bars = self.bars(figures)
        return Report(self.name, "simulator", seed, rounds, figures, bars, monotonic() - began, self.notes())

    async def on_broker(self, url: str, seed: int, rounds: int, tell: Tell) -> Report:
        began = monotonic()
        simulated = self.simulate(seed, rounds, silent)
        broker = self.broker(url)
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            for name, figures in (await self._round(broker, seed + number, number, rounds, tell)).items():
                seen.setdefault(name, []).append(figures)
        tell(self.name, 1.0)
        found = {name: middle(each) for name, each in seen.items()}
        bars = [bar.beside(sim) for bar, sim in zip(self.bars(found), simulated.bars, strict=True)]
        beside = {f"{name} (simulator)": figures for name, figures in simulated.arms.items()}
        notes = [*self.notes(), "put is the instant at which the put was sent off, start and end are the handler's own"]
        report = Report(self.name, "broker", seed, rounds, {**found, **beside}, bars, 0.0, notes)
        return replace(report, seconds=monotonic() - began)

    def broker(self, url: str) -> Broker:
        """What runs the arms on a nats-server."""
        from engine.scenarios.broker import Broker  # noqa: PLC0415 - the simulator needs no broker's client

        return Broker(url, self.slots)

    async def _round(self, broker: Broker, seed: int, number: int, rounds: int, tell: Tell) -> dict[str, Figures]:
        """All arms once: one after another, or all at the same time."""
        arms = self.arms(seed)

        def passed_of(name: str, done: int, count: int) -> Callable[[float], None]:
            what = f"{self.name}: round {number + 1}, {name}"
            return lambda share: tell(what, (number + (done + share) / count) / rounds)

        if self.together:
            passed = passed_of("all arms at once", 0, 1)
            traces = await _all(broker.run(arm, passed) for arm in arms.values())
        else:
            traces = []
            for done, (name, arm) in enumerate(arms.items()):
                traces.append(await broker.run(arm, passed_of(name, done, len(arms))))
        return {name: _read(arm, trace) for (name, arm), trace in zip(arms.items(), traces, strict=True)}


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
