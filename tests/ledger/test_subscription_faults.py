"""Two subscriptions, and faults of either's nodes or of a server: each handles every message, and nothing stays."""

import asyncio
import signal
from random import Random

import pytest

from tests.ledger.cluster import TTL_S
from tests.ledger.subscribers import AUDIT, subscribers
from tests.support.until import until

pytestmark = pytest.mark.real


async def kill(them, node, _chance):
    """Fault 1."""
    await node.kill()
    await them.start_again(node)


async def freeze(_them, node, _chance):
    """Fault 2."""
    node.send(signal.SIGSTOP)
    await asyncio.sleep(2 * TTL_S)
    node.send(signal.SIGCONT)


async def stop(them, node, _chance):
    """Fault 3."""
    assert 0 == await node.stop(), node.last_words()
    await them.start_again(node)


async def kill_leader(them, node, chance):
    """Fault 6: the partitions are just moving to a new node."""
    subscription = "audit" if node in them.audit.nodes else "first"
    joining = asyncio.create_task(them.start_beside(node, "joining"))
    await asyncio.sleep(2 * chance.random())
    leader = await until(lambda: them.leader_of(subscription), 60, "a leader")
    await leader.kill()
    await joining
    await them.start_again(leader)


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


FAULTS = [kill, freeze, stop, kill_leader, restart_nats, restart_etcd]
FULL = pytest.mark.full


@pytest.mark.parametrize("victim", ["first", "audit"])
@pytest.mark.parametrize("fault", [kill, *(pytest.param(each, marks=FULL) for each in FAULTS[1:])])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=FULL) for seed in (1, 2))])
async def test_each_subscription_handles_all_through_a_fault(tmp_path, fault, victim, seed):
    """K10, L, faults 1, 2, 3, 6, 9 and 12: owners of a subscription die, stop or are cut off while both work. At the
    end each has handled or buried every message, and the streams are empty.
    """
    chance = Random(seed)
    async with subscribers(tmp_path) as them:
        nodes = await them.start_both()
        async with them.load():
            await them.ended_in(them.audit, await them.put())
            await asyncio.sleep(chance.random())
            await fault(them, nodes[victim][seed % 2], chance)
            await them.put()
        await them.all_ended()


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

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=FULL) for seed in range(1, 20))])
    async def test_partitions_that_nobody_owned_are_claimed_meanwhile(self, tmp_path, seed):
        """K10, L: no node runs when the creation begins, and one claims all partitions in any phase of it. It removes
        nothing of what is stored at the acknowledgement, or comes later.
        """
        chance = Random(seed)
        async with subscribers(tmp_path) as them:
            [node] = await them.start("a")
            assert 0 == await node.stop(), node.last_words()
            await them.put()
            creating = asyncio.create_task(them.command("create", AUDIT, "--from", "first"))
            await asyncio.sleep(2 * chance.random())
            await them.start_again(node)
            await creating
            promised = await them.stored() | await them.put()
            await them.start_audit("x")
            await them.ended_in(them.audit, promised)
            await them.ended_in(them.first, set(them.first.acknowledged))
            await them.empty()


class TestReset:
    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=FULL) for seed in range(1, 20))])
    @pytest.mark.parametrize("victim", ["first", "audit"])
    async def test_all_that_is_stored_comes_again(self, tmp_path, victim, seed):
        """K10, L: an owner of either subscription is killed in any phase of the reset. The first one holds the
        messages: its handlers run until they are let go.
        """
        chance = Random(seed)
        async with subscribers(tmp_path) as them:
            nodes = await them.start_both()
            held = await them.put_held()
            ids = await them.put()
            await them.ended_in(them.audit, ids)
            times = them.times_handled(ids)
            resetting = asyncio.create_task(them.command("reset", AUDIT, "--to", "first", "--yes"))
            await asyncio.sleep(chance.random())
            await kill(them, nodes[victim][seed % 2], chance)
            await resetting
            stored = await them.stored()
            await until(
                lambda: all(them.times_handled([each])[each] > times[each] for each in ids & stored), 120,
                "all that is stored to be handled again",
            )  # fmt: skip
            them.let_go()
            await them.ended_in(them.first, ids | held)
            await them.ended_in(them.audit, ids | held)
            await them.empty()


class TestDeletion:
    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=FULL) for seed in range(1, 20))])
    async def test_stopped_node_brings_nothing_back(self, tmp_path, seed):
        """K10, L, fault 2: a node of the subscription is stopped while it is deleted, and wakes after that. Only what
        the subscription held goes.
        """
        async with subscribers(tmp_path) as them:
            await them.start("a", "b")
            await them.command("create", AUDIT)
            [node, other] = await them.start_audit("x", "y")
            await them.put(Random(seed).randrange(1, 10))
            node.send(signal.SIGSTOP)
            assert 0 == await other.stop(), other.last_words()
            await them.put()
            await them.command("delete", AUDIT, "--yes")
            node.send(signal.SIGCONT)
            assert 0 != await asyncio.wait_for(node.ended(), 60), node.last_words()
            await them.put()
            await them.ended_in(them.first, set(them.first.acknowledged))
            await them.empty()
            assert not [name for name in await them.streams() if name.endswith(f"_{AUDIT}")]
            assert not [key for key in them.first.history.keys if f"/{AUDIT}/" in f"/{key}"]
