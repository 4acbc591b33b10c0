"""Rows from meter records, without Spark: each value in its column, whatever was published."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.core.ports import Stored
from evenlane.engine.core.records.meter_record import COUNTERS, VERSION, LaneRow, TopicRow, encode
from evenlane.engine.core.wire.varint_columns import pack
from evenlane.spark.source import meter
from evenlane.spark.source.meter import batches
from tests.spark.source.records import AT, SECOND, head, queue
from tests.unit.core.records.test_meter_record import packed

SUBJECT = "meter.online.node-1"


def stored(body, sequence=1, subject=SUBJECT):
    return Stored(sequence, AT + sequence * SECOND, subject, b"", body)


def rows(*messages):
    return [row for batch in batches([list(messages)]) for row in batch.to_pylist()]


def test_row_has_the_fields_of_record_lane_topic_and_queue():
    """In seconds and messages."""
    lanes = [LaneRow(1, 2, AT, False), LaneRow(7, 41, AT, True)]
    topics = [TopicRow("b"), TopicRow("acme", 100.0, 33.5, 2.0, 0.0, 8, 0.987)]
    queue_row = queue(
        1, 1, 4, 2, tuple(range(1, 10)), {"quota": 25, "unknown": 1}, [(3, 6), (4, 7)],
        backlog=12, oldest=151, in_flight=2, longest=1_500,
    )  # fmt: skip
    [row] = rows(stored(encode(head(9), lanes, topics, [queue_row]), sequence=6))
    assert (6, "node-1", 5, 9, 8, 10.0, 64, VERSION, None) == tuple(
        row[name] for name in ("sequence", "node", "run", "number", "after", "span_s", "slots", "version", "problem")
    )
    assert (7, 41, True, "acme", 4, "low") == tuple(
        row[name] for name in ("partition", "epoch", "closed", "project", "group", "priority")
    )
    assert [100.0, 33.5, 2.0, 0.0, 8.0, 0.987] == pytest.approx(
        [row[name] for name in ("qps", "may_use", "weight", "reserve", "concurrency", "fairness")]
    )
    assert (12, 1.5, 2, 1.5) == tuple(row[name] for name in ("backlog", "oldest_s", "in_flight", "longest_s"))
    assert [1, 2, 3, 4, 5, 6, 7] == [row[name] for name in COUNTERS[:7]]
    assert [0.008, 0.009, 2.5, 0.0] == pytest.approx(
        [row[name] for name in ("dwelt_s", "ran_s", "waited_quota_s", "waited_paused_s")]
    )
    assert [{"bucket": 3, "count": 6}, {"bucket": 4, "count": 7}] == row["waits"]
    assert AT + 6 * SECOND == int(row["stored"].timestamp()) * SECOND
    assert AT == int(row["at"].timestamp()) * SECOND == int(row["since"].timestamp()) * SECOND


@pytest.mark.parametrize(("cluster", "expected"), [("online", ""), ("online_audit", "audit")])
def test_row_names_the_subscription(cluster, expected):
    """K10: by the record's subject, also if it has no queue, or can't be read."""
    subject = f"meter.{cluster}.node-1"
    lanes = [LaneRow(0, 1, AT, False)]
    whole = encode(head(1), lanes, [TopicRow("x")], [queue(backlog=3)])
    found = rows(*(stored(each, n, subject) for n, each in enumerate((whole, encode(head(2), lanes, [], []), b"?"))))
    assert [expected] * 3 == [row["subscription"] for row in found]


def test_unknown_values_are_null():
    """A project without a topic, and an age that was not read."""
    [row] = rows(stored(encode(head(), [LaneRow(0, 1, AT, False)], [TopicRow("x")], [queue(backlog=3)])))
    assert [None] * 7 == [
        row[name] for name in ("qps", "may_use", "weight", "reserve", "concurrency", "fairness", "oldest_s")
    ]


def test_lane_without_a_queue_has_a_row():
    """It names the owner of a partition without a backlog."""
    lanes = [LaneRow(number, 10 + number, AT, False) for number in range(4)]
    named = encode(head(1), lanes, [TopicRow("x")], [queue(1), queue(0)])
    found = rows(stored(named), stored(encode(head(2), lanes[:1], [], []), 2), stored(encode(head(3), [], [], []), 3))
    assert [
        (1, 0, 10, "x", 0), (1, 1, 11, "x", 0), (1, 2, 12, None, None), (1, 3, 13, None, None), (2, 0, 10, None, None),
        (3, None, None, None, None),
    ] == sorted(
        ((row["sequence"], row["partition"], row["epoch"], row["project"], row["backlog"]) for row in found), key=str
    )  # fmt: skip
    [bare] = [row for row in found if row["sequence"] == 2]
    assert (AT, False, 2) == (int(bare["since"].timestamp()) * SECOND, bare["closed"], bare["number"])


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=12), st.integers(1, 8))
def test_rows_of_a_batch_refer_to_their_own_record(records, size):
    """To its lanes, topics, priorities and buckets, whatever else is in the batch."""
    messages, expected = [], []
    for number, groups in enumerate(records, start=1):
        lanes = [LaneRow(number, 100 + number, AT, False), LaneRow(50 + number, 200 + number, AT, True)]
        lanes = lanes[: len(groups)]
        topics = [TopicRow(f"p{number}", float(number)), TopicRow(f"q{number}")]
        queues = [
            queue(n % 2, n % 2, group, n % 2, waits=[(group, number)] * (n % 3)) for n, group in enumerate(groups)
        ]
        named = head(number, node=f"n{number}", priorities=(f"h{number}", f"l{number}"))
        messages.append(stored(encode(named, lanes, topics, queues), number))
        expected += [
            (number, f"n{number}", (50 if n % 2 else 0) + number, ("q" if n % 2 else "p") + str(number),
             ("l" if n % 2 else "h") + str(number), group, n % 3)
            for n, group in enumerate(groups)
        ] or [(number, f"n{number}", None, None, None, None, None)]  # fmt: skip
    before, meter.ROWS = meter.ROWS, size
    try:
        found = rows(*messages)
    finally:
        meter.ROWS = before
    assert sorted(expected, key=str) == sorted(
        (
            (r["sequence"], r["node"], r["partition"], r["project"], r["priority"], r["group"],
             None if r["waits"] is None else len(r["waits"]))
            for r in found
        ),
        key=str,
    )  # fmt: skip


def broken(**fields):
    record = {
        "node": "a", "run": 1, "number": 1, "at": AT, "priorities": ["high"], "queues": 1, "lanes": 1,
        "projects": ["acme"], "queue_columns": {},
    }  # fmt: skip
    return packed(msgspec.msgpack.encode(record | fields))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"junk", b"\x01zjunk", packed(b"", VERSION + 1), broken(queues=2**40), broken(queues=-1),
        broken(queue_columns={"lane": pack([1])}), broken(queue_columns={"topic": pack([9])}), broken(priorities=[]),
        broken(queue_columns={"band": pack([1])}), broken(queue_columns={"waits": pack([3])}), broken(lanes=0),
        broken(lanes=70_000), broken(queue_columns={"backlog": b"\x08\x01"}), broken(projects=[]), broken(buckets=1),
        broken(queue_columns={"dwelt": pack([2**62])}), broken(queue_columns={"handled": pack([2**50])}),
        broken(topic_columns={"qps": pack([2**60])}), broken(lane_columns={"since": pack([2**64 - 1])}),
        broken(run=2**64 - 1), broken(number=-1), broken(slots=2**31), broken(queue_columns={"group": pack([2**31])}),
    ],
)  # fmt: skip
def test_unreadable_record_is_one_row_with_its_problem(body):
    """Good records in the same batch aren't lost."""
    good = stored(encode(head(), [LaneRow(0, 1, AT, False)], [TopicRow("x")], [queue(backlog=3)]), 2)
    bad, fine = sorted(rows(stored(body, 1, "meter.online.a.b"), good), key=lambda row: row["sequence"])
    assert (1, "a.b", None) == (bad["sequence"], bad["node"], bad["project"])
    assert bad["problem"]
    assert (2, None, "x", 3) == (fine["sequence"], fine["problem"], fine["project"], fine["backlog"])


def test_names_of_projects_are_unchanged():
    odd = ["", "null", "<script>", 'a"b', "ÄÖ😀", "a\nb", "x" * 1_000]
    lanes, topics = [LaneRow(0, 1, AT, False)], [TopicRow(name) for name in odd]
    found = rows(stored(encode(head(), lanes, topics, [queue(topic=n) for n in range(len(odd))])))
    assert odd == [row["project"] for row in found]
