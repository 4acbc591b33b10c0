"""The puts and actions of a simulation."""

from __future__ import annotations

from typing import NamedTuple

PROJECTS = ("acme", "blue", "coral")
GROUPS = 12  # of each project
PRIORITIES = ("high", "mid", "low")
KEYS = {"a": 0, "b": 0, "c": 0, "d": 7, "e": 10}  # the group of each


class PutAt(NamedTuple):
    """A message, with the times of its put, due time (None: at once) and expiry (None: in days).

    Its handler takes `takes`. It fails `fails` times before it succeeds, in the `way` "raise", "retry" (in `after`) or
    "reject", and asks `pauses` times for a pause of `after`. A message that `kills` ends its process, after its
    failures; if it also `alternates`, every other handler does so, beginning with the first, and the others fail. All
    times are in seconds.
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
    """An action, mostly a fault. `target` is an index into the running nodes, or a partition. `same_id`: the node that
    comes back has the id of the one that went; for a fault that lasts, another node joins meanwhile. Times are in
    seconds.
    """

    at: float
    kind: str
    target: int
    lasts: float
    back: float  # seconds until a node that was stopped or killed is back
    same_id: bool
