"""Scenarios of tenants that have a backlog from the beginning: it comes in first, then some seconds are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from evenlane.engine.proof.scenarios.load import Load, facts_of
from evenlane.engine.proof.scenarios.traced import Traced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.proof.scenarios.load import Arrival, Tenant

_MEASURED = 20  # s, after those in which the backlog comes in
_USUAL = 22.0  # s of both together, for which backlogs are named


class Backlogged(Traced):
    groups_each: ClassVar[int]
    """Groups of a tenant, for each node."""

    @property
    def groups(self) -> int:
        return self.groups_each * self.nodes

    @property
    def span(self) -> tuple[int, int]:
        """What is measured, in ns; it ends with the load."""
        return self.ns(self.comes_in), self.ns(self.comes_in + _MEASURED)

    def load(self, tenants: Iterable[Tenant], arrivals: Iterable[Arrival]) -> Load:
        return Load.of(tenants, arrivals, self.span[1], facts_of(self.nodes))

    def backlog(self, messages: int) -> int:
        """So many, or as many more as it has to last longer than usual."""
        return self.count(int(messages * (self.comes_in + _MEASURED) / _USUAL))
