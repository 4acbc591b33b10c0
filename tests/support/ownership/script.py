"""Scripts of ownership: nodes, a leader's plans, and what becomes of partitions and their messages.

    join a b                    nodes that join, each with a lease of 10 s; they trust it for 8 s after a renewal
    plan a=0,1 b=2              the leader writes the next generation
    stale a=0                   one that leads no more writes its plan of the generation before
    run 5s                      let time pass: leases are renewed, watches and answers arrive at once
    put 0 x3                    messages come into partition 0: 1, 2, 3
    begin a 0                   node a begins the next message of partition 0
    end a 0 1                   its handler of message 1 ends
    cut a | heal a              a hears nothing, and nothing that it sends arrives
    lose a                      a's next transaction is carried out, and its answer is lost
    crash a                     its process is gone; its lease lives on
    wipe 0                      somebody deletes the owner key of partition 0
    owners                      print who owns what

Nodes are `evenlane.ring.membership.member.Member` with a shell that does what it says at once; what still runs when a
partition is handed over is a `HandoffState` of `evenlane.engine.core.lane`.
"""

from dataclasses import dataclass, field

from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity
from evenlane.ring.membership.member import (
    Acquire,
    Clear,
    Close,
    Confirm,
    Drop,
    Mark,
    Member,
    Open,
    Owner,
    Release,
)
from tests.support.ownership.etcd_model import Etcd as Model
from tests.support.script import duration, rewritten

SECOND = 10**9
TTL, TRUST, RENEWS = 10 * SECOND, 8 * SECOND, SECOND
STREAM = StreamIdentity("a stream", 0, 0, 0)


def ran(text):
    """The same script with what the commands in it print now."""
    return rewritten(text, Scene().do)


class Etcd(Model):
    """An owner key that was written again has a newer revision: so others see that it is served."""

    def overwrite(self, partition, lease):
        self.revision += 1
        self._changed(partition, Owner(self.owners[partition].epoch, lease, self.revision))


@dataclass
class Lane:
    """A partition's messages, which its stream holds: they outlive every owner."""

    last: int = 0
    settled: set[int] = field(default_factory=set)
    handoff: HandoffState | None = None
    """What its previous owner still handles."""

    def next(self, skipped):
        return next((n for n in range(1, self.last + 1) if n not in self.settled | skipped), None)


class Node:
    """One session, from its lease's grant to its end."""

    def __init__(self, scene, name, lease):
        self.scene, self.name, self.lease = scene, name, lease
        self.member = Member(lease, scene.now + TRUST)
        self.renewed_at = scene.now
        self.is_cut = self.is_dead = self.loses = False
        self.received = self.received_plan = 0  # how far its watches are
        self.requests = []
        self.running = {}  # (partition, epoch) -> messages
        self.taken = {}  # of its partitions: what it has begun so far

    # ---- what happens to it

    def receive(self):
        """One entry of a watch; False if it has heard all."""
        etcd, now = self.scene.etcd, self.scene.now
        if not self.member.knows_owners:
            self.received = len(etcd.history)
            self.do(self.member.listed(etcd.revision, dict(etcd.owners), now))
            return True
        plan = etcd.plans.get(self.name)
        if plan is not None and plan[0] > self.received_plan:
            self.received_plan = plan[0]
            self.do(self.member.planned(*plan, now))
            return True
        if self.received < len(etcd.history):
            revision, partition, owner = etcd.history[self.received]
            self.received += 1
            reported = self.member.owner_gone(partition, revision, now) if owner is None else self.member.owner_seen(
                partition, owner, now
            )  # fmt: skip
            self.do(reported)
            return True
        return False

    def ask(self):
        """One transaction and its answer; False if none is under way."""
        if not self.requests:
            return False
        action, member, now = self.requests.pop(0), self.member, self.scene.now
        etcd, loses, self.loses = self.scene.etcd, self.loses, False
        if isinstance(action, Acquire):
            epoch = etcd.acquire(self.name, self.lease, action.partition, action.plan_revision)
            if loses:
                self.record(f"gets no answer about {action.partition}")
                self.do(member.unsure(action.partition, now))
            else:
                self.do(member.acquired(action.partition, epoch, now))
        elif isinstance(action, Clear):
            etcd.delete([action.partition])
        else:
            owner = etcd.owners.get(action.partition)
            if owner is not None and owner.epoch == action.epoch:
                etcd.delete([action.partition])
            self.do(member.released(action.partition, action.epoch, now))
        return True

    def renew(self):
        if self.lease in self.scene.etcd.leases:
            self.renewed_at = self.scene.now
            self.do(self.member.renewed(self.scene.now + TRUST, self.scene.now))

    # ---- what it does

    def do(self, actions):
        for action in actions:
            match action:
                case Acquire(partition):
                    self.record(f"asks for {partition}")
                    self.requests.append(action)
                case Open(partition, epoch):
                    self._open(partition, epoch)
                case Close(partition, epoch):
                    self._close(partition, epoch)
                case Release(partition):
                    self.record(f"releases {partition}")
                    self.requests.append(action)
                case Drop(partition):
                    self.record(f"drops {partition}: it starts and settles nothing more of it")
                    self.taken.pop(partition, None)
                case Mark(partition):
                    self.record(f"puts the key of {partition} under its lease again")
                    self.scene.etcd.overwrite(partition, self.lease)
                case Clear(partition):
                    self.record(f"clears the key of {partition} away")
                    self.requests.append(action)
                case Confirm(generation):
                    self.record(f"has carried out generation {generation}")

    def _open(self, partition, epoch):
        state = self.scene.lane(partition).handoff
        held = sorted(state.running) if state is not None else []
        elsewhere = f"; {_listed(held)} still running elsewhere" if held else ""
        self.record(f"opens {partition} under epoch {epoch}{elsewhere}")
        self.taken[partition] = set()
        self.running[partition, epoch] = set()
        self.scene.etcd.overwrite(partition, self.lease)
        self.do(self.member.opened(partition, epoch, self.scene.now))

    def _close(self, partition, epoch):
        running = self.running[partition, epoch]
        self.record(f"closes {partition}" + (f"; {_listed(sorted(running))} still running" if running else ""))
        lane = self.scene.lane(partition)
        lane.handoff = HandoffState(epoch, STREAM, set(running))
        lane.handoff.cut_off([], [])
        del self.taken[partition]
        self.do(self.member.closed(partition, epoch))

    def begin(self, partition):
        if self.is_dead:
            return self.record("is dead")
        if partition not in self.member.owned or partition not in self.taken:
            return self.record(f"begins nothing: {partition} is not open here")
        if self.scene.now >= self.member.trusted_until:
            return self.record("begins nothing: it is fenced")
        lane = self.scene.lane(partition)
        held = lane.handoff.running if lane.handoff is not None else set()
        sequence = lane.next(self.taken[partition] | held)
        if sequence is None:
            return self.record(f"begins nothing: no message of {partition} may start")
        self.taken[partition].add(sequence)
        self.running[partition, self.member.epochs[partition]].add(sequence)
        return self.record(f"begins {partition}/{sequence}")

    def end(self, partition, sequence):
        lane, epoch = self.scene.lane(partition), self.member.epochs.get(partition)
        if partition in self.taken and sequence in self.running.get((partition, epoch), ()):
            self.running[partition, epoch].discard(sequence)
            lane.settled.add(sequence)
            return self.record(f"settles {partition}/{sequence}")
        state = lane.handoff
        if state is not None and sequence in state.running & self.running.get((partition, state.generation), set()):
            state.settled(sequence)
            lane.settled |= set(state.done)
            return self.record(f"tells the next owner of {partition} that {sequence} has ended: it is settled there")
        return self.record(f"may not settle {partition}/{sequence}: the partition is not its own any more")

    def record(self, what):
        self.scene.printed.append(f"{self.scene.now / SECOND:9.3f} {self.name} {what}")


class Scene:
    """Nodes on one etcd. Each command returns the lines that it prints."""

    def __init__(self):
        self.now, self.etcd = 0, Etcd()
        self.nodes, self.lanes = {}, {}
        self.sessions = []  # of all nodes, also those that have died
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
            self.printed.append("nobody owns anything")

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
        """Until nothing is under way at this instant."""
        while [node for node in self._living() if node.receive() or node.ask()]:
            pass


def _listed(sequences):
    numbers = ", ".join(map(str, sequences))
    return f"{numbers} {'is' if len(sequences) == 1 else 'are'}"
