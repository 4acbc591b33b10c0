"""`evenlane why` and `evenlane top` with --subscription, on real servers and two nodes (K10)."""

import asyncio
import json

import pytest

from evenlane.engine.base.config.settings import load
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_each_subscription_shows_its_own(env, evenlane_in_thread):
    """K10: nodes, backlog and reasons are those of the subscription that is asked for."""

    async def document(*arguments):
        code, out, error = await evenlane_in_thread(*arguments, "--json")
        assert code == 0, error
        return json.loads(out)

    done, free = [], asyncio.Event()

    async def note(message):
        done.append(message.id)

    async def hold(_message):
        await free.wait()

    async with running_engine(load({"node": "worker-1"}).settings, note):
        await evenlane_in_thread("topics", "set", "acme", "--qps", "100", "--ack-wait", "1m")
        assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
        own = "--subscription", "audit"
        code, _, error = await evenlane_in_thread("why", "acme", *own)
        assert code == 1
        assert "no node is running for subscription 'audit' in environment" in error
        assert f"--env {env} --subscription audit` starts one" in error
        async with running_engine(load({"subscription": "audit", "node": "audit-1", "concurrency": 1}).settings, hold):
            for number in range(3):
                await evenlane_in_thread("put", "acme", "x", "--id", f"order-{number}")
            await until(lambda: len(done) == 3, 30)

            async def waits(*option):
                parts = [part for each in (await document("top", *option))["tenants"] for part in each["priorities"]]
                return sum(part["backlog"] + part["in_flight"] for part in parts)

            async def are(count, *option):
                return await waits(*option) == count

            await until(lambda: are(3, *own), 30, "audit to show its backlog")
            await until(lambda: are(0), 30, "the unnamed subscription to show that nothing waits")
            assert ["audit-1"] == [node["id"] for node in (await document("top", *own))["nodes"]]
            assert ["worker-1"] == [node["id"] for node in (await document("top"))["nodes"]]
            plan = await document("plan", *own)
            assert ("audit", "audit-1", ["audit-1"]) == (
                plan["subscription"], plan["leader"], [node["id"] for node in plan["nodes"]],
            )  # fmt: skip
            why = await document("why", "acme", *own)
            assert (2, 1) == (why["backlog"], why["in_flight"])
            free.set()
            await until(lambda: are(0, *own), 30, "audit to have handled all")


def test_subscription_that_isnt_there(env, transcript, evenlane):
    """K10: one sentence, which lists those that are."""
    evenlane("topics", "set", "acme", "--qps", "100")
    transcript("why", "acme", "--subscription", "audit")
    transcript("top", "--once", "--subscription", "audit")
    transcript("plan", "--subscription", "audit")
    transcript("plan", "--subscription", "")
    transcript.check()


def test_project_that_the_subscription_doesnt_get(env, transcript, evenlane):
    """K10: the sentence names those that it gets."""
    evenlane("topics", "set", "acme", "--qps", "100")
    evenlane("subscriptions", "create", "shopper", "--projects", "orders-*")
    transcript("why", "acme", "--subscription", "shopper")
    transcript("backlog", "peek", "acme", "--subscription", "shopper")
    transcript("backlog", "purge", "acme", "--subscription", "shopper", "--yes")
    transcript.check()


def test_setting_is_for_nodes_alone(env, evenlane, monkeypatch):
    """K10: where nodes of a subscription are started, other commands are about it with the flag only."""
    evenlane("subscriptions", "create", "audit")
    monkeypatch.setenv("EVENLANE_SUBSCRIPTION", "audit")

    def shown(*option):
        return json.loads(evenlane("plan", *option, "--json")[1])["subscription"]

    assert [None, "audit"] == [shown(), shown("--subscription", "audit")]
    assert "audit" in evenlane("config")[1]


def test_streams_of_subscriptions_are_migrated_too(env, evenlane):
    """L, K10: a settle log with fewer replicas than the messages could lose what they keep."""
    evenlane("topics", "set", "acme", "--qps", "100")
    evenlane("subscriptions", "create", "audit")
    listed = {each["stream"] for each in json.loads(evenlane("streams", "list", "--json")[1])["streams"]}
    own = {f"{kind}_{env}_audit" for kind in ("SETTLED", "AGAIN", "DEAD", "METER")}
    assert own | {f"SETTLED_{env}", f"LANES_{env}_0"} <= listed
