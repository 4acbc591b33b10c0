"""The node of ownership scripts: a `Member`, and a shell that carries out its actions at once."""

from dataclasses import dataclass, field

from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity
from evenlane.ring.membership.actions import Acquire, Clear, Close, ConfirmGeneration, Drop, Mark, Open, Release
from evenlane.ring.membership.member import Member
from evenlane.ring.membership.owner_keys import Owner
from tests.support.ownership.etcd_model import Etcd as Model

SECOND = 10**9
TRUST = 8 * SECOND
STREAM = StreamIdentity("a stream", 0, 0, 0)


class Etcd(Model):
    """An owner key that was written again has a newer revision, which shows other nodes that it is served."""

    def overwrite(self, partition, lease):
        self.revision += 1
        self._changed(partition, Owner(self.owners[partition].epoch, lease, self.revision))


@dataclass
class Lane:
    """A partition's messages in its stream, which outlives every owner."""

    last: int = 0
    settled: set[int] = field(default_factory=set)
    handoff: HandoffState | None = None
    """The messages that its previous owner still handles."""

    def next(self, skipped):
        return next((n for n in range(1, self.last + 1) if n not in self.settled | skipped), None)


class Node:
    """A node for one session, that is, the life of one lease."""

    def __init__(self, scene, name, lease):
        self.scene, self.name, self.lease = scene, name, lease
        self.member = Member(lease, scene.now + TRUST)
        self.renewed_at = scene.now
        self.is_cut = self.is_dead = self.loses = False
        self.received = self.received_plan = 0  # how far its watches are
        self.requests = []
        self.running = {}  # (partition, epoch) -> messages
        self.taken = {}  # partition -> messages begun so far

    # ---- events and answers

    def receive(self):
        """Receive one entry of a watch; False if there is none."""
        etcd, now = self.scene.etcd, self.scene.now
        if not self.member.knows_owners:
            self.received = len(etcd.history)
            self.do(self.member.on_listing(etcd.revision, dict(etcd.owners), now))
            return True
        plan = etcd.plans.get(self.name)
        if plan is not None and plan[0] > self.received_plan:
            self.received_plan = plan[0]
            self.do(self.member.on_plan(*plan, now))
            return True
        if self.received < len(etcd.history):
            revision, partition, owner = etcd.history[self.received]
            self.received += 1
            if owner is None:
                self.do(self.member.on_owner_delete(partition, revision, now))
            else:
                self.do(self.member.on_owner_put(partition, owner, now))
            return True
        return False

    def ask(self):
        """Carry out one transaction and receive its answer; False if none is under way."""
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
                self.do(member.on_acquired(action.partition, epoch, now))
        elif isinstance(action, Clear):
            etcd.delete([action.partition])
        else:
            owner = etcd.owners.get(action.partition)
            if owner is not None and owner.epoch == action.epoch:
                etcd.delete([action.partition])
            self.do(member.on_released(action.partition, action.epoch, now))
        return True

    def renew(self):
        if self.lease in self.scene.etcd.leases:
            self.renewed_at = self.scene.now
            self.do(self.member.on_renewed(self.scene.now + TRUST, self.scene.now))

    # ---- actions and messages

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
                    self.record(f"drops {partition}: it starts and settles no more messages")
                    self.taken.pop(partition, None)
                case Mark(partition):
                    self.record(f"puts the key of {partition} under its lease again")
                    self.scene.etcd.overwrite(partition, self.lease)
                case Clear(partition):
                    self.record(f"clears the key of {partition}")
                    self.requests.append(action)
                case ConfirmGeneration(generation):
                    self.record(f"confirms generation {generation}")

    def _open(self, partition, epoch):
        state = self.scene.lane(partition).handoff
        held = sorted(state.running) if state is not None else []
        elsewhere = f"; {_listed(held)} still running elsewhere" if held else ""
        self.record(f"opens {partition} under epoch {epoch}{elsewhere}")
        self.taken[partition] = set()
        self.running[partition, epoch] = set()
        self.scene.etcd.overwrite(partition, self.lease)
        self.do(self.member.on_opened(partition, epoch, self.scene.now))

    def _close(self, partition, epoch):
        running = self.running[partition, epoch]
        self.record(f"closes {partition}" + (f"; {_listed(sorted(running))} still running" if running else ""))
        lane = self.scene.lane(partition)
        lane.handoff = HandoffState(epoch, STREAM, set(running))
        lane.handoff.cut_off([], [])
        del self.taken[partition]
        self.do(self.member.on_closed(partition, epoch))

    def begin(self, partition):
        if self.is_dead:
            return self.record("is dead")
        if partition not in self.member.owned or partition not in self.taken:
            return self.record(f"begins no message: {partition} is not open here")
        if self.scene.now >= self.member.trusted_until:
            return self.record("begins no message: it is fenced")
        lane = self.scene.lane(partition)
        held = lane.handoff.running if lane.handoff is not None else set()
        sequence = lane.next(self.taken[partition] | held)
        if sequence is None:
            return self.record(f"begins no message: none of {partition} may start")
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
            state.settle(sequence)
            lane.settled |= set(state.done)
            return self.record(f"reports the end of {partition}/{sequence} to the next owner, which settles it")
        return self.record(f"may not settle {partition}/{sequence}: it no longer owns the partition")

    def record(self, what):
        self.scene.printed.append(f"{self.scene.now / SECOND:9.3f} {self.name} {what}")


def _listed(sequences):
    numbers = ", ".join(map(str, sequences))
    return f"{numbers} {'is' if len(sequences) == 1 else 'are'}"
