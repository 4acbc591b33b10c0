"""What a process tells of itself in `nodes/<id>` (row P2)."""

import os
import socket

import pytest

from evenlane.engine.base import process_stats
from evenlane.engine.base.process_stats import ProcessStats, Sample, share
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
def test_the_share_is_processor_time_over_time(cpu_ns, wall_ns, expected):
    """P2"""
    start = Sample(7 * SECOND, 100 * SECOND)
    assert expected == share(start, Sample(start.cpu_ns + cpu_ns, start.wall_ns + wall_ns))


def test_each_call_tells_of_the_time_since_the_last_one():
    """P2"""
    samples = iter(
        [Sample(0, 0), Sample(SECOND, 2 * SECOND), Sample(SECOND, 4 * SECOND), Sample(2 * SECOND, 5 * SECOND)]
    )
    one = ProcessStats(lambda: next(samples))
    assert [0.5, 0.0, 1.0] == [one.cpu() for _ in range(3)]


def test_asked_again_too_soon_it_says_the_same_and_forgets_nothing():
    """P2: within one tick of the kernel's clock the share would be 0 or many times too much."""
    samples = iter(
        [
            Sample(0, 0),
            Sample(SECOND, 2 * SECOND),
            Sample(SECOND + 5_000_000, 2 * SECOND + 5_000_000),
            Sample(2 * SECOND, 4 * SECOND),
        ]
    )
    one = ProcessStats(lambda: next(samples))
    assert [0.5, 0.5, 0.5] == [one.cpu() for _ in range(3)]


def test_before_any_time_went_by_nothing_was_taken():
    assert 0.0 == ProcessStats(lambda: Sample(5, 5)).cpu()


async def test_a_busy_process_takes_about_a_core_and_an_idle_one_nothing():
    """P2: on the real clocks."""
    one = ProcessStats()
    start = process_stats.now()
    while process_stats.now().cpu_ns - start.cpu_ns < SECOND // 10:
        pass
    busy = one.cpu()
    resting = process_stats.now()
    await until(lambda: process_stats.now().wall_ns - resting.wall_ns > SECOND // 5)
    idle = one.cpu()
    assert 0 < busy
    assert idle < busy <= 1.5


def test_it_knows_its_process():
    """P2"""
    one = ProcessStats()
    assert (socket.gethostname(), os.getpid()) == (one.host, one.pid)
    assert one.version.startswith("0.")


def test_without_a_distribution_the_version_is_empty(monkeypatch):
    def missing(name):
        raise process_stats.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(process_stats.metadata, "version", missing)
    assert "" == ProcessStats().version
