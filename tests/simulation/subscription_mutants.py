"""Mutants of the product, each with one defect: several subscriptions that share streams (K10, L)."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import RegistryView, registry_key
from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
from evenlane.engine.control.subscriptions import acknowledgement
from evenlane.engine.core.queue import subscription_filter
from evenlane.engine.node.dispatch import dispatcher
from evenlane.engine.node.partitions import previous_owners, takeover
from evenlane.engine.node.partitions.registry_adoption import RegistryAdoption
from evenlane.engine.node.settle.removal_bound import OtherLog, RemovalBound
from evenlane.ring.coordination.ports import PutKey
from tests.simulation.etcd import SimCoordination
from tests.simulation.mutant import Mutant
from tests.simulation.nodes import ENV

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.ring.coordination.ports import TxnResult

_LOSS, _HELD = ("L",), ("K10",)


@contextmanager
def _own_watermark() -> Iterator[None]:
    """The unnamed subscription removes what it has settled itself."""

    async def find_watermark(_self: RemovalBound, lane: Lane) -> int:
        return lane.removal.durable_watermark

    with patch.object(RemovalBound, "find_watermark", find_watermark):
        yield


@contextmanager
def _deletes_above() -> Iterator[None]:
    """Settled messages above a pinned watermark are deleted, although others need them."""
    adopt = RemovalBound.adopt

    def adopt_alone(self: RemovalBound, view: RegistryView) -> None:
        adopt(self, view)
        self.is_shared = False

    with patch.object(RemovalBound, "adopt", adopt_alone):
        yield


@contextmanager
def _own_settled_deleted() -> Iterator[None]:
    """Above a pinned watermark, what the unnamed subscription has settled itself is deleted."""

    async def read_logs(_self: RemovalBound, lane: Lane) -> list[OtherLog]:
        return [OtherLog(lane.settled, b"")]

    with patch.object(RemovalBound, "read_logs", read_logs):
        yield


@contextmanager
def _logs_unread() -> Iterator[None]:
    """Harmless alone: a creation doesn't wait until each settle log says that there are subscriptions."""

    async def find_unmarked(*_: Any) -> frozenset[int]:
        return frozenset()

    with patch.object(acknowledgement, "find_unmarked", find_unmarked):
        yield


@contextmanager
def _no_adoption() -> Iterator[None]:
    """An owner says that it follows a new registry, and removes by the one of its start. A creation takes its word."""
    real = RegistryAdoption.adopt
    begun = "begun"

    def adopt(self: Any, view: RegistryView) -> None:
        if begun not in self.__dict__:
            self.__dict__[begun] = True
            real(self, view)

    with patch.object(RegistryAdoption, "adopt", adopt), _logs_unread():
        yield


@contextmanager
def slow_registry(late_s: float = 1.0) -> Iterator[None]:
    """Harmless, unless it takes long: nodes learn of a new registry late."""
    real = RegistryWatch._follow

    async def late(watch: Any) -> AsyncIterator[Any]:
        async for update in watch:
            await asyncio.sleep(late_s)
            yield update

    async def follow(self: RegistryWatch, watch: Any) -> None:
        await real(self, late(watch))  # type: ignore[arg-type]

    with patch.object(RegistryWatch, "_follow", follow):
        yield


@contextmanager
def _claims_unseen() -> Iterator[None]:
    """A node claims partitions before it has seen the newest registry, of which it learns late. A creation relies on
    its claim.
    """
    real = SimCoordination.txn

    async def txn(self: Any, compare: Any, then: Any, otherwise: Any = ()) -> TxnResult:
        if any(isinstance(op, PutKey) and op.lease and "/owners/" in op.key for op in then):
            compare = [each for each in compare if getattr(each, "key", "") != registry_key(ENV)]
        return await real(self, compare, then, otherwise)

    with slow_registry(2.0), patch.object(SimCoordination, "txn", txn), _logs_unread():
        yield


@contextmanager
def _shared_retries() -> Iterator[None]:
    """Retries of a named subscription go into the shared delay stream."""

    def retry_subject(cluster: str, *of: Any) -> str:
        return names.later_subject(names.env_of(cluster), *of)

    with patch.object(names, "retry_subject", retry_subject):
        yield


@contextmanager
def _no_pass_over() -> Iterator[None]:
    """A named subscription handles other subscriptions' retries, too."""
    with ExitStack() as stack:
        for module in (dispatcher, subscription_filter):
            stack.enter_context(patch.object(module, "is_of_another", lambda _headers: False))
        yield


@contextmanager
def _any_log_believed() -> Iterator[None]:
    """A log of before a rollback counts for the stream as it is now."""

    async def is_of_this_stream(*_: Any) -> bool:
        return True

    with patch.object(RemovalBound, "_is_of_this_stream", is_of_this_stream):
        yield


@contextmanager
def _reset_ignored() -> Iterator[None]:
    """The unnamed subscription removes by what another one had settled before its reset."""
    with patch.object(RegistryView, "reset_of", lambda *_: 0):
        yield


@contextmanager
def _results_of_before_count() -> Iterator[None]:
    """Results of handlers that were started before a reset settle their messages."""
    with ExitStack() as stack:
        for module in (takeover, previous_owners):
            stack.enter_context(patch.object(module, "is_void", lambda *_: False))
        yield


SUBSCRIPTION_MUTANTS = {
    "purge by the own watermark": Mutant(_own_watermark, _LOSS, 20),
    "deletes above the watermark": Mutant(_deletes_above, _LOSS, 20),
    "deletes by the own settled set": Mutant(_own_settled_deleted, _LOSS, 20),
    "registry not adopted": Mutant(_no_adoption, _LOSS, 20, first=14),
    "claim without the newest registry": Mutant(_claims_unseen, _LOSS, 20, first=230),
    "retries in the shared stream": Mutant(_shared_retries, _LOSS, 20),
    "retries of others handled": Mutant(_no_pass_over, _HELD, 20),
    "log of before a rollback believed": Mutant(_any_log_believed, _LOSS, 10, script=1320),
    "removal by a log of before a reset": Mutant(_reset_ignored, _LOSS, 10, first=70),
    "results of before a reset count": Mutant(_results_of_before_count, _LOSS, 20, first=10),
}
