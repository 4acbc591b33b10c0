"""The one shape of a scenario: rounds of arms, each with its figures, and the bars that the figures must meet.

A scenario runs on the simulator, on a virtual clock, or on a real nats-server. Either way it is run for some rounds,
round k with seed + k. The report shows the median of each figure, and the bars.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from evenlane.engine.errors import ConfigError
from evenlane.engine.proof.figures import Figures
from evenlane.engine.proof.report import Bar, Report, middle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.report import Where

Progress = Callable[[str, float], None]
"""Receives the current step, and the share of the whole that is done."""

Arms = dict[str, Figures]
"""The figures of each arm, in the order of the table."""

UNSHOWN = ""
"""The name of an arm whose figures only bars read: the report leaves it out."""


class Scenario(ABC):
    name: ClassVar[str]
    about: ClassVar[str]
    sim_rounds: ClassVar[int] = 1
    broker_rounds: ClassVar[int] = 2
    """How often the arms are run, one after another, unless the caller says otherwise: real machines are noisy."""

    reference: ClassVar[str] = ""
    """The name of the simulated arms in a report of the broker's; "": there are none."""

    sim_notes: ClassVar[Sequence[str]] = ()
    broker_notes: ClassVar[Sequence[str]] = ()
    notes_load: ClassVar[bool] = False
    """Whether the broker's notes end with the load average of the machine."""

    nodes = 1

    # ---- what a scenario defines

    @abstractmethod
    def sim_round(self, seed: int, progress: Progress) -> Arms:
        """Run all arms once, without any server."""

    @abstractmethod
    async def broker_round(self, url: str, seed: int, number: int, progress: Progress) -> Arms:
        """Run all arms once, on an otherwise unused nats-server, and delete everything created there."""

    @abstractmethod
    def sim_bars(self, arms: Arms) -> list[Bar]: ...

    def broker_bars(self, arms: Arms, rounds: Sequence[Arms], simulated: Report | None) -> list[Bar]:  # noqa: ARG002
        """`arms` are the medians of the rounds."""
        assert simulated is not None
        return [bar.against(other) for bar, other in zip(self.sim_bars(arms), simulated.bars, strict=True)]

    def over(self, nodes: int) -> Scenario:  # noqa: ARG002
        """The same over several nodes. Raises ConfigError."""
        raise ConfigError(f"--nodes does not apply to {self.name}: it runs on one node, or on a number of its own")

    def with_backlog(self, messages: int) -> Scenario:  # noqa: ARG002
        """The same with this backlog in each lane that is taken over. Raises ConfigError."""
        raise ConfigError(f"--backlog does not apply to {self.name}: it is for rebalance")

    # ---- how it is run

    def simulate(self, seed: int, rounds: int, progress: Progress) -> Report:
        """Without any server."""
        began = monotonic()
        arms = medians(self.simulate_rounds(seed, rounds, progress))
        progress(self.name, 1.0)
        return self._report("simulator", seed, rounds, arms, self.sim_bars(arms), began, self.sim_notes)

    def simulate_rounds(self, seed: int, rounds: int, progress: Progress) -> list[Arms]:
        """The arms of each round."""
        return [self.sim_round(seed + number, part(progress, number / rounds, 1 / rounds)) for number in range(rounds)]

    def reference_report(self, seed: int, rounds: int, _progress: Progress) -> Report | None:
        """The simulator's report, with which the broker's is compared."""
        return self.simulate(seed, rounds, silent) if self.reference else None

    async def run_on_broker(self, url: str, seed: int, rounds: int, progress: Progress) -> Report:
        """On an otherwise unused nats-server. Raises EvenlaneError, CoordinationError."""
        began, load_average = monotonic(), os.getloadavg()[0]
        simulated = self.reference_report(seed, rounds, progress)
        found = [
            await self.broker_round(url, seed + number, number, part(progress, number / rounds, 1 / rounds))
            for number in range(rounds)
        ]
        progress(self.name, 1.0)
        arms = medians(found)
        bars = self.broker_bars(arms, found, simulated)
        arms.pop(UNSHOWN, None)
        if simulated is not None:
            arms |= {f"{name} ({self.reference})": figures for name, figures in simulated.arms.items()}
        notes = [*self.broker_notes]
        if self.notes_load:
            notes.append(f"load average before the run: {load_average:.1f} on {os.cpu_count()} cores")
        return self._report("broker", seed, rounds, arms, bars, began, notes)

    def _report(
        self, where: Where, seed: int, rounds: int, arms: Arms, bars: list[Bar], began: float, notes: Sequence[str]
    ) -> Report:
        seconds = monotonic() - began
        return Report(self.name, where, seed, rounds, arms, bars, seconds, [*notes], self.nodes)


def medians(rounds: Sequence[Arms]) -> Arms:
    return {name: middle([arms[name] for arms in rounds]) for name in rounds[0]}


def part(progress: Progress, start: float, length: float) -> Progress:
    """The progress of a part of the whole."""
    return lambda what, share: progress(what, start + share * length)


def silent(_what: str, _share: float) -> None:
    """A Progress that reports nothing."""


def check_between(option: str, value: int, least: int, most: int) -> int:
    """Raises ConfigError."""
    if not least <= value <= most:
        raise ConfigError(f"{option} must be from {least} to {most}, not {value}")
    return value
