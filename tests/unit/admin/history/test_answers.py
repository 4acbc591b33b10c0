"""A node's answer with its history: what it has, within the bytes that the store takes; anything else is no answer."""

import zlib
from array import array
from types import SimpleNamespace

import msgspec
import pytest

from evenlane.engine.admin.history.columns import encode_history
from evenlane.engine.admin.history.messages import decode, encode, read_sender
from evenlane.engine.admin.history.responder import HistoryResponder
from evenlane.engine.telemetry.tenants.history import FIGURES, KEPT_S, TenantHistory
from evenlane.quota.topics.topic import Accepted
from evenlane.ring.hashing import partition_of
from tests.support.node.world import CLUSTER_CONFIG, topic
from tests.support.until import until

SECOND = 1_000_000_000
NOW = 10_000


def history(**backlogs):
    made = TenantHistory()
    for second in range(NOW - 200, NOW + 1):
        figures = {label: array("f", [backlog, second % 7, 0.1, 0.0]) for label, backlog in backlogs.items()}
        made.add(second, figures, [3, 4], 0)
    return made


def answer(made, most_bytes=1 << 20, topic_of=lambda _: None, now=NOW):
    return encode_history("a", made.copy(), now * SECOND, topic_of, CLUSTER_CONFIG, most_bytes)


def test_answer_has_the_last_two_minutes_of_each_project():
    found = decode(answer(history(acme=5, calm=0)))
    assert ("a", NOW * SECOND, NOW - KEPT_S + 1, [*FIGURES]) == (found.node, found.now, found.first, found.names)
    assert [("acme", [5] * KEPT_S), ("calm", [0] * KEPT_S)] == [(row.project, row.figures[0]) for row in found.rows]
    assert [5] * KEPT_S == found.totals[0]
    assert [(NOW - 200, NOW, [3, 4])] == [(each.first, each.last, each.partitions) for each in found.known]


def test_what_is_known_lasts_until_now():
    """The last round was three seconds ago."""
    found = decode(answer(history(acme=5), now=NOW + 3))
    assert [5] * KEPT_S == found.rows[0].figures[0]
    assert NOW + 3 == found.known[0].last


def test_partitions_are_those_of_all_groups():
    accepted = Accepted(topic=msgspec.structs.replace(topic(), spread=4), active=2, draining=(7,), revision=1)
    layout = SimpleNamespace(partitions=1_000, layout="consecutive")
    body = encode_history("a", history(acme=5).copy(), NOW * SECOND, lambda _: accepted, layout, 1 << 20)
    [row] = decode(body).rows
    assert sorted(partition_of("acme", group, 4, 1_000, "consecutive") for group in (0, 1, 7)) == row.partitions


def test_least_busy_projects_are_left_out_if_there_is_no_room():
    made = history(**{f"p{number:03}": number for number in range(400)})
    body = answer(made)
    whole, cut = decode(body), answer(made, len(body) // 2)
    assert (300, "p399", "p100") == (len(whole.rows), whole.rows[0].project, whole.rows[-1].project)
    assert len(cut) <= len(body) // 2
    rows = decode(cut).rows
    assert 0 < len(rows) < 300
    assert whole.rows[: len(rows)] == rows
    assert decode(answer(made, 10)).rows == []


def test_node_without_rounds_answers():
    found = decode(answer(TenantHistory()))
    assert ([], [], [0] * KEPT_S) == (found.rows, found.known, found.totals[0])


@pytest.mark.parametrize(
    "body",
    [b"", b"a", b"a\n", b"a\n{}", b"a\n" + zlib.compress(b"{}"), b"a\n" + zlib.compress(b"[" * 100_000), b"\xff\n\xff"],
)
def test_anything_else_is_no_answer(body):
    assert decode(body) is None


def test_uneven_and_huge_answers_are_none():
    found = decode(answer(history(acme=5)))
    assert decode(encode(msgspec.structs.replace(found, totals=[[1.0]] * 3))) is None
    assert decode(encode(msgspec.structs.replace(found, names=["backlog"]))) is None
    bomb = b"a\n" + zlib.compress(b" " * (100 << 20), 1)
    assert (None, "a") == (decode(bomb), read_sender(bomb))


async def test_responder_answers_all_who_ask():
    line = SimpleNamespace(sent=[])
    line.listen = lambda subject, on_message: setattr(line, "ask", (subject, on_message))
    line.send = lambda *sent: line.sent.append(sent)
    node = SimpleNamespace(
        id="a", cluster_config=CLUSTER_CONFIG, store=SimpleNamespace(now=lambda: NOW * SECOND, max_payload=1 << 20)
    )
    responder = HistoryResponder(line, "x", node, SimpleNamespace(history=history(acme=5)), lambda _: None)
    responder.listen()
    subject, on_message = line.ask
    for reply in (b"_INBOX.1", b"_INBOX.2", b"lanes.x.1.acme.0.mid"):
        on_message(subject.encode(), reply, b"", b"")
    await until(lambda: len(line.sent) == 2)
    await responder.close()
    assert ("ask.x.history", {"_INBOX.1", "_INBOX.2"}) == (subject, {reply for reply, _ in line.sent})
    assert ["acme"] == [row.project for row in decode(line.sent[0][1]).rows]
