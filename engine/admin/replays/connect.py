"""Connections of the commands that replay: to an environment that exists, and to the streams of one subscription."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.subscriptions.registry import Subscription
    from evenlane.engine.core.ports import Store


class Connected(NamedTuple):
    """`subscription` is the registry's entry; None for the unnamed one."""

    store: Store
    topics: TopicCache
    cluster_config: ClusterConfig
    subscription: Subscription | None


@asynccontextmanager
async def connect(settings: Settings, name: str) -> AsyncIterator[Connected]:
    """Connect as configured; `name` names the connection on the server. Raises Unreachable, ConfigError; EvenlaneError
    if there is no such environment or subscription.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(connections.translate_errors())
        etcd = connections.etcd(settings)
        stack.push_async_callback(etcd.close)
        if await etcd.get(names.key(settings.env, "settings")) is None:
            raise EvenlaneError(
                f"environment {settings.env!r} does not exist yet: "
                f"`evenlane topics set PROJECT --qps 100 --env {settings.env}` creates it"
            )
        subscription = None
        if settings.subscription is not None:
            subscription = await SubscriptionClient(etcd, settings.env).check(settings.subscription)
        cluster_config = await agree_cluster_config(etcd, settings.env, connections.config_known_so_far(settings))
        topics = TopicCache(etcd, settings.env, subscription=settings.subscription)
        await topics.start()
        stack.push_async_callback(topics.close)
        store = connections.store(settings, name)
        await store.open()
        stack.push_async_callback(store.close)
        await store.prepare([])
        yield Connected(store, topics, cluster_config, subscription)
