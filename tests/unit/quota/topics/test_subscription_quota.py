"""Quotas of single subscriptions: how a spec sets them, and which topic a subscription's nodes get."""

import json

import pytest
from msgspec.structs import replace

from evenlane.quota.topics.resolve import resolve
from evenlane.quota.topics.topic import TopicError, accept, decode_accepted, encode, merge
from tests.unit.quota.topics.specs import ALL_GIVEN, refused, topic_of


def accepted_of(fields):
    return accept(topic_of(fields), 5, None)


def quotas_of(raw):
    return json.loads(raw).get("subscriptions")


class TestResolve:
    def test_only_the_quota_differs(self):
        """K10: groups, partitions and all else are the topic's, so that messages are where all subscriptions look."""
        own = {"qps": 0.25, "burst": 9, "concurrency": 2}
        accepted = accepted_of({**ALL_GIVEN, "subscriptions": {"audit": own}})
        expected = replace(accepted.topic, qps=0.25, burst=9, concurrency=2, subscriptions=None, push=None)
        assert replace(accepted, topic=expected) == resolve(accepted, "audit")

    def test_named_subscription_never_pushes(self):
        """K10: an endpoint gets each message once, however many subscriptions there are."""
        accepted = accepted_of({"qps": 100, "push": {"url": "http://localhost/hook"}})
        assert resolve(accepted, None).topic.push is not None
        assert replace(accepted, topic=replace(accepted.topic, push=None)) == resolve(accepted, "audit")

    def test_what_is_left_out_is_the_topics(self):
        accepted = accepted_of({"qps": 100, "concurrency": 7, "burst": 30, "subscriptions": {"audit": {"qps": 20}}})
        topic = resolve(accepted, "audit").topic
        assert (20, 30, 7, 100) == (topic.qps, topic.burst, topic.concurrency, topic.weight)

    def test_burst_follows_the_rate_unless_the_topic_sets_it(self):
        accepted = accepted_of({"qps": 10_000, "subscriptions": {"audit": {"qps": 500}, "billing": {"concurrency": 1}}})
        assert (100, 5, 100) == tuple(resolve(accepted, name).topic.burst for name in (None, "audit", "billing"))

    def test_other_subscriptions_have_the_topics_quota(self):
        plain = accepted_of({"qps": 100})
        accepted = accepted_of({"qps": 100, "subscriptions": {"audit": {"qps": 20}}})
        assert plain == resolve(accepted, "billing")
        assert resolve(plain, "audit") is plain

    def test_the_unnamed_one_gets_what_was_accepted(self):
        """Its leader publishes the topic again if somebody deletes it."""
        accepted = accepted_of({"qps": 100, "subscriptions": {"audit": {"qps": 20}}})
        assert resolve(accepted, None) is accepted


class TestRecord:
    def test_topic_without_quotas_is_written_as_before(self):
        """U1: byte for byte, as releases that don't know the field write it."""
        for empty in ({}, {"subscriptions": None}, {"subscriptions": {}}, {"subscriptions": {"audit": {}}}):
            raw = encode(accepted_of({"qps": 100, **empty}))
            assert b"subscriptions" not in raw
            assert raw == encode(accepted_of({"qps": 100}))

    def test_quotas_survive_encoding(self):
        given = {"b": {"concurrency": 4}, "a": {"qps": 20, "burst": 3}}
        accepted = accepted_of({"qps": 100, "subscriptions": given})
        assert accepted == decode_accepted(encode(accepted))
        assert ["a", "b"] == [*quotas_of(encode(accepted))]
        assert {"concurrency": 4} == quotas_of(encode(accepted))["b"]

    def test_fields_that_an_older_reader_knows_are_the_same(self):
        """U1: it ignores the rest, and so has the topic's quota."""
        accepted = accepted_of({"qps": 100, "subscriptions": {"audit": {"qps": 20}}})
        known = json.loads(encode(accepted))
        del known["subscriptions"]
        assert accepted_of({"qps": 100}) == decode_accepted(json.dumps(known).encode())


class TestMerge:
    def test_only_named_parts_change(self):
        raw = merge(b'{"qps": 100}', {"subscriptions": {"audit": {"qps": 20, "concurrency": 4}}})
        raw = merge(raw, {"subscriptions": {"audit": {"qps": 30}, "billing": {"burst": 2}}})
        assert {"audit": {"qps": 30, "concurrency": 4}, "billing": {"burst": 2}} == quotas_of(raw)
        assert quotas_of(merge(raw, {"qps": 50})) == quotas_of(raw)

    def test_none_restores_the_topics_quota(self):
        raw = merge(b'{"qps": 100}', {"subscriptions": {"audit": {"qps": 20, "concurrency": 4}, "billing": {"qps": 1}}})
        raw = merge(raw, {"subscriptions": {"audit": {"qps": None}}})
        assert {"audit": {"concurrency": 4}, "billing": {"qps": 1}} == quotas_of(raw)
        raw = merge(raw, {"subscriptions": {"audit": {"concurrency": None}}})
        assert {"billing": {"qps": 1}} == quotas_of(raw)
        for last in ({"subscriptions": {"billing": None}}, {"subscriptions": None}):
            assert merge(b'{"qps": 100}', {}) == merge(raw, last)

    def test_invalid_quotas_of_before_can_be_replaced(self):
        raw = merge(b'{"qps": 1, "subscriptions": 5}', {"subscriptions": {"audit": {"qps": 20}}})
        assert {"audit": {"qps": 20}} == quotas_of(raw)


WRONG = [
    (5, "subscriptions", 'must be an object such as {"audit": {"qps": 20}}, not 5'),
    ({"a": 5}, "subscriptions.a", "must be an object with qps, burst, concurrency, not 5"),
    ({"a": None}, "subscriptions.a", "must be an object with qps, burst, concurrency, not null"),
    ({"a": {"groups": 2}}, "subscriptions.a.groups", "is unknown: the fields are qps, burst, concurrency"),
    ({"a": {"qps": 0}}, "subscriptions.a.qps", "must be a number from 0.01 to 1,000,000, not 0"),
    ({"a": {"qps": None}}, "subscriptions.a.qps", "must be a number from 0.01 to 1,000,000, not null"),
    ({"a": {"burst": 0.5}}, "subscriptions.a.burst", "must be a whole number from 1 to 1,000,000, not 0.5"),
    ({"a": {"concurrency": 0}}, "subscriptions.a.concurrency", "must be a whole number from 1 to 1,000,000, not 0"),
    (
        {"a_b": {"qps": 1}}, "subscriptions.a_b",
        "is not the name of a subscription: 1 to 64 letters, digits or '-', the first a letter or digit",
    ),
    (
        {f"s{number}": {"qps": 1} for number in range(17)}, "subscriptions",
        "names 17 subscriptions: at most 16 are allowed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("value", "field", "reason"), WRONG)
def test_wrong_quota_is_one_sentence(value, field, reason):
    error = refused(json.dumps({"qps": 5, "subscriptions": value}).encode())
    assert (field, reason) == (error.field, error.reason)


def test_rate_above_what_the_groups_may_have_is_refused():
    """E3: a subscription has the topic's groups."""
    with pytest.raises(TopicError) as caught:
        topic_of({"qps": 100, "groups": 2, "subscriptions": {"audit": {"qps": 301}}})
    assert "subscriptions.audit.qps can be at most 300 with the 2 groups of the topic, not 301" == str(caught.value)
    topic_of({"qps": 100, "groups": 2, "subscriptions": {"audit": {"qps": 300}}})
