"""Mutants whose defects show when etcd is rolled back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from evenlane.engine.cluster.leader_election import LeaderElection
from evenlane.engine.cluster.ownership.epochs import Epochs
from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.engine.cluster.ownership.rolled_back_owners import RolledBackOwners
from evenlane.engine.node.partitions import takeover
from evenlane.engine.node.settle.settler import Settler
from evenlane.ring.coordination.revisions import KeyRevisions
from tests.simulation.mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _base_not_raised() -> Iterator[None]:
    """A node that finds a higher epoch in a settle log claims the partition again as before."""
    with patch.object(Epochs, "raise_above", lambda *_: None):
        yield


@contextmanager
def _not_compared() -> Iterator[None]:
    """A renewal of the lease is taken for a proof that nothing has changed."""
    with patch.object(NodeLease, "compare", lambda *_: None):
        yield


@contextmanager
def _not_waited_for() -> Iterator[None]:
    """No node waits for an owner that etcd has lost."""
    with patch.object(RolledBackOwners, "find_deadline", lambda *_: 0):
        yield


@contextmanager
def _epochs_not_known() -> Iterator[None]:
    """The owner of any lower epoch in the settle log is taken for dead."""
    real = takeover._check_owner

    def check(*args: Any, **flags: bool) -> None:
        real(*args[:2], None, **flags)

    with patch.object(takeover, "_check_owner", check):
        yield


@contextmanager
def _held_taken_for_gone() -> Iterator[None]:
    """Messages that a previous owner still handles are handed out when etcd has lost the key that names them."""
    real = HandoffReceiver.__init__

    def init(self: HandoffReceiver, *args: object) -> None:
        real(self, *args[:5])  # type: ignore[arg-type]

    with patch.object(HandoffReceiver, "__init__", init):
        yield


@contextmanager
def _revisions_not_looked_at() -> Iterator[None]:
    """No node notices by the revisions of keys that etcd went back."""
    with patch.object(KeyRevisions, "observe", lambda *_: False):
        yield


@contextmanager
def _leases_not_compared() -> Iterator[None]:
    """Two owners of one epoch, from before and after etcd went back, are taken for one."""
    with patch.object(takeover, "is_same_lease", lambda *_: True):
        yield


@contextmanager
def _other_leaders_not_seen() -> Iterator[None]:
    """A leader doesn't notice that another one got the same epoch after etcd went back."""

    async def lost(self: LeaderElection, epoch: int) -> None:
        async for update in self._coordination.watch(self.key):
            if self._read_created_at(update) not in (epoch, None):
                return

    with patch.object(LeaderElection, "_wait_for_loss", lost):
        yield


@contextmanager
def _holders_not_waited_for() -> Iterator[None]:
    """No node waits for an owner before the last one whose key with its held messages etcd has lost."""
    with patch.object(takeover, "_check_holders", lambda *_: None):
        yield


@contextmanager
def _logs_not_asked() -> Iterator[None]:
    """A node whose trust had ended goes on as soon as etcd has its lease."""

    async def prove(*_: object) -> None:
        pass

    with patch.object(Settler, "prove", prove):
        yield


RESTORE_MUTANTS = {
    "base not raised": Mutant(_base_not_raised, ("Z1", "L"), 2, first=157),
    "served and owned not compared": Mutant(_not_compared, ("D", "L"), 10, first=37),
    "lost owners not outlived": Mutant(_not_waited_for, ("O",), 10, first=53),
    "epochs that etcd has lost not noticed": Mutant(_epochs_not_known, ("O",), 2, first=53),
    "lost keys of held messages taken for gone": Mutant(_held_taken_for_gone, ("order",), 60, first=142, script=17218),
    "revisions of keys not looked at": Mutant(_revisions_not_looked_at, ("order",), 20, first=18, script=3296),
    "epochs given twice confused": Mutant(_leases_not_compared, ("O",), 10, first=2, script=1099),
    "leaders of one epoch confused": Mutant(_other_leaders_not_seen, ("L", "Z1"), 2, first=10810),
    "holders that etcd has lost not outlived": Mutant(_holders_not_waited_for, ("order",), 20, first=23, script=17218),
    "settle logs not read when trust comes back": Mutant(_logs_not_asked, ("D", "O"), 2, first=33591),
}
