"""Ratios of figures measured in the same rounds, the noise of identical code, and the last recorded run.

Absolute figures of two runs can't be compared: the machine or its other work differs. A ratio of two arms of one round
can, within the noise that a pair of identical arms (A/A) shows in the same rounds.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base.build import describe_build, is_compiled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RECORDED = Path(__file__).with_name("recorded_compiled.json" if is_compiled() else "recorded.json")
_MEASURED = ("engine", "priority", "quota", "ring")
NOISE = "bare again / bare"
# name of the ratio: numerator, denominator
RATIOS = {
    "node / bare": ("node", "bare"),
    "CPU a message, node / bare": ("node us of CPU a message", "bare us of CPU a message"),
    "node / fetch": ("node", "fetch"),
    "routed / node": ("routed", "node"),
    "typed / node": ("typed", "node"),
    "pinned / node": ("pinned", "node"),
    "puts / publish": ("puts", "publish"),
    NOISE: ("again", "bare"),
}


class Spread(NamedTuple):
    """A ratio in each round, in order."""

    each: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.each):.2f} to {max(self.each):.2f})"


class Bar(NamedTuple):
    what: str
    limit: float
    at_least: bool

    def verdict(self, value: float) -> str:
        met = value >= self.limit if self.at_least else value <= self.limit
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}: {'ok' if met else 'MISSED'}"


BARS = (
    Bar("node / bare", 1.3 if is_compiled() else 0.95, at_least=True),
    Bar("CPU a message, node / bare", 0.8 if is_compiled() else 1.2, at_least=False),
    Bar("decision", 1.2 if is_compiled() else 2.5, at_least=False),
    Bar("node / fetch", 2, at_least=True),
    Bar("routed / node", 0.97, at_least=True),
    Bar("typed / node", 0.9, at_least=True),
    Bar("pinned / node", 0.5, at_least=True),
    *([Bar("puts / publish", 1.3, at_least=True)] if is_compiled() else []),
)


def ratios_of(figures: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """The ratios whose two arms ran, round by round."""
    return {
        name: Spread(tuple(a / b for a, b in zip(figures[above], figures[below], strict=True)))
        for name, (above, below) in RATIOS.items()
        if above in figures and below in figures
    }


def noise_of(ratios: Mapping[str, Spread]) -> float | None:
    """The largest difference of identical code, as a part of 1; None if the pair did not run.

    For five rounds it is about 1.6 standard deviations of one ratio, the width of the interval that contains 95 % of
    the differences between the medians of two such runs of the same code.
    """
    return max(abs(one - 1) for one in ratios[NOISE].each) if NOISE in ratios else None


class Record(NamedTuple):
    """One run in `recorded.json`. Only ratios: absolute figures of two machines can't be compared."""

    date: str
    commit: str
    python: str
    machine: str
    cores: int
    build: str
    ratios: dict[str, Spread]

    @property
    def where(self) -> str:
        return f"Python {self.python}, {self.cores} cores ({self.machine}), {self.build}"

    @classmethod
    def of(cls, ratios: dict[str, Spread]) -> Record:
        now = dt.datetime.now(dt.UTC).date().isoformat()
        return cls(
            now, _commit(), platform.python_version(), platform.machine(), os.cpu_count() or 1, describe_build(), ratios
        )

    @classmethod
    def read(cls, path: Path = RECORDED) -> Record | None:
        if not path.exists():
            return None
        fields = json.loads(path.read_text())
        ratios = {name: Spread(tuple(each["each"])) for name, each in fields.pop("ratios").items()}
        return cls(**fields, ratios=ratios)

    def write(self, path: Path = RECORDED) -> None:
        path.write_text(json.dumps({**self._asdict(), "ratios": document(self.ratios)}, indent=2) + "\n")


def document(ratios: Mapping[str, Spread]) -> dict[str, Any]:
    return {
        name: {
            "median": round(one.median, 4),
            "least": round(min(one.each), 4),
            "most": round(max(one.each), 4),
            "each": [round(each, 4) for each in one.each],
        }
        for name, one in ratios.items()
    }


def compare(now: Mapping[str, Spread], record: Record | None) -> Iterator[str]:
    """One sentence per ratio: its difference from the recorded one, relative to the noise of identical code."""
    if record is None:
        yield "Nothing is recorded yet: --record does."
        return
    here = Record.of({})
    yield f"Recorded {record.date} at {record.commit}, {record.where}."
    if record.where != here.where:
        yield f"This is {here.where}: expect other ratios."
    noises = [noise for noise in (noise_of(now), noise_of(record.ratios)) if noise is not None]
    for name, one in now.items():
        if name in record.ratios and name != NOISE:
            yield _sentence(name, one.median, record.ratios[name].median, max(noises, default=None))


def _sentence(name: str, now: float, then: float, noise: float | None) -> str:
    change = now / then - 1
    begin = f"{name}: {now:.2f}, recorded {then:.2f}, {change:+.0%}"
    if noise is None:
        return f"{begin}; the noise is unknown without the arms bare and again."
    verdict = "within the noise" if abs(change) <= noise else "MORE than the noise"
    return f"{begin}: {verdict} (identical code differed by up to {noise:.0%})."


def _commit() -> str:
    """The measured commit, with `+` if the measured code differs from it."""
    short, root = _git("rev-parse", "--short", "HEAD"), _git("rev-parse", "--show-toplevel")
    changes = [f":/{room}" for room in _MEASURED]  # from the root: the compiled build is in a folder of its own
    return f"{short}{'+' if _git('status', '--porcelain', '--', *changes) else ''}" if root else "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=RECORDED.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()
