"""Several nodes on a model of etcd: late and lost answers, watches that overtake them, old listings, ended leases."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenlane.ring.membership.actions import Acquire
from evenlane.ring.membership.owner_keys import Owner
from tests.support.ownership.checked_node import TRUST, Node
from tests.support.ownership.etcd_model import Etcd

NODES, PARTITIONS = 3, 3
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # no shrinking: failures have few steps anyway
which = st.integers(0, 1_000)
nodes = st.integers(0, NODES - 1)


class Members(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.now, self.generation, self.last_lease = 0, 0, 0
        self.etcd = Etcd()
        self.late = []  # requests whose answer is no longer awaited
        self.nodes = [None] * NODES
        for number in range(NODES):
            self._join(number)
            self.list_owners(number, 0)
        self.plan([0, 1, 2])

    def _join(self, number):
        self.last_lease += 1
        self.etcd.leases.add(self.last_lease)
        self.nodes[number] = Node(number, self.last_lease, self.etcd, self.now)

    # ---- the leader, and foreign changes of its plans

    @rule(owners=st.lists(st.one_of(st.none(), nodes), min_size=PARTITIONS, max_size=PARTITIONS))
    def plan(self, owners):
        self.generation += 1
        for number in range(NODES):
            planned = [p for p, owner in enumerate(owners) if owner == number]
            if number not in self.etcd.plans or self.etcd.plans[number][2] != planned:
                self.etcd.put_plan(number, self.generation, planned)

    @rule(number=nodes, age=st.integers(1, 3), planned=st.sets(st.integers(0, PARTITIONS - 1)))
    def put_an_old_plan(self, number, age, planned):
        """Z5: the leader then writes its plan again."""
        if number in self.etcd.plans:
            _, generation, partitions = self.etcd.plans[number]
            self.etcd.put_plan(number, generation - age, sorted(planned))
            if self.nodes[number].member.plan.generation == generation:
                before = self.nodes[number].member.plan.desired
                self.nodes[number].receive_plan(self.now)
                assert before == self.nodes[number].member.plan.desired
            self.generation += 1
            self.etcd.put_plan(number, self.generation, partitions)

    # ---- events and answers

    @rule(number=nodes)
    def receive_the_plan(self, number):
        self.nodes[number].receive_plan(self.now)

    @rule(number=nodes, count=st.integers(1, 3))
    def receive_events(self, number, count):
        node = self.nodes[number]
        for _ in range(count):
            if node.member.knows_owners and node.received < len(self.etcd.history):
                node.receive(self.now)

    @rule(number=nodes, age=st.integers(0, 4))
    def list_owners(self, number, age):
        """List the owners at a revision of any age that isn't older than the events received."""
        node = self.nodes[number]
        least = self.etcd.history[node.received - 1][0] if node.received else 1
        node.list_again(max(least, self.etcd.revision - age), self.now)

    @rule(number=nodes, pick=which, answer=st.sampled_from(["late", "at once", "lost"]))
    def carry_out_a_request(self, number, pick, answer):
        node = self.nodes[number]
        if not node.requests:
            return
        request = node.requests[pick % len(node.requests)]
        node.carry_out(request)
        if answer == "at once":
            node.answer(request, self.now)
        elif answer == "lost" and isinstance(request.action, Acquire):
            node.requests.remove(request)
            node.do(node.member.unsure(request.action.partition, self.now), self.now)

    @rule(number=nodes, unanswered=st.booleans(), watches=st.booleans())
    def catch_up(self, number, unanswered, watches):
        """Complete all that is under way on a node, except perhaps an old answer, or the events of its watch."""
        node = self.nodes[number]
        self._catch_up(node, node.requests[0] if unanswered and node.requests else None, watches=watches)

    @rule(partition=st.integers(0, PARTITIONS - 1), to=nodes)
    def move_a_deleted_partition(self, partition, to):
        """Delete an owner key by hand; another node gets it before the owner notices."""
        if partition in self.etcd.owners:
            self.etcd.delete([partition])
            others = [n for n in range(NODES) if n != to]
            self.plan([to if p == partition else others[p % len(others)] for p in range(PARTITIONS)])
            self._catch_up(self.nodes[to])
            self._catch_up(self.nodes[to])

    @rule(pick=which)
    def detach_an_owner_key(self, pick):
        """Put an owner key by hand, under no lease."""
        if self.etcd.owners:
            partition = sorted(self.etcd.owners)[pick % len(self.etcd.owners)]
            self.etcd.overwrite(partition, 0)

    @rule(number=nodes, pick=which)
    def time_out_a_request(self, number, pick):
        """Stop waiting for a request; it may still be carried out."""
        node = self.nodes[number]
        asks = [r for r in node.requests if isinstance(r.action, Acquire) and r.result is None]
        if asks:
            request = asks[pick % len(asks)]
            node.requests.remove(request)
            self.late.append((node, request))
            node.do(node.member.unsure(request.action.partition, self.now), self.now)

    @rule(pick=which)
    def carry_out_a_late_request(self, pick):
        if self.late:
            node, request = self.late.pop(pick % len(self.late))
            node.carry_out(request)

    @rule(number=nodes)
    def reopen_all(self, number):
        """The node's subscription was reset."""
        node = self.nodes[number]
        node.do(node.member.reopen(), self.now)

    @rule(number=nodes, pick=which)
    def finish_opening(self, number, pick):
        node = self.nodes[number]
        if node.opening:
            partition, epoch = node.opening.pop(pick % len(node.opening))
            node.do(node.member.on_opened(partition, epoch, self.now), self.now)

    @rule(number=nodes, pick=which)
    def finish_closing(self, number, pick):
        node = self.nodes[number]
        if node.closing:
            partition, epoch = node.closing.pop(pick % len(node.closing))
            node.do(node.member.on_closed(partition, epoch), self.now)

    # ---- time and faults

    @rule(number=nodes, ms=st.sampled_from([1, 150, 400, 1_200]))
    def pass_time(self, number, ms):
        self.now += ms * 1_000_000
        self._tick(self.nodes[number])

    def _tick(self, node):
        due = node.member.wake_at()
        if due is not None and due <= self.now:
            node.do(node.member.tick(self.now), self.now)

    @rule(number=nodes)
    def renew_the_lease(self, number):
        node = self.nodes[number]
        node.do(node.member.on_renewed(self.now + TRUST, self.now), self.now)

    @rule(number=nodes)
    def end_the_lease_and_rejoin(self, number):
        self.etcd.end(self.nodes[number].lease)
        self._join(number)

    @rule(pick=which)
    def delete_an_owner_key(self, pick):
        """Delete an owner key by hand."""
        if self.etcd.owners:
            self.etcd.delete([sorted(self.etcd.owners)[pick % len(self.etcd.owners)]])

    # ---- invariants

    @invariant()
    def no_node_works_under_a_lost_epoch(self):
        """O."""
        for node in getattr(self, "nodes", []):
            assert not (node.lost | node.ended) & set(node.served.items())

    @invariant()
    def no_two_nodes_work_under_living_keys(self):
        """Z1."""
        working = [
            partition
            for node in getattr(self, "nodes", [])
            for partition, epoch in node.served.items()
            if self.etcd.owners.get(partition, Owner(0, 0)).epoch == epoch
        ]
        assert len(working) == len(set(working))

    def teardown(self):
        """Z5: a plan that doesn't change is carried out everywhere once all events and answers have arrived."""
        if not hasattr(self, "nodes"):
            return
        for node, request in self.late:
            node.carry_out(request)
        self.etcd.delete([p for p, owner in self.etcd.owners.items() if owner.lease == 0])
        self.plan([0, 1, 2])
        for _ in range(40):
            for node in self.nodes:
                self.renew_the_lease(node.name)
                self._catch_up(node)
                self._compare(node)
            self.now += 200_000_000
        for node in self.nodes:
            revision, generation, planned = self.etcd.plans[node.name]
            assert planned == node.member.owned, f"node {node.name} at revision {revision}"
            assert (generation, generation) == (node.member.plan.generation, node.confirmed)
            assert not node.member.is_busy
            for partition in planned:
                assert Owner(node.member.epochs[partition], node.lease) == self.etcd.owners[partition]

    def _compare(self, node):
        """End the session if etcd has a key that the member doesn't know: one that had lost its lease when it was to be
        released, and then got it back. evenlane.engine.cluster.ownership.lease does the same.
        """
        if {p for p, owner in self.etcd.owners.items() if owner.lease == node.lease} - node.member.known:
            self.end_the_lease_and_rejoin(node.name)

    def _catch_up(self, node, unanswered=None, *, watches=True):
        if not node.member.knows_owners:
            node.list_again(self.etcd.revision, self.now)
        node.receive_plan(self.now)
        for request in list(node.requests):
            node.carry_out(request)
            if request is not unanswered:
                node.answer(request, self.now)
        while node.received < len(self.etcd.history) and watches:
            node.receive(self.now)
        for partition, epoch in [node.opening.pop() for _ in list(node.opening)]:
            node.do(node.member.on_opened(partition, epoch, self.now), self.now)
        for partition, epoch in [node.closing.pop() for _ in list(node.closing)]:
            node.do(node.member.on_closed(partition, epoch), self.now)
        self._tick(node)


Members.TestCase.settings = settings(max_examples=150, stateful_step_count=60, phases=PHASES)
TestMembers = Members.TestCase
