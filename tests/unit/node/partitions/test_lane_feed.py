"""The queues that wait while the backlog of a partition that was taken over is delivered (E5, W)."""

from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.core.ports import Stored, SubjectBacklogs
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
from evenlane.engine.core.wire.subjects import parse_queue
from evenlane.engine.node.partitions.gap_reader import GapReader
from evenlane.engine.node.partitions.lane_feed import LaneFeed
from evenlane.engine.node.partitions.read_ahead import ReadAhead
from evenlane.engine.node.queues.catch_up_priority import CatchUpPriority, most_urgent
from evenlane.engine.node.tuning import NodeTuning
from tests.support.lane_host import Host
from tests.support.node.world import turns
from tests.support.until import until

BANDS = {"high": 0, "mid": 1, "low": 2}
LANE = LaneId("lanes", 7)


def subject(group, priority, project="acme"):
    return lane_subject("online", 7, project, group, priority)


class Feeding:
    """A lane whose feed the test plays: `deliver` delivers the next message."""

    def __init__(self, *backlog, settled=0, **tuning):
        tuning = NodeTuning(**tuning)
        self.backlog, self.became_ready, self.feed_, self.all_feeds = backlog, [], None, []
        self.lane = FedLane(LANE, 1, MemoryBudget(), Host(self.open_queue, self.on_ready))
        self.catch_up_priority = CatchUpPriority(self.on_ready, BANDS, tuning.backlog_wait_s)
        ready = SimpleNamespace(on_queue_ready=self.on_ready)
        self.feeds = LaneFeed(
            self, self.lane, ready, None, self.catch_up_priority, ReadAhead(self), GapReader(self), tuning
        )
        self.delivered = self.lane.position = settled

    def open_queue(self, _lane, subject, _entry):
        project, group, band = parse_queue(subject, "lanes", BANDS)
        queue = Queue(project, group, list(BANDS)[band], band, 7)
        queue.rules = QueueRules(asleep=False)
        return queue

    def on_ready(self, queue):
        if not self.catch_up_priority.defer(queue):
            self.became_ready.append((queue.group, queue.priority))

    # ---- as a store

    async def counts(self, _lane):
        return {each: self.backlog.count(each) for each in self.backlog}

    async def backlog_after(self, _lane, position):
        """As a server says it: how many messages a subject has in the whole stream, and where the last one is."""
        ends = {each: number for number, each in enumerate(self.backlog, 1)}
        ends = {each: end for each, end in ends.items() if end > position}
        return SubjectBacklogs({each: self.backlog.count(each) for each in ends}, ends)

    def feed(self, _lane, _start, sink, _on_break, *, until=None, on_end=None, on_head=None):
        self.feed_ = SimpleNamespace(sink=sink, on_end=on_end, on_head=on_head, close=self.close)
        self.all_feeds.append(self.feed_)
        return self.feed_

    async def next_of(self, _lane, subject, start, limit):
        found = [number for number, each in enumerate(self.backlog, 1) if each == subject and number >= start]
        return [Stored(number, 0, subject, b"", b"") for number in found[:limit]]

    async def close(self):
        pass

    # ---- as the server

    async def begin(self):
        await self.feeds.begin(SimpleNamespace(first=1, last=len(self.backlog)))

    def deliver(self, subject):
        self.delivered += 1
        self.feed_.sink(subject.encode(), self.delivered, 0, b"", b"")


async def test_all_lower_bands_wait_in_a_small_backlog():
    """The store isn't asked for its subjects."""
    feeding = Feeding(subject(0, "mid"), subject(1, "high"), subject(2, "low"))
    await feeding.begin()
    for each in feeding.backlog[:2]:
        feeding.deliver(each)
    assert [(1, "high")] == feeding.became_ready
    feeding.deliver(feeding.backlog[2])
    assert [(1, "high"), (0, "mid"), (2, "low")] == feeding.became_ready
    await feeding.feeds.drop()


async def test_queue_waits_only_for_more_urgent_messages_of_its_group():
    feeding = Feeding(subject(0, "low"), subject(0, "mid"), subject(1, "low"), subject(1, "high", "other"), small=0)
    await feeding.begin()
    for each in feeding.backlog[:3]:
        feeding.deliver(each)
    await until(lambda: feeding.became_ready)  # once the store has answered which subjects there are
    assert [(0, "mid"), (1, "low")] == feeding.became_ready
    feeding.deliver(feeding.backlog[3])
    assert [(0, "mid"), (1, "low"), (1, "high"), (0, "low")] == feeding.became_ready
    assert feeding.feed_.sink == feeding.lane.take_in, "messages go straight to the lane now"
    await feeding.feeds.drop()


async def test_no_queue_waits_for_settled_messages():
    """K10, E5: the stream still has them, because another subscription needs them."""
    feeding = Feeding(*[subject(0, "high")] * 3, *[subject(0, "low")] * 3, settled=3, small=1)
    await feeding.begin()
    feeding.deliver(subject(0, "low"))
    await until(lambda: feeding.became_ready)
    assert [(0, "low")] == feeding.became_ready
    await feeding.feeds.drop()


@pytest.mark.parametrize(("messages", "feeds"), [(0, 1), (2, 1), (4, 2)], ids=["empty", "small", "large"])
async def test_each_feed_may_leave_bodies_in_the_stream(messages, feeds):
    """E5: otherwise a flood of bytes holds up the other projects of its partition."""
    feeding = Feeding(*[subject(0, "low")] * messages, tail_beyond=3)
    await feeding.begin()
    feeding.feeds.catch_up()
    assert feeds == len(feeding.all_feeds)
    tail, catch_up = feeding.all_feeds[0], feeding.all_feeds[-1]
    assert catch_up.on_head(subject(0, "low").encode(), 1, 0, b"", 1_000_000)
    assert tail.on_head(subject(1, "high").encode(), messages + 1, 0, b"", 1_000_000)
    assert (2 if messages else 1) == sum(queue.unread + queue.spilled for queue in feeding.lane.queues.values())
    await feeding.feeds.drop()


async def test_queues_become_ready_by_priority_after_the_backlog():
    feeding = Feeding(*(subject(group, name) for name in ("low", "mid", "high") for group in (0, 1)))
    await feeding.begin()
    for each in feeding.backlog[:5]:
        feeding.deliver(each)
    assert [(0, "high")] == feeding.became_ready
    feeding.feed_.on_end()  # the last message was deleted
    assert [(0, "high"), (0, "mid"), (1, "mid"), (0, "low"), (1, "low")] == feeding.became_ready
    await feeding.feeds.drop()


async def test_large_backlog_waits_for_no_queue_that_is_read_ahead():
    low, mid, lower = subject(0, "low"), subject(0, "mid"), subject(1, "low")
    feeding = Feeding(low, low, mid, mid, lower, lower, subject(1, "high"), small=0, tail_beyond=5, for_each=7)
    await feeding.begin()
    feeding.feeds.catch_up()
    await until(lambda: feeding.became_ready)
    assert [(1, "high")] == feeding.became_ready
    for each in feeding.backlog[:6]:
        feeding.deliver(each)
    assert [(1, "high"), (0, "mid"), (1, "low")] == feeding.became_ready
    feeding.feed_.on_end()
    assert (0, "low") == feeding.became_ready[3]
    await feeding.feeds.drop()


@pytest.mark.parametrize("most", [5_000, 2], ids=["one feed", "a catch-up"])
async def test_lower_bands_wait_for_a_limited_time(most):
    """The more urgent messages may be removed, or arrive slowly."""
    urgent = subject(0, "high")
    feeding = Feeding(subject(0, "low"), urgent, urgent, backlog_wait_s=0.01, small=most, tail_beyond=most)
    await feeding.begin()
    feeding.feeds.catch_up()
    feeding.deliver(feeding.backlog[0])
    assert [] == feeding.became_ready
    await until(lambda: feeding.became_ready)
    assert [(0, "low")] == feeding.became_ready


@pytest.mark.parametrize("new", [(), (subject(1, "low"),)])
async def test_replaced_stream_ends_the_wait(new):
    """E12: a due message is left in a queue that waited for messages of the old stream."""
    feeding = Feeding(subject(0, "low"), subject(0, "high"))
    await feeding.begin()
    feeding.deliver(feeding.backlog[0])
    await feeding.feeds.drop()
    assert [] == feeding.became_ready
    feeding.backlog, feeding.delivered = new, 0
    await feeding.begin()
    assert [(0, "low")] == feeding.became_ready
    await feeding.feeds.drop()


async def test_dropped_feed_makes_no_queue_ready():
    feeding = Feeding(subject(0, "low"), subject(0, "high"), backlog_wait_s=0.0)
    await feeding.begin()
    feeding.deliver(feeding.backlog[0])
    await feeding.feeds.drop()
    await turns()
    assert [] == feeding.became_ready


@pytest.mark.parametrize("unroutable", ["7.acme.0.urgent", "7.acme.x.low", "7.A B.0.low"])
def test_unroutable_subjects_are_not_awaited(unroutable):
    """L, E9."""
    assert {("acme", 0): 2} == most_urgent([f"lanes.online.{unroutable}".encode(), subject(0, "low").encode()], BANDS)
