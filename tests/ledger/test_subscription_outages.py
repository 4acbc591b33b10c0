"""Two subscriptions whose nodes are cut off, and servers of three members that fail: each handles every message."""

import asyncio
from random import Random

import pytest

from tests.ledger.cluster import TTL_S
from tests.ledger.etcd_trio import MEMBERS, Trio
from tests.ledger.nats_trio import NatsTrio
from tests.ledger.subscribers import AUDIT, PARTITIONS, subscribers
from tests.support.etcd.proxy import cut_off, heal
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]

LONG_TTL_S = 6  # a majority elects its next leader within it


@pytest.mark.parametrize("victim", ["first", "audit"])
@pytest.mark.parametrize("server", ["etcd", "nats"])
@pytest.mark.parametrize("how", ["closed", "silent"])
async def test_node_is_cut_off_from_one_server(tmp_path, victim, server, how):
    """K10, L, fault 10: for longer than its lease, while the other nodes of both subscriptions work on."""
    async with subscribers(tmp_path) as them:
        servers = them.first.servers
        endpoint = servers.etcd.endpoint if server == "etcd" else servers.nats.url.rpartition("/")[2]
        async with them.first.proxied(endpoint) as proxy:
            await them.start_both()
            address = {"etcd": proxy.endpoint} if server == "etcd" else {"nats": f"nats://{proxy.endpoint}"}
            if victim == "first":
                await them.first.start("distant", **address)
            else:
                await them.start_audit("distant", **address)
            async with them.load():
                await them.ended_in(them.audit, await them.put())
                await cut_off(proxy, how)
                await asyncio.sleep(2 * TTL_S)
                promised = await them.put()
                await them.ended_in(them.audit if victim == "first" else them.first, promised)
                await heal(proxy, how)
                await them.put()
            await them.all_ended()


@pytest.mark.parametrize("count", [1, 2], ids=["leader", "quorum"])
async def test_etcd_loses_members(tmp_path, count):
    """K10, L, faults 8 and 9: its leader dies, alone or with another member, and comes back."""
    async with (
        Trio(tmp_path / "trio") as trio,
        subscribers(tmp_path, etcd=trio.endpoints, lease_ttl=LONG_TTL_S) as them,
    ):
        await them.start_both()
        async with them.load():
            await them.ended_in(them.audit, await them.put())
            leader = await until(trio.leader, 30, "a leader")
            dying = [leader, *(each for each in MEMBERS if each != leader)][:count]
            await trio.kill(*dying)
            await asyncio.sleep(2 * LONG_TTL_S)
            await trio.start(*dying)
            await until(trio.leader, 60, "all three to agree")
            await them.put()
        await them.all_ended()


@pytest.mark.parametrize("seed", range(3))
async def test_nats_servers_die_and_leaders_step_down(tmp_path, seed):
    """K10, L, faults 12 and 13, P11: with three replicas, a subscription is created, reset and handles all while each
    server dies and comes back, and the leaders of its streams step down.
    """
    chance, servers = Random(seed), NatsTrio(tmp_path)
    await servers.start()
    try:
        async with subscribers(tmp_path, servers=servers, replicas=3, lease_ttl=LONG_TTL_S) as them:
            await them.start_both()
            streams = [*(f"LANES_online_{number}" for number in range(PARTITIONS)), f"SETTLED_online_{AUDIT}"]
            async with them.load():
                await them.ended_in(them.audit, await them.put())
                for server in chance.sample(servers.nats.servers, 3):
                    await chance.choice([server.kill, server.stop])()
                    await them.ended_in(them.audit, await them.put())
                    await server.start()
                    await them.command("reset", AUDIT, "--to", "first", "--yes")
                for stream in streams:
                    await until(lambda stream=stream: has_stepped_down(them, stream), 60, f"{stream}'s next leader")
                await them.put()
            await them.all_ended()
    finally:
        await servers.stop()


async def has_stepped_down(them, stream):
    """Ask the leader to step down. A server that has just come back may not know who leads."""
    try:
        return (await them.first.api(f"STREAM.LEADER.STEPDOWN.{stream}"))["success"]
    except AssertionError:
        return False
