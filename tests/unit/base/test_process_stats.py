"""The process statistics in `nodes/<id>` (P2)."""

import os
import socket

import pytest

from evenlane.engine.base import process_stats
from evenlane.engine.base.process_stats import CpuSample, ProcessStats, share
from tests.support.until import until

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("cpu_ns", "wall_ns", "expected"),
    [
        (0, SECOND, 0.0),
        (SECOND // 4, SECOND, 0.25),
        (3 * SECOND, 2 * SECOND, 1.5),  # threads of a C library on two cores
        (SECOND, 0, 0.0),
        (SECOND, -1, 0.0),
        (-1, SECOND, 0.0),
    ],
)
def test_share_is_processor_time_over_wall_time(cpu_ns, wall_ns, expected):
    """P2."""
    start = CpuSample(7 * SECOND, 100 * SECOND)
    assert expected == share(start, CpuSample(start.cpu_ns + cpu_ns, start.wall_ns + wall_ns))


def test_cpu_covers_the_window():
    """P2: here it is shorter than the time between two calls."""
    samples = iter(
        [
            CpuSample(0, 0),
            CpuSample(SECOND, 2 * SECOND),
            CpuSample(SECOND, 4 * SECOND),
            CpuSample(2 * SECOND, 5 * SECOND),
        ]
    )
    stats = ProcessStats(lambda: next(samples), lambda: 1.0, window_ns=SECOND)
    assert [0.5, 0.0, 1.0] == [stats.cpu() for _ in range(3)]


def test_cpu_asked_too_soon_is_the_last_one():
    """P2: within one tick of the kernel's clock, the share would be zero or far too high."""
    samples = iter(
        [
            CpuSample(0, 0),
            CpuSample(SECOND, 2 * SECOND),
            CpuSample(SECOND + 5_000_000, 2 * SECOND + 5_000_000),
            CpuSample(2 * SECOND, 4 * SECOND),
        ]
    )
    stats = ProcessStats(lambda: next(samples), lambda: 1.0, window_ns=SECOND)
    assert [0.5, 0.5, 0.5] == [stats.cpu() for _ in range(3)]


def test_cpu_is_zero_before_any_time_has_passed():
    assert 0.0 == ProcessStats(lambda: CpuSample(5, 5)).cpu()


def test_burst_of_half_a_second_is_a_twentieth_of_the_window():
    """P2: a decision by CPU must not hang on the moment of its look."""
    samples = iter([CpuSample(max(0, half - 40) * SECOND // 2, half * SECOND // 2) for half in range(42)])
    stats = ProcessStats(lambda: next(samples), lambda: 1.0)
    found = [stats.cpu() for _ in range(41)]
    assert [0.0, 0.05] == [found[-2], round(found[-1], 3)]


def test_cpu_is_a_share_of_what_the_process_may_use():
    """P2: half a core is all of a container that may use half a core, and a quarter of one that may use two."""
    for limit, expected in ((0.5, 1.0), (2.0, 0.25)):
        samples = iter([CpuSample(0, 0), CpuSample(SECOND, 2 * SECOND)])
        stats = ProcessStats(lambda: next(samples), lambda: limit)  # noqa: B023 - used before the next turn
        assert (expected, limit) == (stats.cpu(), stats.cores)


def test_limit_is_read_again_after_half_a_minute():
    """P2: a container can be resized while it runs."""
    limits = iter([1.0, 4.0])
    samples = iter([CpuSample(0, 0), CpuSample(29 * SECOND, 29 * SECOND), CpuSample(31 * SECOND, 31 * SECOND)])
    stats = ProcessStats(lambda: next(samples), lambda: next(limits))
    assert [(1.0, 1.0), (0.25, 4.0)] == [(stats.cpu(), stats.cores) for _ in range(2)]


async def test_busy_process_uses_more_processor_time_than_an_idle_one():
    """P2: on the real clocks."""
    stats = ProcessStats(window_ns=0)
    start = process_stats.now()
    while process_stats.now().cpu_ns - start.cpu_ns < SECOND // 10:
        pass
    busy = stats.cpu()
    idle_since = process_stats.now()
    await until(lambda: process_stats.now().wall_ns - idle_since.wall_ns > SECOND // 5)
    idle = stats.cpu()
    assert 0 < busy
    assert idle < busy <= 1.5


def test_stats_have_host_pid_and_version():
    """P2."""
    stats = ProcessStats()
    assert (socket.gethostname(), os.getpid()) == (stats.host, stats.pid)
    assert stats.version.startswith("0.")


def test_version_is_empty_without_a_distribution(monkeypatch):
    def missing(name):
        raise process_stats.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(process_stats.metadata, "version", missing)
    assert "" == ProcessStats().version
