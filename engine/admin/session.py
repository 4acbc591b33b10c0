"""Session of an admin command: etcd, the store and the nodes, for one environment and project."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.subscriptions.registry import check_complete, check_takes_project
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor
from evenlane.engine.control.topics.client import read_config_or_defaults
from evenlane.engine.core.queue.subscriber import UNNAMED, Subscriber
from evenlane.engine.errors import InvalidName, UnknownProject
from evenlane.quota.topics.resolve import resolve
from evenlane.quota.topics.topic import TopicError, decode_accepted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.ports import Store
    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination


class AdminSession(NamedTuple):
    """Open connections to one subscription's cluster, and the project's topic. `accepted` is None if the project has no
    topic; `subscriber` is the subscription of the settings.
    """

    settings: Settings
    project: str
    etcd: Coordination
    store: Store
    cluster_config: ClusterConfig
    accepted: Accepted | None
    subscriber: Subscriber

    @property
    def cluster(self) -> str:
        return self.settings.cluster

    @property
    def env(self) -> str:
        return self.settings.env

    async def list_subscriptions(self) -> list[str]:
        """Return the named subscriptions, also those that only etcd has lost. Raises CoordinationError, Lost;
        EvenlaneError if they can't be read.
        """
        found = map(names.subscription_of, await self.store.find_clusters(again=True))
        return sorted({*await SubscriptionClient(self.etcd, self.env).list_names(), *filter(None, found)})

    async def needs_settle_logs(self) -> bool:
        """Whether a message that is dropped must stay in its stream, and be settled instead: other subscriptions may
        need it, or settled messages are kept. Raises CoordinationError, Lost; EvenlaneError if the registry can't be
        read.
        """
        if self.settings.subscription is not None or await self.list_subscriptions():
            return True
        return await RegistryEditor(self.etcd, self.env).read_retain() is not None

    async def list_others(self) -> list[str]:
        """Return the named subscriptions of the registry but that of the settings."""
        known = await SubscriptionClient(self.etcd, self.env).list_names()
        return sorted({*known} - {self.settings.subscription})

    def priorities(self, only: str | None) -> tuple[str, ...]:
        """Return all priorities, or only this one. Raises InvalidName."""
        if only is None:
            return self.cluster_config.priorities
        if only not in self.cluster_config.priorities:
            known = ", ".join(self.cluster_config.priorities)
            raise InvalidName(f"priority {only!r} is not one of this cluster's: {known}")
        return (only,)

    def unknown(self) -> UnknownProject:
        return UnknownProject(
            f"project {self.project!r} has no topic in environment {self.env!r}, and none of its messages wait there"
        )


@asynccontextmanager
async def open_session(settings: Settings, project: str) -> AsyncIterator[AdminSession]:
    """Open a session. Raises InvalidName, ConfigError, Unreachable; EvenlaneError if there is no such subscription, it
    isn't complete, or it gets no messages of the project. Errors inside are translated as by
    `connections.translate_errors`.
    """
    names.check_project(project)
    async with AsyncExitStack() as opened:
        opened.enter_context(connections.translate_errors())
        etcd = connections.etcd(settings)
        opened.push_async_callback(etcd.close)
        cluster_config = await read_config_or_defaults(etcd, settings.env)
        subscriber = await read_subscriber(etcd, settings.env, settings.subscription)
        check_takes_project(subscriber.chosen, settings.subscription or "", project)
        accepted = await read_accepted(etcd, settings.env, project, settings.subscription)
        store = connections.store(settings, "evenlane backlog")
        await store.open()
        opened.push_async_callback(store.close)
        yield AdminSession(settings, project, etcd, store, cluster_config, accepted, subscriber)


def describe_subscription(name: str | None) -> str:
    return "the subscription without a name" if name is None else f"subscription {name!r}"


async def read_subscriber(etcd: Coordination, env: str, name: str | None) -> Subscriber:
    """Return a subscription; None: the unnamed one. Raises CoordinationError; EvenlaneError unless it is complete."""
    if name is None:
        return UNNAMED
    found = check_complete(await SubscriptionClient(etcd, env).check(name), env, name)
    return Subscriber(is_named=True, chosen=found.filter)


async def read_accepted(etcd: Coordination, env: str, project: str, subscription: str | None) -> Accepted | None:
    """Return the accepted topic, with the quota of this subscription. A value that can't be read counts as none, as for
    the nodes.
    """
    found = await etcd.get(names.key(env, "accepted", project))
    try:
        return None if found is None else resolve(decode_accepted(found.value), subscription)
    except TopicError:
        return None
