"""Statistics of a process: its host, its version, and its processor use."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.cpu_limit import read_cpu_limit

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST_NS = 10_000_000  # the kernel may count processor time in ticks of up to 10 ms
_WINDOW_NS = 10_000_000_000  # a burst of less than a second is no load
_LIMIT_NS = 30_000_000_000  # between two looks at the limit: a container can be resized while it runs


class CpuSample(NamedTuple):
    """Processor time of all threads, user and system, and elapsed time; both in ns from any start."""

    cpu_ns: int
    wall_ns: int


def share(before: CpuSample, after: CpuSample) -> float:
    """Return processor time over elapsed time: 1.0 is one whole core, 2.0 two. 0.0 if no time has elapsed."""
    wall_ns = after.wall_ns - before.wall_ns
    return max(0, after.cpu_ns - before.cpu_ns) / wall_ns if wall_ns > 0 else 0.0


def now() -> CpuSample:
    """Return a sample of this process."""
    return CpuSample(time.process_time_ns(), now_ns())


class ProcessStats:
    """Statistics of this process. `host`, `pid` and `version` (empty if not installed) are constant.

    `limit()` returns the number of cores that the process may use; by default, that of its container or machine.
    Invariant: `_samples` has the samples of the last `window_ns`, and the last one before.
    """

    def __init__(
        self,
        sample: Callable[[], CpuSample] = now,
        limit: Callable[[], float] | None = None,
        *,
        window_ns: int = _WINDOW_NS,
    ) -> None:
        self.host = socket.gethostname()
        self.pid = os.getpid()
        self.version = _version()
        self._sample, self._limit, self._window_ns = sample, limit or read_cpu_limit, window_ns
        self._samples = deque([sample()])
        self._cores, self._cores_at = self._limit(), self._samples[0].wall_ns

    @property
    def cores(self) -> float:
        """The number of cores that the process may use, as of the last call of `cpu`."""
        return self._cores

    def cpu(self) -> float:
        """Return the processor use of the last 10 s, or since the start, as a share of what the process may use: 1.0 is
        all of it. Between two calls within 10 ms, it stays the same.
        """
        after, samples = self._sample(), self._samples
        if after.wall_ns - self._cores_at >= _LIMIT_NS:
            self._cores, self._cores_at = self._limit(), after.wall_ns
        if after.wall_ns - samples[-1].wall_ns >= _LEAST_NS:
            samples.append(after)
        while len(samples) > 2 and samples[-1].wall_ns - samples[1].wall_ns >= self._window_ns:
            samples.popleft()
        return share(samples[0], samples[-1]) / self._cores


def _version() -> str:
    try:
        return metadata.version("evenlane")
    except metadata.PackageNotFoundError:
        return ""
