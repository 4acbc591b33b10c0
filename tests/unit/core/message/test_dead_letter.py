"""Dead letters as they are read, and the messages that replay them (K4, X5): pure."""

import json

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.message.dead_letter import NotReplayable, read, read_head, replay
from evenlane.engine.core.ports import Head
from evenlane.engine.core.wire import headers as h
from evenlane.ring.hashing import group_of, partition_of
from tests.support.dead_letters import DIED, PUT, block, stored
from tests.support.producer_world import CLUSTER_CONFIG, accepted

SECOND = 1_000_000_000
TOPIC = accepted('{"qps": 400}')  # 8 groups


def replayed(dead_letter, topic=TOPIC, now=DIED + SECOND):
    return replay(read(dead_letter, "online"), "online", topic, CLUSTER_CONFIG, now)


def test_document_has_all_fields_of_the_dead_letter():
    dead_letter = read(stored(group=3, priority="high", body=b"\xff"), "online")
    assert {
        "seq": 7,
        "id": "m1",
        "project": "acme",
        "reason": "failed 5 times",
        "error": "ValueError: no such order",
        "attempts": 5,
        "origin": "LANES_online_3:17",
        "subject": "lanes.online.3.acme.3.high",
        "queue": {"partition": 3, "group": 3, "priority": "high"},
        "key": "customer-7",
        "put_at": "2023-11-14T22:12:20.000Z",
        "died_at": "2023-11-14T22:13:20.000Z",
        "size": 1,
        "headers": {"traceparent": "00-1-2-01"},
        "body_base64": "/w==",
    } == json.loads(json.dumps(dead_letter.document(body=True)))
    assert (PUT, DIED) == (dead_letter.put_at, dead_letter.died_at)


def test_utf8_body_is_text_and_can_be_left_out():
    dead_letter = read(stored(body="grün".encode()), "online")
    assert "grün" == dead_letter.document(body=True)["body"]
    assert set() == {"body", "body_base64"} & dead_letter.document(body=False).keys()


@pytest.mark.parametrize("own", ["m1", "a:b", ":::", "x:dead", "LANES_online_3-17-1700"])
def test_id_of_the_first_put_is_kept_unchanged(own):
    assert own == read(stored(own), "online").id


def test_dead_letter_of_unknown_origin_is_readable():
    """F4: foreign ids, no headers, invalid numbers."""
    empty = read(stored()._replace(headers=b""), "online")
    assert ("DEAD_online-7-1700000000000000000", 0, None, DIED) == (empty.id, empty.attempts, empty.place, empty.put_at)
    odd = stored(Evenlane_Attempt="many", Evenlane_Put="-1", Nats_Msg_Id="foreign")
    assert ("foreign", 0, DIED) == (read(odd, "online").id, read(odd, "online").attempts, read(odd, "online").put_at)


def test_head_gives_all_fields_but_the_body():
    whole = read(stored(), "online")
    head = Head(7, DIED, 8, block())
    assert whole._replace(body=b"") == read_head(head, names.dead_subject("online", "acme"), "online")


def test_stray_keeps_its_subject_and_has_no_place():
    headers = h.encode({h.ID: "_stray:LANES_online_3:9:1", h.REASON: "no such", h.SUBJECT: "lanes.online.3.a.x.y"})
    dead_letter = read(stored()._replace(subject="dead.online._stray", headers=headers), "online")
    assert ("_stray:LANES_online_3:9:1", None, "lanes.online.3.a.x.y") == (
        dead_letter.id,
        dead_letter.place,
        dead_letter.subject,
    )


# ---- replay


def test_replay_is_a_first_attempt_in_its_own_queue():
    """K4: with its group and priority; the partition is computed again, since the spread may have changed."""
    copy = replayed(stored(group=3, priority="high"))
    partition = partition_of("acme", 3, TOPIC.topic.spread, CLUSTER_CONFIG.partitions, "hashed")
    assert names.lane_subject("online", partition, "acme", 3, "high") == copy.subject
    assert {
        h.ID: "acme:m1:DEAD_online:7:5",
        h.KEY: "customer-7",
        h.PUT: str(PUT),
        h.ORIGIN: "DEAD_online:7",
        "traceparent": "00-1-2-01",
    } == h.decode(copy.headers)
    assert b"an order" == copy.body


def test_replay_without_put_time_uses_the_time_of_death():
    assert str(DIED) == h.value(replayed(stored(Evenlane_Put="")).headers, h.PUT)


def test_replay_drops_headers_that_instruct_the_server():
    """F4: a rollup would erase other messages, and an unmet expectation would have each replay refused."""
    headers = h.decode(replayed(stored(Nats_Rollup="all", Nats_Expected_Stream="X", nats_ttl="1")).headers)
    assert [h.ID] == [name for name in headers if name.lower().startswith("nats-")]


@pytest.mark.parametrize(
    ("expires", "kept"), [(DIED + 2 * SECOND, True), (DIED + SECOND, False), (DIED, False), ("soon", False)]
)
def test_replay_keeps_an_expiry_in_the_future_only(expires, kept):
    """K5: otherwise the topic's ttl applies, counted from the replay."""
    copy = replayed(stored(Evenlane_Expires=str(expires)))
    assert kept == (h.value(copy.headers, h.EXPIRES) is not None)


@pytest.mark.parametrize("text", ["1700000000", "1700000000000", "soon", "0"])
def test_replay_drops_invalid_times(text):
    """F12: a message that was dead-lettered for an invalid time can be replayed."""
    copy = replayed(stored(Evenlane_Expires=text, Evenlane_Due=text))
    assert {h.EXPIRES, h.DUE}.isdisjoint(h.decode(copy.headers))


@pytest.mark.parametrize(("own", "key"), [("a\rb", "k"), ("m1", "\x00"), ("x" * 300, "y" * 300)])
def test_invalid_id_or_key_counts_as_absent(own, key):
    dead_letter = read(stored(own, Evenlane_Key=key), "online")
    assert (own if own == "m1" else f"DEAD_online-7-{DIED}") == dead_letter.id
    assert (key if key == "k" else None) == dead_letter.key
    assert dead_letter.id in h.decode(replayed(stored(own, Evenlane_Key=key)).headers)[h.ID]


@pytest.mark.parametrize(("key", "by"), [("customer-7", "customer-7"), ("", "m1")])
def test_inactive_group_is_replaced_by_that_of_key_or_id(key, by):
    copy = replayed(stored(group=9, Evenlane_Key=key))
    assert group_of(by, TOPIC.active) == int(copy.subject.split(".")[4])


@pytest.mark.parametrize(
    ("dead_letter", "sentence"),
    [
        (stored(priority="urgent"), "its priority 'urgent' is not one of this cluster's: high, mid, low"),
        (stored(Evenlane_Subject=""), "which queue of acme it came from, but ''"),
        (stored(Evenlane_Subject="lanes.online.3.other.0.mid"), "but 'lanes.online.3.other.0.mid'"),
        (stored(Evenlane_Subject="lanes.sandbox.3.acme.0.mid"), "but 'lanes.sandbox.3.acme.0.mid'"),
        (stored(Evenlane_Subject="lanes.online.3.acme.00.mid"), "but"),
        (stored(Evenlane_Subject="lanes.online.3.acme.0.mid.more"), "but"),
    ],
)
def test_dead_letter_without_a_queue_of_its_project_is_not_replayable(dead_letter, sentence):
    """X5: a dead letter never enters another project's queue, whatever its headers say."""
    with pytest.raises(NotReplayable) as caught:
        replayed(dead_letter)
    assert sentence in str(caught.value)


def test_replay_of_a_named_subscription_is_in_its_stream_of_retries():
    """K10: in the hour of the replay, with the id that names its own dead letter."""
    now = DIED + SECOND
    dead_letter = stored(group=3, priority="high")._replace(subject=names.dead_subject("online_audit", "acme"))
    copy = replay(read(dead_letter, "online_audit"), "online_audit", TOPIC, CLUSTER_CONFIG, now)
    unnamed = replayed(stored(group=3, priority="high"))
    place = unnamed.subject.removeprefix("lanes.online.")
    assert f"again.online_audit.{place}.{now // (3600 * SECOND)}" == copy.subject
    headers = h.decode(copy.headers)
    assert ("DEAD_online_audit:7", None) == (headers[h.ORIGIN], headers.get(h.DUE))
    assert unnamed.headers.replace(b"DEAD_online:", b"DEAD_online_audit:") == copy.headers
