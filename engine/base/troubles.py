"""Troubles that keep a node from its work, in one place for all reports. The reports are its record in etcd, `/readyz`,
`why`, the overview, and the metrics.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KINDS = ("blocked", "ownership", "records", "settle_log", "store", "topics")
"""All kinds of trouble: the event loop is blocked; etcd and the node disagree about ownership; records of a partition
in etcd, or its settle log, can't be read by this release; the store can't write; etcd has lost topics.
"""


class Trouble(NamedTuple):
    """One trouble. `sentence` continues the node's name: "has been blocked for 12 s by shop/handlers.py:41". `ready`
    says whether the node still works.
    """

    sentence: str
    ready: bool


class Troubles:
    """Present troubles of one node. Thread-safe: a change replaces the whole mapping.

    `on_change` is called after each change, in the thread that made it.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._current: Mapping[str, Trouble] = {}
        self._lock = Lock()  # held during changes
        self._on_change = on_change

    def begin(self, kind: str, sentence: str, *, ready: bool = True) -> None:
        """Report a trouble, or a new sentence for a reported one."""
        trouble = Trouble(sentence, ready)
        with self._lock:
            changes = self._current.get(kind) != trouble
            self._current = {**self._current, kind: trouble}
        if changes:
            self._on_change()

    def end(self, kind: str) -> None:
        """End a trouble. No effect if there is none of this kind."""
        with self._lock:
            changes = kind in self._current
            self._current = {each: trouble for each, trouble in self._current.items() if each != kind}
        if changes:
            self._on_change()

    def current(self) -> dict[str, str]:
        """Return the sentences by kind."""
        return {kind: trouble.sentence for kind, trouble in self._current.items()}

    @property
    def not_ready(self) -> str:
        """The reason why the node can't work, for `/readyz`; empty if it can."""
        return "; ".join(f"it {trouble.sentence}" for trouble in self._current.values() if not trouble.ready)


def sentences(troubles: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield whole sentences for troubles by node and kind, in the order of the nodes."""
    for node, its in sorted(troubles.items()):
        yield from (f"node {node} {sentence}" for _, sentence in sorted(its.items()))
