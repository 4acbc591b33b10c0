"""Applications that name their subscription, `Evenlane(subscription=...)`, on real servers (K10)."""

import re
from collections import Counter

import pytest

from evenlane import ConfigError, Engine, Evenlane, EvenlaneError
from evenlane.engine.base import names
from evenlane.engine.base.config.settings import load
from evenlane.ring.membership.records import OwnerRecord, decode
from tests.cli.run.conftest import Command
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_engine_works_for_the_subscription_of_its_application(env, evenlane_in_thread):
    """Async, plain and batch handlers know it; the unnamed subscription gets the same messages."""
    seen = []

    def note(message):
        seen.append((message.project, message.subscription))

    app = Evenlane(subscription="audit")

    @app.handler("acme")
    async def handle(message):
        note(message)

    @app.handler("plain")
    def handle_in_thread(message):
        note(message)

    @app.handler("batch", batch=10)
    async def handle_batch(messages):
        for each in messages:
            note(each)

    projects = "acme", "plain", "batch"
    for project in projects:
        await evenlane_in_thread("topics", "set", project, "--qps", "100")
    assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
    unnamed = running_engine(load({"node": "worker-1"}).settings, note)
    async with unnamed, running_engine(load({"node": "audit-1"}).settings, app) as engine:
        assert ("audit", f"{env}_audit") == (engine.settings.subscription, engine.settings.cluster)
        for project in projects:
            assert 0 == (await evenlane_in_thread("put", project, "x"))[0]
        expected = {(project, name) for project in projects for name in ("", "audit")}
        await until(lambda: expected == {*seen}, 60)
    assert len(expected) == len(seen)


async def test_subscription_that_isnt_there_ends_the_node(env, evenlane_in_thread):
    """One sentence, which lists those that are."""
    await evenlane_in_thread("subscriptions", "create", "billing")
    app = Evenlane(subscription="audit")
    app.handler(print)
    async with Engine(app, settings=load({"node": "audit-1"}).settings) as engine:
        with pytest.raises(
            EvenlaneError, match=f"environment {env!r} has no subscription 'audit': there are billing, and the one"
        ):
            await engine.run()


def test_settings_may_name_the_same_subscription_only(env):
    app = Evenlane(subscription="audit")
    app.handler(print)
    assert "audit" == Engine(app, subscription="audit", node="a").settings.subscription
    with pytest.raises(
        ConfigError, match="for subscription 'audit', and the setting subscription is 'billing': leave out one of them"
    ):
        Engine(app, subscription="billing", node="a")


_SHOP = """
from evenlane import Evenlane

app = Evenlane(subscription="audit")


@app.handler
async def audit(message):
    with open("audit.log", "a") as trail:
        print(message.id, message.subscription, file=trail)
"""


@pytest.mark.parametrize("from_flag", [False, True])
async def test_processes_work_for_the_subscription(world, tmp_path, evenlane_in_thread, monkeypatch, from_flag):
    """P2, E7: the ready line counts the partitions of its cluster. A killed node's lease is revoked, so that the others
    have its partitions long before that would end by itself.
    """
    settings = {
        "nats": world.servers.nats.url, "etcd": world.servers.etcd.endpoint, "env": world.settings.env,
        "partitions": "8",
    }  # fmt: skip
    environ = {f"EVENLANE_{key.upper()}": value for key, value in settings.items()}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    await evenlane_in_thread("topics", "set", "acme", "--qps", "100")
    assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
    (tmp_path / "shop.py").write_text(_SHOP.replace('subscription="audit"', "") if from_flag else _SHOP)
    one = Command(tmp_path)
    flags = ["--subscription", "audit"] if from_flag else []
    await one.start("run", "shop:app", "--node", "a", "--processes", "2", "--lease-ttl", "600", *flags, **environ)
    try:
        assert re.fullmatch(r"ready node=a partitions=8 generation=\d+", await one.line())
        before = one.nodes()
        assert {"a-0", "a-1"} == {*before}

        async def owners():
            found = await world.etcd.list(names.key(f"{world.settings.env}_audit", "owners", ""))
            return Counter(decode(OwnerRecord, item.key, item.value).id for item in found.items)

        before["a-1"].kill()
        await until(lambda: "a dead node's lease is revoked" in one.stderr_text(), 60)

        async def are_back():
            """Both have partitions, and the killed one is another process."""
            found, now = await owners(), one.nodes().get("a-1", before["a-1"])
            return ({"a-0", "a-1"}, 8) == ({*found}, found.total()) and now.pid != before["a-1"].pid

        await until(are_back, 60)
        assert 0 == (await evenlane_in_thread("put", "acme", "x", "--id", "order-1"))[0]
        trail = tmp_path / "audit.log"
        await until(lambda: trail.exists() and "order-1 audit\n" == trail.read_text(), 60)
        assert not (await world.etcd.list(names.key(world.settings.env, "owners", ""))).items
        one.process.terminate()
        assert 0 == await one.ended()
        assert 0 == (await owners()).total()
    finally:
        if one.process.returncode is None:
            one.process.kill()
