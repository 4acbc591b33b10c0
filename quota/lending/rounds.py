"""The leader's side of lending between nodes (docs/adr/0019), for one epoch. Pure.

The nodes' side is `evenlane.quota.lending.loans`.

A round, about once a second, and only about topics that are short somewhere:

1. `begin`, and every node is asked. Each reports its own part of these topics, and what it wants (`reported`).
2. `loans` divides anew: who is to leave how much of its own unused, and what borrowers may keep of what they have.
   Nodes do so, and confirm (`confirmed`).
3. `grants`: what was confirmed to be unused is given to those who are short. Who borrowed before, and hasn't confirmed
   that it shrank, is counted with all that it may still use.

So at any instant the grants that stand are no more than the promises of the newest round that was confirmed. Then the
promises of rounds before it are void (`freed`), and lenders who want more again can have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import msgspec

from evenlane.quota.lending.division import divide

if TYPE_CHECKING:
    from collections.abc import Mapping


_ROUNDING = 1e-9
"""By so much sums of parts may differ that are the same."""


Part: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1 + _ROUNDING)]
"""A fraction of a topic, as what comes from outside has to be."""


class State(NamedTuple):
    """A node's own part of a topic, and the part that it could use."""

    own: Part
    want: Part


class Loan(NamedTuple):
    """What a node is to leave unused of its own, and the most that it may keep of what it borrowed."""

    lend: Part
    keep: Part


class NodeStanding(NamedTuple):
    """What a node has confirmed."""

    lent: Part
    borrowed: Part


class Grants(NamedTuple):
    """To one node: what it may borrow, by topic; and the topics whose older promises it may forget."""

    parts: dict[str, float]
    freed: list[str]


class _Most(NamedTuple):
    """What a borrower may be using, until then (ns of the leader's clock)."""

    part: float
    until: int


class LendingRounds:
    """`duration` of a loan in ns. What comes for another round than the present one is passed over."""

    def __init__(self, duration: int) -> None:
        self.number = 0
        self._duration = duration
        self._states: dict[str, dict[str, State]] = {}  # by topic and node, of this round
        self._loans: dict[str, dict[str, Loan]] = {}
        self._confirmed: dict[str, dict[str, NodeStanding]] = {}
        self._most: dict[str, dict[str, _Most]] = {}  # by topic and borrower

    def begin(self) -> int:
        """The number of the new round."""
        self.number += 1
        self._states, self._loans, self._confirmed = {}, {}, {}
        return self.number

    def reported(self, node: str, number: int, states: Mapping[str, State]) -> None:
        if number == self.number:
            for project, state in states.items():
                self._states.setdefault(project, {})[node] = state

    def loans(self) -> dict[str, dict[str, Loan]]:
        """Node -> topic -> what it is to do, for all who have reported."""
        made: dict[str, dict[str, Loan]] = {}
        for project, states in self._states.items():
            self._loans[project] = _divided(states)
            for node, loan in self._loans[project].items():
                made.setdefault(node, {})[project] = loan
        return made

    def confirmed(self, node: str, number: int, standings: Mapping[str, NodeStanding]) -> None:
        if number == self.number:
            for project, standing in standings.items():
                if node in self._loans.get(project, {}):
                    self._confirmed.setdefault(project, {})[node] = standing

    def grants(self, now: int) -> dict[str, Grants]:
        """By node; `now` in ns."""
        made: dict[str, Grants] = {}
        for project in self._loans:
            parts, freed = self._granted(project, now)
            for node, part in parts.items():
                made.setdefault(node, Grants({}, [])).parts[project] = part
            for node in freed:
                made.setdefault(node, Grants({}, [])).freed.append(project)
        return made

    def lasting(self, now: int) -> set[str]:
        """The topics of which something is borrowed at `now`, ns."""
        for project in list(self._most):
            self._most[project] = {node: most for node, most in self._most[project].items() if most.until > now}
            if not self._most[project]:
                del self._most[project]
        return set(self._most)

    def _granted(self, project: str, now: int) -> tuple[dict[str, float], list[str]]:
        """What borrowers get, and which nodes may forget older promises."""
        standings, loans = self._confirmed.get(project, {}), self._loans[project]
        most = self._most.setdefault(project, {})
        lent = sum(standing.lent for standing in standings.values())
        silent = sum(each.part for node, each in most.items() if node not in standings and each.until > now)
        held = {
            node: standing.borrowed for node, standing in standings.items() if loans[node].keep or standing.borrowed
        }
        left = lent - silent - sum(held.values())
        covered, left = left > -_ROUNDING, max(0.0, left)
        parts = {}
        if covered:
            lacking = {node: max(0.0, loans[node].keep - part) for node, part in held.items()}
            scale = min(1.0, left / sum(lacking.values())) if any(lacking.values()) else 0.0
            parts = {node: part + scale * lacking[node] for node, part in held.items()}
        for node in standings:
            most.pop(node, None)
        for node, part in (held | parts).items():
            if part:
                most[node] = _Most(part, now + self._duration)
        return {node: part for node, part in parts.items() if part}, [*standings] if covered else []


def _divided(states: Mapping[str, State]) -> dict[str, Loan]:
    """If nobody is short of its own, everybody has just that."""
    if all(state.want <= state.own for state in states.values()):
        return dict.fromkeys(states, Loan(0.0, 0.0))
    due = divide({node: state.own for node, state in states.items()}, {node: s.want for node, s in states.items()})
    return {node: Loan(max(0.0, s.own - due[node]), max(0.0, due[node] - s.own)) for node, s in states.items()}
