"""Scripts of ownership: nodes, a leader's plans, partitions and their messages.

    join a b                    nodes join, each with a lease of 10 s, which they trust for 8 s after a renewal
    plan a=0,1 b=2              the leader writes the next generation
    stale a=0                   a deposed leader writes a plan of the previous generation
    run 5s                      let time pass: leases are renewed, watches and answers arrive at once
    put 0 x3                    messages 1, 2 and 3 enter partition 0
    begin a 0                   node a begins the next message of partition 0
    end a 0 1                   node a's handler of message 1 ends
    cut a | heal a              node a loses its connection: it neither receives nor sends
    lose a                      node a's next transaction is carried out, and its answer is lost
    crash a                     node a's process dies; its lease lives on
    wipe 0                      the owner key of partition 0 is deleted by hand
    owners                      print the owners

Nodes are `evenlane.ring.membership.member.Member` with a shell that carries out its actions at once. The messages that
are still running at a handoff are in a `HandoffState` of `evenlane.engine.core.lane`.
"""

from tests.support.ownership.scripted_node import SECOND, Etcd, Lane, Node
from tests.support.script import duration, rewritten

TTL, RENEWS = 10 * SECOND, SECOND


def ran(text):
    """The same script with the present output of its commands."""
    return rewritten(text, Scene().do)


class Scene:
    """Nodes on one etcd. Each command returns the lines that it prints."""

    def __init__(self):
        self.now, self.etcd = 0, Etcd()
        self.nodes, self.lanes = {}, {}
        self.sessions = []  # of all nodes, including dead ones
        self.leases = self.generation = 0
        self.printed = []

    def do(self, command):
        verb, *words = command.split()
        self.printed = []
        getattr(self, f"_{verb}")(*words)
        return self.printed

    def lane(self, partition):
        return self.lanes.setdefault(partition, Lane())

    def _join(self, *names):
        for name in names:
            self.leases += 1
            self.etcd.leases.add(self.leases)
            self.nodes[name] = Node(self, name, self.leases)
            self.sessions.append(self.nodes[name])

    def _plan(self, *parts):
        self.generation += 1
        self._write(self.generation, parts)

    def _stale(self, *parts):
        self._write(self.generation - 1, parts)

    def _write(self, generation, parts):
        for part in parts:
            name, _, partitions = part.partition("=")
            self.etcd.put_plan(name, generation, [int(each) for each in partitions.split(",") if each])

    def _put(self, partition, count):
        self.lane(int(partition)).last += int(count[1:])

    def _begin(self, name, partition):
        self.nodes[name].begin(int(partition))

    def _end(self, name, partition, sequence):
        self.nodes[name].end(int(partition), int(sequence))

    def _cut(self, name):
        self.nodes[name].is_cut = True

    def _heal(self, name):
        self.nodes[name].is_cut = False

    def _lose(self, name):
        self.nodes[name].loses = True

    def _crash(self, name):
        self.nodes[name].is_dead = True

    def _wipe(self, partition):
        self.etcd.delete([int(partition)])

    def _owners(self):
        sessions = {session.lease: session for session in self.sessions}
        for partition, owner in sorted(self.etcd.owners.items()):
            session = sessions[owner.lease]
            dead = " (dead)" if session.is_dead else ""
            self.printed.append(f"{partition}: {session.name}{dead}, epoch {owner.epoch}")
        if not self.etcd.owners:
            self.printed.append("no partition has an owner")

    def _run(self, time):
        until = self.now + duration(time)
        self._settle()
        while (at := self._next_instant()) <= until:
            self.now = at
            self._renew_and_expire()
            for node in self._living():
                node.do(node.member.tick(self.now))
            self._settle()
        self.now = until

    def _living(self):
        return [node for node in self.nodes.values() if not node.is_dead and not node.is_cut]

    def _next_instant(self):
        renewal = self.now - self.now % RENEWS + RENEWS
        due = [node.member.wake_at() for node in self._living()]
        return min([renewal, *(max(at, self.now + 1) for at in due if at is not None)])

    def _renew_and_expire(self):
        if self.now % RENEWS == 0:
            for node in self._living():
                node.renew()
        for node in self.sessions:
            if node.lease in self.etcd.leases and self.now - node.renewed_at >= TTL:
                node.record("loses its lease in etcd")
                self.etcd.end(node.lease)

    def _settle(self):
        """Deliver all events and answers of this instant."""
        while [node for node in self._living() if node.receive() or node.ask()]:
            pass
