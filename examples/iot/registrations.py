"""The registrations that a gateway knows of, as a state machine without I/O.

    unknown --data--> asked --answer--> answered
       ^                |                  |
       |                +--no answer-------+--> asks again after `ask_again` seconds
       +------------------the producer doesn't know the project------------------------

A gateway forgets nothing that matters when it dies: the next one asks, and the owner of the project's partition answers
again.
"""

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

    Invariant: a project is either answered, or asked at a known time, or unknown.
    """

    def __init__(self, *, ask_again: float = 2.0) -> None:
        self._ask_again = ask_again
        self._asked: dict[str, float] = {}
        self._answered: set[str] = set()

    def on_data(self, project: str, now: float) -> Step:
        """Decide about data that has arrived."""
        if project in self._answered:
            return Step.PUT
        asked = self._asked.get(project)
        if asked is not None and now - asked < self._ask_again:
            return Step.WAIT
        self._asked[project] = now
        return Step.ASK

    def on_answer(self, project: str) -> None:
        """Note that the owner of the project's partition has answered, this gateway or another one."""
        self._asked.pop(project, None)
        self._answered.add(project)

    def on_unknown(self, project: str) -> None:
        """Note that the project has no topic: somebody has deleted it since."""
        self._answered.discard(project)
