"""A simulated node: slots, handlers and arrivals. The clock jumps to the next event."""

from collections import Counter
from heapq import heappop, heappush
from itertools import count

from evenlane.engine.core.scheduler.fair import FairScheduler
from tests.support.scheduler.parts import MAX_GROUP_QPS, MS, Queue, topic_of

BANDS = ("high", "mid", "low")
GONE = "gone"


class SchedulerWorld:
    """Queues are named as `acme/0/low`. `trace` has the instant (ns), the queue, and GONE if the message was missing.
    `decisions` is the number of decisions that the scheduler was asked for.
    """

    def __init__(self, slots=4, start=0, **kinds):
        self.scheduler = FairScheduler(slots, MAX_GROUP_QPS, **kinds)
        self.slots, self.now = slots, start
        self.rules, self.service = {}, {}
        self.queues, self.waiting, self.lost = {}, Counter(), Counter()
        self.running, self.arrivals, self._order = [], [], count()
        self.trace, self.decisions = [], 0

    # ---- commands

    def topic(self, project, **rules):
        """Set a topic's rules, or change the named ones."""
        self.rules[project] = {**self.rules.get(project, {}), **rules}
        self.scheduler.configure(project, topic_of(**self.rules[project]), self.now)

    def delete(self, project):
        del self.rules[project]
        self.scheduler.configure(project, None, self.now)

    def handler(self, project, service):
        """Set the handler time of its messages: `service` ns, or a function of it; None: until `end` is called."""
        self.service[project] = service

    def put(self, name, messages=1):
        queue = self._queue(name)
        self.waiting[name] += messages
        self.scheduler.ready(queue, self.now)

    def put_every(self, name, messages, gap):
        for n in range(messages):
            heappush(self.arrivals, (self.now + n * gap, next(self._order), name))

    def lose(self, name, messages):
        """Let the next `messages` of the queue be missing when their turn comes."""
        self.lost[name] += messages

    def end(self, project):
        """End the running handlers of a project."""
        ending = [entry for entry in self.running if entry[2].project == project]
        self.running = [entry for entry in self.running if entry not in ending]
        for _, _, queue, began in ending:
            self.scheduler.finish(queue, self.now, self.now - began)

    def why(self, name):
        return self.scheduler.wait_reason(self._queue(name), self.now)

    # ---- the simulation

    def run(self, ns):
        """Let time pass, and return the trace of that time."""
        before, end = len(self.trace), self.now + ns
        while True:
            self._arrive()
            self._dispatch()
            upcoming = self._upcoming()
            if upcoming >= end:
                break
            self.now = upcoming
            self._finish()
        self.now = end
        self._arrive()
        self._finish()
        return self.trace[before:]

    def counts(self, ns):
        """Let time pass, and return the number of messages handed out per project."""
        return Counter(name.split("/")[0] for _, name, gone in self.run(ns) if not gone)

    def _upcoming(self):
        instants = [entry[0] for entry in (*self.running[:1], *self.arrivals[:1])]
        if len(self.running) < self.slots and (wake := self.scheduler.wake_at()) is not None:
            assert wake > self.now
            instants.append(wake)
        return min(instants, default=float("inf"))

    def _arrive(self):
        while self.arrivals and self.arrivals[0][0] <= self.now:
            self.put(heappop(self.arrivals)[2])

    def _dispatch(self):
        while len(self.running) < self.slots:
            self.decisions += 1
            grant = self.scheduler.next(self.now)
            if grant is None:
                return
            self._start(grant)

    def _start(self, grant):
        queue = grant.queue
        name = name_of(queue)
        gone = self.lost[name] > 0
        self.trace.append((self.now, name, GONE if gone else ""))
        self.waiting[name] -= 1
        if gone:
            self.lost[name] -= 1
            grant.cancel()
        else:
            grant.commit(self.now)
            service = self.service.get(queue.project, 10 * MS)
            end = float("inf") if service is None else self.now + (service() if callable(service) else service)
            heappush(self.running, (end, next(self._order), queue, self.now))
        if not self.waiting[name]:
            self.scheduler.empty(queue, self.now)

    def _finish(self):
        while self.running and self.running[0][0] <= self.now:
            _, _, queue, began = heappop(self.running)
            self.scheduler.finish(queue, self.now, self.now - began)

    def _queue(self, name):
        if name not in self.queues:
            project, group, band = name.split("/")
            self.queues[name] = Queue(project, int(group), BANDS.index(band))
        return self.queues[name]


def name_of(queue):
    return f"{queue.project}/{queue.group}/{BANDS[queue.band]}"
