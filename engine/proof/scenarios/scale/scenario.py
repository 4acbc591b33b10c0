"""`scale`: the cost of a decision, and of a message end to end, as queues grow from 30 to 60,000."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.proof.baselines.schedulers import ScanningScheduler
from evenlane.engine.proof.figures import ratio
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenario import Scenario, part
from evenlane.engine.proof.scenarios.scale.broker import measure
from evenlane.engine.proof.scenarios.scale.decisions import SLOTS, Crowd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.report import Report
    from evenlane.engine.proof.scenario import Arms, Progress

_MOST_US = 3.0
_SCANNING = "scanning, "
_BEYOND = 1.25  # of what quotas allow


class ScaleSize(NamedTuple):
    queues: int
    busy: int

    def __str__(self) -> str:
        return f"{self.busy:,} busy of {self.queues:,}"


class ScaleSizes(NamedTuple):
    """The smallest, a middle one and the largest with few busy queues; two sizes with all of them busy."""

    few: tuple[ScaleSize, ScaleSize, ScaleSize] = (ScaleSize(30, 10), ScaleSize(3_000, 10), ScaleSize(60_000, 10))
    all: tuple[ScaleSize, ScaleSize] = (ScaleSize(30, 30), ScaleSize(3_000, 3_000))


class ScaleScenario(Scenario):
    """`decisions` in a repetition, of which there are `rounds`; `messages` in a round on the broker."""

    name = "scale"
    about = "10 busy queues among 30, 3,000 and 60,000; then all busy"
    sim_rounds = 15
    broker_rounds = 3
    reference = "scheduler"
    sim_notes = (
        "a decision is next + done with 50 messages in flight; medians over interleaved turns, also of the ratios",
        "steps are bytecode instructions a decision: counted, so free of noise",
    )
    broker_notes = (
        "end to end is put, feed, schedule, handle and settle in one process; every queue had a message before",
        "dispatch is what follows the feed, with all messages loaded; medians of interleaved rounds",
    )

    def __init__(self, sizes: ScaleSizes | None = None, decisions: int = 10_000, messages: int = 40_000) -> None:
        self._sizes, self._decisions, self._messages = sizes or ScaleSizes(), decisions, messages

    def sim_round(self, seed: int, progress: Progress) -> Arms:  # noqa: ARG002 - nothing here is left to chance
        return self._measure_decisions(1, progress)

    def simulate_rounds(self, seed: int, rounds: int, progress: Progress) -> list[Arms]:  # noqa: ARG002
        """All rounds are one, so that also the ratios are medians over them."""
        return [self._measure_decisions(rounds, progress)]

    def reference_report(self, seed: int, rounds: int, progress: Progress) -> Report:  # noqa: ARG002
        return self.simulate(seed, self.sim_rounds, part(progress, 0.0, 0.1))

    async def broker_round(self, url: str, seed: int, number: int, progress: Progress) -> Arms:  # noqa: ARG002
        sizes = [*self._sizes.few, *self._sizes.all]
        found: Arms = {}
        for done, size in enumerate(sizes):
            progress(f"{self.name}: round {number + 1}, {size}", done / len(sizes))
            found[str(size)] = await measure(url, size.queues, size.busy, self._messages)
        return found

    def broker_bars(self, arms: Arms, rounds: Sequence[Arms], simulated: Report | None) -> list[Bar]:  # noqa: ARG002
        assert simulated is not None
        return [*self._message_bars(arms), *simulated.bars]

    def _measure_decisions(self, rounds: int, progress: Progress) -> Arms:
        """Measure all crowds in short turns, so that other work of the machine affects all of them alike."""
        crowds = self._crowds(progress)
        costs: dict[str, list[float]] = {name: [] for name in crowds}
        for number in range(rounds):
            progress(f"{self.name}: decisions", number / rounds)
            for name, crowd in crowds.items():
                costs[name].append(crowd.cost(self._decisions_of(name)))
        figures: Arms = {}
        for name, crowd in crowds.items():
            steps = crowd.steps(20 if name.startswith(_SCANNING) else 300)
            figures[name] = {"us_a_decision": median(costs[name]), "us_lowest": min(costs[name]), "steps": steps}
        for small, *large in self._families():
            for name in large:
                pairs = zip(costs[name], costs[small], strict=True)
                figures[name]["times_the_first"] = median(much / little for much, little in pairs)
        return figures

    def _crowds(self, progress: Progress) -> dict[str, Crowd]:
        crowds: dict[str, Crowd] = {}
        for size in (*self._sizes.few, *self._sizes.all):
            progress(f"{self.name}: {size}", 0.0)
            crowds[str(size)] = Crowd(FairScheduler(SLOTS), size.queues, size.busy)
        much = self._sizes.all[-1]
        crowds[f"{much}, beyond quota"] = Crowd(FairScheduler(SLOTS), much.queues, much.busy, _BEYOND)
        for size in (self._sizes.few[0], self._sizes.few[-1]):
            crowds[f"{_SCANNING}{size}"] = Crowd(ScanningScheduler(), size.queues, size.busy)
        return crowds

    def _families(self) -> list[list[str]]:
        """Arms that are compared with the first of their family."""
        few, every = [str(size) for size in self._sizes.few], [str(size) for size in self._sizes.all]
        return [few, every, [f"{_SCANNING}{few[0]}", f"{_SCANNING}{few[-1]}"]]

    def _decisions_of(self, name: str) -> int:
        """Return the number of decisions to measure: fewer for schedulers that scan, as scanning 60,000 queues takes
        milliseconds.
        """
        return max(2, self._decisions // 1_000) if name.startswith(_SCANNING) else self._decisions

    def sim_bars(self, figures: Arms) -> list[Bar]:
        few, every, scanning = self._families()
        steps = ratio(figures[few[-1]]["steps"], figures[few[0]]["steps"])
        return [
            Bar(f"decision: {few[-1]} / {few[0]}", figures[few[-1]]["times_the_first"], "<=", 1.5),
            Bar(f"decision: {every[-1]} / {every[0]}", figures[every[-1]]["times_the_first"], "<=", 2),
            Bar(f"us a decision: {every[-1]}", figures[every[-1]]["us_a_decision"], "<=", _MOST_US),
            Bar(f"steps a decision: {few[-1]} / {few[0]}", steps, "<=", 1.05),
            Bar(f"scanning: {few[-1]} / {few[0]}", figures[scanning[-1]]["times_the_first"], ">", 1.5, "control"),
        ]

    def _message_bars(self, figures: Arms) -> list[Bar]:
        few, every, _scanning = self._families()
        bars = []
        for figure, what in (("end_to_end_per_s", "end to end"), ("dispatch_per_s", "dispatch")):
            for family, limit in ((few, 1.5), (every, 2.0)):
                slower = ratio(figures[family[0]][figure], figures[family[-1]][figure])
                bars.append(Bar(f"{what}, time a message: {family[-1]} / {family[0]}", slower, "<=", limit))
        return bars
