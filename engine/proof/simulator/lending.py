"""The lending of quota shares (docs/adr/0019) on the simulator: the leader's rounds and the nodes' answers, a
millisecond or two apart on the wire. `evenlane.quota.lending` decides; this module carries its messages.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from evenlane.engine.core.records.share_messages import DURATION_S, EVERY_S, SOON_S
from evenlane.engine.node.services.quota_demand import QueueDemand, QuotaDemand
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.load.load import CLUSTER_CONFIG
from evenlane.quota.lending.loans import Loans
from evenlane.quota.lending.parts import NodeLoans, PartDemand
from evenlane.quota.lending.rounds import LendingRounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.engine.proof.simulator.node import SimNode
    from evenlane.engine.proof.simulator.wire import Wire
    from evenlane.quota.lending.parts import Loan
    from evenlane.quota.lending.rounds import Grants

_EPOCH = 1
_DURATION, _EVERY, _SOONEST = int(DURATION_S * SECOND), int(EVERY_S * SECOND), int(SOON_S * SECOND)
_DELAYS = (1 * MILLISECOND, 2 * MILLISECOND, 3 * MILLISECOND // 2)  # of messages, in turn


class BorrowingNode:
    """A node's side of the lending."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._loans, self._demand = Loans(), QuotaDemand()

    def look(self, now: int) -> set[str]:
        """The topics of which the node wants more than its own share."""
        states = self._states(self._node.busy(), now)
        return {project for project, state in states.items() if state.want > state.own}

    def on_request(self, number: int, projects: Iterable[str], now: int) -> dict[str, PartDemand]:
        self._loans.begin_report(_EPOCH, number, now)
        return self._states(projects, now)

    def lend(self, number: int, loans: Mapping[str, Loan], now: int) -> dict[str, NodeLoans]:
        node_loans = {}
        for project, loan in loans.items():
            own = self._node.known[project].own.part
            lent = self._loans.lend(project, _EPOCH, number, loan.lend, own, now + _DURATION)
            node_loans[project] = NodeLoans(lent, self._loans.keep(project, _EPOCH, number, loan.keep))
            self._use(project, now)
        return node_loans

    def on_grants(self, number: int, grants: Grants, now: int) -> None:
        for project, part in grants.parts.items():
            self._loans.grant(project, _EPOCH, number, part, _DURATION, now)
        for project in grants.freed:
            self._loans.free(project, _EPOCH, number)
        for project in {*grants.parts, *grants.freed}:
            self._use(project, now)

    def expire(self, now: int) -> None:
        for project in self._loans.expire(now):
            self._use(project, now)

    def ends(self) -> int | None:
        return self._loans.ends()

    def _use(self, project: str, now: int) -> None:
        self._node.configure(project, self._loans.part(project, self._node.known[project].own.part), now)

    def _states(self, projects: Iterable[str], now: int) -> dict[str, PartDemand]:
        """The states of those whose groups may borrow."""
        known = self._node.known
        return {project: self._state(project, now) for project in projects if known[project].tenant.topic.borrow}

    def _state(self, project: str, now: int) -> PartDemand:
        known = self._node.known[project]
        used, own = self._node.scheduler.measure_use(project, now), known.own.part
        seen = QueueDemand(used, known.tenant.topic.qps, own, self._loans.part(project, own))
        return PartDemand(own, self._demand.want(project, seen, now, lambda: self._count_waiting(project)))

    def _count_waiting(self, project: str) -> tuple[int, float]:
        waiting, groups = self._node.backlog(project)
        return waiting, groups * CLUSTER_CONFIG.max_group_qps


class LendingLeader:
    """The leader's side, and the messages between it and all nodes."""

    def __init__(self, nodes: Sequence[SimNode], wire: Wire) -> None:
        self._sides = {str(node.number): BorrowingNode(node) for node in nodes}
        self._wire, self._delays = wire, cycle(_DELAYS)
        self._rounds = LendingRounds(_DURATION)
        self._short: set[str] = set()  # topics that are short or lent since the last round
        self._about: set[str] = set()  # what the last round was about
        self._last, self._hurry = 0, False
        self._answers = 0

    def begin(self) -> None:
        """Schedule the nodes' looks, at different instants."""
        for place, side in enumerate(self._sides.values(), 1):
            self._wire.call_at(place * _EVERY // (len(self._sides) + 1), partial(self._look, side))

    def _send(self, now: int, call: Callable[[int], None]) -> None:
        self._wire.call_at(now + next(self._delays), call)

    def _look(self, side: BorrowingNode, now: int) -> None:
        self._send(now, partial(self._on_short, side.look(now)))
        self._wire.call_at(now + _EVERY, partial(self._look, side))

    def _on_short(self, short: set[str], now: int) -> None:
        self._hurry = self._hurry or not short <= self._short | self._about
        self._short |= short
        self._arm(now)

    def _arm(self, now: int) -> None:
        if self._short:
            self._wire.call_at(max(now, self._last + (_SOONEST if self._hurry else _EVERY)), self._tick)

    def _tick(self, now: int) -> None:
        if self._short and now - self._last >= (_SOONEST if self._hurry else _EVERY):
            self._round(now)

    def _round(self, now: int) -> None:
        projects, self._about, self._short = sorted(self._short), self._short, set()
        self._last, self._hurry = now, False
        number = self._rounds.begin()
        self._answers = 0
        for name in self._sides:
            self._send(now, partial(self._ask, name, number, projects))

    def _ask(self, name: str, number: int, projects: Sequence[str], now: int) -> None:
        states = self._sides[name].on_request(number, projects, now)
        self._send(now, partial(self._on_report, name, number, states))

    def _on_report(self, name: str, number: int, states: Mapping[str, PartDemand], now: int) -> None:
        self._rounds.on_report(name, number, states)
        if self._count_answer():
            loans = self._rounds.loans()
            for node in self._sides:
                self._send(now, partial(self._lend, node, number, loans.get(node, {})))

    def _lend(self, name: str, number: int, loans: Mapping[str, Loan], now: int) -> None:
        node_loans = self._sides[name].lend(number, loans, now)
        self._wake_at_end(self._sides[name])
        self._send(now, partial(self._on_confirmation, name, number, node_loans))

    def _on_confirmation(self, name: str, number: int, node_loans: Mapping[str, NodeLoans], now: int) -> None:
        self._rounds.on_confirmation(name, number, node_loans)
        if not self._count_answer():
            return
        for node, grants in self._rounds.grants(now).items():
            self._send(now, partial(self._grant, node, number, grants))
        self._rounds.expire(now)
        self._short |= self._rounds.list_borrowed()
        self._arm(now)

    def _grant(self, name: str, number: int, grants: Grants, now: int) -> None:
        self._sides[name].on_grants(number, grants, now)
        self._wake_at_end(self._sides[name])

    def _count_answer(self) -> bool:
        self._answers = (self._answers + 1) % len(self._sides)
        return self._answers == 0

    def _wake_at_end(self, side: BorrowingNode) -> None:
        ends = side.ends()
        if ends is not None:
            self._wire.call_at(ends, side.expire)
