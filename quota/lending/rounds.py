"""The leader's side of lending between nodes (docs/adr/0019), for one epoch. Pure.

The nodes' side is `evenlane.quota.lending.loans`.

A round takes place about once per second, and covers only topics that are short on some node:

1. `begin`: all nodes are asked. Each reports its own part of these topics, and what it wants (`on_report`).
2. `loans` divides the topics: how much of its own part each node must leave unused, and how much each borrower may
   keep. Nodes comply, and confirm (`on_confirmation`).
3. `grants`: parts confirmed to be unused are granted to nodes that are short. A borrower that hasn't confirmed a
   reduction is counted with everything that it may still use.

At any instant, the grants in effect thus never exceed the promises of the newest confirmed round. Promises of earlier
rounds are then void (`freed`), and lenders that want more again can have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.quota.lending.division import divide
from evenlane.quota.lending.parts import ROUNDING, Loan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.quota.lending.parts import NodeLoans, PartDemand


class Grants(NamedTuple):
    """For one node: the part of each topic that it may borrow, and the topics whose older promises it may drop."""

    parts: dict[str, float]
    freed: list[str]


class _Most(NamedTuple):
    """The most that a borrower may be using, until then (ns of the leader's clock)."""

    part: float
    until: int


class LendingRounds:
    """`duration` of a loan in ns. Messages for another round than the present one are ignored."""

    def __init__(self, duration: int) -> None:
        self.number = 0
        self._duration = duration
        self._states: dict[str, dict[str, PartDemand]] = {}  # by topic and node, of this round
        self._loans: dict[str, dict[str, Loan]] = {}
        self._confirmed: dict[str, dict[str, NodeLoans]] = {}
        self._most: dict[str, dict[str, _Most]] = {}  # by topic and borrower

    def begin(self) -> int:
        """Begin a round, and return its number."""
        self.number += 1
        self._states, self._loans, self._confirmed = {}, {}, {}
        return self.number

    def on_report(self, node: str, number: int, states: Mapping[str, PartDemand]) -> None:
        if number == self.number:
            for project, state in states.items():
                self._states.setdefault(project, {})[node] = state

    def loans(self) -> dict[str, dict[str, Loan]]:
        """Node -> topic -> loan, for all nodes that have reported."""
        made: dict[str, dict[str, Loan]] = {}
        for project, states in self._states.items():
            self._loans[project] = _divide(states)
            for node, loan in self._loans[project].items():
                made.setdefault(node, {})[project] = loan
        return made

    def on_confirmation(self, node: str, number: int, reported: Mapping[str, NodeLoans]) -> None:
        if number == self.number:
            for project, node_loans in reported.items():
                if node in self._loans.get(project, {}):
                    self._confirmed.setdefault(project, {})[node] = node_loans

    def grants(self, now: int) -> dict[str, Grants]:
        """The grants by node; `now` in ns."""
        made: dict[str, Grants] = {}
        for project in self._loans:
            parts, freed = self._grant(project, now)
            for node, part in parts.items():
                made.setdefault(node, Grants({}, [])).parts[project] = part
            for node in freed:
                made.setdefault(node, Grants({}, [])).freed.append(project)
        return made

    def expire(self, now: int) -> None:
        """Forget the grants that have ended by `now`, ns."""
        for project in list(self._most):
            self._most[project] = {node: most for node, most in self._most[project].items() if most.until > now}
            if not self._most[project]:
                del self._most[project]

    def list_borrowed(self) -> set[str]:
        """The topics of which a part was borrowed when `expire` was last called, or has been since."""
        return set(self._most)

    def _grant(self, project: str, now: int) -> tuple[dict[str, float], list[str]]:
        """The parts of borrowers, and the nodes that may drop older promises."""
        reported, loans = self._confirmed.get(project, {}), self._loans[project]
        most = self._most.setdefault(project, {})
        lent = sum([node_loans.lent for node_loans in reported.values()], 0.0)
        silent = sum([each.part for node, each in most.items() if node not in reported and each.until > now], 0.0)
        held = {
            node: node_loans.borrowed
            for node, node_loans in reported.items()
            if loans[node].keep or node_loans.borrowed
        }
        left = lent - silent - sum(held.values(), 0.0)
        covered, left = left > -ROUNDING, max(0.0, left)
        parts = {}
        if covered:
            lacking = {node: max(0.0, loans[node].keep - part) for node, part in held.items()}
            scale = min(1.0, left / sum(lacking.values(), 0.0)) if any(lacking.values()) else 0.0
            parts = {node: part + scale * lacking[node] for node, part in held.items()}
        for node in reported:
            most.pop(node, None)
        for node, part in (held | parts).items():
            if part:
                most[node] = _Most(part, now + self._duration)
        return {node: part for node, part in parts.items() if part}, [*reported] if covered else []


def _divide(states: Mapping[str, PartDemand]) -> dict[str, Loan]:
    """The loans of one topic. If no node is short of its own part, each has just that."""
    if all(state.want <= state.own for state in states.values()):
        return dict.fromkeys(states, Loan(0.0, 0.0))
    due = divide({node: state.own for node, state in states.items()}, {node: s.want for node, s in states.items()})
    return {node: Loan(max(0.0, s.own - due[node]), max(0.0, due[node] - s.own)) for node, s in states.items()}
