"""Replays of handled messages: copies for a new first attempt, in the queue that the original is in (K3, K10)."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.handled import read_handled, replay_handled
from evenlane.engine.core.ports import Stored
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import own_id
from evenlane.ring.hashing import partition_of
from tests.support.producer_world import CLUSTER_CONFIG, accepted

LANE = LaneId("lanes", 3)
SECOND = 1_000_000_000
AT = 1_700_000_000 * SECOND
NOW = AT + 60 * SECOND
HOUR = 3600 * SECOND
TOPIC = accepted('{"qps": 400}')


def stored(headers=None, *, group=0, priority="mid"):
    found = {h.ID: "acme:m1", h.KEY: "customer-7", "Nats-Rollup": "all", "tenant": "eu"} if headers is None else headers
    subject = names.lane_subject("online", 3, "acme", group, priority)
    return Stored(7, AT, subject, h.encode(found), b"an order")


def replayed(message, cluster="online"):
    return replay_handled(read_handled(message, "online", LANE), cluster, TOPIC, CLUSTER_CONFIG, NOW)


def test_copy_is_a_first_attempt_in_the_same_queue():
    """K3: the body, the key and the producer's headers are the original's; nothing instructs the server."""
    copy = replayed(stored(group=2, priority="high"))
    partition = partition_of("acme", 2, TOPIC.topic.spread, CLUSTER_CONFIG.partitions, "hashed")
    assert names.lane_subject("online", partition, "acme", 2, "high") == copy.subject
    assert {
        h.ID: "acme:m1:LANES_online_3:7:0",
        h.KEY: "customer-7",
        h.PUT: str(AT),
        h.ORIGIN: "LANES_online_3:7",
        "tenant": "eu",
    } == h.decode(copy.headers)
    assert b"an order" == copy.body
    assert "m1" == own_id(copy.headers, "acme")


def test_copy_for_a_named_subscription_is_in_its_own_stream():
    """K10: due at once, and under the same id."""
    copy = replayed(stored(), "online_audit")
    assert names.again_subject("online_audit", *_queue(), NOW // HOUR) == copy.subject
    assert "acme:m1:LANES_online_3:7:0" == h.value(copy.headers, h.ID)


def _queue():
    return partition_of("acme", 0, TOPIC.topic.spread, CLUSTER_CONFIG.partitions, "hashed"), "acme", 0, "mid"


def test_message_without_an_id_keeps_the_one_made_from_its_place():
    """K3: a handler recognises it as the same message."""
    copy = replayed(stored({}))
    assert f"LANES_online_3-7-{AT}" == own_id(copy.headers, "acme")


@pytest.mark.parametrize(("expires", "kept"), [(NOW + SECOND, True), (NOW, False), (AT, False)])
def test_expiry_that_has_passed_is_dropped(expires, kept):
    """K5: otherwise the copy would expire at once."""
    copy = replayed(stored({h.ID: "acme:m1", h.EXPIRES: str(expires), h.DUE: str(AT)}))
    assert kept == (h.value(copy.headers, h.EXPIRES) is not None)
    assert None is h.value(copy.headers, h.DUE)


def test_delayed_message_is_due_at_once():
    """K3: its copy is in a lane, without the time that has passed."""
    lane = LaneId("later", 3)
    message = stored({h.ID: "acme:m1", h.DUE: str(AT + SECOND)})
    message = message._replace(subject=names.later_subject("online", 3, "acme", 2, "high", AT // HOUR))
    copy = replay_handled(read_handled(message, "online", lane), "online", TOPIC, CLUSTER_CONFIG, NOW)
    partition = partition_of("acme", 2, TOPIC.topic.spread, CLUSTER_CONFIG.partitions, "hashed")
    assert names.lane_subject("online", partition, "acme", 2, "high") == copy.subject
    assert "acme:m1:LATER_online_3:7:0" == h.value(copy.headers, h.ID)
    assert None is h.value(copy.headers, h.DUE)
