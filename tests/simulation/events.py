"""What is put, and what happens, in a simulation."""

from __future__ import annotations

from typing import NamedTuple

PROJECTS = ("acme", "blue", "coral")
GROUPS = 12  # of each project
PRIORITIES = ("high", "mid", "low")
KEYS = {"a": 0, "b": 0, "c": 0, "d": 7, "e": 10}  # the group of each


class PutAt(NamedTuple):
    """A message: when it is put, for when it is due (None: at once) and until when it lives (None: for days), how long
    its handler takes, and how often it fails before it ends well, and in what way: "raise", "retry" `after` so long,
    "reject". It asks `pauses` times for a pause of `after`. `kills`: it takes its process with it, after its failures;
    if it `alternates`, its every other handler does, the first one included, and the others fail. Seconds.
    """

    at: float
    uid: str
    project: str
    group: int
    priority: str
    key: str | None = None
    due: float | None = None
    expires: float | None = None
    takes: float = 0.0
    fails: int = 0
    way: str = "raise"
    after: float = 0.0
    pauses: int = 0
    kills: bool = False
    alternates: bool = False


class Action(NamedTuple):
    """One thing that happens; `who` counts the nodes that live then, or is a partition. Seconds. `same_id`: of the node
    that comes back; with what lasts, whether another node joins meanwhile.
    """

    at: float
    kind: str
    who: int
    lasts: float
    back: float  # seconds until a node that was stopped or killed is there again
    same_id: bool
