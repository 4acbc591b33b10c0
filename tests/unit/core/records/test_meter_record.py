"""The format of meter records: any numbers survive encoding, and malformed records are refused."""

import lzma
import random
import zlib
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.records.meter_record import (
    COUNTERS,
    GAUGES,
    VERSION,
    LaneRow,
    MeterRecord,
    QueueRow,
    RecordHead,
    TopicRow,
    Unreadable,
    decode,
    encode,
    pack_block,
)
from evenlane.engine.core.stats.histogram import BOUNDS
from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS
from evenlane.engine.core.wire.varint_columns import join, numbers, pack, unpack

SECOND = 1_000_000_000
HEAD = RecordHead("node-1", 5, 7, 6, 1_800_000_000 * SECOND, 10 * SECOND, 64, ("high", "mid", "low"))
WORDS = st.integers(0, 2**64 - 1)


@given(st.lists(st.one_of(st.integers(0, 300), WORDS), max_size=50))
def test_column_holds_any_whole_numbers(values):
    """M: a column of zeros is one byte."""
    assert values == numbers(unpack(pack(values), len(values)))
    assert b"\0" == pack([0] * len(values))


@given(st.lists(WORDS, max_size=20), st.lists(st.integers(0, 70_000), max_size=20))
def test_joined_columns_equal_one_packed_column(first, second):
    for some, more in ((first, second), (second, first)):
        assert pack(some + more) == join(pack(some), len(some), pack(more), len(more))


@pytest.mark.parametrize("column", [b"", b"\x09", b"\x01", b"\x02ab", b"\x00a"])
def test_truncated_column_is_refused(column):
    """A truncated column never gives other numbers."""
    with pytest.raises(ValueError, match="column of 3 numbers"):
        unpack(column, 3)


def row(lane=0, topic=0, **fields):
    counters = tuple(fields.pop(name, 0) for name in COUNTERS)
    gauges = tuple(fields.pop(name, 0) for name in GAUGES)
    return QueueRow(
        lane, topic, fields.pop("group", 0), fields.pop("band", 0), counters, *gauges,
        fields.pop("waited", {}), fields.pop("waits", ()),
    )  # fmt: skip


rows = st.builds(
    lambda lane, topic, group, band, counters, gauges, waited, waits: QueueRow(
        lane, topic, group, band, counters, *gauges, waited, tuple(waits.items())
    ),
    st.integers(0, 1), st.integers(0, 2), st.integers(0, 9), st.integers(0, 2),
    st.tuples(*[WORDS] * len(COUNTERS)), st.tuples(*[WORDS] * len(GAUGES)),
    st.dictionaries(st.sampled_from(["quota", "fairness", "a new one"]), st.integers(1, 2**40)),
    st.dictionaries(st.integers(0, 200), st.integers(1, 2**40)),
)  # fmt: skip


@given(st.lists(rows, max_size=8))
def test_record_survives_encoding(queues):
    """Each counter, gauge, reason and bucket of each queue is at its place."""
    lanes = [LaneRow(3, 41, SECOND, False), LaneRow(4, 2**40, 2, True)]
    topics = [TopicRow("acme", 100.0, 33.25, 1.0, 0.0, None, 0.98), TopicRow("a-b_c"), TopicRow("0", 0.5)]
    record = decode(encode(HEAD, lanes, topics, queues))
    assert (HEAD.node, HEAD.number, HEAD.after, HEAD.at) == (record.node, record.number, record.after, record.at)
    assert [3, 4] == numbers(record.lane("partition"))
    assert [0, 1] == numbers(record.lane("closed"))
    assert ["acme", "a-b_c", "0"] == record.projects
    assert [34_250, 0, 0] == numbers(record.topic("may_use"))
    for place, name in enumerate(COUNTERS):
        assert [queue.counters[place] for queue in queues] == numbers(record.queue(name))
    assert [queue.oldest for queue in queues] == numbers(record.queue("oldest"))
    for reason in ("quota", "a new one"):
        assert [queue.waited.get(reason, 0) for queue in queues] == numbers(record.queue(f"waited.{reason}"))
    pairs = iter(zip(numbers(record.bucket("bucket")), numbers(record.bucket("count")), strict=True))
    found = [tuple(next(pairs) for _ in range(count)) for count in numbers(record.queue("waits"))]
    assert [queue.waits for queue in queues] == found


@given(st.lists(rows, max_size=8), st.lists(rows, max_size=8))
def test_packed_block_and_rows_give_the_record_of_all_rows(packed_before, queues):
    """`ready` has two lanes and three topics; the other rows may name one more of each."""
    lanes = [LaneRow(3, 41, SECOND, False), LaneRow(4, 2**40, 2, True)]
    topics = [TopicRow("acme", 100.0, 33.25, 1.0, 0.0, None, 0.98), TopicRow("a-b_c"), TopicRow("0", 0.5)]
    more_lanes, more_topics = [*lanes, LaneRow(9, 1, 1, False)], [TopicRow("more", 7.0, None, 2.0)]
    queues = [queue._replace(lane=queue.lane + 1, topic=queue.topic + 1) for queue in queues]
    ready = pack_block(lanes, topics, packed_before)
    expected = encode(HEAD, more_lanes, topics + more_topics, packed_before + queues)
    assert decode(expected) == decode(encode(HEAD, more_lanes, more_topics, queues, ready))


def test_packed_topics_can_be_updated():
    """Their settings and their fairness."""
    topics = [TopicRow("acme", 100.0), TopicRow("beta", 100.0)]
    ready = pack_block([], topics, []).with_topics([TopicRow("acme", 5.0), TopicRow("beta", 100.0, 2.0)])
    record = decode(encode(HEAD, [], [], [], ready.with_fairness({"beta": 0.5, "gamma": 1.0})))
    assert ["acme", "beta"] == record.projects
    assert [[6_000, 101_000], [0, 3_000], [0, 1_500]] == [
        numbers(record.topic(name)) for name in ("qps", "may_use", "fairness")
    ]


def test_large_record_is_compressed_by_lzma():
    """Its tables are the same."""
    queues = [row(group=n, handled=n * n) for n in range(5_000)]
    body = encode(HEAD, [LaneRow(0, 1, 0, False)], [TopicRow("acme")], queues)
    assert (VERSION, b"x") == (body[0], body[1:2])
    assert [n * n for n in range(5_000)] == numbers(decode(body).queue("handled"))


def packed(record, version=VERSION):
    return bytes((version,)) + b"z" + zlib.compress(record)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x01", b"\x01z", b"\x01zjunk", b"\x01xjunk", b"\x01qjunk", b"hello", packed(b"\xc1"),
        packed(b"\x93\x01"), packed(msgspec.msgpack.encode({"node": 1})), b"\x01x" + lzma.compress(b"junk"),
    ],
)  # fmt: skip
def test_malformed_record_is_refused(body):
    """F4: anyone may publish to the subject."""
    with pytest.raises(Unreadable):
        decode(body)


def test_newer_version_is_refused_as_newer():
    """F4: a report then says that it is too old for the record."""
    with pytest.raises(Unreadable) as caught:
        decode(packed(b"", VERSION + 1))
    assert caught.value.newer


def test_missing_columns_are_zeros_and_unknown_ones_are_ignored():
    """Rolling upgrade: records of an older release, and of a newer one."""
    old = MeterRecord(
        node="a", run=1, number=1, at=2, priorities=["high"], queues=2,
        queue_columns={"handled": pack([3, 4]), "of_a_newer_release": b"\x09"}, projects=["acme"], lanes=1,
    )  # fmt: skip
    body = packed(msgspec.msgpack.encode({**msgspec.to_builtins(old, builtin_types=(bytes,)), "unknown": 1}))
    record = decode(body)
    assert ([3, 4], [0, 0], [0]) == (
        numbers(record.queue("handled")), numbers(record.queue("dead")), numbers(record.lane("epoch"))
    )  # fmt: skip


def test_wait_buckets_refine_those_of_prometheus():
    """Counts of both add up, and a wait is known within 20 %."""
    assert set(BOUNDS) <= set(WAIT_BOUNDS)
    assert all(later / earlier < 1.2 for earlier, later in pairwise(WAIT_BOUNDS))


def test_record_costs_at_most_5_percent_of_the_traffic():
    """At 1,000 messages of 100 bytes per second over 3,000 queues, one day after the start."""
    chance, queues = random.Random(8), []
    for number in range(3_000):
        count = max(1, int(chance.gauss(86_400 / 3, 170)))
        first = chance.choice((2, 3, 8))
        queues.append(
            row(
                chance.randrange(128), number // 3, band=number % 3, arrived=count, handled=count, attempts=count,
                dwelt=int(count * chance.uniform(4, 6)), ran=int(count * chance.uniform(1.8, 2.2)),
                backlog=chance.choice((0, 0, 0, 1)), longest=chance.randrange(2, 9), waited={"quota": count // 50},
                waits=[(first + n, chance.randrange(count)) for n in range(chance.choice((1, 2, 2, 3)))],
            )
        )  # fmt: skip
    lanes = [LaneRow(n, 1_000 + n, chance.randrange(2**60), False) for n in range(128)]
    topics = [TopicRow(f"tenant-{n}", 5.0, 5.0, 5.0, 0.0, None, chance.uniform(0.97, 1.03)) for n in range(1_000)]
    assert len(encode(HEAD, lanes, topics, queues)) <= 0.05 * 1_000 * 10 * 100
