"""Scenario files: blocks of commands, a line of dashes, and the scheduler's decisions.

    node slots=4 [headroom=off] [fair=off]       make a new node, at time 0
    topic acme qps=10 groups=2 ...               set a topic's rules, or change the named ones
    delete acme | pause acme | resume acme
    handler acme 45ms | handler acme held        set the handler time of its messages; held: until `done acme`
    put acme/0/low x3                            put messages now
    put acme/0/low x20 every 50ms                put one message now, and one after each 50 ms
    lose acme/0/low x2                           the next two messages will be missing when their turn comes
    run 1s                                       let time pass; prints each message with its instant
    count 10s [queues]                           let time pass; prints the number of messages per project (or queue)
    why acme/0/low                               prints the reason why its head waits
    done acme                                    end its held handlers

A line that begins with `#` is prose. `pytest tests/unit/core/scheduler --update` rewrites the decisions: review the
diff.
"""

from collections import Counter
from itertools import groupby

from tests.support.scheduler.parts import SECOND
from tests.support.scheduler.world import SchedulerWorld
from tests.support.script import duration, rewritten


def ran(text):
    """The same file with the present output of its commands."""
    return rewritten(text, Scene().do)


class Scene:
    """A world that carries out commands in text."""

    def __init__(self):
        self.world = SchedulerWorld()

    def do(self, command):
        """Carry out a command, and return the lines that it prints."""
        verb, *words = command.split()
        return getattr(self, f"_{verb}")(*words) or []

    def _node(self, *options):
        given = dict(option.split("=") for option in options)
        slots = int(given.pop("slots", 4))
        self.world = SchedulerWorld(slots, **{name: value != "off" for name, value in given.items()})

    def _topic(self, project, *rules):
        self.world.topic(project, **dict(_rule(rule) for rule in rules))

    def _delete(self, project):
        self.world.delete(project)

    def _pause(self, project):
        self.world.topic(project, state="paused")

    def _resume(self, project):
        self.world.topic(project, state="active")

    def _handler(self, project, service):
        self.world.handler(project, None if service == "held" else duration(service))

    def _put(self, name, messages="x1", *every):
        if every:
            self.world.put_every(name, int(messages[1:]), duration(every[1]))
        else:
            self.world.put(name, int(messages[1:]))

    def _lose(self, name, messages):
        self.world.lose(name, int(messages[1:]))

    def _done(self, project):
        self.world.end(project)

    def _why(self, name):
        return [f"{name} waits for {self.world.why(name)}"]

    def _run(self, time):
        """Messages handed out at the same instant share a line."""
        trace = self.world.run(duration(time))
        for at, together in groupby(trace, key=lambda entry: entry[0]):
            names = [f"{name} {gone}".strip() for _, name, gone in together]
            yield f"{at / SECOND:9.3f} " + "  ".join(_folded(names))

    def _count(self, time, by="projects"):
        trace = [name for _, name, gone in self.world.run(duration(time)) if not gone]
        counts = Counter(name if by == "queues" else name.split("/")[0] for name in trace)
        return [f"{name} {number}" for name, number in sorted(counts.items())] or ["nothing"]


def _folded(names):
    for name, same in groupby(names):
        number = len(list(same))
        yield f"{name} x{number}" if number > 1 else name


def _rule(text):
    name, value = text.split("=")
    words = {"yes": True, "no": False, "none": None}
    if value in words:
        return name, words[value]
    return name, int(value) if name in {"groups", "burst", "concurrency"} else float(value)
