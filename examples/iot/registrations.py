"""The registrations that a gateway knows of, as a state machine without I/O.

    unknown --data--> asked --answer--> answered
       ^                |                  |
       |                +--no answer-------+--> asks again after `ask_again` seconds
       +------------------the producer doesn't know the project------------------------

A gateway forgets nothing that matters when it dies: the next one asks, and the owner of the project's partition answers
again.
"""

import itertools
from collections import OrderedDict
from enum import Enum, auto


class Step(Enum):
    """What to do with data of a project now."""

    ASK = auto()
    """Announce the project, and keep the data waiting."""
    WAIT = auto()
    """Keep the data waiting: the project is announced."""
    PUT = auto()
    """Put the data: the owner has answered. If the project is closed, the producer refuses it."""


class Registrations:
    """Decides when a gateway announces a project, and when its data may flow. Times are seconds of any one clock.

    Invariant: a project is either answered, or asked within the last `ask_again` seconds, or unknown. So projects that
    nobody ever answers for, such as invented ones, are forgotten. Of those that are answered, the `most` that had data
    or an answer last are known; the others are announced again.
    """

    def __init__(self, *, ask_again: float = 2.0, most: int = 100_000) -> None:
        self._ask_again, self._most = ask_again, most
        self._asked: dict[str, float] = {}
        self._answered: OrderedDict[str, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many projects wait for an answer."""
        return len(self._asked)

    @property
    def answered(self) -> int:
        """How many projects are known to be answered."""
        return len(self._answered)

    def on_data(self, project: str, now: float) -> Step:
        """Decide about data that has arrived."""
        if project in self._answered:
            self._answered.move_to_end(project)
            return Step.PUT
        self._forget_unanswered(now)
        if project in self._asked:
            return Step.WAIT
        self._asked[project] = now
        return Step.ASK

    def on_answer(self, project: str) -> None:
        """Note that the owner of the project's partition has answered, this gateway or another one."""
        self._asked.pop(project, None)
        self._answered[project] = None
        self._answered.move_to_end(project)
        if len(self._answered) > self._most:
            self._answered.popitem(last=False)

    def on_unknown(self, project: str) -> None:
        """Note that the project has no topic: somebody has deleted it since."""
        self._answered.pop(project, None)

    def _forget_unanswered(self, now: float) -> None:
        """Forget what may be asked again. The dictionary is in the order of times."""
        for project in list(itertools.takewhile(lambda each: now - self._asked[each] >= self._ask_again, self._asked)):
            del self._asked[project]
