"""F4, F12: foreign input is either read as a valid value or refused with a reason; no other error is raised."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenlane.engine.control.topics import history
from evenlane.engine.core.lane.in_flight_set import list_in_flight
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import BusyRecord
from evenlane.engine.core.records import settle_record
from evenlane.engine.store.jetstream.api import responses
from evenlane.engine.store.jetstream.client.replies import Reply
from evenlane.quota.topics.topic import decode_accepted, parse_spec
from evenlane.ring.membership import records
from tests.support import hostile
from tests.support.store.api_samples import SAMPLES
from tests.unit.foreign_readers import (
    ACCEPTED,
    AT,
    DEEP,
    ENTRY,
    HEADER_READERS,
    IN_FLIGHT,
    JSON_TOPIC,
    LANE,
    READERS,
    RECORDS,
    SETTLED,
    TOPIC,
    api_answer,
    item,
)


@pytest.mark.parametrize("name", READERS)
def test_odd_input_is_read_or_refused(name):
    """F4: such as `Evenlane-Attempt: 0`, and deeply nested lists."""
    _, read, refusals = READERS[name]
    for raw in hostile.every_header() if name in HEADER_READERS else hostile.ODD:
        with suppress(refusals):
            read(raw)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_input_is_read_or_refused(name, data):
    """F4: a reader raises only its own refusals."""
    strategy, read, refusals = READERS[name]
    raw = data.draw(strategy)
    with suppress(refusals):
        read(raw)


def test_samples_are_read():
    """The samples that the strategies corrupt are valid."""
    for kind, sample in RECORDS.items():
        records.decode(kind, "k", sample)
    for kind, sample in SAMPLES.items():
        api_answer(kind, msgspec.json.encode(sample))
    assert 7 == settle_record.decode(SETTLED).epoch
    assert 1 == fold([SETTLED, DEEP]).unreadable
    assert [17, 18] == [each.sequence for each in list_in_flight([BusyRecord(AT, IN_FLIGHT)], LANE, 7)]
    assert TOPIC == decode_accepted(ACCEPTED)
    assert 100 == parse_spec(JSON_TOPIC).given["qps"]
    assert 1 == history.read_history("online", "acme", [item(ENTRY)]).entries[0].number


SERVER_HEADERS = b"""Nats-Stream: S\r
Nats-Subject: lanes.online.3.acme.0.mid\r
Nats-Sequence: 17\r
Nats-Time-Stamp: 2026-11-25T00:00:00.5Z\r
\r
"""


@pytest.mark.parametrize("first", [b"NATS/1.0", b"NATS/1.0 404 No", b"NATS/1.0 503", b""])
@pytest.mark.parametrize(
    "own", [b"", b"Nats-Time-Stamp: x\r\n", b"Nats-Sequence: 9\r\nNats-Subject: x\r\nNats-Time-Stamp: \r\n"]
)
def test_server_headers_of_a_stored_message_count(first, own):
    """E12, F4: nats-server adds its headers behind those of the sender, whatever these are."""
    reply = Reply(b"%b\r\n%b%b" % (first, own, SERVER_HEADERS), b"body")
    assert responses.has_message(reply)
    stored = responses.read_stored(reply)
    assert (17, "lanes.online.3.acme.0.mid", b"body") == (stored.sequence, stored.subject, stored.body)


@pytest.mark.parametrize(
    "status", [b"NATS/1.0 404 Message Not Found\r\n\r\n", b"NATS/1.0 408 Bad Request\r\n\r\n", b""]
)
def test_status_is_no_message(status):
    assert not responses.has_message(Reply(status, b""))
