"""Two subscriptions, and faults of either's nodes or of a server: each handles every message, and nothing stays."""

import asyncio
import signal
from random import Random

import pytest

from tests.ledger.cluster import TTL_S
from tests.ledger.subscribers import AUDIT, Subscribers, subscribers

pytestmark = pytest.mark.real


async def kill(them, node, _chance):
    """Fault 1."""
    await node.kill()
    await restart(them, node)


async def freeze(_them, node, _chance):
    """Fault 2."""
    node.send(signal.SIGSTOP)
    await asyncio.sleep(2 * TTL_S)
    node.send(signal.SIGCONT)


async def stop(them, node, _chance):
    """Fault 3."""
    assert 0 == await node.stop(), node.last_words()
    await restart(them, node)


async def restart_nats(them, _node, chance):
    """Fault 12."""
    for _ in range(3):
        await them.first.servers.nats.kill()
        await them.first.servers.nats.start()
        await asyncio.sleep(chance.random())


async def restart_etcd(them, _node, _chance):
    """Fault 9: for longer than a lease."""
    await them.first.servers.etcd.kill()
    await asyncio.sleep(2 * TTL_S)
    await them.first.servers.etcd.start()


async def restart(them: Subscribers, node):
    if node in them.audit.nodes:
        await them.start_audit(node.name)
    else:
        await them.first.start(node.name)


FAULTS = [kill, freeze, stop, restart_nats, restart_etcd]
FULL = pytest.mark.full


@pytest.mark.parametrize("victim", ["first", "audit"])
@pytest.mark.parametrize("fault", [kill, *(pytest.param(each, marks=FULL) for each in FAULTS[1:])])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=FULL) for seed in (1, 2))])
async def test_each_subscription_handles_all_through_a_fault(tmp_path, fault, victim, seed):
    """K10, L, faults 1, 2, 3, 9 and 12: owners of a subscription die, stop or are cut off while both work. At the end
    each has handled or buried every message, and the streams are empty.
    """
    chance = Random(seed)
    async with subscribers(tmp_path) as them:
        nodes = {"first": await them.start("a", "b")}
        await them.command("create", AUDIT)
        nodes["audit"] = await them.start_audit("x", "y")
        async with them.load():
            await them.ended_in(them.audit, await them.put())
            await asyncio.sleep(chance.random())
            await fault(them, nodes[victim][seed % 2], chance)
            await them.put()
        acknowledged = set(them.first.acknowledged)
        await them.ended_in(them.first, acknowledged)
        await them.ended_in(them.audit, acknowledged)
        await them.empty()


class TestCreation:
    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=FULL) for seed in range(1, 20))])
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
    async def test_nothing_is_missed_from_the_acknowledgement_on(self, tmp_path, how, seed):
        """K10, L: an owner that removes messages is killed or stopped in any phase of the creation."""
        chance = Random(seed)
        async with subscribers(tmp_path) as them:
            nodes = await them.start("a", "b")
            async with them.load():
                await them.ended_in(them.first, await them.put())
                creating = asyncio.create_task(them.command("create", AUDIT))
                await asyncio.sleep(chance.random())
                nodes[seed % 2].send(how)
                await creating
                promised = await them.put()
                if how == signal.SIGSTOP:
                    nodes[seed % 2].send(signal.SIGCONT)
                promised |= await them.put()
            await them.start_audit("x")
            await them.ended_in(them.audit, promised)
            await them.ended_in(them.first, set(them.first.acknowledged))
            await them.empty()
