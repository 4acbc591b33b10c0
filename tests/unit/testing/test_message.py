"""Messages for tests that just call a handler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest

from evenlane import InvalidName, Message, Reject
from evenlane.engine.errors import InvalidPut
from evenlane.testing import message


class Order(msgspec.Struct):
    id: int


@dataclass
class Mail:
    to: str


@pytest.mark.parametrize("headers", [[("a", "b")], "a"])
def test_headers_must_be_a_mapping(headers):
    with pytest.raises(InvalidPut, match="headers must be a mapping of names to strings, and these are a"):
        message("acme", b"x", headers=headers)


def test_all_its_attributes_answer():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    due = datetime(2026, 1, 2, 4, tzinfo=UTC)
    made = message(
        "acme", b"x", attempt=3, key="k", priority="high", group=2, headers={"kind": "bill"}, id="m1", put_at=at,
        due_at=due, state={"db": 1},
    )  # fmt: skip
    assert isinstance(made, Message)
    assert ("acme", b"x", b"x", 3, "k", "high", 2, {"kind": "bill"}, "m1", at, due, {"db": 1}) == (
        made.project, made.body, made.data, made.attempt, made.key, made.priority, made.group, made.headers, made.id,
        made.put_at, made.due_at, made.state,
    )  # fmt: skip
    assert ("LATER_online_0", 0, 1, "", "") == (made.stream, made.partition, made.epoch, made.reason, made.error)


def test_the_defaults_are_those_of_a_first_attempt():
    first, second = message("acme"), message("acme")
    assert (b"", 1, None, "mid", 0, {}, None, None) == (
        first.body, first.attempt, first.key, first.priority, first.group, first.headers, first.due_at, first.state,
    )  # fmt: skip
    assert first.id != second.id
    assert abs((datetime.now(UTC) - first.put_at).total_seconds()) < 60


@pytest.mark.parametrize("body", [Order(7), Mail("a"), {"id": 7}])
def test_an_object_is_the_data_and_its_bytes_are_the_body(body):
    made = message("acme", body)
    assert body == made.data
    assert msgspec.json.encode(body) == made.body
    assert "application/json" == made.headers["Content-Type"]


async def test_signs_of_life_and_failures_work():
    made = message("acme")
    await made.in_progress(5)
    with pytest.raises(Reject):
        made.fail(Reject("no"))
    part = message("acme", batched=True)
    part.fail(Reject("no"))
    assert "no" == str(part.failure)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"project": "a.b"}, InvalidName, "project"),
        ({"id": "a b"}, InvalidName, "id"),
        ({"key": ""}, InvalidName, "key"),
        ({"headers": {"Nats-X": "1"}}, InvalidName, "reserved"),
        ({"attempt": 0}, InvalidPut, "attempt 0 is not valid: it must be a whole number from 1"),
        ({"put_at": datetime(2026, 1, 1)}, InvalidPut, "has no time zone"),  # noqa: DTZ001
        ({"body": "text"}, TypeError, "must be bytes"),
        ({"body": object()}, TypeError, "must be bytes"),
    ],
)
def test_what_can_not_be_put_can_not_be_made(given, error, text):
    with pytest.raises(error, match=text):
        message(**{"project": "acme", **given})
