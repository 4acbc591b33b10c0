"""The plain scheduler: strict priority inside a group (E5), groups in turn, and no message of a paused topic."""

from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenlane.engine.core.scheduler.interface import start_next
from evenlane.engine.proof.baselines.schedulers import PlainScheduler

PROJECTS, GROUPS, BANDS = ["a", "b"], 2, 3
projects = st.sampled_from(PROJECTS)
slots = st.tuples(projects, st.integers(0, GROUPS - 1), st.integers(0, BANDS - 1))


def queue_of(project: str, group: int, band: int) -> SimpleNamespace:
    return SimpleNamespace(project=project, group=group, band=band, slot=None)


class Plain(RuleBasedStateMachine):
    """The oracle: the set of ready queues, sorted."""

    @initialize()
    def begin(self):
        self.scheduler = PlainScheduler()
        self.queues = {
            (project, group, band): queue_of(project, group, band)
            for project in PROJECTS
            for group in range(GROUPS)
            for band in range(BANDS)
        }
        self.ready, self.active = set(), set()
        self.waited: dict[tuple[str, int], int] = {}  # turns that others had since this group could go

    @rule(slot=slots)
    def becomes_ready(self, slot):
        self.ready.add(slot)
        self.scheduler.ready(self.queues[slot], 0)

    @rule(slot=slots)
    def becomes_empty(self, slot):
        self.ready.discard(slot)
        self.scheduler.empty(self.queues[slot], 0)

    @rule(project=projects, state=st.sampled_from(["active", "draining", "paused", None]))
    def configure(self, project, state):
        self.scheduler.configure(project, SimpleNamespace(state=state) if state else None, 0)
        (self.active.add if state in {"active", "draining"} else self.active.discard)(project)

    def _may_go(self):
        return {slot[:2] for slot in self.ready if slot[0] in self.active}

    @rule(count=st.integers(1, 12))
    def take(self, count):
        for _ in range(count):
            may_go = self._may_go()
            chosen = start_next(self.scheduler, 0)
            if not may_go:
                assert chosen is None
                return
            group = (chosen.project, chosen.group)
            assert group in may_go
            first = min(band for project, number, band in self.ready if (project, number) == group)
            assert first == chosen.band, "a lower priority went first"
            self.waited = {each: self.waited.get(each, 0) + 1 for each in may_go if each != group}
            assert all(turns < 2 * len(PROJECTS) * GROUPS for turns in self.waited.values()), "out of turn"

    @rule(slot=slots)
    def one_more_of_the_same_queue(self, slot):
        """A batch goes on with its queue only while nothing of a higher priority is ready."""
        higher = [each for each in self.ready if each[:2] == slot[:2] and each[2] < slot[2]]
        expected = slot in self.ready and not higher and slot[0] in self.active
        assert expected == (self.scheduler.grant_again(self.queues[slot], 0) is not None)

    @rule(slot=slots)
    def why_a_head_waits(self, slot):
        """X8."""
        if slot in self.ready:
            higher = [each for each in self.ready if each[:2] == slot[:2] and each[2] < slot[2]]
            expected = "higher_priority" if higher else "handlers_busy"
            why = self.scheduler.wait_reason(self.queues[slot], 0)
            assert ("paused" if slot[0] not in self.active else expected) == why

    @invariant()
    def it_needs_no_timer(self):
        assert None is self.scheduler.wake_at()


TestPlain = Plain.TestCase


def scheduler(*queues) -> PlainScheduler:
    made = PlainScheduler()
    for queue in queues:
        made.configure(queue.project, SimpleNamespace(state="active"), 0)
        made.ready(queue, 0)
    return made


def test_late_high_message_goes_next():
    """E5."""
    low, high = queue_of("a", 0, 2), queue_of("a", 0, 0)
    made = scheduler(low)
    assert low is start_next(made, 0)
    made.ready(high, 0)
    assert [high, high] == [start_next(made, 0), start_next(made, 0)]
    made.empty(high, 0)
    assert low is start_next(made, 0)


def test_groups_take_turns():
    queues = [queue_of("a", 0, 2), queue_of("b", 0, 0), queue_of("b", 1, 1)]
    made = scheduler(*queues)
    assert queues * 3 == [start_next(made, 0) for _ in range(9)]


def test_backlog_of_an_unknown_topic_goes_once_it_is_configured():
    """X4."""
    queue = queue_of("a", 0, 0)
    made = PlainScheduler()
    made.ready(queue, 0)
    assert (None, "paused", None) == (start_next(made, 0), made.wait_reason(queue, 0), made.grant_again(queue, 0))
    made.configure("a", SimpleNamespace(state="active"), 0)
    assert queue is start_next(made, 0)
    made.configure("a", SimpleNamespace(state="paused"), 0)
    assert None is start_next(made, 0)
    made.configure("a", SimpleNamespace(state="active"), 0)
    assert queue is start_next(made, 0)


def test_ready_and_empty_may_be_repeated():
    queue = queue_of("a", 0, 1)
    made = scheduler(queue, queue)
    assert [queue, queue] == [start_next(made, 0), start_next(made, 0)]
    made.empty(queue, 0)
    made.empty(queue, 0)
    assert None is start_next(made, 0)


def test_unknown_queue_has_no_wait_reason():
    made = PlainScheduler()
    queue = queue_of("a", 0, 1)
    made.empty(queue, 0)
    assert (None, None) == (made.wait_reason(queue, 0), made.grant_again(queue, 0))
