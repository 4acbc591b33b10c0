"""The ways between nodes and servers: how long a request takes, and whether it arrives at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random


class Delays(NamedTuple):
    """Seconds one way: mostly about `usual`, and `slow` in one of `seldom` cases."""

    usual: float
    slow: float
    seldom: int

    def draw(self, chance: Random) -> float:
        if self.seldom and chance.random() * self.seldom < 1:
            return chance.random() * self.slow
        return chance.random() * 2 * self.usual


NEAR = Delays(0.0005, 0.05, 200)
FAR = Delays(0.005, 0.3, 50)
UNSTEADY = Delays(0.02, 0.4, 10)


class Link:
    """One node's way to one server. `failing` is the share of requests that go wrong, before or after the server
    has carried them out.
    """

    def __init__(self, chance: Random, delays: Delays) -> None:
        self.chance, self.delays = chance, delays
        self.cuts = 0  # how many faults cut it at the moment
        self.failing = 0.0
        self.starved = False  # leases aren't kept alive, though all else goes through

    @property
    def up(self) -> bool:
        return self.cuts == 0

    def delay(self) -> float:
        return self.delays.draw(self.chance)

    def fails(self) -> bool:
        return self.failing > 0 and self.chance.random() < self.failing

    def either(self) -> bool:
        return self.chance.random() < 0.5
