"""Loop watch: its reports of a block, and the end of the process."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.troubles import Troubles
from evenlane.engine.runtime.loop_watch.culprit import Culprit
from evenlane.engine.runtime.loop_watch.loop_watch import Blocker, LoopWatch

SECOND = 1_000_000_000
QUARTER = SECOND // 4


class WatchedLoop:
    """A loop that turns or is blocked, with a clock and a watch."""

    def __init__(self, limit_s=30.0):
        self.beats = self.now = 0
        self.ended = []
        self.found = Blocker(Culprit("jobs.py:41", "the stack", None), "jobs:handle", [])
        self.troubles = Troubles()
        self.watch = LoopWatch(self, self.troubles, limit_s, 10, lambda: self.now)

    def blocker(self):
        return self.found

    def stacks(self):
        return {"MainThread": "the stack"}

    async def end_process(self, blocker, blocked_s):
        self.ended.append((blocker, blocked_s))
        self.last_troubles = self.troubles.current()

    async def looks(self, seconds, *, turns=False):
        with capture_logs() as lines:
            for _ in range(int(seconds * 4)):
                self.now += QUARTER
                self.beats += turns
                await self.watch.look()
        return [line for line in lines if line["log_level"] != "debug"]


async def test_block_is_one_warning_and_a_trouble_until_it_ends():
    """F1: the warning has the stack and comes after 1 s. Another line follows at the end."""
    loop = WatchedLoop()
    assert [] == await loop.looks(5, turns=True)
    assert [] == await loop.looks(0.75)
    (warning,) = await loop.looks(11.25)
    assert {
        "event": "the event loop is blocked", "log_level": "warning", "blocked_s": 1.0, "at": "jobs.py:41",
        "stack": "the stack",
    } == warning  # fmt: skip
    assert {"blocked": "has been blocked for 12 s by jobs.py:41"} == loop.troubles.current()
    (end,) = await loop.looks(1, turns=True)
    assert ("the event loop turns again", 12.0) == (end["event"], end["blocked_s"])
    assert ({}, []) == (loop.troubles.current(), loop.ended)


async def test_blocked_seconds_include_the_present_block():
    """F1."""
    loop = WatchedLoop()
    await loop.looks(2)
    assert 2.0 == loop.watch.blocked_s
    await loop.looks(1, turns=True)
    await loop.looks(0.5)  # too short to count
    await loop.looks(1, turns=True)
    await loop.looks(3)
    assert 5.0 == loop.watch.blocked_s


@pytest.mark.parametrize(("limit_s", "ends"), [(30, 1), (31, 0), (0, 0)])
async def test_block_at_the_limit_ends_the_process(limit_s, ends):
    """F1: `block_limit`; 0 never does."""
    loop = WatchedLoop(limit_s)
    lines = await loop.looks(30)
    assert [(loop.found, 30.0)] * ends == loop.ended
    stays = [line for line in lines if line["event"] == "the event loop stays blocked: the process ends"]
    assert [{"MainThread": "the stack"}] * ends == [line["threads"] for line in stays]


async def test_last_trouble_reports_the_end_of_the_process():
    """F1: it is in etcd until the lease ends."""
    loop = WatchedLoop(limit_s=8)
    await loop.looks(8)
    last = "ended its process, blocked for 8 s by jobs.py:41: its lease ends within 10 s"
    assert {"blocked": last} == loop.last_troubles


async def test_stopped_process_is_not_ended():
    """Z1: SIGSTOP for an hour, then SIGCONT."""
    loop = WatchedLoop()
    await loop.looks(1, turns=True)
    loop.now += 3600 * SECOND
    assert [] == await loop.looks(1, turns=True)
    assert [] == loop.ended


async def test_loop_that_turns_while_it_is_examined_is_not_blamed():
    """F1."""
    loop = WatchedLoop()
    loop.found = None
    assert [] == await loop.looks(2)
    assert {} == loop.troubles.current()
