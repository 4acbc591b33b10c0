"""The watch over the event loop: what it says of a block, and when it ends the process."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.troubles import Troubles
from evenlane.engine.runtime.loop_watch.culprit import Culprit
from evenlane.engine.runtime.loop_watch.loop_watch import Blocker, LoopWatch

SECOND = 1_000_000_000
QUARTER = SECOND // 4


class Made:
    """A loop that turns or doesn't, a clock, and the watch over both."""

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
        self.last_reported = self.troubles.current()

    async def looks(self, seconds, *, turns=False):
        with capture_logs() as lines:
            for _ in range(int(seconds * 4)):
                self.now += QUARTER
                self.beats += turns
                await self.watch.look()
        return [line for line in lines if line["log_level"] != "debug"]


async def test_a_block_is_one_warning_and_a_trouble_until_it_ends():
    """F1: the warning after 1 s, with the stack; the sentence grows with the block; one line at its end."""
    made = Made()
    assert [] == await made.looks(5, turns=True)
    assert [] == await made.looks(0.75)
    (warning,) = await made.looks(11.25)
    assert {
        "event": "the event loop is blocked", "log_level": "warning", "blocked_s": 1.0, "at": "jobs.py:41",
        "stack": "the stack",
    } == warning  # fmt: skip
    assert {"blocked": "has been blocked for 12 s by jobs.py:41"} == made.troubles.current()
    (end,) = await made.looks(1, turns=True)
    assert ("the event loop turns again", 12.0) == (end["event"], end["blocked_s"])
    assert ({}, []) == (made.troubles.current(), made.ended)


async def test_blocks_are_counted_while_they_last_and_after():
    """F1: what the metric says."""
    made = Made()
    await made.looks(2)
    assert 2.0 == made.watch.blocked_s
    await made.looks(1, turns=True)
    await made.looks(0.5)  # too short to count
    await made.looks(1, turns=True)
    await made.looks(3)
    assert 5.0 == made.watch.blocked_s


@pytest.mark.parametrize(("limit_s", "ends"), [(30, 1), (31, 0), (0, 0)])
async def test_a_loop_that_stays_blocked_ends_the_process_at_the_limit(limit_s, ends):
    """F1: `block_limit`; 0 never does."""
    made = Made(limit_s)
    lines = await made.looks(30)
    assert [(made.found, 30.0)] * ends == made.ended
    stays = [line for line in lines if line["event"] == "the event loop stays blocked: the process ends"]
    assert [{"MainThread": "the stack"}] * ends == [line["threads"] for line in stays]


async def test_the_last_trouble_says_that_the_process_has_ended():
    """F1: it stands in etcd until the lease ends, and nothing is blocked any more by then."""
    made = Made(limit_s=8)
    await made.looks(8)
    last = "ended its process, blocked for 8 s by jobs.py:41: its lease ends within 10 s"
    assert {"blocked": last} == made.last_reported


async def test_a_process_that_was_stopped_is_not_ended():
    """Z1: SIGSTOP for an hour, then SIGCONT."""
    made = Made()
    await made.looks(1, turns=True)
    made.now += 3600 * SECOND
    assert [] == await made.looks(1, turns=True)
    assert [] == made.ended


async def test_nobody_is_blamed_when_the_loop_turned_while_it_was_looked_at():
    """F1."""
    made = Made()
    made.found = None
    assert [] == await made.looks(2)
    assert {} == made.troubles.current()
