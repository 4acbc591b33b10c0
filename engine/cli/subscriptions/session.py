"""Connections of the commands of `evenlane subscriptions`: to etcd, and to the stores of the clusters."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.subscriptions.client import SubscriptionStatus
    from evenlane.engine.core.ports import Store
    from evenlane.ring.coordination.ports import Coordination

T = TypeVar("T")


class SubscriptionBacklog(NamedTuple):
    """A subscription and what waits for it; None: it isn't complete, or its streams can't be read."""

    status: SubscriptionStatus
    waiting: int | None
    delayed: int | None

    def document(self) -> dict[str, Any]:
        return {**self.status.document(), "waiting": self.waiting, "delayed": self.delayed}


class Session(NamedTuple):
    """An existing environment, and what opens the store of one of its clusters; it is closed at the end."""

    etcd: Coordination
    env: str
    cluster_config: ClusterConfig
    open_store: Callable[[str], Awaitable[Store]]


def run_with_session(settings: Settings, work: Callable[[Session], Awaitable[T]]) -> T:
    """Run the work. Raises EvenlaneError if the environment doesn't exist; errors of the store and etcd as readable
    ones.
    """
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.runtime.run_loop import run_loop

    setup(settings.log_format, settings.log_level)
    found: T = run_loop(_run(settings, work))
    return found


async def read_backlog(session: Session, status: SubscriptionStatus) -> SubscriptionBacklog:
    """Read the backlog of a subscription. Raises CoordinationError, Unreachable, ConfigError."""
    from evenlane.engine.admin.backlog.totals import count_totals
    from evenlane.engine.admin.session import read_subscriber
    from evenlane.engine.core.ports import Lost, Refused

    if status.state != "active":
        return SubscriptionBacklog(status, None, None)
    try:
        subscriber = await read_subscriber(session.etcd, session.env, status.name)
        store = await session.open_store(status.name or "")
        totals = await count_totals(store, session.cluster_config, subscriber)
    except (Lost, Refused):
        return SubscriptionBacklog(status, None, None)
    return SubscriptionBacklog(status, totals.waiting, totals.delayed)


async def count_reset(session: Session, name: str, at: int | None) -> int:
    """Count the messages that a subscription gets by a reset to `at` (unix ns), or that a reset to new messages (None)
    skips. Raises CoordinationError, Lost, Refused, ConfigError.
    """
    from evenlane.engine.admin.backlog.totals import count_after_reset, count_skipped
    from evenlane.engine.admin.session import read_subscriber

    subscriber, store = await read_subscriber(session.etcd, session.env, name), await session.open_store(name)
    if at is None:
        return await count_skipped(store, session.cluster_config, subscriber)
    return await count_after_reset(store, session.cluster_config, subscriber, at)


async def _run(settings: Settings, work: Callable[[Session], Awaitable[T]]) -> T:
    from dataclasses import replace

    from evenlane.engine.cluster import connections
    from evenlane.engine.cluster.cluster_snapshot import read_config

    async with AsyncExitStack() as opened:
        opened.enter_context(connections.translate_errors())
        etcd = connections.etcd(settings)
        opened.push_async_callback(etcd.close)

        async def open_store(subscription: str) -> Store:
            """Open the store of a subscription's cluster; empty: the one without a name."""
            store = connections.store(replace(settings, subscription=subscription or None), "evenlane subscriptions")
            await store.open()
            opened.push_async_callback(store.close)
            return store

        return await work(Session(etcd, settings.env, await read_config(etcd, settings.env), open_store))
