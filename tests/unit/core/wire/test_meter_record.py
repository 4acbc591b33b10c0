"""The form of meter records: what is written is read, whatever the numbers; and what is no record says so (issue 8)."""

import lzma
import random
import zlib
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.stats.histogram import BOUNDS
from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS
from evenlane.engine.core.wire.meter_record import (
    COUNTERS,
    GAUGES,
    VERSION,
    Head,
    LaneRow,
    QueueRow,
    Record,
    TopicRow,
    Unreadable,
    decode,
    encode,
    pack_block,
)
from evenlane.engine.core.wire.varint_columns import join, numbers, pack, unpack

SECOND = 1_000_000_000
HEAD = Head("node-1", 5, 7, 6, 1_800_000_000 * SECOND, 10 * SECOND, 64, ("high", "mid", "low"))
WORDS = st.integers(0, 2**64 - 1)


@given(st.lists(st.one_of(st.integers(0, 300), WORDS), max_size=50))
def test_a_column_holds_any_whole_numbers(values):
    """Issue 8.1: and one of zeros is one byte."""
    assert values == numbers(unpack(pack(values), len(values)))
    assert b"\0" == pack([0] * len(values))


@given(st.lists(WORDS, max_size=20), st.lists(st.integers(0, 70_000), max_size=20))
def test_two_columns_make_one(first, second):
    """Issue 8.1: as if their numbers had been packed together."""
    for some, more in ((first, second), (second, first)):
        assert pack(some + more) == join(pack(some), len(some), pack(more), len(more))


@pytest.mark.parametrize("column", [b"", b"\x09", b"\x01", b"\x02ab", b"\x00a"])
def test_what_is_no_column_is_refused(column):
    """Issue 8.1: a column that is cut short never gives other numbers."""
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
def test_what_is_written_is_read(queues):
    """Issue 8.1: each counter, gauge, reason and bucket of each queue, at its place."""
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
def test_rows_that_were_packed_before_are_written_as_all_others(packed_before, queues):
    """Issue 8.1: column for column; `ready` has two lanes and three topics, the others may name one more of each."""
    lanes = [LaneRow(3, 41, SECOND, False), LaneRow(4, 2**40, 2, True)]
    topics = [TopicRow("acme", 100.0, 33.25, 1.0, 0.0, None, 0.98), TopicRow("a-b_c"), TopicRow("0", 0.5)]
    more_lanes, more_topics = [*lanes, LaneRow(9, 1, 1, False)], [TopicRow("more", 7.0, None, 2.0)]
    queues = [queue._replace(lane=queue.lane + 1, topic=queue.topic + 1) for queue in queues]
    ready = pack_block(lanes, topics, packed_before)
    expected = encode(HEAD, more_lanes, topics + more_topics, packed_before + queues)
    assert decode(expected) == decode(encode(HEAD, more_lanes, more_topics, queues, ready))


def test_a_packed_topic_may_change():
    """Issue 8.1: its rules, and how fairly it is served."""
    topics = [TopicRow("acme", 100.0), TopicRow("beta", 100.0)]
    ready = pack_block([], topics, []).with_topics([TopicRow("acme", 5.0), TopicRow("beta", 100.0, 2.0)])
    record = decode(encode(HEAD, [], [], [], ready.with_fairness({"beta": 0.5, "gamma": 1.0})))
    assert ["acme", "beta"] == record.projects
    assert [[6_000, 101_000], [0, 3_000], [0, 1_500]] == [
        numbers(record.topic(name)) for name in ("qps", "may_use", "fairness")
    ]


def test_a_large_record_is_read_as_a_small_one_is():
    """Issue 8.1: another compression, the same tables."""
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
def test_what_is_no_record_says_so(body):
    """Issue 8, bad input: anybody may publish to the subject."""
    with pytest.raises(Unreadable):
        decode(body)


def test_a_newer_version_is_told_from_junk():
    """Issue 8, bad input: a report says that it is too old for it."""
    with pytest.raises(Unreadable) as caught:
        decode(packed(b"", VERSION + 1))
    assert caught.value.newer


def test_a_record_without_columns_of_today_is_read_as_zeros():
    """Issue 8, bad input: records from an older version; and columns of tomorrow do no harm."""
    old = Record(
        node="a", run=1, number=1, at=2, priorities=["high"], queues=2,
        queue_columns={"handled": pack([3, 4]), "of_tomorrow": b"\x09"}, projects=["acme"], lanes=1,
    )  # fmt: skip
    body = packed(msgspec.msgpack.encode({**msgspec.to_builtins(old, builtin_types=(bytes,)), "unheard_of": 1}))
    record = decode(body)
    assert ([3, 4], [0, 0], [0]) == (
        numbers(record.queue("handled")), numbers(record.queue("dead")), numbers(record.lane("epoch"))
    )  # fmt: skip


def test_buckets_of_waits_are_those_of_prometheus_cut_finer():
    """Issue 8.1: what both are counted in adds up, and a wait is known to a fifth."""
    assert set(BOUNDS) <= set(WAIT_BOUNDS)
    assert all(later / earlier < 1.2 for earlier, later in pairwise(WAIT_BOUNDS))


def test_a_record_is_small():
    """Issue 8.1: at 1,000 messages of 100 bytes a second over 3,000 queues, a day after the start, at most 5 % of their
    bytes.
    """
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
