"""The scheduler against a naive model, with any sequence of calls."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from evenlane.priority.headroom import LINGER
from tests.oracles.examples import examples
from tests.support.scheduler.model import Project, TopicModel
from tests.support.scheduler.parts import MAX_GROUP_QPS, MS, SECOND, Queue, topic_of

NAMES = ["a", "b", "c", "d"]
GROUPS = [0, 1, 2, 799]
BANDS = 3

names = st.sampled_from(NAMES)
places = st.tuples(names, st.sampled_from(GROUPS), st.integers(0, BANDS - 1))
topics = st.builds(
    topic_of,
    qps=st.sampled_from([0.01, 0.5, 3.0, 10.0, 100.0, 1_000.0, 1_000_000.0]) | st.floats(0.01, 1_000_000),
    groups=st.sampled_from([1, 2, 3, 800]),
    burst=st.sampled_from([1, 1, 2, 10, 1_000]),
    weight=st.sampled_from([1.0, 3.0, 100.0, 10_000.0]),
    borrow=st.booleans(),
    reserve=st.sampled_from([0.0, 0.0, 0.01, 50.0, 1_000.0]),
    concurrency=st.sampled_from([None, None, 1, 2, 5]),
    ageing=st.sampled_from([None, None, 0.0, 1 / 16, 0.5, 1.0]),
    state=st.sampled_from(["active", "active", "active", "draining", "paused"]),
)
steps = st.sampled_from([1, MS, 7 * MS, 100 * MS, SECOND, 100 * SECOND, 86_400 * SECOND]) | st.integers(0, SECOND)
services = st.sampled_from([-1, 0, 1, 20_000, MS, SECOND, 1_000 * SECOND]) | st.integers(0, SECOND)


class Fair(RuleBasedStateMachine):
    headroom = True
    slots = 6

    @initialize(
        start=st.sampled_from([0, 10**18]),
        known=st.dictionaries(names, topics, min_size=1),
        waiting=st.sets(places, max_size=36),
    )
    def begin(self, start, known, waiting):
        self.scheduler = FairScheduler(self.slots, MAX_GROUP_QPS, headroom=self.headroom)
        self.now = start
        self.projects = {name: Project(name) for name in NAMES}
        self.queues = {(n, g, b): Queue(n, g, b) for n in NAMES for g in GROUPS for b in range(BANDS)}
        for name, topic in known.items():
            self.configure(name, topic)
        self.become_ready(waiting)

    # ---- the node's calls

    @rule(name=names, topic=topics)
    def configure(self, name, topic):
        """X4."""
        project = self.projects[name]
        project.known = True
        if project.model is None:
            project.model = TopicModel(topic, self.now)
        else:
            project.model.change(topic, self.now)
        self.scheduler.configure(name, topic, self.now)

    @rule(name=names)
    def delete(self, name):
        self.projects[name].known = False
        self.scheduler.configure(name, None, self.now)

    @rule(some=st.sets(places, min_size=1, max_size=12))
    def become_ready(self, some):
        for place in sorted(some):
            self.projects[place[0]].ready.add(place[1:])
            self.scheduler.ready(self.queues[place], self.now)

    @rule(place=places)
    def become_empty(self, place):
        self.projects[place[0]].ready.discard(place[1:])
        self.scheduler.empty(self.queues[place], self.now)

    @rule(step=steps)
    def time_passes(self, step):
        self.now += step

    @rule(pick=st.integers(0, 99), service=services)
    @precondition(lambda self: self._in_flight())
    def done(self, pick, service):
        self._end(pick, service)

    def _end(self, pick, service):
        in_flight = self._in_flight()
        project, entry = in_flight[pick % len(in_flight)]
        self._note_active()
        project.in_flight.remove(entry)
        queue, count = entry
        self.scheduler.finish(queue, self.now, service, count)

    @rule(place=places, service=services)
    def report_a_completion_twice(self, place, service):
        if not self.projects[place[0]].in_flight:
            self.scheduler.finish(self.queues[place], self.now, service)

    # ---- decisions

    @rule(count=st.integers(1, 12))
    def take(self, count):
        for _ in range(count):
            if self._free() and self._next() is None:
                return

    @rule(more=st.integers(0, 4), asks_why=st.booleans())
    def take_a_batch_and_cancel_the_last(self, more, asks_why):
        """E10."""
        if not self._free() or (queue := self._next()) is None:
            return
        project = self.projects[queue.project]
        for _ in range(more):
            if not self._again(project, queue):
                return
        grant = self.scheduler.grant_again(queue, self.now)
        if grant is not None:
            if asks_why:
                self.scheduler.wait_reason(queue, self.now)
            grant.cancel()

    @rule(asks_why=st.booleans())
    def cancel(self, asks_why):
        """E10: the next decision is the same, since nothing was charged."""
        if not self._free() or (grant := self.scheduler.next(self.now)) is None:
            return
        queue = grant.queue
        if asks_why:
            self.scheduler.wait_reason(queue, self.now)
        grant.cancel()
        assert queue is self.scheduler.next(self.now).queue

    @rule()
    def sleep_until_wake_at(self):
        if self._free() and self._next() is None and (wake := self.scheduler.wake_at()) is not None:
            self.now = wake
            self._next()

    @rule(step=st.sampled_from([0, 1, MS, 20 * MS, 300 * MS]), pick=st.integers(0, 99), service=services)
    def work_for_a_while(self, step, pick, service):
        for _ in range(25):
            while self._free() and self._next():
                pass
            wake = self.scheduler.wake_at()
            self._note_active()
            self.now += step
            if not self._in_flight() and wake is not None:
                self.now = max(self.now, wake)
            elif self._in_flight():
                self._end(pick, service)

    def _next(self):
        queue = start_next(self.scheduler, self.now)
        if queue is None:
            self._check_idle()
            return None
        project = self.projects[queue.project]
        self._check_allowed(project, queue)
        project.in_flight.append((queue, 1))
        project.model.admit(queue.group, self.now)
        return queue

    def _again(self, project, queue) -> bool:
        grant = self.scheduler.grant_again(queue, self.now)
        if grant is None:
            return False
        grant.commit(self.now)
        self._check_allowed(project, queue)
        _, count = project.in_flight.pop()
        project.in_flight.append((queue, count + 1))
        project.model.admit(queue.group, self.now)
        return True

    # ---- checks

    def _check_allowed(self, project, queue):
        assert project.open, f"the topic of {queue} is paused or unknown"
        assert (queue.group, queue.band) in project.ready, f"{queue} has no ready message"
        assert not project.full, f"{queue} exceeds its concurrency"
        if not project.model.topic.ageing:
            assert (queue.group, queue.band) in project.heads(), f"{queue} isn't the highest of its group (E5)"

    def _check_idle(self):
        """W: each project that gets no slot is held up by a rule, and `wake_at` is no later than the end of that."""
        wake = self.scheduler.wake_at()
        assert wake is None or wake > self.now, "the node would ask again and again at the same instant"
        assert None is start_next(self.scheduler, self.now), "a repeated question has another answer"
        for project in self.projects.values():
            if project.open and project.ready and not project.full:
                conforms = project.conforms_from()
                held = self._may_be_held(project)
                assert conforms > self.now or held, f"no rule holds {project} up at {self.now}"
                late = f"the node sleeps until {wake}, but {project} may start at {conforms}"
                assert held or (wake is not None and wake <= conforms), late
            self._check_reasons(project)

    def _check_reasons(self, project):
        """X8."""
        for group, band in project.ready:
            why = self.scheduler.wait_reason(self.queues[project.name, group, band], self.now)
            if not project.open:
                assert "paused" == why
            elif (group, band) not in project.heads() and not self._may_be_its_turn(project, why):
                assert "higher_priority" == why
            elif project.full:
                assert "concurrency" == why
            elif project.model.conforms_from({group}) > self.now and not self._may_be_held(project):
                wait = project.model.conforms_from({group}) - self.now
                assert "quota" == why, f"{project.name}/{group}/{band} conforms in {wait} ns, at {self.now}"
            else:
                assert why in {"quota", "headroom"}

    def _may_be_its_turn(self, project, why) -> bool:
        """Whether ageing may give this turn to a lower priority, which then has the reason of its group."""
        return bool(project.model.topic.ageing) and why != "higher_priority"

    def _may_be_held(self, project) -> bool:
        """Whether other tenants may come first: the project has its fair share, and isn't alone."""
        active = [each for each in self.projects.values() if self._was_active(each)]
        weights = sum(each.model.topic.weight for each in active)
        share = max(1, int(self.slots * project.model.topic.weight / weights))
        return self.headroom and len(project.in_flight) >= share and len(active) > 1

    def _was_active(self, project) -> bool:
        """Whether the project is active, or was a moment ago."""
        lately = project.last_active is not None and self.now - project.last_active <= LINGER
        return project.model is not None and (project.active or lately)

    @invariant()
    def note_active_projects(self):
        self._note_active()

    def _note_active(self):
        for project in self.projects.values() if hasattr(self, "projects") else ():
            if project.active:
                project.last_active = self.now

    def teardown(self):
        """Q, E3."""
        for project in self.projects.values() if hasattr(self, "projects") else ():
            if project.model is not None:
                project.model.check_windows()

    @invariant()
    def empty_queues_have_no_wait_reason(self):
        for place in self.queues if hasattr(self, "projects") else ():
            if place[1:] not in self.projects[place[0]].ready:
                assert None is self.scheduler.wait_reason(self.queues[place], self.now)

    def _in_flight(self):
        return [(project, entry) for project in self.projects.values() for entry in project.in_flight]

    def _free(self) -> bool:
        return len(self._in_flight()) < self.slots


class FairWithoutHeadroom(Fair):
    headroom = False


TestFair = Fair.TestCase
TestFairWithoutHeadroom = FairWithoutHeadroom.TestCase
TestFair.settings = examples(60, 60)
TestFairWithoutHeadroom.settings = examples(60, 60)
