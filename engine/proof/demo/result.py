"""The result of all turns: figures of each arm, the document of `--json`, and whether it is a proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.plural import format_count
from evenlane.engine.base.rounding import to_six_digits
from evenlane.engine.proof.demo.ledger import Ledger
from evenlane.engine.proof.demo.plan import ARMS, BURST, HOT_RATE, QUOTA
from evenlane.engine.proof.figures import ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.demo.plan import Arm, Plan
    from evenlane.engine.proof.demo.turn import Turn
    from evenlane.engine.proof.figures import Figures

_MOST_P99_RATIO = 2.0
_LEAST_SERVED = 0.95


@dataclass
class Result:
    """The result. Times are in ms: for each arm the median over its turns. Counts are sums."""

    plan: Plan
    turns: dict[Arm, list[Figures]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    ledger: Ledger = field(default_factory=Ledger)
    hot_max_1s: int = 0
    seconds: float = 0.0

    def add(self, turn: Turn) -> None:
        """A turn that has ended."""
        self.turns[turn.arm].append(turn.figures())
        self.ledger.add(turn.ledger)
        if turn.arm == "with hot":
            self.hot_max_1s = max(self.hot_max_1s, turn.hot_max_1s())

    def figures(self, arm: Arm, running: Turn | None = None) -> Figures:
        """The figures of an arm, including the turn that is running."""
        turns = self.turns[arm] + ([running.figures()] if running is not None and running.arm == arm else [])
        offered, in_time = _sum(turns, "offered"), _sum(turns, "in_time")
        return {
            "p50_ms": _middle(turns, "p50_ms"),
            "p99_ms": _middle(turns, "p99_ms"),
            "offered": offered,
            "served_ratio": in_time / offered if offered else None,
            "hot_offered": _sum(turns, "hot_offered"),
            "hot_served": _sum(turns, "hot_served"),
        }

    def document(self) -> dict[str, Any]:
        without, hot, control = map(self.figures, ARMS)
        return {
            "victims": {
                "p50_ms": to_six_digits(hot["p50_ms"]),
                "p99_ms": to_six_digits(hot["p99_ms"]),
                "p99_ms_without_hot": to_six_digits(without["p99_ms"]),
                "p99_ratio": to_six_digits(ratio(hot["p99_ms"], without["p99_ms"])),
                "served_ratio": to_six_digits(hot["served_ratio"]),
                "offered": hot["offered"],
            },
            "hot": {
                "quota_qps": QUOTA,
                "burst": BURST,
                "offered": hot["hot_offered"],
                "served": hot["hot_served"],
                "max_1s": self.hot_max_1s,
            },
            "control": {
                "p99_ratio": to_six_digits(ratio(control["p99_ms"], without["p99_ms"])),
                "served_ratio": to_six_digits(control["served_ratio"]),
                "p99_ms": to_six_digits(control["p99_ms"]),
            },
            "ledger": self.ledger.document(),
            "projects": self.plan.projects,
            "rounds": self.plan.rounds,
            "load_seconds": self.plan.seconds,
            "seconds": round(self.seconds, 1),
        }

    def failure(self) -> str | None:
        """The reason why the result proves nothing, in a sentence; None if it does prove the isolation."""
        document = self.document()
        victims, lost = document["victims"], document["ledger"]["lost"]
        if lost:
            return (
                f"{format_count(lost, 'message', 'is', 'are')} lost: acknowledged, but neither handled nor"
                " dead-lettered nor waiting"
            )
        if victims["p99_ratio"] is None:
            return "the isolation isn't shown: too few of the victims' messages were handled to determine their p99"
        if victims["p99_ratio"] > _MOST_P99_RATIO:
            return (
                f"the isolation isn't shown: with hot, the victims' p99 was {victims['p99_ratio']:.2f} times that "
                f"without it; at most {_MOST_P99_RATIO:g} is allowed (a busy machine can do that: try more --seconds)"
            )
        if victims["served_ratio"] < _LEAST_SERVED:
            return (
                f"the isolation isn't shown: with hot, {victims['served_ratio']:.1%} of the victims' messages were "
                f"handled in time; at least {_LEAST_SERVED:.0%} is required"
            )
        return None

    def verdict(self) -> str:
        """The proven fact, in a sentence for the terminal."""
        document = self.document()
        victims, control = document["victims"], document["control"]
        times = "no p99 at all" if control["p99_ratio"] is None else f"{control['p99_ratio']:.1f} times the p99"
        return (
            f"Hot put {HOT_RATE / QUOTA:.0f} times its quota, and the {_others(self.plan.projects - 1)} had "
            f"{victims['p99_ratio']:.2f} times the p99 that they have without it, with {victims['served_ratio']:.1%} "
            f"handled in time; first come, first served handles {control['served_ratio']:.1%} in time, at {times}. "
            "The messages that hot put above its quota wait; nothing is lost."
        )


def _others(count: int) -> str:
    return "other project" if count == 1 else f"other {count:,} projects"


def _sum(turns: Sequence[Figures], name: str) -> int:
    return int(sum(figures[name] or 0 for figures in turns))


def _middle(turns: Sequence[Figures], name: str) -> float | None:
    values = [value for figures in turns if (value := figures[name]) is not None]
    return median(values) if values else None
