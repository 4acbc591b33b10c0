"""Tests of E1: `online` and `sandbox` on the same servers share nothing, and one survives the other."""

import asyncio
from contextlib import asynccontextmanager

import nats
import pytest

from evenlane.engine.producer.put import Put
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.ledger.cli import patiently
from tests.ledger.puts import some
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = pytest.mark.real

ENVIRONMENTS = ("online", "sandbox")
PROJECTS = ("acme", "ordered")


@asynccontextmanager
async def two(folder):
    """Both environments, each with a node of the same id, and the subjects that cross core NATS meanwhile."""
    (folder / "sandbox").mkdir()
    async with (
        ProcessWorld(folder, lease_ttl=10) as online,
        ProcessWorld(folder / "sandbox", servers=online.servers, env="sandbox", lease_ttl=10) as sandbox,
    ):
        client = await nats.connect(online.servers.nats.url)
        subjects: set[str] = set()

        async def handled(message) -> None:
            subjects.add(message.subject)

        await client.subscribe(">", cb=handled)
        for world in (online, sandbox):
            await world.node()
            await world.topics("acme")
            await world.topics("ordered", ordered=True)
        yield online, sandbox, subjects
        await client.close()


async def works(world: ProcessWorld, name: str) -> None:
    """Check that everything works: messages that are due at once or later, fail, are ordered, or are dead-lettered."""
    producer = await world.producer()
    later = [Put("acme", b"", delay=0.5, id=f"later-{name}-{n}") for n in range(20)]
    keyed = [Put("ordered", b"", key="k", id=f"keyed-{name}-{n}") for n in range(20)]
    failing = some("acme", f"{name}-fail", 20, order="fail 1")
    await world.put(producer, [*some("acme", name, 200), *later, *keyed, *failing])
    await world.handled()
    rejected = some("acme", f"{name}-no", 5, order="reject")
    ids = {put.id for put in rejected}
    dead = await world.dead_letters()
    await world.put(producer, rejected)

    async def all_dead() -> bool:
        return ids <= await dead.ids()

    await until(all_dead, 60, "the dead letters")
    for put in rejected:
        del world.acknowledged[put.id]
    await patiently(world, "dlq", "drop", "acme", "--all", "--yes")
    await patiently(world, "why", "acme")
    await patiently(world, "plan", "show")


async def streams(world: ProcessWorld) -> dict[str, dict]:
    found = (await world.api("STREAM.LIST"))["streams"]
    return {info["config"]["name"]: info for info in found}


def of(name: str) -> str:
    """The environment in a name; "" if there is none, or both."""
    words = name.replace("/", ".").replace("_", ".").split(".")
    theirs = [env for env in ENVIRONMENTS if env in words]
    return theirs[0] if len(theirs) == 1 else ""


@pytest.mark.parametrize("goes", [ENVIRONMENTS[0], pytest.param(ENVIRONMENTS[1], marks=pytest.mark.full)])
async def test_environments_share_nothing(tmp_path, goes):
    """E1: neither streams with their subjects and consumers, nor keys in etcd, nor subjects on core NATS. When all
    streams and keys of one are deleted under its running node, the other doesn't notice, under load.
    """
    async with two(tmp_path) as (online, sandbox, subjects):
        await asyncio.gather(works(online, "one"), works(sandbox, "one"))
        found = await streams(online)
        assert set(ENVIRONMENTS) == {of(name) for name in found}
        for name, info in found.items():
            assert {of(name)} == {of(subject) for subject in info["config"]["subjects"]}, name
            consumers = (await online.api(f"CONSUMER.LIST.{name}"))["consumers"]
            filters = {s for c in consumers for s in c["config"].get("filter_subjects", [])}
            filters |= {c["config"]["filter_subject"] for c in consumers if c["config"].get("filter_subject")}
            assert {of(name)} >= {of(subject) for subject in filters}, name
        keys = [item.key for item in await all_keys(online)]
        assert keys
        assert [] == [key for key in keys if not key.startswith(("/evenlane/online/", "/evenlane/sandbox/"))]
        ours = {subject for subject in subjects if not subject.startswith(("$JS.", "_INBOX.", "$SRV."))}
        assert [] == [subject for subject in sorted(ours) if not of(subject)]
        asked = {subject for subject in subjects if subject.startswith(("$JS.API.STREAM.", "$JS.API.CONSUMER."))}
        named = {subject for subject in asked if not subject.endswith((".LIST", ".NAMES"))}
        assert [] == [subject for subject in sorted(named) if not of(subject)]
        both = {world.settings.env: set(world.ids()) for world in (online, sandbox)}
        assert both["online"] == both["sandbox"]  # the same ids, each handled in both

        going, staying = (online, sandbox) if goes == "online" else (sandbox, online)
        puts = some("acme", "through", 2_000)
        putting = asyncio.create_task(staying.put(await staying.producer(), puts))
        for name in [name for name in await streams(online) if of(name) == goes]:
            await online.api(f"STREAM.DELETE.{name}")
        etcd = EtcdCoordination(online.settings.etcd)
        for item in await all_keys(online):
            if of(item.key) == goes:
                await etcd.delete(item.key)
        await etcd.close()
        await going.nodes[0].kill()
        await putting
        await works(staying, "two")
        assert [] == staying.refused
        assert len(staying.ids()) == len(set(staying.ids()))
        assert {goes} != {of(name) for name in await streams(online)}
        assert 0 == await staying.nodes[0].stop()


async def all_keys(world: ProcessWorld):
    return (await world.etcd.list("/")).items
