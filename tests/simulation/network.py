"""Links between nodes and servers, which delay and lose requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random


class Delays(NamedTuple):
    """One-way delays in seconds: mostly about `usual`, and up to `slow` in one of `seldom` cases."""

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
    """The link of one node to one server. `failing` is the share of requests that are lost, before or after the server
    has carried them out.
    """

    def __init__(self, chance: Random, delays: Delays) -> None:
        self.chance, self.delays = chance, delays
        self.cuts = 0  # faults that cut it at the moment
        self.failing = 0.0
        self.starved = False  # leases aren't kept alive, although all else passes

    @property
    def up(self) -> bool:
        return self.cuts == 0

    def delay(self) -> float:
        return self.delays.draw(self.chance)

    def fails(self) -> bool:
        return self.failing > 0 and self.chance.random() < self.failing

    def either(self) -> bool:
        return self.chance.random() < 0.5
