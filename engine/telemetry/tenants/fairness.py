"""Compares each project's share of slot time with its due share, by weighted max-min fairness. Pure.

Tenants compete for slot time. A project whose heads mostly wait for it (`COMPETES`) could use the time for its backlog,
too; any other project wanted only what it got. The ratio of a project's share to its due share (quota/rates/max_min.py)
is 1 if sharing is fair, less if the project is starved, more if it takes from others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from evenlane.quota.rates.max_min import fair_shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HALF_NS = 10_000_000_000  # half-life
_LEAST = 1e-4  # seconds; less counts as nothing
_FEW = 0.5  # fewer attempts say nothing of their duration

COMPETES = frozenset({"fairness", "handlers_busy", "headroom"})
"""Wait reasons that mean waiting for slots."""


class Use(NamedTuple):
    """A project's use of slots over the last half minute or so, decaying with age. `got` is the slot seconds used,
    `attempts` the number of attempts in them, `waited` the seconds for which the project waited for more slots.
    `backlog` is its latest number of waiting messages. `weight` is the topic's, above 0. `arrived` counts messages.
    """

    got: float = 0.0
    attempts: float = 0.0
    waited: float = 0.0
    backlog: int = 0
    weight: float = 1.0
    arrived: float = 0.0

    def age_by(self, age: int) -> Use:
        left = math.exp2(-age / _HALF_NS)
        return Use(
            self.got * left, self.attempts * left, self.waited * left, self.backlog, self.weight, self.arrived * left
        )

    def wants(self, looked: float) -> float:
        """Return the slot seconds it wanted: what it got, plus what its backlog needs if it mostly waits for slots."""
        if self.waited <= looked / 2:
            return self.got
        return self.got + self.backlog * self.got / self.attempts if self.attempts >= _FEW else math.inf


class Round(NamedTuple):
    """One project in one round: `got` slot seconds in `attempts`; `waited` is the round's duration if the project
    waited for slots when it was looked at, else 0; `backlog` is the number of waiting messages. `arrived` counts those
    that arrived.
    """

    got: float
    attempts: int
    waited: float
    backlog: int
    weight: float
    arrived: int = 0


class Usage:
    """Usage of all projects of a node.

    Invariant: each entry of `_known` is a `Use` with the time of its last update; `_looked` decays like the uses.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Use]] = {}
        self._looked = 0.0  # seconds looked at, decaying with age
        self._at = 0

    def begin(self, now: int, seconds: float) -> None:
        """Begin a round after one that took `seconds`; `now` is monotonic ns."""
        self._looked = self._looked * math.exp2((self._at - now) / _HALF_NS) + seconds
        self._at = now

    def note(self, project: str, seen: Round) -> None:
        use = self._now(project)
        now = Use(
            use.got + seen.got, use.attempts + seen.attempts, use.waited + seen.waited, seen.backlog, seen.weight,
            use.arrived + seen.arrived,
        )  # fmt: skip
        self._known[project] = (self._at, now)

    def tidy(self) -> Iterator[None]:
        """Forget projects without recent use. One step per project."""
        for project in list(self._known):
            use = self._now(project)
            if use.got < _LEAST and use.waited < _LEAST:
                self._known.pop(project, None)
            yield

    def clear(self) -> None:
        self._known.clear()
        self._looked = 0.0

    def sample(self) -> FairnessSample:
        """Return a copy, to use in another thread."""
        return FairnessSample(self._known.copy(), self._looked, self._at)

    def _now(self, project: str) -> Use:
        at, use = self._known.get(project, (self._at, Use()))
        return use.age_by(self._at - at)


class FairnessSample(NamedTuple):
    """A node's usage at `at`: by project, the time of its last update, and its use."""

    known: Mapping[str, tuple[int, Use]] = {}
    looked: float = 0.0
    at: int = 0

    def ratios(self) -> dict[str, float]:
        """Return the ratio of share to due share for each project with a due share."""
        uses = [use.age_by(self.at - at) for at, use in self.known.values()]
        capacity = math.fsum(use.got for use in uses)
        due = fair_shares(capacity, [use.weight for use in uses], [use.wants(self.looked) for use in uses])
        return {
            project: use.got / share
            for project, use, share in zip(self.known, uses, due, strict=True)
            if share > _LEAST
        }
