"""The node's decisions against its wait reasons, with any sequence of events (X8)."""

from contextlib import ExitStack
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.oracles.examples import examples
from tests.simulation import surroundings
from tests.simulation.loop import SimLoop
from tests.support.node.waiting import OUTCOMES, WaitWorld
from tests.support.node.world import CLUSTER_CONFIG, topic

PROJECTS = ["bolt", "dune"]  # each has a group in both partitions

projects = st.sampled_from(PROJECTS)
groups = st.integers(0, 1)
priorities = st.sampled_from(CLUSTER_CONFIG.priorities)
counts = st.sampled_from([1, 2, 3, 8])
backlogs = st.sampled_from([1, 8, 20])
partitions = st.integers(0, CLUSTER_CONFIG.partitions - 1)
topics = st.builds(
    lambda *some: topic(groups=2, **{name: value for fields in some for name, value in fields.items()}),
    st.sampled_from([{}, {"ordered": True}, {"ageing": 0.5}]),
    st.sampled_from(
        [
            {},
            {"qps": 0.5},
            {"qps": 5, "burst": 3},
            {"qps": 50, "burst": 1, "borrow": False},
            {"concurrency": 1},
            {"concurrency": 2},
            {"weight": 10},
            {"reserve": 0.5},
        ]
    ),
    st.sampled_from([{}, {}, {"state": "paused"}]),
)


class Decisions(RuleBasedStateMachine):
    """X8: after each event, the head of a queue starts if and only if `WaitRules` has no reason for it to wait."""

    @initialize(
        known=st.fixed_dictionaries(dict.fromkeys(PROJECTS, topics)),
        index=st.sampled_from([4, 1_000]),
        read_ahead=st.sampled_from([2, 256]),
    )
    def begin(self, known, index, read_ahead):
        self.errors = []
        self.loop = SimLoop(Random(1), lambda what, error: self.errors.append(error or what))
        self.surroundings = ExitStack()
        self.surroundings.enter_context(surroundings.replaced())
        self.surroundings.enter_context(surroundings.of(1, lambda: self.loop.now, lambda *_: None, quiet=True))
        self.world = WaitWorld(lambda: self.loop.now, **known)
        self._run(self.world.begin(index=index, read_ahead=read_ahead))

    def _run(self, event):
        self.loop.run(event)
        self.loop.run(self.world.check())
        assert [] == self.errors

    def teardown(self):
        if hasattr(self, "world"):
            with self.surroundings:
                self.loop.run(self.world.end())

    # ---- messages and handlers

    @rule(project=projects, group=groups, priority=priorities, count=counts, key=st.sampled_from([None, None, "k"]))
    def messages_arrive(self, **put):
        self._run(self.world.put_messages(**put))

    @rule(project=projects, group=groups, count=counts, key=st.sampled_from(["k", "l"]))
    def messages_with_a_key_arrive(self, **put):
        self._run(self.world.put_messages(**put))

    @rule(project=projects, group=groups, priority=priorities, delay_s=st.sampled_from([0.1, 3]))
    def delayed_messages_arrive(self, **put):
        self._run(self.world.put_messages(count=2, **put))

    @rule(pick=st.integers(0, 2), outcome=st.sampled_from([*OUTCOMES]))
    @precondition(lambda self: self.world.running)
    def handler_ends(self, pick, outcome):
        self._run(self.world.end_handler(pick, outcome))

    @rule(times=st.sampled_from([1, 20]))
    def all_handlers_end(self, times):
        self._run(self.world.end_handlers(times))

    # ---- rules

    @rule(seconds=st.sampled_from([0.01, 0.3, 2, 10]), heals=st.booleans())
    def time_passes(self, seconds, heals):
        self._run(self.world.pass_time(seconds, heals, PROJECTS))

    @rule(project=projects, rules=topics | st.none())
    def topic_changes(self, project, rules):
        """X4."""
        self._run(self.world.set_topic(project, rules))

    @rule(seconds=st.sampled_from([0, 0.1]))
    @precondition(lambda self: self.world.is_trusted)
    def lease_is_in_doubt(self, seconds):
        self._run(self.world.trust_for(seconds))

    @rule()
    @precondition(lambda self: not self.world.is_trusted)
    def lease_is_renewed(self):
        self._run(self.world.trust_for(1e6))

    # ---- partitions

    @rule(number=partitions)
    @precondition(lambda self: self.world.is_connected)
    def partition_is_released(self, number):
        self._run(self.world.release(number))

    @rule(number=partitions, project=projects, count=backlogs, cut_after=st.none() | st.integers(0, 6))
    @precondition(lambda self: self.world.is_connected)
    def partition_is_taken_over(self, **taken):
        """E5: lower priorities wait for the backlog."""
        self._run(self.world.take_over(**taken))

    @rule()
    @precondition(lambda self: self.world.is_connected)
    def connection_is_lost(self):
        self._run(self.world.disconnect())

    @rule()
    @precondition(lambda self: not self.world.is_connected)
    def connection_is_back(self):
        self._run(self.world.reconnect())


TestDecisions = Decisions.TestCase
TestDecisions.settings = examples(80, 40)
