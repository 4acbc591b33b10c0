"""When a cluster has been at rest for long enough to bring neighbouring partitions together. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_SECOND = 1_000_000_000
REST_NS = 300 * _SECOND
"""After a node has come or gone, and after any other plan. In a rolling restart, nodes follow one another sooner."""
STEP_NS = 30 * _SECOND
"""Between two steps. The partitions of a step move in 4 s or so, in up to 16 s if their new owners open slowly."""


def most_steps(nodes: int) -> int:
    """The steps after which gathering stops: a strategy that needs more may never end. `bounded-ring` needs about one
    per node.
    """
    return 4 * nodes


@dataclass
class Rest:
    """Times are monotonic ns. `due` is the time of the next step; None: there is nothing to gather until something
    changes. `steps` counts those since the last disturbance.
    """

    due: int | None = None
    steps: int = 0

    def disturb(self, now: int) -> None:
        """A node has come or gone, or partitions move for another reason."""
        self.due = now + REST_NS
        self.steps = 0

    def step(self, now: int) -> None:
        """A step was made."""
        self.due = now + STEP_NS
        self.steps += 1

    def wait(self, now: int) -> None:
        """The last step isn't over."""
        self.due = now + STEP_NS

    def end(self) -> None:
        """There is nothing to gather."""
        self.due = None
