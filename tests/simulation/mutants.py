"""Mutants of the product, each with one defect, which the simulation must catch: ownership and settlement here, order
and attempts in `attempt_mutants.py`, rollbacks of etcd in `restore_mutants.py`, several subscriptions in
`subscription_mutants.py`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.engine.core.lane.handoff_state import StreamIdentity
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.lane.truncation import Truncation
from evenlane.engine.node.settle.outcomes import FailureHandler
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.ring.coordination.ports import Absent, PutKey
from evenlane.ring.membership.leader import Leader
from evenlane.ring.membership.member import Member
from tests.simulation.attempt_mutants import ATTEMPT_MUTANTS
from tests.simulation.etcd import SimCoordination
from tests.simulation.loop import SECOND
from tests.simulation.mutant import Mutant
from tests.simulation.restore_mutants import RESTORE_MUTANTS
from tests.simulation.subscription_mutants import SUBSCRIPTION_MUTANTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.ring.coordination.ports import Compare, Op, TxnResult
    from evenlane.ring.membership.actions import Action


def _owner_key(key: str) -> bool:
    return "/owners/" in key


def _takes_owner_keys(then: Sequence[Op]) -> bool:
    return any(isinstance(op, PutKey) and op.lease and _owner_key(op.key) for op in then)


def _unconditional(compare: Sequence[Compare]) -> list[Compare]:
    return [each for each in compare if not (isinstance(each, Absent) and _owner_key(each.key))]


@contextmanager
def _unconditional_acquire() -> Iterator[None]:
    real = SimCoordination.txn

    async def txn(self: Any, compare: Any, then: Any, otherwise: Any = ()) -> TxnResult:
        return await real(self, _unconditional(compare) if _takes_owner_keys(then) else compare, then, otherwise)

    with patch.object(SimCoordination, "txn", txn):
        yield


@contextmanager
def _no_waiting() -> Iterator[None]:
    """A node takes its planned partitions, even from their owners."""
    real = Member._decide

    def decide(self: Member, now: int, *rest: Any) -> list[Action]:
        mine = {p: owner for p, owner in self._owners.items() if owner.lease == self.lease}
        with patch.object(self, "_owners", mine):
            return real(self, now, *rest)

    with _unconditional_acquire(), patch.object(Member, "_decide", decide):
        yield


@contextmanager
def _timer() -> Iterator[None]:
    """A node takes an owner key after a wait of 1 s, half the lease's TTL, whether the key is gone or not."""
    real, since = Member._decide, "waits_since"

    def decide(self: Member, now: int, *rest: Any) -> list[Action]:
        waits = self.__dict__.setdefault(since, {})
        for partition in [*waits]:
            if partition not in self.plan.desired:
                del waits[partition]
        late = {p for p in self.plan.desired & self._owners.keys() if now - waits.setdefault(p, now) > SECOND}
        awaited = {p: owner for p, owner in self._owners.items() if p not in late or owner.lease == self.lease}
        with patch.object(self, "_owners", awaited):
            return real(self, now, *rest)

    with _unconditional_acquire(), patch.object(Member, "_decide", decide):
        yield


@contextmanager
def _no_guard() -> Iterator[None]:
    """The settle log accepts an append at any position."""
    real = MemoryServer.append_log

    def append_log(self: Any, subject: str, record: bytes, _after: int, checkpoint: bool) -> int:
        position = self._taker(subject).last_of.get(subject, 0)
        return real(self, subject, record, position, checkpoint)

    with patch.object(MemoryServer, "append_log", append_log):
        yield


@contextmanager
def _past_the_feed() -> Iterator[None]:
    """The watermark is one too high."""

    def watermark(removal: Truncation) -> int:
        return removal._settled.watermark + 1

    with patch.object(Truncation, "durable_watermark", property(watermark)):
        yield


@contextmanager
def _no_identity() -> Iterator[None]:
    """Any stream of that name is taken for the stream that the feed read."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(StreamIdentity, "is_same", lambda *_: True))
        yield


@contextmanager
def _held_ignored() -> Iterator[None]:
    """Messages that a previous owner still handles are handed out again at once."""
    with patch.object(Lane, "hold", lambda *_: None):
        yield


@contextmanager
def _long_trust() -> Iterator[None]:
    """The lease is trusted for 4 s too long."""
    real = NodeLease._trust

    def trust(self: NodeLease, sent: int) -> None:
        real(self, sent + 4 * SECOND)

    with patch.object(NodeLease, "_trust", trust):
        yield


@contextmanager
def _copy_not_awaited() -> Iterator[None]:
    """A message that failed is settled when its copy is sent, not when it is stored."""
    real = FailureHandler._put

    def put(self: FailureHandler, outcome: Any) -> None:
        self._settlement.settle_copied(outcome.lane, outcome.sequence, outcome.generation, outcome.message)
        real(self, outcome)

    with patch.object(FailureHandler, "_put", put):
        yield


@contextmanager
def _dead_nodes_planned_for() -> Iterator[None]:
    """The leader doesn't notice that a node has gone."""
    with patch.object(Leader, "on_node_gone", lambda *_: None):
        yield


MUTANTS = {
    "start on assignment without waiting": Mutant(_no_waiting, ("O",), 30),
    "settle without the guard": Mutant(_no_guard, ("O",), 10, first=60),
    "timer instead of watch": Mutant(_timer, ("O",), 400),
    "watermark past the feed": Mutant(_past_the_feed, ("L",), 5),
    "no identity check": Mutant(_no_identity, ("L",), 400, first=46),
    "held messages handed out": Mutant(_held_ignored, ("D",), 30),
    "lease trusted for too long": Mutant(_long_trust, ("O",), 10, first=36),
    "dead nodes planned for": Mutant(_dead_nodes_planned_for, ("Z1",), 30),
    "copy not awaited": Mutant(_copy_not_awaited, ("L",), 200),
    **ATTEMPT_MUTANTS,
    **RESTORE_MUTANTS,
    **SUBSCRIPTION_MUTANTS,
}
