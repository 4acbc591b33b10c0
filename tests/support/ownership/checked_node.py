"""A node on the model of etcd whose requests, answers and events are single calls, in any order."""

from evenlane.ring.membership.actions import Acquire, Close, ConfirmGeneration, Drop, Mark, Open, Release
from evenlane.ring.membership.member import Member
from evenlane.ring.membership.owner_keys import Owner

TRUST = 1_000_000_000  # ns


class Request:
    """A transaction under way; `result` is None until it is carried out."""

    def __init__(self, action, lease):
        self.action, self.lease = action, lease
        self.result = None


class Node:
    """A node for one session: its member, its requests under way, and the progress of its watches.

    It checks each action of the member.
    """

    def __init__(self, name, lease, etcd, now):
        self.name, self.lease, self.etcd = name, lease, etcd
        self.member = Member(lease, now + TRUST)
        self.received = 0  # entries of etcd's history
        self.received_plan = 0  # revision
        self.seen = {}  # partition -> Owner, by the watch
        self.requests = []
        self.opening, self.closing = [], []
        self.opened, self.ended = set(), set()  # (partition, epoch)
        self.lost = set()  # (partition, epoch) whose end the watch has reported
        self.confirmed = 0

    def do(self, actions, now):
        for action in actions:
            match action:
                case Acquire(partition):
                    assert now < self.member.trusted_until, "a fenced node acquires a partition"
                    assert partition not in self.seen, "a partition with an owner is acquired"
                    self.requests.append(Request(action, self.lease))
                case Open(partition, epoch):
                    assert (partition, epoch) not in self.opened, "an epoch is opened twice"
                    assert any(Owner(epoch, self.lease) == each[2] for each in self.etcd.history), (
                        "an epoch of another node is opened"
                    )
                    self.opened.add((partition, epoch))
                    self.opening.append((partition, epoch))
                case Mark(partition, epoch):
                    assert (partition, epoch) in self.opened
                    if self.etcd.owners.get(partition) == Owner(epoch, 0) and self.lease in self.etcd.leases:
                        self.etcd.overwrite(partition, self.lease)
                case Close():
                    assert tuple(action) in self.opened - self.ended
                    self.closing.append(tuple(action))
                case Release():
                    self.ended.add(tuple(action))
                    self.requests.append(Request(action, self.lease))
                case Drop():
                    self.ended.add(tuple(action))
                case ConfirmGeneration(generation):
                    assert generation > self.confirmed
                    self.confirmed = generation
                    assert sorted(self.member.plan.desired) == self.member.owned

    def receive(self, now):
        """Receive the next event of the watch."""
        revision, partition, owner = self.etcd.history[self.received]
        self.received += 1
        if owner is None:
            self.seen.pop(partition, None)
            self.lost |= {(p, e) for p, e in self.opened if p == partition and e < revision}
            self.do(self.member.on_owner_delete(partition, revision, now), now)
        else:
            self.seen[partition] = owner
            self.lost |= {(p, e) for p, e in self.opened if p == partition and e < owner.epoch}
            self.do(self.member.on_owner_put(partition, owner, now), now)

    def list_again(self, revision, now):
        owners = self.etcd.listing(revision)
        self.seen = dict(owners)
        self.received = sum(1 for at, _, _ in self.etcd.history if at <= revision)
        self.lost |= {(p, e) for p, e in self.opened if e < revision and (p not in owners or owners[p].epoch != e)}
        self.do(self.member.on_listing(revision, owners, now), now)

    def receive_plan(self, now):
        if self.name in self.etcd.plans and self.etcd.plans[self.name][0] > self.received_plan:
            revision, generation, partitions = self.etcd.plans[self.name]
            self.received_plan, before = revision, self.member.plan.generation
            self.do(self.member.on_plan(revision, generation, partitions, now), now)
            assert max(before, generation) == self.member.plan.generation

    @property
    def served(self):
        """The epoch of each partition that the node works on: opening, open or closing."""
        return {partition: self.member.epochs[partition] for partition in self.member.served}

    def carry_out(self, request):
        if request.result is not None:
            return
        action = request.action
        if isinstance(action, Acquire):
            request.result = self.etcd.acquire(self.name, request.lease, *action)
            return
        owner = self.etcd.owners.get(action.partition)
        if owner == Owner(action.epoch, request.lease):
            self.etcd.delete([action.partition])
        request.result = 1

    def answer(self, request, now):
        self.requests.remove(request)
        action = request.action
        if isinstance(action, Acquire):
            self.do(self.member.on_acquired(action.partition, request.result, now), now)
        else:
            self.do(self.member.on_released(*action, now), now)
