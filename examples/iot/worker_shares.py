"""Shares out a gateway's workers among the projects, so that none whose puts hang takes them all. Without I/O."""

from collections import Counter


class WorkerShares:
    """The puts under way, by project, of a pool of workers.

    A project may have as many as there are workers without a put (dynamic thresholds: A. K. Choudhury and E. L. Hahne,
    1998). So one alone gets half of the workers. If the puts of N projects hang, each has about 1 / (N + 1) of the
    workers, and as many are left for all others.
    """

    def __init__(self, workers: int) -> None:
        self._free = workers
        self._puts = Counter[str]()

    def begin(self, project: str) -> bool:
        """Begin a put of the project; `end` must follow. Returns False if the project has its share already."""
        if self._puts[project] >= self._free:
            return False
        self._free -= 1
        self._puts[project] += 1
        return True

    def end(self, project: str) -> None:
        """End a put of the project."""
        self._free += 1
        self._puts[project] -= 1
        if not self._puts[project]:
            del self._puts[project]
