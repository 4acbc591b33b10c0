"""The leader's decisions: when to make a new plan, and which one. Pure.

The whole placement is computed each time from the facts: the nodes that are alive and fit, the load of each partition,
and its present owner (E6). So no error accumulates, and a new leader continues where the last one stopped, even in the
middle of writing a plan: where two plan keys name a partition, the newer generation counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.membership.readers import place_on_readers
from evenlane.ring.membership.records import NodeRecord
from evenlane.ring.membership.rest import Rest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from evenlane.ring.membership.records import PlanRecord

_MS = 1_000_000
GONE_NS = 20 * _MS  # after a node has gone: others that went with it are reported at nearly the same time
CAME_NS = 300 * _MS  # after a node has come: more of them may be starting
CAME_AT_LATEST_NS = 2_000 * _MS
LOAD_NS = 2_000 * _MS  # after a topic has changed: more of them may change
LOAD_AT_LATEST_NS = 10_000 * _MS


class LeaderPhase(StrEnum):
    ELECTED = "elected"  # reading plans and nodes
    LEADING = "leading"
    PLANNING = "planning"  # a plan is being written
    DEPOSED = "deposed"


class Draft(NamedTuple):
    """A plan to be written: the plan keys that change, and those of nodes that are gone."""

    generation: int
    plans: dict[str, list[int]]
    gone: list[str]
    gathers: bool = False
    """Whether it is a step of gathering at rest."""


@dataclass
class Leader:
    """One term of a leader. Times are monotonic ns. `generation` is the newest known generation, of any leader.

    Invariants:
    - `_plans` is the content of the plan keys, except those in `_spoilt`, which another process has changed; the next
      plan writes these again.
    - `_owners` counts only before the first plan of this term is written.
    - While `_drafted` isn't None, a plan is being written, and no other one becomes due. `_nodes_since` and
      `_loads_since` are the times of the first changes that no plan covers yet.
    - `rest` knows all changes of nodes and all plans of this term.
    """

    partitions: int
    generation: int = 0
    deposed: bool = False
    load_ns: int = LOAD_NS
    rest: Rest = field(default_factory=Rest)
    _nodes: dict[str, NodeRecord] = field(default_factory=dict)
    _plans: dict[str, list[int]] = field(default_factory=dict)  # by node
    _spoilt: set[str] = field(default_factory=set)  # nodes
    _owners: dict[int, str] = field(default_factory=dict)  # partition -> node
    _nodes_due: int | None = None
    _nodes_since: int | None = None
    _loads_due: int | None = None
    _loads_since: int | None = None
    _drafted: Draft | None = None
    _knows_plans: bool = False
    _knows_nodes: bool = False

    @property
    def phase(self) -> LeaderPhase:
        if self.deposed:
            return LeaderPhase.DEPOSED
        if not (self._knows_plans and self._knows_nodes):
            return LeaderPhase.ELECTED
        return LeaderPhase.PLANNING if self._drafted else LeaderPhase.LEADING

    @property
    def fit(self) -> list[str]:
        """Nodes that may own partitions, in order."""
        return sorted(name for name, record in self._nodes.items() if record.is_fit)

    @property
    def placement_nodes(self) -> list[tuple[str, str]]:
        """The same nodes, each with its zone; empty if it isn't set."""
        return [(name, self._nodes[name].zone) for name in self.fit]

    # ---- facts

    def begin(self, generation: int, plans: Mapping[str, PlanRecord], owners: Mapping[int, str], now: int) -> None:
        """Take in etcd's content at the beginning of the term; `owners` are from the owner keys."""
        self._plans = _resolve(plans)
        self._spoilt = {name for name, record in plans.items() if record.partitions != self._plans[name]}
        self._owners = dict(owners)
        self.generation = max([generation, *(record.generation for record in plans.values())])
        self._knows_plans = True
        self._soon(now, GONE_NS)

    def nodes(self, records: Mapping[str, NodeRecord], now: int) -> None:
        """Take in all registered nodes."""
        self.keep_only(records.keys(), now)
        for name, record in records.items():
            self.node(name, record, now)

    def keep_only(self, names: Collection[str], now: int) -> None:
        """No other nodes are registered."""
        self._knows_nodes = True
        for name in self._nodes.keys() - names:
            self.on_node_gone(name, now)

    def node(self, name: str, record: NodeRecord, now: int) -> None:
        before, self._nodes[name] = self._nodes.get(name), record
        fit = before is not None and before.is_fit
        if before is not None and before.unreadable != record.unreadable:
            self._soon(now, GONE_NS)
        if fit and not record.is_fit:
            self._soon(now, GONE_NS)
        elif record.is_fit and not fit:
            self._note_arrival(now)

    def on_node_spoilt(self, name: str, now: int) -> None:
        """The node lives, but its record is invalid: its last valid record holds."""
        self.node(name, self._nodes.get(name, NodeRecord()), now)

    def on_node_gone(self, name: str, now: int) -> None:
        if self._nodes.pop(name, None) is not None:
            self._soon(now, GONE_NS)

    def on_load_change(self, now: int) -> None:
        self._loads_since = now if self._loads_since is None else self._loads_since
        self._loads_due = min(now + self.load_ns, self._loads_since + LOAD_AT_LATEST_NS)

    def on_plan(self, name: str, record: PlanRecord | None, now: int) -> bool:
        """A plan key was changed by another process, or is invalid; `record` is None if etcd has lost this leader's
        last write of it. Returns whether the key must be written again.
        """
        if record is not None:
            self.generation = max(self.generation, record.generation)
        if name not in self._plans and record is None:
            return False
        self._spoilt.add(name)
        self._soon(now, GONE_NS)
        return True

    # ---- plans

    def due(self) -> int | None:
        """The time at which to make a plan; None: nothing has changed."""
        if self.phase is not LeaderPhase.LEADING:
            return None
        return min((due for due in (self._nodes_due, self._loads_due) if due is not None), default=None)

    @property
    def is_at_rest(self) -> bool:
        """Whether no plan is due or being written, and each node may own any partition."""
        whole = all(record.is_fit and not record.unreadable for record in self._nodes.values())
        return self.phase is LeaderPhase.LEADING and self.due() is None and whole

    def gathering_due(self) -> int | None:
        """The time of the next step of gathering; None unless the cluster is at rest."""
        return self.rest.due if self.is_at_rest else None

    @property
    def present(self) -> dict[int, str]:
        """The node of each partition: by plan, or else by owner key."""
        planned = {p: name for name, plan in self._plans.items() for p in plan if 0 <= p < self.partitions}
        return {p: name for p, name in self._owners.items() if p not in planned} | planned

    def placement_input(self) -> tuple[list[tuple[str, str]], dict[int, str]]:
        """The facts to place by: `placement_nodes` and `present`. Later changes make another plan due."""
        self._nodes_due = self._nodes_since = self._loads_due = self._loads_since = None
        return self.placement_nodes, self.present

    def draft(self, placement: Sequence[str | None], *, gathers: bool = False) -> Draft | None:
        """The plan that carries out `placement` (made from `placement_input`, or from the same facts if it
        `gathers`); None if no key has to change. Nodes that have come or gone since are left to the next plan.

        Without any fit node, the partitions of living nodes stay where they are: moving them would help nobody.
        """
        desired = self._compute_desired(placement)
        gone = sorted((self._plans.keys() | self._spoilt) - self._nodes.keys())
        plans = {
            name: partitions
            for name, partitions in desired.items()
            if name in self._spoilt or self._plans.get(name) != partitions
        }
        if not plans and not gone:
            return None
        self._drafted = Draft(self.generation + 1, plans, gone, gathers)
        self._spoilt = set()  # keys spoilt from now on aren't repaired by this draft
        return self._drafted

    def _compute_desired(self, placement: Sequence[str | None]) -> dict[str, list[int]]:
        desired: dict[str, list[int]] = {name: [] for name in sorted(self._nodes)}
        if not any(placement):
            return {name: [] if self._nodes[name].leaving else self._plans.get(name, []) for name in desired}
        for partition, name in enumerate(place_on_readers(placement, self._nodes, self.present)):
            if name in desired:
                desired[name].append(partition)
        return desired

    def on_written(self, now: int) -> None:
        """The draft is stored in etcd."""
        draft = self._drafted
        if draft is None:
            return
        self._drafted = None
        self.generation = max(self.generation, draft.generation)
        self._plans |= draft.plans
        for name in draft.gone:
            self._plans.pop(name, None)
        self._owners = {}
        if draft.gathers:
            self.rest.step(now)
        else:
            self.rest.disturb(now)
        if self._spoilt:
            self._soon(now, GONE_NS)

    def on_not_written(self, now: int) -> None:
        """Note that an unknown part of the draft is stored in etcd: the next plan writes everything."""
        draft, self._drafted = self._drafted, None
        if draft is not None:
            self.generation = max(self.generation, draft.generation)
            self._spoilt |= {*draft.plans, *draft.gone}
        self._soon(now, GONE_NS)

    def _soon(self, now: int, pause: int) -> None:
        self.rest.disturb(now)
        self._nodes_since = now if self._nodes_since is None else self._nodes_since
        self._nodes_due = min(now + pause, self._nodes_due or now + pause)

    def _note_arrival(self, now: int) -> None:
        """Defer the plan while more nodes come, but not for ever, and not if it is due for another reason."""
        self.rest.disturb(now)
        self._nodes_since = now if self._nodes_since is None else self._nodes_since
        if self._nodes_due is None or self._nodes_due > now + GONE_NS:
            self._nodes_due = min(now + CAME_NS, self._nodes_since + CAME_AT_LATEST_NS)


def _resolve(plans: Mapping[str, PlanRecord]) -> dict[str, list[int]]:
    """The plans with each partition in only the newest plan that names it."""
    newest: dict[int, tuple[int, str]] = {}
    for name in sorted(plans):
        for partition in plans[name].partitions:
            newest[partition] = max(newest.get(partition, (0, "")), (plans[name].generation, name))
    return {name: [p for p in record.partitions if newest[p][1] == name] for name, record in plans.items()}
