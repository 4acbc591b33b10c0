"""Which share of the slots' time each project got, and which one it was due: max-min fairness by weight. Pure.

Slot time is what tenants compete for. A project whose heads mostly wait for it (`COMPETES`) could use what its backlog
needs, too; another one wanted what it got. What a project got of all the time that was used, over what it was due of it
(quota/rates/max_min.py), is 1 where sharing is fair, less where it is starved, more where it takes from others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from evenlane.quota.rates.max_min import fair_shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HALF_NS = 10_000_000_000  # what happened so long ago counts half
_LEAST = 1e-4  # of a second: less is nothing
_FEW = 0.5  # attempts that say nothing of how long one takes

COMPETES = frozenset({"fairness", "handlers_busy", "headroom"})
"""What a head waits for when it waits for slots."""


class Use(NamedTuple):
    """Slot seconds that a project got in how many attempts, and for how long it waited for more: of the last half
    minute or so, the older the less they count. `backlog` are the messages that waited last. `weight` is the topic's,
    above 0.
    """

    got: float = 0.0
    attempts: float = 0.0
    waited: float = 0.0
    backlog: int = 0
    weight: float = 1.0

    def aged(self, age: int) -> Use:
        left = math.exp2(-age / _HALF_NS)
        return self._replace(got=self.got * left, attempts=self.attempts * left, waited=self.waited * left)

    def wants(self, looked: float) -> float:
        """Slot seconds: what it got, and what its backlog needs beyond that if it mostly waits for slots."""
        if self.waited <= looked / 2:
            return self.got
        return self.got + self.backlog * self.got / self.attempts if self.attempts >= _FEW else math.inf


class Round(NamedTuple):
    """Of one project in one round: `got` slot seconds in `attempts`; `waited` is how long the round took if it waited
    for slots when it was looked at, else 0; `backlog` are the messages that wait.
    """

    got: float
    attempts: int
    waited: float
    backlog: int
    weight: float


class Usage:
    """Of all projects of a node."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Use]] = {}
        self._looked = 0.0  # seconds looked at, which count less as they get older
        self._at = 0

    def begin(self, now: int, seconds: float) -> None:
        """A round that took so long is noted from now on; `now` is monotonic ns."""
        self._looked = self._looked * math.exp2((self._at - now) / _HALF_NS) + seconds
        self._at = now

    def note(self, project: str, seen: Round) -> None:
        use = self._now(project)
        self._known[project] = (
            self._at,
            Use(use.got + seen.got, use.attempts + seen.attempts, use.waited + seen.waited, seen.backlog, seen.weight),
        )

    def tidy(self) -> Iterator[None]:
        """Forget who had nothing for long. A step for each project."""
        for project in list(self._known):
            use = self._now(project)
            if use.got < _LEAST and use.waited < _LEAST:
                self._known.pop(project, None)
            yield

    def void(self) -> None:
        self._known.clear()
        self._looked = 0.0

    def seen(self) -> FairnessSample:
        """A copy, to work with in another thread."""
        return FairnessSample(self._known.copy(), self._looked, self._at)

    def _now(self, project: str) -> Use:
        at, use = self._known.get(project, (self._at, Use()))
        return use.aged(self._at - at)


class FairnessSample(NamedTuple):
    """What a node knew at `at`: by project, when it was noted, and what."""

    known: Mapping[str, tuple[int, Use]] = {}
    looked: float = 0.0
    at: int = 0

    def ratios(self) -> dict[str, float]:
        """Share got over share due, of each project that was due any."""
        uses = [use.aged(self.at - at) for at, use in self.known.values()]
        capacity = math.fsum(use.got for use in uses)
        due = fair_shares(capacity, [use.weight for use in uses], [use.wants(self.looked) for use in uses])
        return {
            project: use.got / share
            for project, use, share in zip(self.known, uses, due, strict=True)
            if share > _LEAST
        }
