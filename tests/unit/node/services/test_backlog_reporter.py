"""The backlog of a topic as producers estimate it, and the reports of nodes (K6, P8)."""

import asyncio

import msgspec
import pytest

from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.records.backlog_report import (
    BacklogEntry,
    decode_report,
    encode_report,
    partitions_of,
    subject,
)
from evenlane.engine.node.services.backlog_reporter import BacklogReporter, PartitionTally
from evenlane.engine.producer.backlog_estimate import USABLE_S, BacklogEstimate, LocalPuts
from evenlane.engine.producer.tuning import DEFAULT
from evenlane.quota.topics.topic import Accepted
from evenlane.ring.hashing import partition_of
from tests.support.node.gated import gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, topic
from tests.support.producer_world import accepted
from tests.support.until import until

LANE, LATER = "lanes.online.3.acme.0.mid", "later.online.3.acme.0.mid.480000"


def stored(sequence: int, *, duplicate: bool = False) -> Receipt:
    return Receipt("LANES_online_3", sequence, duplicate)


def backlog(limit: int = 10, partitions=(3,)) -> BacklogEstimate:
    made = BacklogEstimate("acme")
    made.follow(accepted(f'{{"qps": 400, "max_backlog": {limit}}}'), partitions)
    return made


def put(known: BacklogEstimate, sequence: int, now: float, where: str = LANE) -> None:
    known.flying += 1
    known.note_outcome(where, stored(sequence), now)


# ---- a producer's own puts


def test_own_puts_count_until_a_report_covers_them():
    own = LocalPuts()
    for sequence in range(1, 11):
        own.add(sequence, now=sequence * 0.2)
    own.drop_covered(4)
    assert 6 == own.count
    own.drop_covered(10)
    assert 0 == own.count


def test_own_puts_are_kept_in_64_steps():
    """Memory is bounded, though no report comes."""
    own, counts = LocalPuts(), set()
    for sequence in range(1, 10_001):
        own.add(sequence, now=float(sequence))
    for sequence in range(10_001):
        own.drop_covered(sequence)
        counts.add(own.count)
    assert (64 + 1, 10_000, 0) == (len(counts), max(counts), own.count)


def test_step_that_a_report_covers_in_part_counts_whole():
    """The estimate is rather too large than too small."""
    own = LocalPuts()
    for sequence in (1, 2, 3):
        own.add(sequence, now=0.0)
    own.drop_covered(2)
    assert 3 == own.count


# ---- the estimate of a project


def test_estimate_adds_own_puts_to_the_report():
    """K6: each put counts once, whether the report covers it or not."""
    known = backlog()
    known.apply_count(3, 4, lane=20, later=7, at=1, now=0.0)
    put(known, 21, now=0.5)
    put(known, 8, now=0.5, where=LATER)
    known.flying += 1
    assert (6, 1, False) == (known.known, known.flying, known.is_full)
    known.apply_report(BacklogEntry(3, "acme", 5, 21, 7), at=2, now=1.0)
    assert 6 == known.known, "the report covers the lane's put, but not the delayed one"
    known.apply_report(BacklogEntry(3, "acme", 9, 21, 8), at=3, now=2.0)
    assert (9, True) == (known.known, known.is_full)


def test_failed_and_duplicate_puts_do_not_count():
    known = backlog()
    known.apply_count(3, 0, 0, 0, at=1, now=0.0)
    for outcome in (None, stored(1, duplicate=True)):
        known.flying += 1
        known.note_outcome(LANE, outcome, 0.0)
    assert (0, 0) == (known.known, known.flying)


def test_late_report_of_a_previous_owner_is_skipped():
    known = backlog()
    known.apply_report(BacklogEntry(3, "acme", 5, 0, 0), at=2, now=0.0)
    known.apply_report(BacklogEntry(3, "acme", 9, 0, 0), at=1, now=0.1)
    assert 5 == known.known


def test_estimate_is_usable_while_all_partitions_have_recent_counts():
    known = backlog(partitions=(3, 4))
    known.apply_report(BacklogEntry(3, "acme", 5, 0, 0), at=1, now=100.0)
    assert [4] == known.stale(100.0)
    assert known.usable_until <= 100.0
    known.apply_count(4, 1, 0, 0, at=1, now=100.0)
    assert (100.0 + DEFAULT.counted_s, 100.0 + USABLE_S) == (known.fresh_until, known.usable_until)
    assert [4] == known.stale(100.0 + DEFAULT.counted_s)
    assert [3, 4] == known.stale(100.0 + DEFAULT.reported_within_s)


def test_estimate_is_usable_if_the_store_does_not_answer():
    known = backlog(partitions=(3, 4))
    known.note_no_count(100.0)
    assert known.usable_until > 100.0
    assert known.fresh_until <= 100.0 + DEFAULT.counted_s


def test_count_of_the_store_replaces_a_report_with_a_fast_clock():
    known = backlog()
    known.apply_report(BacklogEntry(3, "acme", 5, 0, 0), at=10 * SECOND, now=0.0)
    known.apply_count(3, 7, 0, 0, at=SECOND, now=6.0)
    assert (7, 6.0 + DEFAULT.counted_s) == (known.known, known.fresh_until)


def test_changed_topic_keeps_the_counts_of_its_partitions():
    known = backlog(partitions=(3, 4))
    for number in (3, 4):
        known.apply_count(number, 3, 0, 0, at=1, now=100.0)
    known.follow(accepted('{"qps": 400, "max_backlog": 5}'), (3, 5))
    assert (5, 3, [5]) == (known.limit, known.known, known.stale(100.5))


def test_partitions_of_a_topic_include_draining_groups():
    for active, spread, draining in ((8, 4, ()), (2, 12, ()), (1, 4, (1, 2, 7)), (20, 12, (30,))):
        spec = topic(groups=max(active, 8), spread=2)
        of = Accepted(topic=msgspec.structs.replace(spec, spread=spread), active=active, draining=draining, revision=1)
        groups = (*range(active), *draining)
        assert tuple(sorted({partition_of("acme", g, spread, 64, "hashed") for g in groups})) == partitions_of(
            "acme", of, 64, "hashed"
        )


# ---- the message


def test_report_is_split_into_independent_messages():
    entries = [BacklogEntry(n % 128, f"project-{n}", n, n, n) for n in range(9_000)]
    messages = list(encode_report("node.1", 7, 5, entries))
    reports = [decode_report(message) for message in messages]
    assert [("node.1", 7, 5), ("node.1", 8, 5), ("node.1", 9, 5)] == [(r.node, r.number, r.at) for r in reports]
    assert [(e.partition, e.project, e.count) for e in entries] == [
        (e.partition, e.project, e.count) for report in reports for e in report.entries
    ]
    assert max(map(len, messages)) < 400_000
    assert [] == list(encode_report("node", 1, 1, []))
    assert "backlog.online.a_b-1" == subject("online", "a.b-1")


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b'{"node":"n","number":1,"at":1,"entries":[[1]]}'])
def test_invalid_report_is_none(body):
    assert None is decode_report(body)


# ---- the counts of a node


class FakeTopicCache:
    def __init__(self, **topics):
        self.on_change = []
        self.topics = topics

    def all(self):
        return {name: Accepted(topic=each, active=each.groups, revision=1) for name, each in self.topics.items()}


def tallied(node, **topics) -> PartitionTally:
    tally = PartitionTally(node)
    for name, each in FakeTopicCache(**topics).all().items():
        tally.on_topic_change(name, each)
    return tally


async def test_tally_counts_waiting_running_and_delayed_messages():
    """K6, K1: also those that are due in a month, which aren't in the node's memory."""
    limited = topic(max_backlog=100)
    async with gated(acme=limited, free=topic()) as world:
        await world.put_many(5, group=0)
        await world.put_many(4, group=1, priority="low")
        await world.put_many(3, project="free")
        node = await world.node(world.handle, concurrency=1)
        now = world.store.now()
        for due in (now + 30 * SECOND, now + 2 * 3600 * SECOND, now + 30 * 86_400 * SECOND):
            await world.put(due=due)
        tally = tallied(node, acme=limited, free=topic())
        partitions = partitions_of(
            "acme", Accepted(topic=limited, active=10, revision=1), CLUSTER_CONFIG.partitions, "hashed"
        )
        await until(lambda: node.backlog >= 12 - 1 and node.workers.running)
        entries = await tally.entries()
        assert {("acme", number) for number in partitions} == {(e.project, e.partition) for e in entries}
        assert 12 == sum(entry.count for entry in entries)
        lanes = {entry.partition: entry.lane for entry in entries}
        assert {n: node.partitions[n].lane.fed_to for n in partitions} == lanes
        assert 3 == sum(entry.later for entry in entries)


async def test_tally_counts_only_topics_with_a_limit():
    limited = topic(max_backlog=100)
    async with gated(acme=limited) as world:
        node = await world.node(world.handle)
        tally = PartitionTally(node)
        assert [] == await tally.entries()
        tally.on_topic_change("acme", Accepted(topic=limited, active=10, revision=1))
        assert [0] * len(await tally.entries()) == [entry.count for entry in await tally.entries()]
        assert await tally.entries()
        tally.on_topic_change("acme", None)
        assert [] == await tally.entries()


async def test_tally_omits_a_partition_during_its_catch_up():
    """Producers ask the store meanwhile: a partial count must not pass for the whole."""
    limited = topic(max_backlog=100)
    async with gated(acme=limited) as world:
        node = await world.node(world.handle)
        tally = tallied(node, acme=limited)
        [entry] = await tally.entries()
        node.partitions[entry.partition].lane.expect_backlog({}, 0)
        assert [] == await tally.entries()


async def test_tally_counts_from_memory_if_the_store_does_not_answer():
    limited = topic(max_backlog=100)
    async with gated(acme=limited) as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 4 and node.workers.running)
        tally = tallied(node, acme=limited)
        world.server.disconnect(node.store)
        assert 5 == sum(entry.count for entry in await tally.entries())


class Wire:
    """A connection that records the sent messages."""

    def __init__(self):
        self.sent, self.opened, self.listeners = [], 0, {}

    async def open(self):
        self.opened += 1

    def listen(self, subject, on_message):
        self.listeners[subject] = on_message

    def send(self, to, body):
        self.sent.append((to, decode_report(body)))

    async def close(self):
        self.opened -= 1


async def test_node_reports_repeatedly_until_closed():
    limited = topic(max_backlog=100)
    async with gated(acme=limited) as world:
        node = await world.node(world.handle)
        wire, topic_cache = Wire(), FakeTopicCache(acme=limited)
        reporter = BacklogReporter(wire, "online", node, topic_cache, every_s=0.01)
        await reporter.open()
        await until(lambda: len(wire.sent) > 2)
        assert {"backlog.online.node"} == {to for to, _ in wire.sent}
        assert [0, 1, 2] == [report.number for _, report in wire.sent[:3]]
        await reporter.close()
        assert (0, []) == (wire.opened, topic_cache.on_change)
        assert "backlog counts" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.parametrize(
    ("project", "reply", "answered"),
    [
        ("acme", "_INBOX.a.1", ["acme"]),
        ("other", "_INBOX.a.1", []),
        ("acme", "lanes.online.0.other.0.mid", []),
        ("acme", "_INBOX.a\r\nPUB x 0", []),
    ],
)
async def test_producer_of_one_project_gets_its_count_alone(project, reply, answered):
    """S1: a producer that may not read the reports about all projects asks for its own one."""
    limited = topic(max_backlog=100)
    async with gated(acme=limited, beta=limited) as world:
        node = await world.node(world.handle)
        wire, topic_cache = Wire(), FakeTopicCache(acme=limited, beta=limited)
        reporter = BacklogReporter(wire, "online", node, topic_cache, every_s=0.01)
        await reporter.open()
        await until(lambda: len(wire.sent) > 2)
        asked = f"ask.online.backlog.{project}".encode()
        wire.listeners["ask.online.backlog.*"](asked, reply.encode(), b"", b"")
        before = len(wire.sent)
        await until(lambda: len(wire.sent) > before + 2)
        answers = [report for to, report in wire.sent if to == reply]
        assert answered == [*{entry.project for report in answers for entry in report.entries}]
        await reporter.close()
