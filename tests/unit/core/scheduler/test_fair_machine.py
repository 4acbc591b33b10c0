"""The scheduler against a naive model, whatever comes (issue 3, "Bad input")."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from evenlane.priority.headroom import LINGER
from tests.oracles.examples import examples
from tests.support.scheduler.model import Life, Project
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

    # ---- what the node tells

    @rule(name=names, topic=topics)
    def configure(self, name, topic):
        """X4."""
        project = self.projects[name]
        project.known = True
        if project.life is None:
            project.life = Life(topic, self.now)
        else:
            project.life.change(topic, self.now)
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
    def becomes_empty(self, place):
        self.projects[place[0]].ready.discard(place[1:])
        self.scheduler.empty(self.queues[place], self.now)

    @rule(step=steps)
    def time_passes(self, step):
        self.now += step

    @rule(pick=st.integers(0, 99), service=services)
    @precondition(lambda self: self._flying())
    def done(self, pick, service):
        self._end(pick, service)

    def _end(self, pick, service):
        flying = self._flying()
        project, entry = flying[pick % len(flying)]
        self._note_active()
        project.flying.remove(entry)
        queue, count = entry
        self.scheduler.done(queue, self.now, service, count)

    @rule(place=places, service=services)
    def done_of_what_never_ran(self, place, service):
        """A completion reported twice."""
        if not self.projects[place[0]].flying:
            self.scheduler.done(self.queues[place], self.now, service)

    # ---- what it answers

    @rule(count=st.integers(1, 12))
    def take(self, count):
        for _ in range(count):
            if self._free() and self._next() is None:
                return

    @rule(more=st.integers(0, 4), asked=st.booleans())
    def take_a_batch_and_cancel_the_last(self, more, asked):
        """E10."""
        if not self._free() or (queue := self._next()) is None:
            return
        project = self.projects[queue.project]
        for _ in range(more):
            if not self._again(project, queue):
                return
        grant = self.scheduler.again(queue, self.now)
        if grant is not None:
            if asked:
                self.scheduler.why(queue, self.now)
            grant.cancel()

    @rule(asked=st.booleans())
    def cancel(self, asked):
        """E10: the scheduler's answer stays the same while nothing else happens."""
        if not self._free() or (grant := self.scheduler.next(self.now)) is None:
            return
        queue = grant.queue
        if asked:
            self.scheduler.why(queue, self.now)
        grant.cancel()
        assert queue is self.scheduler.next(self.now).queue

    @rule()
    def sleep_until_it_says(self):
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
            if not self._flying() and wake is not None:
                self.now = max(self.now, wake)
            elif self._flying():
                self._end(pick, service)

    def _next(self):
        queue = start_next(self.scheduler, self.now)
        if queue is None:
            self._check_idle()
            return None
        project = self.projects[queue.project]
        self._check_allowed(project, queue)
        project.flying.append((queue, 1))
        project.life.admit(queue.group, self.now)
        return queue

    def _again(self, project, queue) -> bool:
        grant = self.scheduler.again(queue, self.now)
        if grant is None:
            return False
        grant.commit(self.now)
        self._check_allowed(project, queue)
        _, count = project.flying.pop()
        project.flying.append((queue, count + 1))
        project.life.admit(queue.group, self.now)
        return True

    # ---- what must hold

    def _check_allowed(self, project, queue):
        assert project.open, f"{queue} is of a topic that is paused or unknown"
        assert (queue.group, queue.band) in project.ready, f"{queue} has nothing"
        assert not project.full, f"{queue} is beyond its concurrency"
        if not project.life.topic.ageing:
            assert (queue.group, queue.band) in project.heads(), f"{queue} isn't the highest of its group (E5)"

    def _check_idle(self):
        """Promise W: whoever is refused, a rule stands against it; and it is told when that ends."""
        wake = self.scheduler.wake_at()
        assert wake is None or wake > self.now, "it would be asked again and again at the same instant"
        assert None is start_next(self.scheduler, self.now), "the same question, another answer"
        for project in self.projects.values():
            if project.open and project.ready and not project.full:
                conforms = project.conforms_from()
                held = self._may_be_held(project)
                assert conforms > self.now or held, f"nothing stands against {project} at {self.now}"
                slept = f"it sleeps until {wake} although {project} may go at {conforms}"
                assert held or (wake is not None and wake <= conforms), slept
            self._check_reasons(project)

    def _check_reasons(self, project):
        """X8."""
        for group, band in project.ready:
            why = self.scheduler.why(self.queues[project.name, group, band], self.now)
            if not project.open:
                assert "paused" == why
            elif (group, band) not in project.heads():
                assert "higher_priority" == why
            elif project.full:
                assert "concurrency" == why
            elif project.life.conforms_from({group}) > self.now and not self._may_be_held(project):
                assert "quota" == why, (
                    why,
                    project.name,
                    group,
                    band,
                    project.life.conforms_from({group}) - self.now,
                    self.now,
                    vars(self.scheduler._slots) if hasattr(self.scheduler._slots, "__dict__") else "",
                    [(n, t.in_flight, t.heavy, t.active, t.busy) for n, t in self.scheduler._tenants.items()],
                )
            else:
                assert why in {"quota", "headroom"}

    def _may_be_held(self, project) -> bool:
        """It may be for others that this project isn't served: it is at its fair share, and not alone."""
        active = [each for each in self.projects.values() if self._was_active(each)]
        weights = sum(each.life.topic.weight for each in active)
        share = max(1, int(self.slots * project.life.topic.weight / weights))
        return self.headroom and len(project.flying) >= share and len(active) > 1

    def _was_active(self, project) -> bool:
        """Or still is. Tenants that had something a moment ago count."""
        lately = project.last_active is not None and self.now - project.last_active <= LINGER
        return project.life is not None and (project.active or lately)

    @invariant()
    def who_is_active_is_noted(self):
        self._note_active()

    def _note_active(self):
        for project in self.projects.values() if hasattr(self, "projects") else ():
            if project.active:
                project.last_active = self.now

    def teardown(self):
        """Q, E3."""
        for project in self.projects.values() if hasattr(self, "projects") else ():
            if project.life is not None:
                project.life.check_windows()

    @invariant()
    def nobody_waits_for_what_is_not_there(self):
        for place in self.queues if hasattr(self, "projects") else ():
            if place[1:] not in self.projects[place[0]].ready:
                assert None is self.scheduler.why(self.queues[place], self.now)

    def _flying(self):
        return [(project, entry) for project in self.projects.values() for entry in project.flying]

    def _free(self) -> bool:
        return len(self._flying()) < self.slots


class FairWithoutHeadroom(Fair):
    headroom = False


TestFair = Fair.TestCase
TestFairWithoutHeadroom = FairWithoutHeadroom.TestCase
TestFair.settings = examples(60, 60)
TestFairWithoutHeadroom.settings = examples(60, 60)
