"""What the leader writes into etcd about scaling, and whether the nodes agree on what carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from evenlane.engine.control.scaling.decision import ScalingState
from evenlane.ring.membership.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.ring.membership.records import NodeRecord

OFF = "off"
_NAMED = 3  # nodes of each mode in a sentence

_Replicas: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=10_000_000_000)]


class ScalingRecord(Record, frozen=True, kw_only=True):
    """`scaling`, written by the leader at each look. `mode` is the setting `scaling`, `by` the leader; times are in
    unix s.

    `desired` is the number of nodes that it has decided on, `replicas` the number that was asked for before; both are 0
    as long as there is no decision, or if somebody has switched the nodes off (then there is a `why`). `why`
    is a clause; `error` says why nothing can be carried out, "" if it can. The other fields are the state of the
    decision, see `ScalingState`: with `attempted_at`, `desired` is the attempt, and the other fields don't count it.
    """

    mode: str
    by: str
    at: _Time
    policy: str = ""
    desired: _Replicas = 0
    replicas: _Replicas = 0
    why: str = ""
    error: str = ""
    changed_at: _Time | None = None
    low_since: _Time | None = None
    low_most: _Replicas = 0
    attempted_at: _Time | None = None

    @property
    def state(self) -> ScalingState:
        state = ScalingState(self.changed_at, self.low_since, self.low_most, self._asked_for)
        if self.attempted_at is None:
            return state
        return state._replace(replicas=self.replicas, attempt=self.desired, attempted_at=self.attempted_at)

    @property
    def _asked_for(self) -> int | None:
        return self.desired if self.desired or self.why else None


def with_state(record: ScalingRecord, state: ScalingState) -> ScalingRecord:
    return msgspec.structs.replace(
        record, changed_at=state.changed_at, low_since=state.low_since, low_most=state.low_most,
        attempted_at=None if state.attempt is None else state.attempted_at,
    )  # fmt: skip


def find_conflict(nodes: Mapping[str, NodeRecord]) -> str:
    """Return a clause that names the nodes if two carry out scaling by different means; "" if they agree. A node with
    `off` carries out nothing.
    """
    by_mode: dict[str, list[str]] = {}
    for name, node in sorted(nodes.items()):
        if node.scaling != OFF:
            by_mode.setdefault(node.scaling, []).append(name)
    if len(by_mode) < 2:
        return ""
    listed = " and ".join(f"{mode} on {_list_names(names)}" for mode, names in sorted(by_mode.items()))
    return f"the setting scaling is {listed}: nothing is scaled until it is the same on all nodes"


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
