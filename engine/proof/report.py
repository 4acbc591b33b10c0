"""The result of a scenario's run: figures of each arm, and bars, each with its value, its limit and its verdict."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from evenlane.engine.base.rounding import to_six_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.figures import Figures

Where = Literal["simulator", "broker"]
BROKER_SLACK = 1.3  # allowance of the broker over the simulator's figure, where lower is better

_HOLDS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


@dataclass(frozen=True)
class Bar:
    """A bar. `arm` is the arm that it judges: "product", or "control" for a bar that shows that the scenario can tell
    good from bad. `slack`: on the broker the limit is 1.3 x the simulator's value instead.
    """

    name: str
    value: float | None
    sign: Literal["<=", ">=", "<", ">"]
    limit: float
    arm: Literal["product", "control"] = "product"
    slack: bool = False
    simulator: float | None = None
    scenario_limit: float | None = None

    @property
    def is_met(self) -> bool:
        return self.value is not None and _HOLDS[self.sign](self.value, self.limit)

    def against(self, simulator: Bar) -> Bar:
        """The broker's bar, given the simulator's."""
        if not self.slack or simulator.value is None:
            return replace(self, simulator=simulator.value, scenario_limit=self.limit)
        limit = BROKER_SLACK * simulator.value
        return replace(self, simulator=simulator.value, scenario_limit=self.limit, limit=limit)

    def document(self) -> dict[str, Any]:
        """For JSON; `limit` reads as in `value sign limit`."""
        shown: dict[str, Any] = {"name": self.name, "value": to_six_digits(self.value), "sign": self.sign}
        shown |= {"limit": to_six_digits(self.limit), "ok": self.is_met, "arm": self.arm}
        if self.scenario_limit is not None:
            shown |= {"simulator": to_six_digits(self.simulator), "scenario_limit": self.scenario_limit}
        return shown


@dataclass(frozen=True)
class Report:
    scenario: str
    where: Where
    seed: int
    rounds: int
    arms: dict[str, Figures]
    bars: list[Bar]
    seconds: float
    notes: list[str] = field(default_factory=list)
    nodes: int = 1

    @property
    def has_passed(self) -> bool:
        """Whether the product meets its bars; a control that does well is shown, but isn't a failure."""
        return all(bar.is_met for bar in self.bars if bar.arm == "product")

    def document(self) -> dict[str, Any]:
        arms = {name: {key: to_six_digits(value) for key, value in of.items()} for name, of in self.arms.items()}
        return {
            "scenario": self.scenario,
            "where": self.where,
            "nodes": self.nodes,
            "seed": self.seed,
            "rounds": self.rounds,
            "arms": arms,
            "bars": [bar.document() for bar in self.bars],
            "seconds": round(self.seconds, 1),
            "notes": self.notes,
        }


def middle(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure over the rounds; None if it is missing in any."""
    found: Figures = {}
    for name in rounds[0]:
        present = [value for figures in rounds if (value := figures[name]) is not None]
        found[name] = median(present) if len(present) == len(rounds) else None
    return found


def worst(rounds: Sequence[Sequence[Bar]]) -> list[Bar]:
    """Return each bar with the round's value that misses it by the most, or meets it by the least; a missing value is
    the worst.
    """
    return [max(each, key=_compute_miss) for each in zip(*rounds, strict=True)]


def _compute_miss(bar: Bar) -> float:
    if bar.value is None:
        return inf
    return bar.value - bar.limit if bar.sign in ("<=", "<") else bar.limit - bar.value
