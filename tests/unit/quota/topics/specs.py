"""Complete specs, and the topics made of them."""

import json

import pytest

from evenlane.quota.topics.topic import TopicError, complete, parse_spec
from tests.support.topic_cases import LIMITS

ALL_DEFAULTS = {
    "qps": 100.0, "groups": 2, "burst": 1, "borrow": True, "weight": 100.0, "reserve": 0.0,
    "concurrency": None, "spread": 12, "max_attempts": 5,
    "backoff": {"base": 1.0, "factor": 2.0, "cap": 600.0, "jitter": 0.1}, "ttl": 259_200.0,
    "dead_letter_expired": False, "ack_wait": 5.0, "max_backlog": None, "ordered": False, "ageing": None,
    "state": "active", "push": None,
}  # fmt: skip
ALL_GIVEN = {
    "qps": 0.5, "groups": 3, "burst": 7, "borrow": False, "weight": 2.0, "reserve": 1.5, "concurrency": 4,
    "spread": 128, "max_attempts": 1, "backoff": {"base": 0.5, "factor": 1.0, "cap": 0.5, "jitter": 0.0},
    "ttl": 1.0, "dead_letter_expired": True,
    "ack_wait": 60.0, "max_backlog": 10, "ordered": True, "ageing": 0.0625, "state": "paused",
    "push": {
        "url": "http://127.0.0.1/", "timeout": 2.5, "secret_ref": "acme", "headers": {"A": "b"}, "concurrency": 3,
    },
}  # fmt: skip

PUSHES = [{"url": "http://a"}, {"url": "https://b/c?d", "timeout": 3}, {"url": "http://a", "headers": {"A": "b"}}]


def topic_of(fields, limits=LIMITS):
    return complete(parse_spec(json.dumps(fields).encode()), limits)


def refused(raw):
    with pytest.raises(TopicError) as caught:
        parse_spec(raw)
    return caught.value
