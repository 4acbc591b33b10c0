"""Several nodes on a model of etcd: answers late, lost or overtaken by the watch, old listings, leases that end."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenlane.ring.membership.member import Acquire, Close, Confirm, Drop, Mark, Member, Open, Owner, Release, Stage
from tests.support.ownership.etcd_model import Etcd

NODES, PARTITIONS = 3, 3
WORKS = (Stage.OPENING, Stage.OPEN, Stage.CLOSING)
TRUST = 1_000_000_000
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # what is found has few steps as it is
which = st.integers(0, 1_000)
nodes = st.integers(0, NODES - 1)


class Request:
    """A transaction under way: carried out, and answered, or not."""

    def __init__(self, action, lease):
        self.action, self.lease = action, lease
        self.result = None


class Node:
    """A term's member, and the shell's part: what is under way, how far its watches are."""

    def __init__(self, name, lease, etcd, now):
        self.name, self.lease, self.etcd = name, lease, etcd
        self.member = Member(lease, now + TRUST)
        self.received = 0  # entries of etcd's history
        self.received_plan = 0  # revision
        self.requests = []
        self.opening, self.closing = [], []
        self.opened, self.ended = set(), set()  # (partition, epoch)
        self.lost = set()  # (partition, epoch) whose end the watch has told
        self.confirmed = 0

    def do(self, actions, now):
        for action in actions:
            match action:
                case Acquire(partition):
                    assert now < self.member.trusted_until, "a fenced node asks"
                    assert partition not in self.member._owners, "what another owns is asked for"
                    self.requests.append(Request(action, self.lease))
                case Open(partition, epoch):
                    assert (partition, epoch) not in self.opened, "an epoch is opened twice"
                    assert any(Owner(epoch, self.lease) == each[2] for each in self.etcd.history), "not our epoch"
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
                case Confirm(generation):
                    assert generation > self.confirmed
                    self.confirmed = generation
                    assert sorted(self.member.wanted) == self.member.owned

    def receive(self, now):
        """The next event of its watch."""
        revision, partition, owner = self.etcd.history[self.received]
        self.received += 1
        if owner is None:
            self.lost |= {(p, e) for p, e in self.opened if p == partition and e < revision}
            self.do(self.member.owner_gone(partition, revision, now), now)
        else:
            self.lost |= {(p, e) for p, e in self.opened if p == partition and e < owner.epoch}
            self.do(self.member.owner_seen(partition, owner, now), now)

    def list_again(self, revision, now):
        owners = self.etcd.listing(revision)
        self.received = sum(1 for at, _, _ in self.etcd.history if at <= revision)
        self.lost |= {(p, e) for p, e in self.opened if e < revision and (p not in owners or owners[p].epoch != e)}
        self.do(self.member.listed(revision, owners, now), now)

    def receive_plan(self, now):
        if self.name in self.etcd.plans and self.etcd.plans[self.name][0] > self.received_plan:
            revision, generation, partitions = self.etcd.plans[self.name]
            self.received_plan, before = revision, self.member.generation
            self.do(self.member.planned(revision, generation, partitions, now), now)
            assert max(before, generation) == self.member.generation

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
            self.do(self.member.acquired(action.partition, request.result, now), now)
        else:
            self.do(self.member.released(*action, now), now)


class Members(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.now, self.generation, self.last_lease = 0, 0, 0
        self.etcd = Etcd()
        self.late = []  # requests whose answer nobody waits for any more
        self.nodes = [None] * NODES
        for number in range(NODES):
            self._join(number)
            self.the_owners_are_listed(number, 0)
        self.plan([0, 1, 2])

    def _join(self, number):
        self.last_lease += 1
        self.etcd.leases.add(self.last_lease)
        self.nodes[number] = Node(number, self.last_lease, self.etcd, self.now)

    # ---- the leader, and whoever meddles with its plans

    @rule(owners=st.lists(st.one_of(st.none(), nodes), min_size=PARTITIONS, max_size=PARTITIONS))
    def plan(self, owners):
        self.generation += 1
        for number in range(NODES):
            wanted = [p for p, owner in enumerate(owners) if owner == number]
            if number not in self.etcd.plans or self.etcd.plans[number][2] != wanted:
                self.etcd.put_plan(number, self.generation, wanted)

    @rule(number=nodes, age=st.integers(1, 3), wanted=st.sets(st.integers(0, PARTITIONS - 1)))
    def an_old_plan_is_put(self, number, age, wanted):
        """Z5. The leader writes the key anew."""
        if number in self.etcd.plans:
            _, generation, partitions = self.etcd.plans[number]
            self.etcd.put_plan(number, generation - age, sorted(wanted))
            if self.nodes[number].member.generation == generation:
                before = self.nodes[number].member.wanted
                self.nodes[number].receive_plan(self.now)
                assert before == self.nodes[number].member.wanted
            self.generation += 1
            self.etcd.put_plan(number, self.generation, partitions)

    # ---- what is under way

    @rule(number=nodes)
    def the_plan_is_received(self, number):
        self.nodes[number].receive_plan(self.now)

    @rule(number=nodes, count=st.integers(1, 3))
    def events_are_received(self, number, count):
        node = self.nodes[number]
        for _ in range(count):
            if node.member.knows_owners and node.received < len(self.etcd.history):
                node.receive(self.now)

    @rule(number=nodes, age=st.integers(0, 4))
    def the_owners_are_listed(self, number, age):
        """Of any age, but never older than what was heard."""
        node = self.nodes[number]
        least = self.etcd.history[node.received - 1][0] if node.received else 1
        node.list_again(max(least, self.etcd.revision - age), self.now)

    @rule(number=nodes, pick=which, answered=st.sampled_from(["", "yes", "lost"]))
    def a_request_goes_on(self, number, pick, answered):
        node = self.nodes[number]
        if not node.requests:
            return
        request = node.requests[pick % len(node.requests)]
        node.carry_out(request)
        if answered == "yes":
            node.answer(request, self.now)
        elif answered == "lost" and isinstance(request.action, Acquire):
            node.requests.remove(request)
            node.do(node.member.unsure(request.action.partition, self.now), self.now)

    @rule(number=nodes, unanswered=st.booleans(), deaf=st.booleans())
    def a_node_is_quick(self, number, unanswered, deaf):
        """All that it opens or closes is done, and all that it is told has come; but, perhaps, for an old answer, or
        for what its watch says.
        """
        node = self.nodes[number]
        self._go_on(node, node.requests[0] if unanswered and node.requests else None, deaf=deaf)

    @rule(partition=st.integers(0, PARTITIONS - 1), to=nodes)
    def a_partition_is_torn_away(self, partition, to):
        """Its key is deleted by hand, and another has it before the owner hears of it."""
        if partition in self.etcd.owners:
            self.etcd.delete([partition])
            others = [n for n in range(NODES) if n != to]
            self.plan([to if p == partition else others[p % len(others)] for p in range(PARTITIONS)])
            self._go_on(self.nodes[to])
            self._go_on(self.nodes[to])

    @rule(pick=which)
    def an_owner_key_loses_its_lease(self, pick):
        """Somebody has put it by hand."""
        if self.etcd.owners:
            partition = sorted(self.etcd.owners)[pick % len(self.etcd.owners)]
            self.etcd.overwrite(partition, 0)

    @rule(number=nodes, pick=which)
    def a_request_has_no_answer_in_time(self, number, pick):
        """It may still be carried out."""
        node = self.nodes[number]
        asks = [r for r in node.requests if isinstance(r.action, Acquire) and r.result is None]
        if asks:
            request = asks[pick % len(asks)]
            node.requests.remove(request)
            self.late.append((node, request))
            node.do(node.member.unsure(request.action.partition, self.now), self.now)

    @rule(pick=which)
    def a_late_request_is_carried_out(self, pick):
        if self.late:
            node, request = self.late.pop(pick % len(self.late))
            node.carry_out(request)

    @rule(number=nodes, pick=which)
    def something_is_open(self, number, pick):
        node = self.nodes[number]
        if node.opening:
            partition, epoch = node.opening.pop(pick % len(node.opening))
            node.do(node.member.opened(partition, epoch, self.now), self.now)

    @rule(number=nodes, pick=which)
    def something_is_closed(self, number, pick):
        node = self.nodes[number]
        if node.closing:
            partition, epoch = node.closing.pop(pick % len(node.closing))
            node.do(node.member.closed(partition, epoch), self.now)

    # ---- time and faults

    @rule(number=nodes, ms=st.sampled_from([1, 150, 400, 1_200]))
    def time_passes(self, number, ms):
        self.now += ms * 1_000_000
        self._tick(self.nodes[number])

    def _tick(self, node):
        due = node.member.wake_at()
        if due is not None and due <= self.now:
            node.do(node.member.tick(self.now), self.now)

    @rule(number=nodes)
    def the_lease_is_renewed(self, number):
        node = self.nodes[number]
        node.do(node.member.renewed(self.now + TRUST, self.now), self.now)

    @rule(number=nodes)
    def the_lease_ends_and_the_node_rejoins(self, number):
        self.etcd.end(self.nodes[number].lease)
        self._join(number)

    @rule(pick=which)
    def somebody_deletes_an_owner_key(self, pick):
        """Nobody should, but anyone can."""
        if self.etcd.owners:
            self.etcd.delete([sorted(self.etcd.owners)[pick % len(self.etcd.owners)]])

    # ---- what must hold

    @invariant()
    def nobody_works_under_an_epoch_whose_end_was_told(self):
        """O."""
        for node in getattr(self, "nodes", []):
            for partition, part in node.member._parts.items():
                if part.stage in WORKS:
                    assert (partition, part.epoch) not in node.lost
                    assert (partition, part.epoch) not in node.ended

    @invariant()
    def no_two_work_under_living_keys(self):
        """Z1."""
        working = [
            partition
            for node in getattr(self, "nodes", [])
            for partition, part in node.member._parts.items()
            if part.stage in WORKS and self.etcd.owners.get(partition, Owner(0, 0)).epoch == part.epoch
        ]
        assert len(working) == len(set(working))

    def teardown(self):
        """Z5: when all is delivered and the plan stands still, it is carried out, everywhere."""
        if not hasattr(self, "nodes"):
            return
        for node, request in self.late:
            node.carry_out(request)
        self.etcd.delete([p for p, owner in self.etcd.owners.items() if owner.lease == 0])
        self.plan([0, 1, 2])
        for _ in range(40):
            for node in self.nodes:
                self.the_lease_is_renewed(node.name)
                self._go_on(node)
                self._compare(node)
            self.now += 200_000_000
        for node in self.nodes:
            revision, generation, wanted = self.etcd.plans[node.name]
            assert wanted == node.member.owned, f"node {node.name} at revision {revision}"
            assert (generation, generation) == (node.member.generation, node.confirmed)
            assert not node.member.busy
            for partition in wanted:
                epoch = node.member._parts[partition].epoch
                assert Owner(epoch, node.lease) == self.etcd.owners[partition]

    def _compare(self, node):
        """As the keeper of the lease does it (evenlane.engine.cluster.ownership.lease): a key that isn't known ends the
        term. One that had lost its lease when it was to be released, and then got it back, is one.
        """
        if {p for p, owner in self.etcd.owners.items() if owner.lease == node.lease} - node.member.known:
            self.the_lease_ends_and_the_node_rejoins(node.name)

    def _go_on(self, node, but_for=None, *, deaf=False):
        if not node.member.knows_owners:
            node.list_again(self.etcd.revision, self.now)
        node.receive_plan(self.now)
        for request in list(node.requests):
            node.carry_out(request)
            if request is not but_for:
                node.answer(request, self.now)
        while node.received < len(self.etcd.history) and not deaf:
            node.receive(self.now)
        for partition, epoch in [node.opening.pop() for _ in list(node.opening)]:
            node.do(node.member.opened(partition, epoch, self.now), self.now)
        for partition, epoch in [node.closing.pop() for _ in list(node.closing)]:
            node.do(node.member.closed(partition, epoch), self.now)
        self._tick(node)


Members.TestCase.settings = settings(max_examples=300, stateful_step_count=60, phases=PHASES)
TestMembers = Members.TestCase
