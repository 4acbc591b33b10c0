"""The order in which a consistent-hash ring offers nodes to a partition (Karger et al., 1997)."""

from __future__ import annotations

from bisect import bisect
from functools import lru_cache

from uhashring import HashRing

from evenlane.ring.hashing import digest
from evenlane.ring.placement.bounds import JITTERS

_POINTS = 40  # per node on the ring
_NEAR = 16  # nodes that a partition prefers; all further ones are equal


class Preference:
    """For each partition the `_NEAR` nodes that follow its hash on the ring, nearest first, as indices of `nodes`.

    `jitters` has one number per node (see `Bounds.target`).
    """

    def __init__(self, nodes: tuple[str, ...]) -> None:
        index = {node: number for number, node in enumerate(nodes)}
        points = HashRing(list(nodes), vnodes=_POINTS, hash_fn=digest).get_points()
        self._hashes: list[int] = [point for point, _node in points]
        self._nodes = [index[node] for _point, node in points]
        self._most = min(_NEAR, len(nodes))
        self.jitters = [digest(f"jitter/{node}") % JITTERS for node in nodes]
        self._near: dict[int, tuple[int, ...]] = {}

    def near(self, partition: int) -> tuple[int, ...]:
        known = self._near.get(partition)
        if known is None:
            known = self._near[partition] = self._walk(partition)
        return known

    def _walk(self, partition: int) -> tuple[int, ...]:
        found: dict[int, None] = {}
        at = bisect(self._hashes, digest(str(partition)))
        while len(found) < self._most:
            found[self._nodes[at % len(self._nodes)]] = None
            at += 1
        return tuple(found)


@lru_cache(maxsize=4)
def preference(nodes: tuple[str, ...]) -> Preference:
    """Cached: a leader computes many plans for the same nodes, and the ring takes the longest."""
    return Preference(nodes)
