"""The processor time that a process may use: the limit of its container, or its share of the machine's cores.

A container's limit is a quota of its control group (cgroup), of version 2 (`cpu.max`) or 1 (`cpu.cfs_quota_us` and
`cpu.cfs_period_us`), documented in the Linux kernel's admin-guide. A group can't use more than the groups above it, so
the lowest limit on the path to the root counts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NO_QUOTA = "max"  # in cpu.max
_MICROSECONDS = range(1, 1 << 62)


class Groups(NamedTuple):
    """The control groups of a process, as paths from the root of their hierarchy: None if there is no such one."""

    unified: str | None
    cpu: str | None


def parse_groups(text: str) -> Groups:
    """Parse `/proc/self/cgroup`: lines of `number:controllers:path`. The number 0 is version 2. Never fails."""
    unified = cpu = None
    for line in text.splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            unified = path
        elif "cpu" in controllers.split(","):
            cpu = path
    return Groups(unified, cpu)


def parse_cpu_max(text: str) -> float | None:
    """Parse `cpu.max` of version 2, such as `150000 100000`; return the limit in cores. None: no limit, or no such
    text.
    """
    quota, period = [*text.split(), "", ""][:2]
    return None if quota == _NO_QUOTA else parse_quota(quota, period)


def parse_quota(quota: str, period: str) -> float | None:
    """Parse `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1; return the limit in cores. None: no limit (the
    quota is -1), or no such texts.
    """
    try:
        quota_us, period_us = int(quota), int(period)
    except ValueError:
        return None
    is_limit = quota_us in _MICROSECONDS and period_us in _MICROSECONDS
    return quota_us / period_us if is_limit else None


def find_limits(groups: Groups, read: Callable[[str], str | None]) -> Iterator[float]:
    """Yield all limits in cores. `read` returns the text of a file below the mount of the control groups, None if there
    is none.
    """
    for path in _up_to_root(groups.unified):
        for mount in ("", "unified/"):  # the second one if version 1 is mounted next to it
            if (limit := parse_cpu_max(read(f"{mount}{path}cpu.max") or "")) is not None:
                yield limit
    for path in _up_to_root(groups.cpu):
        for mount in ("cpu/", "cpu,cpuacct/"):
            quota, period = (read(f"{mount}{path}cpu.cfs_{name}_us") for name in ("quota", "period"))
            if (limit := parse_quota(quota or "", period or "")) is not None:
                yield limit


def _up_to_root(path: str | None) -> Iterator[str]:
    """Yield the path and those above it, each empty or with a slash at its end. A container may see the path of its
    host, which its mount doesn't have: then only the root is found.
    """
    if path is None:
        return
    parts = [part for part in path.split("/") if part and part != ".."]
    for length in range(len(parts), -1, -1):
        yield "".join(f"{part}/" for part in parts[:length])


def read_cpu_limit(mount: Path = _MOUNT, own: Path = _OWN) -> float:
    """Return the number of cores that this process may use, as a fraction if its container's limit is one. Above 0."""
    groups = parse_groups(_read_text(own) or "")
    return min([float(_count_usable_cores()), *find_limits(groups, lambda name: _read_text(mount / name))])


def _count_usable_cores() -> int:
    """Count the cores that the scheduler may use for this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
