"""The permissions of an operator who creates and deletes a subscription, on real servers that require them."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from evenlane.engine.admin.backlog.cancel import cancel
from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.admin.topics.change import count_waiting
from evenlane.engine.cli.subscriptions.session import run_with_session
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.control.subscriptions.creation import Stores, SubscriptionCreation
from evenlane.engine.control.subscriptions.deletion import SubscriptionDeletion
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.producer.producer import Producer
from tests.support.permissions.guarded import ENV, SUBSCRIPTION
from tests.support.permissions.roles_at_work import connected, handler, node, set_topics
from tests.support.until import until

pytestmark = pytest.mark.real


async def create(session):
    stores = Stores(await session.open_store(""), await session.open_store(SUBSCRIPTION))
    creation = SubscriptionCreation(session.etcd, ENV, SUBSCRIPTION, session.cluster_config, stores)
    await creation.run()
    return [each.name for each in await SubscriptionClient(session.etcd, ENV).all()]


async def delete(session):
    await SubscriptionDeletion(session.etcd, ENV, SUBSCRIPTION, await session.open_store(SUBSCRIPTION)).run()
    return [each.name for each in await SubscriptionClient(session.etcd, ENV).all()]


async def run(servers, user, work):
    return await asyncio.to_thread(run_with_session, servers.settings(user), work)


async def test_operator_of_a_subscription_does_its_whole_job(shared):
    """S1, K10: with a node, and without one; nobody is denied anything."""
    with capture_logs() as logs:
        async with node(shared, handler([])):
            await set_topics(shared, acme={"qps": 1_000})
            assert [None, SUBSCRIPTION] == await run(shared, "founder", create)
        assert [None] == await run(shared, "founder", delete)
        assert [None, SUBSCRIPTION] == await run(shared, "founder", create)
        founder = shared.settings("founder")
        async with Producer(settings=shared.settings("producer")) as producer:
            for each in ("audited-1", "audited-2", "audited-3"):
                await producer.put("acme", b"x", id=each)
        own = replace(founder, subscription=SUBSCRIPTION)
        assert 2 == (await cancel(founder, "acme", "audited-1"))["messages"]
        assert [2, 2] == [await count_waiting(each, "acme") for each in (founder, own)]
        assert 2 == (await purge(own, "acme", None))["by_command"]
        async with node(shared, handler([]), "auditor"):
            assert 0 == (await purge(own, "acme", None))["dropped"]
        assert 2 == (await purge(founder, "acme", None))["dropped"]
        assert [None] == await run(shared, "founder", delete)
    assert [] == [each for each in logs if each["event"] == "NATS denies a subject"]


async def test_node_of_a_subscription_does_its_whole_job(shared):
    """S1, K10: beside one of the unnamed subscription; messages are handled, tried again and dead-lettered, and nobody
    is denied anything.
    """
    seen, audited = [], []

    async def audit(message):
        audited.append((message.id, message.attempt))
        if message.id == "fails":
            raise ValueError("as ordered")

    with capture_logs() as logs:
        async with node(shared, handler(seen)):
            await set_topics(shared, acme={"qps": 1_000, "max_attempts": 2, "backoff": {"base": 0.05}})
            await run(shared, "founder", create)
            async with node(shared, audit, "auditor"), Producer(settings=shared.settings("producer")) as producer:
                await producer.put("acme", b"x", id="one")
                await producer.put("acme", b"x", id="fails")
                await until(lambda: {("one", 1), ("fails", 1), ("fails", 2)} <= {*audited} and len(seen) == 2)
        assert [None] == await run(shared, "founder", delete)
    assert [] == [each for each in logs if each["event"] == "NATS denies a subject"]


async def test_operator_of_a_subscription_deletes_no_other_stream(shared):
    """S1, K10: neither lanes nor what another subscription has."""
    async with connected(shared, "founder") as (client, denied):
        for stream in (f"LANES_{ENV}_0", f"SETTLED_{ENV}", f"SETTLED_{ENV}_billing"):
            before, _ = len(denied), await client.publish(f"$JS.API.STREAM.DELETE.{stream}", b"")
            await client.flush()
            await until(lambda: len(denied) > before, what=stream)  # noqa: B023 - called at once


async def test_plain_operator_creates_none(servers):
    """S1, K10: one sentence, and nothing is changed."""
    with pytest.raises(EvenlaneError, match="permission denied"):
        await run(servers, "operator", create)
    assert [None] == await run(servers, "operator", _list)


async def _list(session):
    return [each.name for each in await SubscriptionClient(session.etcd, ENV).all()]
