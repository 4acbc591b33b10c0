"""Nodes under a supervisor (`evenlane run --processes N`), which a test kills."""

import os
import signal
from contextlib import asynccontextmanager, suppress

import psutil

from evenlane.ring.membership.records import HeldRecord, decode
from tests.ledger.cluster import ProcessCluster
from tests.support.until import until

LONG_S = 600
REVOKED = "a dead node's lease is revoked"
NOT_YET = "a dead node's lease isn't revoked yet"


def children_of(pid):
    return psutil.Process(pid).children()


class SupervisedNodes:
    """`evenlane run --processes N`, whose nodes own all partitions."""

    def __init__(self, cluster, supervisor, count):
        self.cluster, self.supervisor = cluster, supervisor
        self.ids = [f"n-{number}" for number in range(count)]
        self.victims, self.killed, self.children = [], [], []

    def pid(self, node):
        return self.cluster.history.value(f"nodes/{node}")["pid"]

    def lease(self, node):
        return self.cluster.history.keys[f"nodes/{node}"].lease

    def send(self, node, number):
        """Send the signal, and return the pid."""
        pid = self.pid(node)
        self.children += children_of(pid)
        os.kill(pid, number)
        return pid

    def kill(self, node):
        """Kill it with SIGKILL. Return the children of its handlers."""
        known = len(self.children)
        self.victims.append(node)
        self.killed.append(self.send(node, signal.SIGKILL))
        return self.children[known:]

    def end_children(self):
        nodes = children_of(self.supervisor.pid) if self.supervisor.running else []
        for child in (*self.children, *(child for node in nodes for child in node.children())):
            with suppress(psutil.NoSuchProcess):
                child.kill()

    async def own_all(self, *also, within_s=60.0):
        nodes = {*self.ids, *(node.name for node in also)}
        await until(
            lambda: self.cluster.history.is_owned_by(nodes, self.cluster.partitions), within_s, f"{nodes} to own all"
        )

    async def comes_back(self, node, lease):
        """Wait until it is registered under another lease."""
        keys = self.cluster.history.keys
        await until(
            lambda: node in self.cluster.history.nodes and keys[f"nodes/{node}"].lease != lease,
            60,
            f"{node} to be back",
        )

    def revoked(self):
        """The number of leases that the supervisor has revoked."""
        return self.supervisor.logged(REVOKED)

    async def all_revoked(self):
        """Wait until the log has exactly one revocation per kill. A takeover may be seen before its line."""
        count = len(self.killed)
        await until(lambda: self.revoked() >= count, what=f"{count} revocations to be logged")
        assert count == self.revoked()

    def lent_by(self, node, since):
        """The shares that it lent, as the next owners of its partitions learn after that time."""
        items = [seen.item for seen in self.cluster.history.seen if seen.at > since and seen.key.startswith("held/")]
        records = [decode(HeldRecord, item.key, item.value) for item in items if item is not None]
        return [record.lent for record in records if record.id == node and record.lent]

    def member(self):
        """A node that doesn't lead. The pause before its restart is longer the more often it has died."""
        return min((node for node in self.ids if node != self.cluster.history.leader), key=self.victims.count)


@asynccontextmanager
async def supervised_nodes(cluster, count=3, **settings):
    [supervisor] = await cluster.start("n", processes=count, **{"lease_ttl": LONG_S} | settings)
    await cluster.topics(*cluster.projects)
    nodes = SupervisedNodes(cluster, supervisor, count)
    await nodes.own_all()
    try:
        yield nodes
    finally:
        nodes.end_children()
    assert 0 == await supervisor.stop(), supervisor.last_words()


@asynccontextmanager
async def behind_proxy(folder, count=3, **settings):
    """Supervisor and nodes reach etcd through a proxy."""
    async with (
        ProcessCluster(folder) as cluster,
        cluster.proxied(cluster.servers.etcd.endpoint) as proxy,
        supervised_nodes(cluster, count, etcd=proxy.endpoint, **settings) as nodes,
    ):
        yield cluster, proxy, nodes
