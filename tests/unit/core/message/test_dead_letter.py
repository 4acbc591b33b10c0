"""What a dead letter tells, and the message that its replay puts (K4, X5): pure."""

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


def test_a_letter_tells_all_of_its_end():
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


def test_the_body_is_text_where_it_is_text_and_left_out_of_lists():
    dead_letter = read(stored(body="grün".encode()), "online")
    assert "grün" == dead_letter.document(body=True)["body"]
    assert set() == {"body", "body_base64"} & dead_letter.document(body=False).keys()


@pytest.mark.parametrize("own", ["m1", "a:b", ":::", "x:dead", "LANES_online_3-17-1700"])
def test_the_id_is_that_of_the_first_put_whatever_signs_it_has(own):
    assert own == read(stored(own), "online").id


def test_what_somebody_put_there_by_hand_can_be_looked_at():
    """Names of others, no names at all, numbers that are none."""
    empty = read(stored()._replace(headers=b""), "online")
    assert ("DEAD_online-7-1700000000000000000", 0, None, DIED) == (empty.id, empty.attempts, empty.place, empty.put_at)
    odd = stored(Evenlane_Attempt="many", Evenlane_Put="-1", Nats_Msg_Id="foreign")
    assert ("foreign", 0, DIED) == (read(odd, "online").id, read(odd, "online").attempts, read(odd, "online").put_at)


def test_one_that_was_read_without_its_body_tells_the_same_but_for_it():
    whole = read(stored(), "online")
    head = Head(7, DIED, 8, block())
    assert whole._replace(body=b"") == read_head(head, names.dead_subject("online", "acme"), "online")


def test_a_stray_tells_where_it_lay():
    headers = h.encode({h.ID: "_stray:LANES_online_3:9:1", h.REASON: "no such", h.SUBJECT: "lanes.online.3.a.x.y"})
    dead_letter = read(stored()._replace(subject="dead.online._stray", headers=headers), "online")
    assert ("_stray:LANES_online_3:9:1", None, "lanes.online.3.a.x.y") == (
        dead_letter.id,
        dead_letter.place,
        dead_letter.subject,
    )


# ---- replay


def test_a_replay_goes_to_its_queue_as_a_first_attempt_of_the_same_message():
    """Its group and priority; the partition by the formulas, which may have changed since."""
    copy = replayed(stored(group=3, priority="high"))
    partition = partition_of("acme", 3, TOPIC.topic.spread, CLUSTER_CONFIG.partitions)
    assert names.lane_subject("online", partition, "acme", 3, "high") == copy.subject
    assert {
        h.ID: "acme:m1:DEAD_online:7:5",
        h.KEY: "customer-7",
        h.PUT: str(PUT),
        h.ORIGIN: "DEAD_online:7",
        "traceparent": "00-1-2-01",
    } == h.decode(copy.headers)
    assert b"an order" == copy.body


def test_a_replay_without_a_time_of_its_first_put_has_that_of_its_death():
    assert str(DIED) == h.value(replayed(stored(Evenlane_Put="")).headers, h.PUT)


def test_what_the_store_added_or_a_stranger_asked_of_it_is_not_asked_again():
    """A rollup or an expectation in a header would erase others, or be refused for ever."""
    headers = h.decode(replayed(stored(Nats_Rollup="all", Nats_Expected_Stream="X", nats_ttl="1")).headers)
    assert [h.ID] == [name for name in headers if name.lower().startswith("nats-")]


@pytest.mark.parametrize(
    ("expires", "kept"), [(DIED + 2 * SECOND, True), (DIED + SECOND, False), (DIED, False), ("soon", False)]
)
def test_its_own_time_to_live_holds_unless_it_has_passed(expires, kept):
    """K5: else the replay would be gone at once; then the topic's holds, from the replay on."""
    copy = replayed(stored(Evenlane_Expires=str(expires)))
    assert kept == (h.value(copy.headers, h.EXPIRES) is not None)


@pytest.mark.parametrize("text", ["1700000000", "1700000000000", "soon", "0"])
def test_a_time_that_is_none_is_left_out(text):
    """F12: what was buried for it can be put again."""
    copy = replayed(stored(Evenlane_Expires=text, Evenlane_Due=text))
    assert {h.EXPIRES, h.DUE}.isdisjoint(h.decode(copy.headers))


@pytest.mark.parametrize(("own", "key"), [("a\rb", "k"), ("m1", "\x00"), ("x" * 300, "y" * 300)])
def test_an_id_or_a_key_that_is_none_counts_as_absent(own, key):
    dead_letter = read(stored(own, Evenlane_Key=key), "online")
    assert (own if own == "m1" else f"DEAD_online-7-{DIED}") == dead_letter.id
    assert (key if key == "k" else None) == dead_letter.key
    assert dead_letter.id in h.decode(replayed(stored(own, Evenlane_Key=key)).headers)[h.ID]


@pytest.mark.parametrize(("key", "by"), [("customer-7", "customer-7"), ("", "m1")])
def test_a_group_that_takes_no_puts_gives_way_to_that_of_its_key_or_id(key, by):
    copy = replayed(stored(group=9, Evenlane_Key=key))
    assert group_of(by, TOPIC.active) == int(copy.subject.split(".")[4])


@pytest.mark.parametrize(
    ("dead_letter", "sentence"),
    [
        (stored(priority="urgent"), "its priority 'urgent' is none of this cluster's: high, mid, low"),
        (stored(Evenlane_Subject=""), "which queue of acme it came from, but ''"),
        (stored(Evenlane_Subject="lanes.online.3.other.0.mid"), "but 'lanes.online.3.other.0.mid'"),
        (stored(Evenlane_Subject="lanes.sandbox.3.acme.0.mid"), "but 'lanes.sandbox.3.acme.0.mid'"),
        (stored(Evenlane_Subject="lanes.online.3.acme.00.mid"), "but"),
        (stored(Evenlane_Subject="lanes.online.3.acme.0.mid.more"), "but"),
    ],
)
def test_what_has_no_queue_of_its_project_is_not_replayed(dead_letter, sentence):
    """X5: a letter never gets into another tenant's queue, whoever wrote that into it."""
    with pytest.raises(NotReplayable) as caught:
        replayed(dead_letter)
    assert sentence in str(caught.value)
